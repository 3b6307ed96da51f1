"""HSDAG as published.

In: a Search. Out: candidates. Simplified: see README.md.
"""
