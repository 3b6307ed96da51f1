"""An estimate, how far the truth may be, and one measurement of the user's that brings it nearer.

In: a number and shares of it; a file of `llama-bench -o json`, or text like "tg=41.2" or "pp=900,tg=41.2".
Out: `Interval`, `LlmMeasurement`, `LlmCalibration`. Simplified: one interval for a whole answer, not one for each part;
one factor for all devices and depths.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from weftline.errors import InputError
from weftline.files import read_limited

__all__ = ["UNCALIBRATED", "Interval", "LlmCalibration", "LlmMeasurement", "calibrate", "read_measurement"]

PARTS_PER_MILLION = 1_000_000
CALIBRATED_LOW_PPM = 900_000
CALIBRATED_HIGH_PPM = 1_100_000
MOST_FILE_BYTES = 16 * 2**20
MOST_TOKENS = 1 << 28
LONGEST_RATE = 40
SLOWEST_RATE, FASTEST_RATE = 1e-6, 1e9
HINT = "give tg=41.2 (tokens per second), pp=900, or a file written by: llama-bench -o json"

_RATE = re.compile(r"(tg|pp)\s*=\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)")


class Interval(msgspec.Struct, frozen=True):
    """A number with the range that most measurements fall into."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """All three, times a number."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @staticmethod
    def around(value: float, low_ppm: int, high_ppm: int) -> Interval:
        """`value` with ends that are so many parts per million of it."""
        return Interval(value, value * low_ppm / PARTS_PER_MILLION, value * high_ppm / PARTS_PER_MILLION)

    @staticmethod
    def rate(time: Interval, tokens: int = 1) -> Interval:
        """Tokens per second, of an interval of times in ns: the slow end of the time is the low end of the rate."""
        ns = 10**9 * tokens
        return Interval(*(ns / max(1.0, end) for end in (time.value, time.high, time.low)))


class LlmMeasurement(msgspec.Struct, frozen=True):
    """What a user measured; 0: not measured."""

    decode_rate: float = 0.0
    """Tokens per second, one request."""
    decode_depth: int = -1
    """Mean tokens in the cache while it was measured; -1: as asked."""
    prefill_rate: float = 0.0
    prefill_tokens: int = 0
    """Length of the prompt; 0: as asked."""
    source: str = ""


class LlmCalibration(msgspec.Struct, frozen=True):
    """Factors on estimated times; 1 where nothing was measured."""

    decode: float = 1.0
    prefill: float = 1.0
    decode_measured: bool = False
    prefill_measured: bool = False

    def decode_interval(self, time_ns: int, low_ppm: int, high_ppm: int) -> Interval:
        """Interval of a decode time in ns; the ppm are of an estimate without a measurement."""
        return _around(time_ns * self.decode, self.decode_measured, low_ppm, high_ppm)

    def prefill_interval(self, time_ns: int, low_ppm: int, high_ppm: int) -> Interval:
        """Interval of a prefill time in ns."""
        return _around(time_ns * self.prefill, self.prefill_measured, low_ppm, high_ppm)


UNCALIBRATED = LlmCalibration()


def _around(time: float, measured: bool, low_ppm: int, high_ppm: int) -> Interval:
    if measured:
        low_ppm, high_ppm = max(low_ppm, CALIBRATED_LOW_PPM), min(high_ppm, CALIBRATED_HIGH_PPM)
    # ppm are of rates: a high rate is a short time
    return Interval(time, time * PARTS_PER_MILLION / high_ppm, time * PARTS_PER_MILLION / low_ppm)


class _BenchRow(msgspec.Struct):
    """What is read of one test of llama-bench."""

    n_prompt: int
    n_gen: int
    avg_ts: float
    n_depth: int = 0


def read_measurement(text: str) -> LlmMeasurement:
    """A path of a file of `llama-bench -o json`, or "tg=41.2", "pp=900", or both with a comma between."""
    if re.match(r"\s*(tg|pp)\s*=", text):
        return _written(text)
    return _from_bench(text)


def _written(text: str) -> LlmMeasurement:
    found: dict[str, float] = {}
    for part in text.split(","):
        match = _RATE.fullmatch(part.strip()) if len(part) < LONGEST_RATE else None
        if match is None or match[1] in found:
            raise InputError(f"{part[:40]!r} is not a measurement", hint=HINT)
        found[match[1]] = _rate(float(match[2]), repr(part[:40]))
    return LlmMeasurement(decode_rate=found.get("tg", 0.0), prefill_rate=found.get("pp", 0.0), source=text.strip())


def _rate(rate: float, where: str) -> float:
    if not (math.isfinite(rate) and SLOWEST_RATE <= rate <= FASTEST_RATE):
        raise InputError(f"{where}: {rate:g} tokens per second is not a rate", hint=HINT)
    return rate


def _from_bench(path: str) -> LlmMeasurement:
    data = read_limited(Path(path), MOST_FILE_BYTES)
    try:
        if data.lstrip()[:1] == b"[":
            rows = msgspec.json.decode(data, type=list[_BenchRow])
        else:
            rows = [msgspec.json.decode(line, type=_BenchRow) for line in data.splitlines() if line.strip()]
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a file of llama-bench: {error}", hint=HINT) from error
    for row in rows:
        if min(row.n_prompt, row.n_gen, row.n_depth) < 0 or max(row.n_prompt, row.n_gen, row.n_depth) > MOST_TOKENS:
            raise InputError(f"{path}: a test with {row.n_prompt} and {row.n_gen} tokens", hint=HINT)
    decode = max((row for row in rows if row.n_gen and not row.n_prompt), key=_depth, default=None)
    prefill = max((row for row in rows if row.n_prompt and not row.n_gen), key=_depth, default=None)
    if decode is None and prefill is None:
        raise InputError(f"{path}: no test of prompts or of generation alone", hint=HINT)
    return LlmMeasurement(
        decode_rate=_rate(decode.avg_ts, path) if decode else 0.0,
        decode_depth=_depth(decode) if decode else -1,
        prefill_rate=_rate(prefill.avg_ts, path) if prefill else 0.0,
        prefill_tokens=prefill.n_prompt if prefill else 0,
        source=path,
    )


def _depth(row: _BenchRow) -> int:
    """Mean tokens in the cache: llama-bench generates after `n_depth` others."""
    return row.n_depth + (row.n_gen // 2 or row.n_prompt)


def calibrate(measured: LlmMeasurement, decode_ns: int = 0, prefill_ns_per_token: float = 0.0) -> LlmCalibration:
    """Factors between what was measured and the uncalibrated estimate of the same configuration at the same depth."""
    decode = 10**9 / measured.decode_rate / decode_ns if measured.decode_rate and decode_ns else 0.0
    prefill = 0.0
    if measured.prefill_rate and prefill_ns_per_token:
        prefill = 10**9 / measured.prefill_rate / prefill_ns_per_token
    return LlmCalibration(decode or 1.0, prefill or 1.0, bool(decode), bool(prefill))
