"""The sequential runtime: one device at a time, so a plan is a labelling and minimum cuts solve it.

In: a Search whose rules say sequential. Out: labellings, and bounds by reparametrisation. Simplified: memory by prices.
"""
