"""Run a folder that `weftline export plan.json --to onnx-stages --model model.onnx -o FOLDER` wrote, without weftline.

    python run_stages.py FOLDER [inputs.npz]

Segments run one after another in this process, which is what a program of your own would spread over devices. The
manifest may come from somebody else, so everything that it says is looked at before it is used, and files are looked at
as they are opened.
"""

import json
import math
import os
import stat
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime

MOST_BYTES = 2**30
"""Of a manifest, and of all example inputs together."""
MOST_DIMENSIONS = 64
WEIGHTS = "session.model_external_initializers_file_folder_path"


def read_file(folder: Path, name: str) -> bytes:
    """A regular file of the folder itself, of one name: no link of either kind, and no pipe."""
    if not isinstance(name, str) or "\0" in name or Path(name).name != name:
        raise SystemExit(f"{name!r:.80} is no file of this folder")
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise SystemExit(f"{name!r:.80} is no file of this folder: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
            raise SystemExit(f"{name!r:.80} is a link, or no regular file")
        if about.st_size > 2 * MOST_BYTES:
            raise SystemExit(f"{name!r:.80} is too large")
        return file.read(2 * MOST_BYTES)


def each_once(pairs: list) -> dict:
    """A JSON object whose names differ."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name comes twice")
    return dict(pairs)


def read_manifest(folder: Path) -> dict:
    """The manifest, with segments that fit together and shapes that fit into memory."""
    try:
        manifest = json.loads(read_file(folder, "manifest.json"), object_pairs_hook=each_once)
        check_segments(manifest)
        for wire in manifest["tensors"]:
            check_shape(wire)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SystemExit(f"manifest.json is not of an export: {type(error).__name__}: {error!s:.200}") from error
    return manifest


def check_segments(manifest: dict) -> None:
    """Each reads what is there before it, and makes what nobody else makes."""
    held = set(manifest["inputs"])
    for number, segment in enumerate(manifest["segments"]):
        if lost := [name for name in segment["inputs"] if name not in held]:
            raise SystemExit(f"segment {number} reads {lost[0]!r:.80}, which comes from none before it")
        if not held.isdisjoint(segment["outputs"]):
            raise SystemExit(f"segment {number} makes something that is there already")
        held.update(segment["outputs"])
    if lost := [name for name in manifest["outputs"] if name not in held]:
        raise SystemExit(f"output {lost[0]!r:.80} comes from no segment")


def check_shape(wire: dict) -> None:
    """Not more dimensions than there are, and none that is absurd."""
    sizes = wire["shape"]
    plain = len(sizes) <= MOST_DIMENSIONS and all(type(size) is int and 0 <= size <= MOST_BYTES for size in sizes)
    if not plain:
        raise SystemExit(f"tensor {wire['name']!r:.80} has an impossible shape")


def run(folder: Path, inputs: dict) -> dict:
    """Every segment in its order; what it makes is held for those that read it."""
    manifest = read_manifest(folder)
    if lost := [name for name in manifest["inputs"] if name not in inputs]:
        raise SystemExit(f"no values are given for input {lost[0]!r:.80}")
    held = {name: inputs[name] for name in manifest["inputs"]}
    for number, segment in enumerate(manifest["segments"]):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry(WEIGHTS, str(folder.resolve()))
        model = read_file(folder, segment["file"])
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            made = session.run(segment["outputs"], {name: held[name] for name in segment["inputs"]})
        except Exception as error:  # onnxruntime has a type for each of its codes
            raise SystemExit(f"segment {number} cannot be run: {error!s:.300}") from error
        held.update(zip(segment["outputs"], made, strict=True))
        print(f"segment {number} on {segment['device']!s:.64}: {len(segment['ops'])} ops")
    return {name: held[name] for name in manifest["outputs"]}


def example_inputs(folder: Path) -> dict:
    """Ones, in the shapes that the plan was made for."""
    found, left = {}, MOST_BYTES
    for wire in read_manifest(folder)["tensors"]:
        if wire["source"] == -1:
            name = f"input {wire['name']!r:.80}"
            try:
                dtype = np.dtype(wire["dtype"])
            except TypeError as error:
                raise SystemExit(f"{name} is of an unknown type; give inputs.npz") from error
            left -= math.prod(wire["shape"]) * dtype.itemsize
            if left < 0 or dtype.kind not in "biufc" or max(wire["shape"], default=0) * dtype.itemsize > MOST_BYTES:
                raise SystemExit(f"{name} is too large for an example, or no plain array; give inputs.npz")
            found[wire["name"]] = np.ones(wire["shape"], dtype)
    return found


def read_inputs(path: str) -> dict:
    """The arrays of an .npz file of your own; np.load reads no pickles."""
    try:
        return dict(np.load(path))
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise SystemExit(f"{path} is no .npz file of plain arrays: {error!s:.200}") from error


if __name__ == "__main__":
    where = Path(sys.argv[1])
    given = read_inputs(sys.argv[2]) if len(sys.argv) > 2 else example_inputs(where)
    for name, array in run(where, given).items():
        print(f"{name!s:.200}: {array.dtype} {list(array.shape)}, mean {array.mean():.6g}")
