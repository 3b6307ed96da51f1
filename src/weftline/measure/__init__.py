"""What things cost here: profiles of ops and links, calibration.

In: a model and a cluster. Out: a Profile. Simplified: ops are measured alone, in turns.
"""
