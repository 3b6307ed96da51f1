"""Tessel, lazy and fast, with z3; and the blocks of its model zoo.

In: a ScheduleSearch. Out: repetends. Simplified: see README.md.
"""
