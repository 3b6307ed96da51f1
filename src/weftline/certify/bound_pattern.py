"""Is a period the least of all patterns of so many micro-batches? Two arguments, both from how lengths come about.

In: blocks, the length of a repetition, its number U of micro-batches. Out: nothing, or a refusal. Simplified: nothing
is said about patterns of other sizes.

**Lengths are ratios.** A pattern is an order for each device with a lag for each copy of a block. Its starts keep
s(v) >= s(u) + w - L * h: along edges (w = span + latency, h = 0) and from one item of a device to the next (w = span, h
whole). The least L is the largest (sum of w) / (sum of h) over simple circles; there all w are positive, so
sum of h >= 1. A circle leaves every item once at most: sum of w <= U * w0, w0 = sum over blocks of span + largest
latency behind it. With L >= U * b for a bound b of the period, sum of h <= D = floor(w0 / b). So a pattern shorter than
L has a length of at most L' = the largest fraction below L with a denominator up to D.

**Between** (`between`). If L' < U * b, no pattern of U micro-batches is shorter than L.

**Linear pipelines** (`linear`, U = 1). Each device has one F that takes memory, one B that gives back, perhaps one W
behind B that gives back too and that nothing waits for; all F in a row, then all B back. Feasibility is monotone in the
period: with the same order and lags, larger P keeps every constraint (h >= 0 along edges, since starts in a window are
less than P apart). So it is enough that P' = L' is impossible. Let x be the time from F to B of a device, modulo P' in
[f, P' - b]: F and B are disjoint in the window. Devices from last to first:
- x >= f on the last device; on another one x >= f + latency + x(next) + b(next) + latency.
- W has room behind B if x mod P' <= P' - b - w; else only between F and B: f + w <= x mod P'. It starts as early as it
  can: right behind B, or right behind the next F.
- Memory is largest when F starts: taken * (1 + a) + (taken - given by B) * (c - a), with a and c the whole periods in x
  and in the time from F to W. With the way of W fixed, a and c do not fall when x grows. So of both ways the smallest
  x that is allowed, and fits memory, is the least of all; and a smaller x is never worse for the devices before.
So if no x is left on some device, no pattern of one micro-batch has the period P'.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.problem import need
from weftline.certify.schedule_blocks import NO_LIMIT, ScheduleBlocks

__all__ = ["refute_shorter_patterns"]


def refute_shorter_patterns(
    blocks: ScheduleBlocks, period: Fraction, size: int, bound: Fraction, witness: dict[str, Any], allowance: Allowance
) -> bool:
    """`{"kind": "between"}` or `{"kind": "linear"}`: no pattern of `size` micro-batches has a smaller period.

    `bound` is a proved bound of every period.
    """
    kind, length = witness["kind"], period * size
    need(kind in ("between", "linear"), "witness-kind", f"unknown kind of witness {kind!r:.60}")
    longest = [0] * blocks.n
    for a, _, lag in blocks.edges:
        longest[a] = max(longest[a], lag)
    below = _fraction_below(length, int((sum(blocks.span) + sum(longest)) / bound), allowance)
    if below < bound * size:
        return True
    need(kind == "linear", "witness", f"a pattern of {size} micro-batches might last {below}")
    need(size == 1, "witness", "linear pipelines are compared for one micro-batch")
    return not _is_possible(_stages(blocks), below)


def _fraction_below(value: Fraction, most: int, allowance: Allowance) -> Fraction:
    """The largest with a denominator up to `most`."""
    allowance.spend("steps", 5 * most)
    best = Fraction(0)
    for denominator in range(1, max(1, most) + 1):
        numerator = -(-value.numerator * denominator // value.denominator) - 1
        if numerator * best.denominator > best.numerator * denominator:
            best = Fraction(numerator, denominator)
    return best


class LinearPart(NamedTuple):
    """Spans and changes of one device; w is 0 where there is no W."""

    f: int
    b: int
    w: int
    taken: int
    given: int
    room: int
    wait: int
    """Latencies from F to the next stage's F, and from its B back."""


def _stages(blocks: ScheduleBlocks) -> list[LinearPart]:
    """First to last, or a refusal: nothing else is on the devices, and there is no other edge."""
    lags = {(a, b): lag for a, b, lag in blocks.edges}
    need(len(lags) == len(blocks.edges), "witness", "two edges join the same blocks")
    at = {i: device for device, mine in enumerate(blocks.on) for i in mine}
    need(sum(map(len, blocks.on)) == blocks.n, "witness", "a block is on several devices")
    parts = {device: _parts(blocks, mine, lags) for device, mine in enumerate(blocks.on) if mine}
    firsts = {f for f, _, _ in parts.values()}
    heads = [f for f in firsts if not any(b == f for _, b in lags)]
    need(len(heads) == 1, "witness", "not one first stage")
    here, found, used = at[heads[0]], list[LinearPart](), set[tuple[int, int]]()
    while True:
        f, b, w = parts[here]
        used |= {pair for pair in ((f, b), (b, w)) if pair in lags}
        need(lags.get((f, b), 0) == 0, "witness", "a stage waits between its own F and B")
        after = [target for source, target in lags if source == f and target in firsts]
        need(len(after) <= 1, "witness", "the stages are not in a row")
        wait = 0
        if after:
            back = parts[at[after[0]]][1], b
            need(back in lags, "witness", "no B waits for the next one")
            used |= {(f, after[0]), back}
            wait = lags[f, after[0]] + lags[back]
        found.append(_stage(blocks, here, parts[here], wait))
        if not after:
            break
        here = at[after[0]]
    need((f, b) in lags and used == lags.keys() and len(found) == len(parts), "witness", "not a linear pipeline")
    return found


def _parts(blocks: ScheduleBlocks, mine: list[int], lags: dict[tuple[int, int], int]) -> tuple[int, int, int]:
    """F, B and W (-1: none) of a device."""
    device = next(d for d, own in enumerate(blocks.on) if own is mine)
    change = {i: blocks.memory[i][device] for i in mine}
    takes, rest = [i for i in mine if change[i] > 0], [i for i in mine if change[i] <= 0]
    need(len(takes) == 1 and len(rest) in (1, 2), "witness", f"device {device} has no F, or more than F, B and W")
    need(sum(change.values()) == 0, "witness", f"device {device} does not get back what it gives")
    need(not blocks.link[device], "witness", "a link is no stage")
    if len(rest) == 1:
        return takes[0], rest[0], -1
    for b, w in (rest, rest[::-1]):
        if lags.get((b, w)) == 0 and not any(source == w for source, _ in lags):
            return takes[0], b, w
    need(False, "witness", f"device {device} has no B with a W behind it")
    raise AssertionError


def _stage(blocks: ScheduleBlocks, device: int, parts: tuple[int, int, int], wait: int) -> LinearPart:
    f, b, w = parts
    limit = blocks.limit[device]
    room = NO_LIMIT if limit is None else limit - blocks.reserved[device]
    spans = blocks.span[f], blocks.span[b], blocks.span[w] if w >= 0 else 0
    return LinearPart(*spans, blocks.memory[f][device], -blocks.memory[b][device], room, wait)


def _is_possible(stages: list[LinearPart], period: Fraction) -> bool:
    """Is there a pattern of one micro-batch with this period? Times are multiplied by its denominator."""
    unit, length = period.denominator, period.numerator
    least = 0
    for stage in reversed(stages):
        f, b, w = unit * stage.f, unit * stage.b, unit * stage.w
        if least:
            least += f + unit * stage.wait
        least = max(least, f)
        ways = [_first_from(least, f, length - b - w, length)]
        if w:
            ways.append(_first_from(least, f + w, length - b, length))
        fitting = [
            x
            for way, x in enumerate(ways)
            if x is not None and stage.taken * (1 + x // length) + (stage.taken - stage.given) * way <= stage.room
        ]
        if not fitting:
            return False
        least = min(fitting) + b
    return True


def _first_from(least: int, low: int, high: int, length: int) -> int | None:
    """The smallest x >= least with low <= x mod length <= high; None if low > high."""
    if low > high:
        return None
    turns, rest = divmod(least, length)
    if rest > high:
        turns, rest = turns + 1, 0
    return turns * length + max(rest, low)
