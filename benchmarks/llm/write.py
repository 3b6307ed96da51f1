"""`python -m benchmarks.llm.write`: fit all constants and write the table that the product reads.

In: measured.csv. Out: src/weftline/cost/llm/constants.csv. Simplified: a class without rows of a family takes the
constants of its other family, and one without rows at all those of NVIDIA GDDR cards, with wider intervals.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence

from benchmarks.llm.fitting import LEAST_GRADED, OTHER_KERNELS, ClassFit, fit_decode, fit_prefill
from benchmarks.llm.rows import MeasuredRow, measured_rows
from benchmarks.llm.spilled import host_coefficients
from benchmarks.measure import ROOT
from weftline.cost.llm import CostClass, LlmConstants, number_families
from weftline.files import write_atomically

__all__ = ["TABLE", "all_constants", "all_fits", "as_csv"]

TABLE = ROOT / "src" / "weftline" / "cost" / "llm" / "constants.csv"
FLOAT, QUANTISED = number_families()
Key = tuple[CostClass, str]
PPM = 1_000_000
UNMEASURED = (0.5, 1.5)
"""Interval of a class whose devices nobody held out."""
FEW_DEVICES = 3
"""With fewer, nothing was really held out."""
HOST_INTERVAL = (0.4, 1.4)
USUAL_PREFILL = (0.4, 1.6)
HOST_MATRIX_PPM = 150_000
"""Host processors: of 40 FLOP per byte of memory bandwidth; 1.2 TFLOP/s with 8 channels of DDR4, 0.5 with 2 of DDR5."""
NO_ATTENTION = 15_000


def all_fits(rows: Sequence[MeasuredRow]) -> dict[Key, tuple[ClassFit, ClassFit | None]]:
    """Decode and prefill of every class and family that has rows."""
    found: dict[Key, tuple[ClassFit, ClassFit | None]] = {}
    for kind in CostClass:
        for family in (FLOAT, QUANTISED):
            chosen = [row for row in rows if row.device.cost_class is kind and row.family == family]
            if chosen and kind is not CostClass.CPU and any(row.decode_ns for row in chosen):
                prompts = [row for row in chosen if row.prefill_ns]
                enough = len([row for row in prompts if row.group not in OTHER_KERNELS]) >= LEAST_GRADED
                found[kind, family] = fit_decode(chosen, kind), fit_prefill(prompts) if enough else None
    return found


def all_constants(rows: Sequence[MeasuredRow]) -> dict[Key, LlmConstants]:
    """Every class and family, in the order of the table."""
    fits = all_fits(rows)
    fitted = {key: _constants(key, *fit) for key, fit in fits.items()}
    card = fitted[CostClass.GDDR, QUANTISED]
    host = _host(fits[CostClass.GDDR, QUANTISED][0])
    found: dict[Key, LlmConstants] = {}
    for kind in CostClass:
        for family, other in ((FLOAT, QUANTISED), (QUANTISED, FLOAT)):
            known = host if kind is CostClass.CPU else fitted.get((kind, family)) or fitted.get((kind, other))
            found[kind, family] = _with_hops(known or _unmeasured(card), card)
    return found


def _ppm(multiple: float) -> int:
    return round(PPM / multiple) if multiple else 0


def _constants(key: Key, decode: ClassFit, prefill: ClassFit | None) -> LlmConstants:
    read, cache, vector, layer, hop = decode.coefficients
    matrix, attention, batch, loss = prefill.coefficients if prefill else (2.5, 1000 / NO_ATTENTION, 0.0, 0.1)
    fast = (prefill.low, prefill.high) if prefill else USUAL_PREFILL
    narrow = decode.devices >= FEW_DEVICES
    low, high = decode.low, decode.high
    if not narrow:
        low, high = min(low, UNMEASURED[0]), max(high, UNMEASURED[1])
    return LlmConstants(
        memory_ppm=_ppm(read),
        cache_ppm=_ppm(cache),
        vector_ppm=_ppm(vector),
        overlapped=int(key[0] is CostClass.APPLE),
        layer_ns=round(layer),
        hop_ns=round(hop),
        matrix_ppm=_ppm(matrix),
        attention_flops_per_kb=round(1000 / attention) if attention else 0,
        batch_layer_ns=round(batch),
        card_loss_ppm=round(loss * PPM),
        low_ppm=round(low * PPM),
        high_ppm=round(high * PPM),
        prefill_low_ppm=round(fast[0] * PPM),
        prefill_high_ppm=round(fast[1] * PPM),
        rows=len(decode.rows),
        devices=len({row.device.name for row in decode.rows}),
    )


def _with_hops(known: LlmConstants, card: LlmConstants) -> LlmConstants:
    """A class that was measured on single devices only hops like NVIDIA GDDR cards."""
    return known if known.hop_ns else _replaced(known, hop_ns=card.hop_ns)


def _replaced(known: LlmConstants, **changes: int) -> LlmConstants:
    values = {name: getattr(known, name) for name in known.__struct_fields__}
    return LlmConstants(**(values | changes))


def _unmeasured(card: LlmConstants) -> LlmConstants:
    low, high = (round(end * PPM) for end in UNMEASURED)
    return _replaced(card, low_ppm=low, high_ppm=high, prefill_low_ppm=low, prefill_high_ppm=high, rows=0, devices=0)


def _host(card: ClassFit) -> LlmConstants:
    read, cache, ratios = host_coefficients(card.coefficients)
    low, high = HOST_INTERVAL
    return LlmConstants(
        memory_ppm=_ppm(read),
        cache_ppm=_ppm(cache),
        vector_ppm=0,
        overlapped=0,
        layer_ns=0,
        hop_ns=0,
        matrix_ppm=HOST_MATRIX_PPM,
        attention_flops_per_kb=NO_ATTENTION // 10,
        batch_layer_ns=0,
        card_loss_ppm=0,
        low_ppm=round(low * PPM),
        high_ppm=round(high * PPM),
        prefill_low_ppm=round(low * PPM),
        prefill_high_ppm=round(USUAL_PREFILL[1] * PPM),
        rows=len(ratios),
        devices=1,
    )


def as_csv(constants: dict[Key, LlmConstants]) -> str:
    """The table as text."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["class", "family", *LlmConstants.__struct_fields__])
    for (kind, family), values in constants.items():
        writer.writerow([kind.value, family, *(getattr(values, name) for name in values.__struct_fields__)])
    return out.getvalue()


def main() -> int:
    """Write the table."""
    write_atomically(TABLE, as_csv(all_constants(measured_rows())).encode())
    sys.stdout.write(f"{TABLE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
