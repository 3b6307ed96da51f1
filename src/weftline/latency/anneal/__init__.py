"""Simulated annealing of devices and order.

In: a Search and starts. Out: better and better candidates. Simplified: an incremental schedule inside the kernel; the
one simulator costs what is offered.
"""
