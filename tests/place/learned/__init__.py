"""The learned solvers: their parts, their training, and the conformance suite."""
