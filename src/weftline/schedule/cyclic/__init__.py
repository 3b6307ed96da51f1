"""Repetends: a pattern that repeats for ever with the least period.

In: Blocks. Out: repetends, and proofs of their period. Simplified: patterns of a given number of micro-batches.
"""
