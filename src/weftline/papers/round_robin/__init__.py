"""Round-robin: op after op to the next device.

In: a Search. Out: one candidate. Simplified: see README.md.
"""
