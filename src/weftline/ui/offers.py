"""What this installation offers to a page: models, clusters, devices by name, solvers.

In: nothing, or names of devices. Out: small objects as the page shows them; the text of a cluster. Simplified: a list
of devices holds names alone.
"""

from __future__ import annotations

from typing import Any

from weftline.ui.task import NamedTask

__all__ = ["choices", "named_cluster"]


def named_cluster(task: NamedTask) -> dict[str, Any]:
    """The TOML text of devices by name, and what had to be assumed."""
    from weftline.cluster import cluster_from_options, devices_from_options

    words = task.gpus, task.cpus, task.links, task.ram or None
    return {"text": cluster_from_options(*words).to_toml(), "notes": list(devices_from_options(*words).notes)}


def choices() -> dict[str, Any]:
    """Models, clusters, solvers and targets that this installation offers."""
    from weftline import __version__
    from weftline.ask.planning import solvers_for
    from weftline.cluster import accelerators, link_names, preset_descriptions, preset_text
    from weftline.importers.llm import known_models, quantisation_names
    from weftline.schedule import schedulers
    from weftline.schedule.make_blocks import SHAPES
    from weftline.zoo import architectures

    return {
        "version": __version__,
        "zoo": [[name, entry.description, list(entry.sizes)] for name, entry in architectures().items()],
        "presets": [[name, text, preset_text(name)] for name, text in preset_descriptions().items()],
        "solvers": {
            objective: [[name, solver.description] for name, solver in solvers_for(objective).items()]
            for objective in ("latency", "throughput")
        },
        "devices": {
            kind: [product.name for product in accelerators() if product.kind == kind] for kind in ("gpu", "cpu")
        },
        "links": list(link_names()),
        "llms": [model.name for model in known_models()],
        "quantisations": list(quantisation_names()),
        "shapes": [[name, shape.description] for name, shape in SHAPES.items()],
        "schedulers": [[name, method.description] for name, method in schedulers().items()],
    }
