"""OpenVINO IR and live `openvino.Model` objects.

In: an IR file (XML) or a model in memory. Out: a Graph, the same from both. Simplified: weights are not read, only
their sizes.
"""
