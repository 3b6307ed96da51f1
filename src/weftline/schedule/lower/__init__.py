"""A schedule as the actions of each rank: compute, send, receive.

In: a Timetable. Out: actions, also in the form that torch takes. Simplified: one process per device.
"""
