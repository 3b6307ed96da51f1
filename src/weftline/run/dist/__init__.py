"""Plans over torch.distributed.

In: a Plan and its ONNX file. Out: measured times and differences. Simplified: gloo.
"""
