"""Child processes that may die: one protocol for all of them.

In: a module to run. Out: JSON lines, last words, an exit code. Simplified: this machine only.
"""
