"""The RNN policy that later papers compare with.

In: a Search. Out: candidates. Simplified: see README.md.
"""
