"""Exact search by blocks: a chain of cut ops splits the graph into spans that are solved and bounded apart.

In: a Search and a chain. Out: plans joined from spans, and lower bounds; where ops stand beside the chain, by branch
and bound on a linear program of the hub that feeds them. Simplified: spans know no memory; what ops beside the chain
hand back to blocks is not sent.
"""
