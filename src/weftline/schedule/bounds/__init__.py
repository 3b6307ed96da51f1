"""Lower bounds of period and makespan.

In: Blocks. Out: integers and exact fractions. Simplified: relaxations; the checker computes some of them again.
"""
