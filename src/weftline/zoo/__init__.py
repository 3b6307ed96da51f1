"""Models that need no download.

In: the name of an architecture, a size and a seed. Out: an ONNX model that runs (or, without weights, can be planned),
example inputs for it, and its file. Simplified: weights are random, so a model computes nothing of use, but in the
shapes, ops and names of the real one.
"""

from weftline.zoo.architecture import Architecture
from weftline.zoo.inputs import example_inputs
from weftline.zoo.registry import architectures, build
from weftline.zoo.saving import save

__all__ = ["Architecture", "architectures", "build", "example_inputs", "save"]
