"""Plans of language models for a terminal: memory of every card as a bar, and what other plans would give.

In: a FitPlan. Out: rows as text, tables (rich). Simplified: sizes at four digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.plans.fit import FitPlan
from weftline.plans.fit_words import layers_words, memory_bar, moved_words, rate_words, short_device_name
from weftline.units import format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "fit_baseline_rows",
    "fit_baseline_table",
    "fit_device_rows",
    "fit_device_table",
    "known_model_rows",
    "known_model_table",
    "moved_lines",
]

_Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
MOST_CARD_ROWS = 64


def fit_device_rows(plan: FitPlan, *, ascii_only: bool = False) -> _Rows:
    """Every card that holds something, then those that hold nothing."""
    rows: list[tuple[str, ...]] = []
    for one in plan.devices[:MOST_CARD_ROWS]:
        share = "" if one.share == 1 else f" (1/{round(1 / one.share)} of them)"
        sizes = " + ".join(f"{size / 2**30:.1f}" for size in (one.weights_bytes, one.kv_bytes, one.compute_bytes))
        rows.append(
            (
                f"{one.id}  {one.name}",
                f"{layers_words(one)}{share}",
                f"{sizes} of {one.limit_bytes / 2**30:.1f} GiB",
                memory_bar(one, ascii_only=ascii_only),
                format_time(one.step_ns) if one.step_ns else "",
            )
        )
    return ("device", "layers", "weights + cache + buffers", "memory", "a step"), rows


def fit_baseline_rows(plan: FitPlan) -> _Rows:
    """The plan, simpler ones, and the bound, by the same costs."""
    here = plan.rate
    rows: list[tuple[str, ...]] = [("this plan", rate_words(here), "1.00x")]
    for name, rate in sorted(plan.baselines.items(), key=lambda item: -(item[1] or 0.0)):
        rows.append((name, "does not fit" if rate is None else rate_words(rate), f"{rate / here:.2f}x" if rate else ""))
    if plan.bound_ns:
        bound = plan.bound_tokens_per_second
        rows.append((f"no plan above ({plan.proof})", rate_words(bound), f"{bound / here:.2f}x"))
    return ("", "tokens per second", "against the plan"), rows


def fit_device_table(plan: FitPlan, *, ascii_only: bool = False, width: int = 120) -> Table:
    """The same as a table. Where it is too wide the bars are left out, for the numbers beside them say the same."""
    header, rows = fit_device_rows(plan, ascii_only=ascii_only)
    if _width(header, rows) <= width:
        return _table((header, rows), (0, 1, 3))
    names = [f"{one.id}  {short_device_name(one)}" for one in plan.devices]
    short = [(name, *row[1:3], row[4]) for name, row in zip(names, rows, strict=False)]
    return _table(((*header[:3], header[4]), short), (0, 1))


def fit_baseline_table(plan: FitPlan) -> Table:
    """The same as a table."""
    return _table(fit_baseline_rows(plan), (0,))


def known_model_rows() -> _Rows:
    """All models that are known by name."""
    from weftline.importers.llm import known_models

    rows: list[tuple[str, ...]] = [
        (one.name, one.architecture, str(one.layers), f"{one.context:,}", ", ".join(one.aliases))
        for one in known_models()
    ]
    return ("name", "architecture", "layers", "context", "also called"), rows


def known_model_table() -> Table:
    """The same as a table."""
    return _table(known_model_rows(), (0, 1, 4))


def _width(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> int:
    """Columns of a terminal that a table takes if nothing wraps."""
    return sum(max(map(len, cells)) + 2 for cells in zip(header, *rows, strict=True)) - 2


def _table(content: _Rows, left: tuple[int, ...]) -> Table:
    from rich.table import Table
    from rich.text import Text

    columns, rows = content
    table = Table(box=None, pad_edge=False, header_style="")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number in left else "right", no_wrap=number == 0)
    for row in rows:
        table.add_row(*(Text(format_name(cell)) for cell in row))
    return table


def moved_lines(plan: FitPlan) -> list[str]:
    """A sentence for each part that lies on the host."""
    return [moved_words(move) for move in plan.moved]
