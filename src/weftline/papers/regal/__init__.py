"""Cost graphs of REGAL.

In: a text file. Out: a Problem. Simplified: see README.md.
"""
