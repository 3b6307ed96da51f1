"""Run a folder that `weftline export plan.json --to onnx-stages --model model.onnx -o FOLDER` wrote, without weftline.

    python run_stages.py FOLDER [inputs.npz]

Segments run one after another in this process, which is what a program of your own would spread over devices.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def run(folder: Path, inputs: dict) -> dict:
    """Every segment in its order; what it makes is held for those that read it."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    held = {name: inputs[name] for name in manifest["inputs"]}
    for segment in manifest["segments"]:
        session = onnxruntime.InferenceSession(str(folder / segment["file"]), providers=["CPUExecutionProvider"])
        made = session.run(segment["outputs"], {name: held[name] for name in segment["inputs"]})
        held.update(zip(segment["outputs"], made, strict=True))
        print(f"segment {segment['number']} on {segment['device']}: {len(segment['ops'])} ops")
    return {name: held[name] for name in manifest["outputs"]}


def example_inputs(folder: Path) -> dict:
    """Ones, in the shapes that the plan was made for."""
    tensors = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["tensors"]
    return {wire["name"]: np.ones(wire["shape"], wire["dtype"]) for wire in tensors if wire["source"] == -1}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    given = dict(np.load(sys.argv[2])) if len(sys.argv) > 2 else example_inputs(where)
    for name, array in run(where, given).items():
        print(f"{name}: {array.dtype} {list(array.shape)}, mean {array.mean():.6g}")
