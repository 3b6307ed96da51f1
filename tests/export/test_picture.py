"""Pictures as SVG and PNG: well-formed, escaped, and readable without colour."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

import weftline as wl
from weftline.export.fit_picture import FitPicture
from weftline.export.picture import LOOKS, picture_of, to_png, to_svg
from weftline.graph import Op, Tensor, assemble
from weftline.zoo import zoo_graph

SVG = "{http://www.w3.org/2000/svg}"


def answers() -> list[wl.Plan | wl.Schedule]:
    graph = zoo_graph("resnet50", size="small")
    graph = msgspec.structs.replace(graph, name='<script>"&')
    return [
        wl.plan(graph, "two-gpus", solver="round-robin", work_limit=1),
        wl.plan(graph, "two-gpus", objective="throughput", copies=1, solver="even-split", work_limit=1),
        wl.plan(graph, "two-gpus", objective="throughput", copies=1, communication="overlapped", solver="even-split"),
        wl.schedule(wl.shape("vshape", 3), micro_batches=4, solver="1f1b", work_limit=10),
    ]


@pytest.mark.parametrize("number", range(4))
def test_svg(number: int, tmp_path: Path) -> None:
    """Tests that the file is XML without scripts, has a lane per device or stage, and a legend with every kind."""
    answer = answers()[number]
    (file,) = wl.export(answer, "svg", tmp_path / "x.svg")
    root = ElementTree.fromstring(file.read_text())
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "defs", "pattern", "path", "rect", "text"
    }  # fmt: skip
    words = [element.text or "" for element in root.iter(f"{SVG}text")]
    picture = picture_of(answer)
    assert len(picture.kinds) >= 2 or number == 3
    for kind in picture.kinds:
        assert LOOKS[kind].word in words
    assert all(any(name.strip() in word for word in words) for name in (lane.name for lane in picture.lanes))
    assert max(end for lane in picture.lanes for _, end, _, _ in lane.spans) == picture.end


def test_kinds_of_ops_are_escaped() -> None:
    """Tests that a kind with signs that XML does not allow, or that are its own, is shown and breaks nothing."""
    ops = [Op("x", "a\x01<b", 10**9, 10), Op("y", "\u2028", 10**9, 10)]
    graph = assemble("two", ops, [Tensor("xy", 0, (1,), 8), Tensor("out", 1, (), 4, output=True)])
    answer = wl.plan(graph, "two-gpus", solver="single-device", work_limit=1)
    root = ElementTree.fromstring(to_svg(picture_of(answer)))
    assert {"a\\x01<b", "\\u2028"} <= {element.text for element in root.iter(f"{SVG}text")}


def test_kinds_differ_without_colour() -> None:
    """Tests that kinds that may stand in one picture differ in hatching."""
    for together in (("compute", "receive", "send"), ("F", "B", "W", "C")):
        assert len({LOOKS[kind].hatch for kind in together}) == len(together)


def test_png(tmp_path: Path) -> None:
    """Tests that the file is a PNG with something in it, also when a folder is named."""
    from PIL import Image

    for answer in answers():
        (file,) = wl.export(answer, "png", tmp_path)
        assert file == tmp_path / "timeline.png"
        with Image.open(file) as image:
            assert image.format == "PNG"
            assert image.width == 1920
            assert len(image.convert("L").getcolors(10_000) or ()) > 4


def test_png_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the sentence says what to install."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(wl.MissingExtra, match=r"weftline\[png\]"):
        to_png(picture_of(answers()[3]))


def test_many_tiny_spans_stay_small() -> None:
    """Tests that what is narrower than a pixel is drawn as one."""
    schedule = wl.schedule(wl.shape("vshape", 2), micro_batches=2000, solver="1f1b", work_limit=1)
    assert len(to_svg(picture_of(schedule))) < 1_500_000


def test_cards_are_named_whole() -> None:
    """Tests that the longest names of a workstation's cards are not cut, and end before the bars."""
    cards = ["RTX PRO 6000 Blackwell Workstation", "RTX 3060 12GB"]
    plan = wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=cards, splits=[16, 16])
    words = list(ElementTree.fromstring(to_svg(FitPicture(plan))).iter(f"{SVG}text"))
    said = [word.text or "" for word in words]
    assert "gpu1 RTX 3060 12GB" in said
    (long,) = [text for text in said if text.startswith("gpu0 ")]
    assert "…" not in long
    assert long.startswith("gpu0 RTX PRO 6000 Blackwell")
    (name,) = [float(word.get("x", "0")) for word in words if word.text == long]
    (legend,) = [float(word.get("x", "0")) for word in words if word.text == "weights"]
    bars = legend - 30
    assert name + 7.5 * len(long) < bars
