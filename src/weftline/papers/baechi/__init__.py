"""Baechi: m-TOPO, m-ETF and m-SCT.

In: a Search. Out: one candidate. Simplified: see README.md.
"""
