"""Placement and order as one CP-SAT model.

In: a Search on a small problem. Out: candidates and a claimed bound. Simplified: times are rounded to the grid of the
model.
"""
