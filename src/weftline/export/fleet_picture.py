"""Pictures of fleet plans: devices as rows with lanes as ribbons, and the rate against the depth.

In: a `FleetResult`, or rows (depth, rate, bound). Out: what `to_svg` and `to_png` of `picture.py` draw. From left to
right goes the model; a ribbon is a lane, as thick as its share of the inputs, in the row of the device that runs that
part; lanes differ in hatching, hold their number and share where there is room, and a legend names them. A bar at the
right says how busy each device is. Simplified: where there are many devices or lanes the busiest are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from weftline.export.picture import (
    LETTER_WIDTH,
    MOST_NAME,
    PAGE_MARGIN,
    PAGE_WIDTH,
    TEXT_SIZE,
    Canvas,
    DrawingCanvas,
    Look,
    short_text,
)
from weftline.plans.fleet_result import FleetResult, rate_words

__all__ = ["FleetPicture", "FrontPicture", "FrontRow"]

ROW_HEIGHT, ROW_SPACE, BAR_WIDTH = 48, 14, 120
MOST_DEVICES, MOST_LANES = 60, 40
LEAST_RIBBON, RIBBON_BEND = 1.5, 7.0
"""Points: of the thinnest ribbon, and of the way in which one goes from row to row."""
FRONT_HEIGHT, FRONT_TICKS = 260, 5
FILLS, HATCHES = ("#9ecae1", "#fdd49e", "#c7e9c0", "#dadaeb", "#e5e5e5"), ("", "/", "x", "\\", "|", "-")
LANE_LOOKS = tuple(Look(FILLS[n % len(FILLS)], HATCHES[n % len(HATCHES)], "") for n in range(30))
"""Of lane 0, 1, ...: neighbours differ in fill and in hatching."""
BUSY_LOOK, FREE_LOOK, BOUND_LOOK = Look("#74a9cf", "", "busy"), Look("#fff", "", ""), Look("#fff", "/", "bound")

FrontRow = tuple[int, float, float | None]
"""Depth, rate, and the rate that no deployment of that depth exceeds."""
Maker = Callable[[int, int], Canvas]
"""Width, height -> a canvas."""


@dataclass(frozen=True, eq=False)
class FleetPicture:
    """Lanes as ribbons over rows of devices."""

    found: FleetResult

    @property
    def title(self) -> str:
        """What stands above."""
        rate = rate_words(self.found.rate, self.found.unit)
        return f"{short_text(self.found.model)}: {rate} over {len(self.found.lanes)} lanes"

    @property
    def rows(self) -> list[int]:
        """Devices that are drawn, in their order."""
        devices = self.found.devices
        busiest = sorted(range(len(devices)), key=lambda d: (-devices[d].busy, d))[:MOST_DEVICES]
        return sorted(busiest)

    @property
    def shown(self) -> list[int]:
        """Lanes that are drawn, the largest shares first."""
        lanes = self.found.lanes
        return sorted(range(len(lanes)), key=lambda n: (-lanes[n].rate, n))[:MOST_LANES]

    def draw(self, make: Maker[Canvas]) -> Canvas:
        """The whole picture."""
        names = [short_text(self.found.devices[d].id, MOST_NAME) for d in self.rows]
        left = PAGE_MARGIN + LETTER_WIDTH * max([6, *map(len, names)])
        right = PAGE_WIDTH - PAGE_MARGIN - BAR_WIDTH - 70
        top = PAGE_MARGIN + 34
        bottom = top + (ROW_HEIGHT + ROW_SPACE) * len(self.rows)
        legend = self.legend()
        canvas = make(PAGE_WIDTH, bottom + 36 + 20 * len(legend))
        canvas.text(PAGE_MARGIN, PAGE_MARGIN + TEXT_SIZE, self.title)
        canvas.text(right + 16, top - 4, "busy")
        tops = {d: top + (ROW_HEIGHT + ROW_SPACE) * row for row, d in enumerate(self.rows)}
        for name, (d, y) in zip(names, tops.items(), strict=True):
            self._row(canvas, name, d, y, (left, right))
        place = 0.0
        for n in self.shown:
            thick = max(LEAST_RIBBON, self.found.lanes[n].share * ROW_HEIGHT)
            self._ribbon(
                canvas, n, {d: y + min(place, ROW_HEIGHT - thick) for d, y in tops.items()}, thick, (left, right)
            )
            place += self.found.lanes[n].share * ROW_HEIGHT
        part = self.found.part
        canvas.text(left, bottom + 12, f"first {part}")
        canvas.text(right - LETTER_WIDTH * (5 + len(part)), bottom + 12, f"last {part}")
        for number, (look, words) in enumerate(legend):
            y = bottom + 24 + 20 * number
            if look is not None:
                canvas.box(left, y, 24, 14, look)
            canvas.text(left + 32, y + 12, words)
        return canvas

    def legend(self) -> list[tuple[Look | None, str]]:
        """Every drawn lane in words, and what was left out."""
        lines: list[tuple[Look | None, str]] = [(_look(n), self._told(n)) for n in self.shown]
        for what, left in (
            ("lanes", len(self.found.lanes) - len(self.shown)),
            ("devices", len(self.found.devices) - len(self.rows)),
        ):
            lines += [(None, f"and {left} more {what}, which are not drawn")] if left else []
        return lines

    def _told(self, n: int) -> str:
        lane, ids = self.found.lanes[n], [use.id for use in self.found.devices]
        used = list(dict.fromkeys(ids[device] for device, _, _ in lane.hops))
        way = f"a whole copy on {used[0]}" if len(used) == 1 else f"over {', '.join(used)}"
        return short_text(f"lane {n}: {lane.share:.1%} of the {self.found.unit}, {way}", 110)

    def _row(self, canvas: DrawingCanvas, name: str, d: int, y: float, span: tuple[float, float]) -> None:
        """Name, line, what the device holds, and how busy it is."""
        use, scale = self.found.devices[d], (span[1] - span[0]) / max(len(self.found.names), 1)
        canvas.text(PAGE_MARGIN, y + ROW_HEIGHT / 2 + 4, name)
        canvas.line(span[0], y + ROW_HEIGHT, span[1], y + ROW_HEIGHT)
        for first, last in use.holds:
            canvas.box(span[0] + first * scale, y, max((last - first) * scale, 0.5), ROW_HEIGHT, FREE_LOOK)
        at = span[1] + 16
        canvas.box(at, y + 12, BAR_WIDTH, 16, FREE_LOOK)
        if use.busy > 0:
            canvas.box(at, y + 12, max(1.0, min(1.0, use.busy) * BAR_WIDTH), 16, BUSY_LOOK)
        canvas.text(at + BAR_WIDTH + 6, y + 25, f"{use.busy:.1%}")

    def _ribbon(
        self, canvas: DrawingCanvas, n: int, tops: dict[int, float], thick: float, span: tuple[float, float]
    ) -> None:
        """One lane: a band in the row of each device, and bends between them."""
        lane, scale = self.found.lanes[n], (span[1] - span[0]) / max(len(self.found.names), 1)
        before: tuple[int, float] | None = None
        for place, (device, first, last) in enumerate(lane.hops):
            bend = min(RIBBON_BEND, (last - first) * scale / 3)
            x1 = span[0] + first * scale + (bend if place else 0.0)
            x2 = span[0] + last * scale - (bend if place + 1 < len(lane.hops) else 0.0)
            if device not in tops:
                before = None
                continue
            y = tops[device]
            if before is not None:
                a, x0 = before
                corners = [(x0, tops[a]), (x1, y), (x1, y + thick), (x0, tops[a] + thick)]
                canvas.shape(corners, _look(n))
            canvas.box(x1, y, max(x2 - x1, 0.5), thick, _look(n))
            label = f"{n}: {lane.share:.0%}"
            if thick >= TEXT_SIZE + 2 and len(label) * LETTER_WIDTH < x2 - x1:
                canvas.text((x1 + x2) / 2, y + thick / 2 + 4, label, middle=True)
            before = (device, x2)


def _look(n: int) -> Look:
    return LANE_LOOKS[n % len(LANE_LOOKS)]


@dataclass(frozen=True)
class FrontPicture:
    """The rate that so many devices in a row allow, and its bound."""

    front: Sequence[FrontRow]
    unit: str = "inputs"
    title: str = "Rate against devices in a row"

    def draw(self, make: Maker[Canvas]) -> Canvas:
        """Points joined by a line, numbers beside them; bounds are hatched boxes above."""
        rows = sorted(self.front)
        canvas = make(PAGE_WIDTH, FRONT_HEIGHT + 90)
        canvas.text(PAGE_MARGIN, PAGE_MARGIN + TEXT_SIZE, self.title)
        if not rows:
            return canvas
        left, right, top = 150.0, PAGE_WIDTH - 90.0, PAGE_MARGIN + 40.0
        most = max(max(rate, bound or 0.0) for _, rate, bound in rows) or 1.0
        width = max(rows[-1][0] - rows[0][0], 1)

        def x(depth: int) -> float:
            return left + (depth - rows[0][0]) / width * (right - left)

        def y(rate: float) -> float:
            return top + (1 - rate / most) * FRONT_HEIGHT

        for tick in range(FRONT_TICKS + 1):
            at = most * tick / FRONT_TICKS
            canvas.line(left, y(at), right, y(at))
            canvas.text(PAGE_MARGIN, y(at) + 4, rate_words(at, self.unit))
        for before, after in pairwise(rows):
            canvas.line(x(before[0]), y(before[1]), x(after[0]), y(after[1]), strong=True)
        for depth, rate, bound in rows:
            if bound is not None:
                canvas.box(x(depth) - 8, y(bound) - 3, 16, 6, BOUND_LOOK)
            canvas.box(x(depth) - 4, y(rate) - 4, 8, 8, BUSY_LOOK)
            canvas.text(x(depth), top + FRONT_HEIGHT + 16, str(depth), middle=True)
        y_legend = top + FRONT_HEIGHT + 28
        canvas.box(left, y_legend + 3, 8, 8, BUSY_LOOK)
        canvas.text(left + 16, y_legend + 12, "rate of a plan with at most so many devices in a row")
        canvas.box(left + 400, y_legend + 4, 16, 6, BOUND_LOOK)
        canvas.text(left + 424, y_legend + 12, "no such plan gives more")
        return canvas
