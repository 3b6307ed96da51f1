"""Which ops a backend runs as one kernel.

In: a Problem and a method (rules, or the backend itself as oracle). Out: `Fusion` and the problem in which fused ops
stay together. Simplified: rules know common patterns; the oracle asks ONNX Runtime in a process of its own.
"""
