"""List scheduling of blocks by priority rules.

In: Blocks and priorities. Out: orders. Simplified: greedy.
"""
