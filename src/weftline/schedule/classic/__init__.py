"""The schedules everybody knows: GPipe, 1F1B, interleaved, zero bubble.

In: Blocks that are a pipeline. Out: orders. Simplified: only where the blocks have the shape that the rule needs.
"""
