"""Placeto: a policy that moves one node at a time, and its greedy control.

In: a Search. Out: candidates. Simplified: see README.md.
"""
