"""Many plans in parallel, into a folder that keeps what is finished.

In: a grid of questions. Out: plans and a table. Simplified: each question is planned by itself.
"""
