"""Learned placement: a small network biases the list scheduler.

In: a Search and weights. Out: candidates within milliseconds. Simplified: trained once on synthetic graphs; weights are
shipped.
"""
