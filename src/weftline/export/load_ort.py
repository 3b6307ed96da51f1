"""Run a model by ONNX Runtime with every node where a plan has it. This file needs onnx and onnxruntime >= 1.31 alone.

In: a model file and placement.json: {name of a node's first output: execution provider}. Out: an `InferenceSession`
whose nodes carry annotations, checked by what ONNX Runtime itself reports. A provider that is not there, a name that no
node makes, or a node that was put elsewhere is an error: there is no silent fallback. Nodes that the file does not name
(constants, and what ONNX Runtime makes out of others) must be on a planned provider. Weights that stand beside the
model as external data stay where they are.

    python load_ort.py model.onnx placement.json providers.json     # checks
    from load_ort import load
    session = load("model.onnx", "placement.json")
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["PlacementError", "annotate", "load"]

# Of equal length, so that none is the beginning of another: rules may match by prefix or as a whole.
_LABEL = "weftline-{:04d}"
_KEY = "layer_ann"


class PlacementError(ValueError):
    """The file does not fit the model, this machine, or what ONNX Runtime made of it."""


def load(model: Any, placement: Any, options: Any = None, provider_options: Mapping[str, Any] | None = None) -> Any:
    """A session for a model file, placed as placement.json (path or mapping) says."""
    import onnx
    import onnxruntime

    if not isinstance(placement, Mapping):
        placement = _read(Path(placement))
    path = Path(model)
    proto = onnx.load(str(path), load_external_data=False)
    settings = annotate(proto, placement)
    providers = sorted(set(placement.values()), key=lambda name: (name == "CPUExecutionProvider", name))
    missing = [name for name in providers if name not in onnxruntime.get_available_providers()]
    if missing:
        raise PlacementError(f"this ONNX Runtime has no {', '.join(missing)}")
    options = options or onnxruntime.SessionOptions()
    options.add_session_config_entry("session.layer_assignment_settings", settings)
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(path.absolute().parent)
    )
    given = [(name, dict((provider_options or {}).get(name, {}))) for name in providers]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=given)
    _check(session, proto, placement)
    return session


def annotate(model: Any, placement: Mapping[str, str]) -> str:
    """Label the nodes of an onnx model in place -> the setting that sends labels to providers."""
    labels = {name: _LABEL.format(number) for number, name in enumerate(sorted(set(placement.values())))}
    left = dict(placement)
    taken: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:  # ONNX Runtime reports nodes by name
            node.name = f"weftline-node-{number}"
        taken.add(node.name)
        provider = left.pop(_output(node), None)
        for entry in [entry for entry in node.metadata_props if entry.key == _KEY]:
            node.metadata_props.remove(entry)
        if provider is not None:
            entry = node.metadata_props.add()
            entry.key, entry.value = _KEY, labels[provider]
    if left:
        raise PlacementError(f"no node makes {next(iter(left))!r} ({len(left)} unknown names)")
    return "; ".join(f"{provider}({label})" for provider, label in labels.items())


def _check(session: Any, model: Any, placement: Mapping[str, str]) -> None:
    planned = {node.name: placement[_output(node)] for node in model.graph.node if _output(node) in placement}
    for part in session.get_provider_graph_assignment_info():
        for node in part.get_nodes():
            expected = planned.get(node.name)
            if expected is not None and part.ep_name != expected:
                raise PlacementError(f"node {node.name!r} was put on {part.ep_name}, planned is {expected}")
            if part.ep_name not in placement.values():
                raise PlacementError(f"node {node.name!r} was put on {part.ep_name}, which the plan does not use")


def _output(node: Any) -> str:
    return next((name for name in node.output if name), "")


def _read(path: Path) -> dict[str, str]:
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not all(isinstance(provider, str) for provider in found.values()):
        raise PlacementError(f"{path} is not {{output of a node: execution provider}}")
    return found


if __name__ == "__main__":
    load(sys.argv[1], sys.argv[2], provider_options=json.loads(Path(sys.argv[3]).read_text()) if sys.argv[3:] else None)
    sys.stdout.write("every node is where the plan has it\n")
