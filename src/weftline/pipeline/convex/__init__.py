"""Lower bounds of pipelines by convex sets: which sets of pieces can be one stage within a threshold?

In: pieces on equal devices. Out: claimed bounds. Simplified: added communication only.
"""
