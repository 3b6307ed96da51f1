"""ONNX files: proto -> scope -> types -> work -> Graph.

In: an ONNX file, hostile until read. Out: a Graph with the shape, bytes and work of every op. Simplified: weights
stay in their files; shapes that depend on data get their largest value.
"""
