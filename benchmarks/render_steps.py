"""The section on real training steps."""

from __future__ import annotations

from typing import Any

from benchmarks.table import table

__all__ = ["steps_sections"]

TEXT = (
    "Orders found by `auto`, trained for real: the transformer of `examples/train_transformer.py` on local processes "
    "(gloo, one thread each), 4 micro-batches per process. Gradients are compared with one process for every seed and "
    "step. *simulated* is the simulator with the measured time of every block and of a small message. On a machine "
    "with fewer cores than processes, blocks that the simulator runs side by side wait for a core."
)


def steps_sections(run: dict[str, Any]) -> list[str]:
    """One table."""
    rows = [
        (
            f"{row['shape']} {row['devices']}, memory {row['memory']}",
            row["engine"],
            *(
                (row["note"], "-", "-", "-", "-", "-")
                if row["note"]
                else (
                    str(row["micro_batches"]),
                    str(row["seeds"]),
                    f"{row['difference']:.1e}",
                    f"{row['measured'] * 1e3:.2f}",
                    f"{row['simulated'] * 1e3:.2f}",
                    f"{row['measured'] / row['simulated']:.2f}",
                )
            ),
        )
        for row in run["rows"]
    ]
    names = ("micro-batches", "seeds", "largest difference of a gradient")
    times = ("measured step, ms", "simulated, ms", "ratio")
    return [TEXT, table(("schedule", "engine", *names, *times), rows)]
