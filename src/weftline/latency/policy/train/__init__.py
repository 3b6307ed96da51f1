"""Training of the policy.

In: generated problems. Out: a weights file. Simplified: needs the extra torch.
"""
