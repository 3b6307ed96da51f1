"""Schedules by torch: training and inference of many micro-batches.

In: a schedule and a model in stages. Out: times, gradients against one process. Simplified: CPU with gloo.
"""
