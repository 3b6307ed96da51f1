"""ETF and GETF: earliest task first, in groups by a linear program.

In: a Search. Out: one candidate. Simplified: see README.md.
"""
