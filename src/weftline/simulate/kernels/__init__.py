"""The compiled parts that the simulator and all solvers share.

In: plain arrays. Out: plain arrays. Simplified: no checks; what calls them has checked.
"""
