"""What the tests of the zoo share: running a model in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.generic]]
Run = Callable[..., dict[str, NDArray[np.float32]]]


def _run(model: onnx.ModelProto | str, inputs: Arrays) -> dict[str, NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    content = model if isinstance(model, str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


@pytest.fixture
def run() -> Run:
    """Outputs by name of a model (or the path of one) for inputs by name."""
    return _run
