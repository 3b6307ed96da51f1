"""Plans on this machine: one process per device, tensors through shared memory.

In: a Plan and its ONNX file. Out: measured times and differences. Simplified: CPU cores stand for devices.
"""
