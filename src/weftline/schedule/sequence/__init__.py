"""Local search on whole sequences of blocks.

In: a ScheduleSearch. Out: orders for every device. Simplified: semi-active schedules.
"""
