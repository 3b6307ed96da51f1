"""Plans by OpenVINO's HETERO.

In: a Plan and its model. Out: measured times. Simplified: one process.
"""
