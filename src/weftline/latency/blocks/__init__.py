"""Exact search by blocks: a chain of cut ops splits the graph into spans that are solved and bounded apart.

In: a Search and a chain. Out: plans joined from spans, and lower bounds. Simplified: spans know no memory.
"""
