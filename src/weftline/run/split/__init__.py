"""A model file -> one file per segment.

In: an ONNX file and which op is in which segment. Out: a folder with segments, weights and a manifest. Simplified:
none.
"""
