"""List scheduling: one pass over the ops in an order, each on the device where it ends first.

In: a Search. Out: one candidate per pass. Simplified: greedy; memory is kept free by rules of thumb.
"""
