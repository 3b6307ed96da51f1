"""Slicing: cut a linear order of pieces into stages by dynamic programming, over many orders.

In: pieces and orders. Out: candidates. Simplified: best for the order, not over all orders.
"""
