"""Pictures of plans and schedules as one file: `svg` and `png`, for papers, slides and notebooks.

In: a plan, a fleet plan, a `Score` or a schedule. Out: a `Picture` (lanes with spans over one axis), drawn as SVG by
hand or as PNG by Pillow (extra `png`). A latency plan shows what each device computes, receives and sends; a pipeline
the parts of every stage beside its period; a schedule the micro-batch of every block. Kinds differ in hatching and in
brightness, blocks of schedules hold the number of their micro-batch, and a legend names them: readable in print without
colour. A fleet plan shows its lanes (`fleet_picture.py`). Simplified: neighbours of one kind that are narrower than a
pixel are drawn as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from weftline.errors import MissingExtra
from weftline.export.exporter import Exporter, ExportOptions
from weftline.files import write_atomically
from weftline.plans import Plan, plan_result
from weftline.plans.fleet import AnyFleet
from weftline.plans.schedule import Schedule
from weftline.plans.score import Score
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, Timetable
from weftline.units import format_name, format_time

if TYPE_CHECKING:
    from weftline.export.fit_picture import FitPicture
    from weftline.export.fleet_picture import FleetPicture, FrontPicture

__all__ = ["EXPORTERS", "Look", "Picture", "fleet_picture", "picture_of", "short_text", "to_png", "to_svg"]

PAGE_WIDTH, LANE_HEIGHT, ROW_GAP, PAGE_MARGIN = 960, 22, 6, 12
TEXT_SIZE, LETTER_WIDTH = 12, 7
"""Points of the letters, and what one of them takes at most."""
MOST_NAME = 24
HATCH_STEP = 6
TICK_COUNT = 6
PNG_SCALE = 2


class Look(NamedTuple):
    """How a kind of span is drawn: its fill, the direction of its hatching, and its word in the legend."""

    fill: str
    hatch: str
    """"/", "\\", "x", "|", "-" or nothing."""
    word: str


LOOKS = {
    "compute": Look("#9ecae1", "", "computes"),
    "receive": Look("#fdd49e", "/", "receives"),
    "send": Look("#e5e5e5", "\\", "sends"),
    "F": Look("#c6dbef", "", "forward"),
    "B": Look("#74a9cf", "/", "backward"),
    "W": Look("#fee391", "x", "weights"),
    "C": Look("#e5e5e5", "|", "on a link"),
}


@dataclass(frozen=True)
class DrawnLane:
    """One row; spans are (start, end, kind, label)."""

    name: str
    spans: Sequence[tuple[int, int, str, str]]


@dataclass(frozen=True)
class Picture:
    """Lanes over one axis."""

    title: str
    end: int
    lanes: Sequence[DrawnLane]
    time: Callable[[int], str] = field(default=format_time)

    @property
    def kinds(self) -> list[str]:
        """Those that are drawn, in the order of the legend."""
        used = {kind for lane in self.lanes for _, _, kind, _ in lane.spans}
        return [kind for kind in LOOKS if kind in used]


def picture_of(answer: Plan | Score | Schedule | Timetable) -> Picture:
    """The picture of an answer."""
    if isinstance(answer, Schedule):
        return _schedule(answer.timetable(), format_time if "plan" in answer.provenance.inputs else str)
    if isinstance(answer, Timetable):
        return _schedule(answer, str)
    problem, result = plan_result(answer) if isinstance(answer, Plan) else (answer.problem, answer.result)
    return _latency(problem, result) if isinstance(result, Timeline) else _pipeline(problem, result)


def fleet_picture(answer: AnyFleet) -> FleetPicture:
    """The picture of a fleet plan."""
    from weftline.export.fleet_picture import FleetPicture
    from weftline.plans.fleet_result import simulate_fleet

    return FleetPicture(simulate_fleet(answer))


def _latency(problem: Problem, timeline: Timeline) -> Picture:
    lanes = []
    for d, device in enumerate(problem.devices):
        mine = [op for op in range(len(timeline.start)) if timeline.placement[op] == d]
        spans = [
            (int(timeline.start[op]), int(timeline.end[op]), "compute", format_name(problem.graph.ops[op].kind))
            for op in mine
        ]
        lanes.append(DrawnLane(device.id, sorted(spans)))
        for kind, column in (("receive", 2), ("send", 1)):
            rows = [row for row in timeline.transfers.tolist() if row[column] == d]
            if rows:
                lanes.append(DrawnLane(f"  {kind}s", sorted((row[4], row[5], kind, "") for row in rows)))
    title = f"{short_text(problem.graph.name)}: latency {format_time(timeline.value)}"
    return Picture(title, timeline.value, lanes)


def _pipeline(problem: Problem, loads: Loads) -> Picture:
    lanes = []
    overlapped = problem.rules.communication == "overlapped"
    for number, d in enumerate(loads.stages):
        parts = {"receive": int(loads.entering[d]), "compute": int(loads.compute[d]), "send": int(loads.leaving[d])}
        name, at = f"{number} {problem.devices[d].id}", 0
        spans: list[tuple[int, int, str, str]] = []
        for kind, length in parts.items():
            start = 0 if overlapped else at
            spans += [(start, start + length, kind, LOOKS[kind].word)] * (length > 0)
            at += length
        if overlapped:
            lanes += [DrawnLane(name if i == 0 else "", [span]) for i, span in enumerate(spans)]
        else:
            lanes.append(DrawnLane(name, spans))
    return Picture(f"{short_text(problem.graph.name)}: period {format_time(loads.value)}", loads.value, lanes)


def _schedule(found: Timetable, time: Callable[[int], str]) -> Picture:
    blocks = found.blocks
    lanes = [
        DrawnLane(
            lane.id,
            [
                (int(found.start[i]), int(found.end[i]), blocks.blocks[i % blocks.n].kind, str(i // blocks.n))
                for i in order.tolist()
            ],
        )
        for lane, order in zip(blocks.devices, found.orders, strict=True)
    ]
    title = f"{short_text(blocks.name)}: {found.micro_batches} micro-batches, makespan {time(found.makespan)}"
    return Picture(title, found.makespan, lanes, time)


def short_text(name: str, most: int = 60) -> str:
    """A name that fits, without signs that do not print."""
    shown = format_name(name)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


class DrawingCanvas(Protocol):
    """What both formats can draw; lengths are in points."""

    def box(self, x: float, y: float, width: float, height: float, look: Look) -> None:
        """A span."""

    def shape(self, corners: Sequence[tuple[float, float]], look: Look) -> None:
        """A span with sloping sides, without hatching."""

    def line(self, x1: float, y1: float, x2: float, y2: float, *, strong: bool = False) -> None:
        """A line: thin and grey, or dark."""

    def text(self, x: float, y: float, words: str, *, middle: bool = False) -> None:
        """Words whose base line begins (or has its middle) at a point."""


Canvas = TypeVar("Canvas", bound=DrawingCanvas)


def _draw(picture: Picture | FleetPicture | FrontPicture | FitPicture, make: Callable[[int, int], Canvas]) -> Canvas:
    if not isinstance(picture, Picture):
        return picture.draw(make)
    names = [short_text(lane.name, MOST_NAME) for lane in picture.lanes]
    left = PAGE_MARGIN + LETTER_WIDTH * max([6, *map(len, names)])
    top, step = PAGE_MARGIN + 24, LANE_HEIGHT + ROW_GAP
    bottom = top + step * len(picture.lanes)
    canvas = make(PAGE_WIDTH, bottom + 56)
    canvas.text(PAGE_MARGIN, PAGE_MARGIN + TEXT_SIZE, picture.title)
    scale = (PAGE_WIDTH - PAGE_MARGIN - left - 24) / max(picture.end, 1)
    for tick in range(TICK_COUNT + 1):
        at = picture.end * tick // TICK_COUNT
        canvas.line(left + at * scale, top - 4, left + at * scale, bottom)
        canvas.text(left + at * scale, bottom + 14, picture.time(at), middle=True)
    for row, (lane, name) in enumerate(zip(picture.lanes, names, strict=True)):
        y = top + row * step
        canvas.text(PAGE_MARGIN, y + LANE_HEIGHT - 7, name)
        for x, width, kind, label in _joined(lane.spans, scale):
            canvas.box(left + x, y, width, LANE_HEIGHT, LOOKS[kind])
            if label and len(label) * LETTER_WIDTH < width:
                canvas.text(left + x + width / 2, y + LANE_HEIGHT - 7, label, middle=True)
    x = float(left)
    for kind in picture.kinds:
        canvas.box(x, bottom + 28, 24, 14, LOOKS[kind])
        canvas.text(x + 30, bottom + 40, LOOKS[kind].word)
        x += 44 + LETTER_WIDTH * len(LOOKS[kind].word)
    if "F" in picture.kinds:
        canvas.text(x, bottom + 40, "numbers: micro-batches")
    return canvas


def _joined(spans: Iterable[tuple[int, int, str, str]], scale: float) -> list[tuple[float, float, str, str]]:
    """(x, width, kind, label); what would be narrower than a pixel joins its neighbour of the same kind."""
    found: list[tuple[float, float, str, str]] = []
    for start, end, kind, label in spans:
        x, width = start * scale, (end - start) * scale
        if found and width < 1:
            before, length, same, _ = found[-1]
            if same == kind and x - before - length < 0.5:
                found[-1] = (before, max(length, x + width - before), kind, "")
                continue
        if width > 0:
            found.append((x, max(width, 0.5), kind, label))
    return found


class _Svg:
    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []
        self.hatches: set[str] = set()

    def box(self, x: float, y: float, width: float, height: float, look: Look) -> None:
        place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
        self.parts.append(f'<rect {place} fill="{look.fill}" stroke="#333" stroke-width="0.5"/>')
        if look.hatch:
            self.hatches.add(look.hatch)
            self.parts.append(f'<rect {place} fill="url(#weft-{ord(look.hatch)})"/>')

    def shape(self, corners: Sequence[tuple[float, float]], look: Look) -> None:
        way = "L".join(f"{x:.2f} {y:.2f}" for x, y in corners)
        self.parts.append(f'<path d="M{way}Z" fill="{look.fill}" stroke="#333" stroke-width="0.5"/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, *, strong: bool = False) -> None:
        stroke = 'stroke="#333" stroke-width="1.5"' if strong else 'stroke="#bbb" stroke-width="0.5"'
        self.parts.append(f'<path d="M{x1:.2f} {y1:.2f}L{x2:.2f} {y2:.2f}" {stroke}/>')

    def text(self, x: float, y: float, words: str, *, middle: bool = False) -> None:
        anchor = ' text-anchor="middle"' if middle else ""
        self.parts.append(f'<text x="{x:.2f}" y="{y:.2f}"{anchor} fill="#000">{escape(words)}</text>')

    def whole(self, title: str) -> str:
        """The document."""
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="12">'
        hatches = "".join(_pattern(hatch) for hatch in sorted(self.hatches))
        page = f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>'
        return f"{head}<title>{escape(title)}</title><defs>{hatches}</defs>{page}{''.join(self.parts)}</svg>\n"


def _pattern(hatch: str) -> str:
    s = HATCH_STEP
    up, down = f"M0 {s}L{s} 0", f"M0 0L{s} {s}"
    path = {"/": up, "\\": down, "x": up + down, "|": f"M{s / 2} 0V{s}", "-": f"M0 {s / 2}H{s}"}[hatch]
    return (
        f'<pattern id="weft-{ord(hatch)}" width="{s}" height="{s}" patternUnits="userSpaceOnUse">'
        f'<path d="{path}" stroke="#333" stroke-width="0.8" fill="none"/></pattern>'
    )


def to_svg(picture: Picture | FleetPicture | FrontPicture | FitPicture) -> str:
    """The picture as an SVG document without scripts, links or fonts of its own."""
    canvas = _draw(picture, _Svg)
    return canvas.whole(picture.title)


def to_png(picture: Picture | FleetPicture | FrontPicture | FitPicture) -> bytes:
    """The picture as PNG, two pixels to the point; `MissingExtra` without Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise MissingExtra("pillow", "png") from error

    class Png:
        """Draws with Pillow."""

        def __init__(self, width: int, height: int) -> None:
            self.image = Image.new("RGB", (width * PNG_SCALE, height * PNG_SCALE), "#fff")
            self.pen = ImageDraw.Draw(self.image)
            self.font = ImageFont.load_default(TEXT_SIZE * PNG_SCALE)

        def box(self, x: float, y: float, width: float, height: float, look: Look) -> None:
            left, top = round(x * PNG_SCALE), round(y * PNG_SCALE)
            right, bottom = max(left + 1, round((x + width) * PNG_SCALE)), round((y + height) * PNG_SCALE)
            tile = Image.new("RGB", (right - left, bottom - top), look.fill)
            pen = ImageDraw.Draw(tile)
            for a, b in _hatching(look.hatch, right - left, bottom - top):
                pen.line([a, b], fill="#333")
            pen.rectangle([0, 0, right - left - 1, bottom - top - 1], outline="#333")
            self.image.paste(tile, (left, top))

        def shape(self, corners: Sequence[tuple[float, float]], look: Look) -> None:
            self.pen.polygon([(x * PNG_SCALE, y * PNG_SCALE) for x, y in corners], look.fill, "#333")

        def line(self, x1: float, y1: float, x2: float, y2: float, *, strong: bool = False) -> None:
            ends = [(x1 * PNG_SCALE, y1 * PNG_SCALE), (x2 * PNG_SCALE, y2 * PNG_SCALE)]
            self.pen.line(ends, fill="#333" if strong else "#bbb", width=3 if strong else 1)

        def text(self, x: float, y: float, words: str, *, middle: bool = False) -> None:
            anchor = "ms" if middle else "ls"
            self.pen.text((x * PNG_SCALE, y * PNG_SCALE), words, fill="#000", font=self.font, anchor=anchor)

    canvas = _draw(picture, Png)
    file = BytesIO()
    canvas.image.save(file, "PNG")
    return file.getvalue()


def _hatching(hatch: str, width: int, height: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Lines over a tile; what is outside it is not drawn."""
    step = HATCH_STEP * PNG_SCALE
    found = []
    for at in range(0, width + height, step):
        if hatch in ("/", "x"):
            found.append(((at, 0), (at - height, height)))
        if hatch in ("\\", "x"):
            found.append(((at - height, 0), (at, height)))
        if hatch == "|":
            found.append(((at, 0), (at, height)))
        if hatch == "-":
            found.append(((0, at), (width, at)))
    return found


_Drawn = Plan | Schedule | Timetable | AnyFleet


def _write_svg(answer: _Drawn, path: Path, options: ExportOptions | None = None) -> list[Path]:
    path = path / "timeline.svg" if path.is_dir() else path
    write_atomically(path, to_svg(_any_picture(answer)).encode("utf-8", "replace"))
    return [path]


def _write_png(answer: _Drawn, path: Path, options: ExportOptions | None = None) -> list[Path]:
    path = path / "timeline.png" if path.is_dir() else path
    write_atomically(path, to_png(_any_picture(answer)))
    return [path]


def _any_picture(answer: _Drawn) -> Picture | FleetPicture:
    return fleet_picture(answer) if isinstance(answer, AnyFleet) else picture_of(answer)


def _check_svg(answer: Plan | Timetable, options: ExportOptions | None = None) -> None:
    """A plan that cannot be carried out has no picture."""
    picture_of(answer)


def _check_png(answer: Plan | Timetable, options: ExportOptions | None = None) -> None:
    if find_spec("PIL") is None:
        raise MissingExtra("pillow", "png")
    picture_of(answer)


EXPORTERS = (
    Exporter(
        "svg",
        "a picture of the timeline, stages, lanes or schedule, as an SVG file",
        _write_svg,
        "both",
        _check_svg,
        file=True,
        fleet=_write_svg,
    ),
    Exporter("png", "the same as a PNG file (extra png)", _write_png, "both", _check_png, file=True, fleet=_write_png),
)
