"""Learned placement: networks that are trained on one problem (HSDAG, Placeto, the RNN placer) or over many graphs.

In: a Search on a Problem with objective latency. Out: candidates, costed by the one simulator; the search keeps the
best. Simplified: the networks see numbers of the cost table, never a real machine. Everything is plain PyTorch (extra
`torch`), imported when a solver runs and not before.
"""
