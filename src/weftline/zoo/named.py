"""`build_named`: the words `zoo:NAME` and `zoo:NAME:SIZE` -> a model file, where a model is asked for by name."""

from __future__ import annotations

from pathlib import Path

from weftline.zoo.registry import build
from weftline.zoo.saving import save

__all__ = ["ZOO", "build_named"]

ZOO = "zoo:"
"""What begins so is no file."""


def build_named(word: str, folder: Path) -> Path:
    """Write the model into the folder, without weights: enough to plan it, not to run it."""
    name, _, size = word.removeprefix(ZOO).partition(":")
    size = size or "full"
    model = build(name, size=size, weights=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / f"{name}-{size}.onnx"
    save(model, path)
    return path
