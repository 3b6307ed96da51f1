"""A plan over torch.distributed: one process for every device, on this machine or on several by torchrun.

In: a plan and its model file. Out: measured beside planned time. Simplified: every host has the same files.
"""
