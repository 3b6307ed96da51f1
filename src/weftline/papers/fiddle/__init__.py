"""Problem files of Tarnawski et al. (msr-fiddle).

In: a JSON file. Out: a Problem. Simplified: see README.md.
"""
