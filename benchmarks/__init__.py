"""Instances and measurements as code; docs/benchmarks.md is written by it: `python -m benchmarks`.

In: the solvers that are registered; problem files of others where they are present, the zoo, synthetic graphs.
Out: one JSON file with every number, and the page made from it.
Simplified: times are of this machine only, and qualities are what the one simulator says.
"""
