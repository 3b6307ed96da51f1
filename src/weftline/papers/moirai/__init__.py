"""Moirai: placement and order as one mixed-integer program, and the files of its authors.

In: a Search, or a JSON or XLS file. Out: candidates, or a Problem. Simplified: see README.md.
"""
