"""Placements chosen by running them.

In: a Search and a backend that measures. Out: measurements; the best measured placement is the answer. Simplified: one
factor per kind of op and device is learned between rounds.
"""
