"""Exact cuts by CP-SAT: a threshold is asked again and again.

In: a Search. Out: candidates and claimed bounds. Simplified: times are rounded to the grid of the model.
"""
