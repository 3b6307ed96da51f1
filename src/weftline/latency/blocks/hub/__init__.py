"""Ops beside the chain: branch and bound on a linear program of the hub and its readers.

In: a decomposition. Out: bounds and plans. Simplified: what side ops hand back to blocks is not sent.
"""
