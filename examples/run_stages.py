"""Run a folder that `weftline export plan.json --to onnx-stages --model model.onnx -o FOLDER` wrote, without weftline.

    python run_stages.py FOLDER [inputs.npz]

Segments run one after another in this process, which is what a program of your own would spread over devices. The
manifest may come from somebody else, so names of files and shapes are looked at before they are used.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import onnxruntime

MOST_BYTES = 2**30
"""Of a manifest, and of one example input."""


def read_manifest(folder: Path) -> dict:
    """The manifest, with files that lie in its folder and shapes that fit into memory."""
    path = folder / "manifest.json"
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit("manifest.json is too large")
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for segment in manifest["segments"]:
        name = segment["file"]
        if not isinstance(name, str) or Path(name).name != name or not (folder / name).resolve().is_file():
            raise SystemExit(f"segment {segment['number']!r:.20} names {name!r:.80}, which is no file of this folder")
        if (folder / name).resolve().parent != folder.resolve():
            raise SystemExit(f"{name!r:.80} leads out of the folder")
    for wire in manifest["tensors"]:
        if not all(isinstance(size, int) and 0 <= size <= MOST_BYTES for size in wire["shape"]):
            raise SystemExit(f"tensor {wire['name']!r:.80} has an impossible shape")
    return manifest


def run(folder: Path, inputs: dict) -> dict:
    """Every segment in its order; what it makes is held for those that read it."""
    manifest = read_manifest(folder)
    held = {name: inputs[name] for name in manifest["inputs"]}
    for segment in manifest["segments"]:
        session = onnxruntime.InferenceSession(str(folder / segment["file"]), providers=["CPUExecutionProvider"])
        made = session.run(segment["outputs"], {name: held[name] for name in segment["inputs"]})
        held.update(zip(segment["outputs"], made, strict=True))
        print(f"segment {segment['number']} on {segment['device']}: {len(segment['ops'])} ops")
    return {name: held[name] for name in manifest["outputs"]}


def example_inputs(folder: Path) -> dict:
    """Ones, in the shapes that the plan was made for."""
    found = {}
    for wire in read_manifest(folder)["tensors"]:
        if wire["source"] == -1:
            if math.prod(wire["shape"]) * np.dtype(wire["dtype"]).itemsize > MOST_BYTES:
                raise SystemExit(f"input {wire['name']!r:.80} is too large for an example; give inputs.npz")
            found[wire["name"]] = np.ones(wire["shape"], wire["dtype"])
    return found


if __name__ == "__main__":
    where = Path(sys.argv[1])
    given = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else example_inputs(where)  # np.load reads no pickles
    for name, array in run(where, given).items():
        print(f"{name}: {array.dtype} {list(array.shape)}, mean {array.mean():.6g}")
