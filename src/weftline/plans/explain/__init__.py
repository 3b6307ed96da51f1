"""Why a plan is as it is.

In: a Plan. Out: reasons, moves that would not help, limits that bind. Simplified: one change at a time.
"""
