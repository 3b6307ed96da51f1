"""The HTML report.

In: a Plan, a Schedule, a run. Out: one page that needs no network. Simplified: large plans are thinned out.
"""
