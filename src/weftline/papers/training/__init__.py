"""What the learned methods of this room share: parameters, checkpoints, the training loop.

In: a network and trials. Out: trained parameters. Simplified: needs the extra torch.
"""
