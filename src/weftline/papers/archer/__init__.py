"""The genetic search (BRKGA) of Archer et al.

In: a Search. Out: candidates. Simplified: see README.md.
"""
