"""Simulated annealing of stages.

In: a Search and starts. Out: candidates. Simplified: loads are kept incrementally inside the kernel.
"""
