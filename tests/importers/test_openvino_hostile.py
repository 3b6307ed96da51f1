"""Hostile IR files: whatever one holds, it imports or raises InputError, and nothing outside it is touched."""

from __future__ import annotations

import codecs
import os
import time
from encodings.aliases import aliases
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.graph import check_graph
from weftline.importers import read_file
from weftline.importers.openvino import ir as openvino_xml
from weftline.importers.openvino.ir import IMPORTERS

LAYERS = """<layer id="0" name="x" type="Parameter" version="opset1"><data shape="1,4" element_type="f32"/>
<output><port id="0" precision="FP32" names="x"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="1" name="relu" type="ReLU" version="opset1"><input><port id="0" precision="FP32"><dim>1</dim><dim>4</dim>
</port></input><output><port id="1" precision="FP32"><dim>1</dim><dim>4</dim></port></output></layer>
<layer id="2" name="end" type="Result" version="opset1"><input><port id="0" precision="FP32"><dim>1</dim><dim>4</dim>
</port></input></layer>"""
EDGES = """<edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>
<edge from-layer="1" from-port="1" to-layer="2" to-port="0"/>"""


def _ir(layers: str = LAYERS, edges: str = EDGES, before: str = "", version: str = "11") -> str:
    return (
        f'<?xml version="1.0"?>{before}<net name="m" version="{version}"><layers>{layers}</layers>'
        f'<edges>{edges}</edges><rt_info><info name="x" value="y">free text</info></rt_info></net>'
    )


def _refused(text: str, folder: Path, match: str) -> None:
    path = folder / "model.xml"
    path.write_text(text)
    with pytest.raises(InputError, match=match):
        read_file(path)


def test_the_sample_is_fine(tmp_path: Path) -> None:
    """Tests that what the other tests damage is readable as it stands."""
    path = tmp_path / "model.xml"
    path.write_text(_ir())
    assert [op.name for op in read_file(path).graph.ops] == ["relu"]


@pytest.mark.parametrize(
    "before",
    [
        '<!DOCTYPE net [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>',
        '<!DOCTYPE net SYSTEM "file:///etc/passwd">',
        "<!DOCTYPE net>",
    ],
)
def test_no_document_types(before: str, tmp_path: Path) -> None:
    """Tests that a DTD is refused before anything in it is looked at."""
    from weftline.importers.openvino.ir import read_xml

    path = tmp_path / "model.xml"
    path.write_text(_ir(before=before))
    with pytest.raises(InputError, match="document type"):
        read_xml(path)
    with pytest.raises(InputError):
        read_file(path)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('from-layer="0"', 'from-layer="7"', "layer 7 does not exist"),
        ('from-port="0"', 'from-port="5"', "port 5 of layer 'x'"),
        ('to-layer="2"', 'to-layer="1"', "fed twice"),
        ('to-layer="2"', 'to-layer="x"', "to-layer is 'x', not a number"),
        ('id="2" name="end"', 'id="1" name="end"', "id 1 is used twice"),
        ("<dim>4</dim>", "<dim>-4</dim>", "'-4' is not a dimension"),
        ("<dim>4</dim>", "<dim>99999999999999999999</dim>", "is not a dimension"),
        ("<dim>4</dim>", "<dim>9999999999999999999</dim>", "absurdly large"),
        ("<dim>4</dim>", f"<dim>{'4' * 200}</dim>", "more than 100 characters"),
        ("<dim>4</dim>", "<dim>1</dim>" * 65, "more than 64 dimensions"),
        ('type="Result"', 'type="Exp"', "no result"),
        ('type="Parameter"', 'type="Const"', "nothing to plan"),
        ('version="11"', 'version="7"', "version '7' is not known"),
        ("</net>", "", "not well-formed"),
        ('name="relu"', 'name=""', "empty or used twice"),
        ('name="relu"', 'name="x"', "empty or used twice"),
    ],
)
def test_damaged_files(old: str, new: str, match: str, tmp_path: Path) -> None:
    """Tests that what does not fit is named."""
    assert old in _ir()
    _refused(_ir().replace(old, new), tmp_path, match)


def test_a_missing_edge(tmp_path: Path) -> None:
    """Tests that an input that nothing feeds is named."""
    _refused(_ir(edges=EDGES.splitlines()[0]), tmp_path, "'end'.*nothing feeds its input port 0")


def test_a_cycle(tmp_path: Path) -> None:
    """Tests that layers that wait for each other are an error."""
    edges = EDGES.replace('from-layer="0" from-port="0"', 'from-layer="1" from-port="1"')
    _refused(_ir(edges=edges), tmp_path, "cycle")


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests depth, count and size of the XML, inside the parts that are passed over too."""
    deep = "<body>" * 200 + "</body>" * 200
    _refused(_ir(LAYERS.replace("</layer>", f"{deep}</layer>", 1)), tmp_path, "nested more than")
    _refused(_ir().replace("free text", "<a>" * 200 + "</a>" * 200), tmp_path, "nested more than")
    monkeypatch.setattr(openvino_xml, "MAX_ELEMENTS", 20)
    _refused(_ir(), tmp_path, "more than 20 elements")
    monkeypatch.setattr(openvino_xml, "MAX_BYTES", 100)
    _refused(_ir(), tmp_path, r"model\.xml: larger than 100 bytes")


def test_comments_before_the_root(tmp_path: Path) -> None:
    """Tests that a file is recognised behind comments, and that many of them cost no time."""
    path = tmp_path / "model.xml"
    path.write_text(_ir(before="<!-- a --> <!-- <net> -->\n" * 30))
    assert read_file(path).format == "openvino"
    begin = time.perf_counter()
    for head in (b"<!---->" * 585, b"<!--" * 1024, b"<?xml" + b" " * 4000, b"<!-- <net version= -->", b""):
        assert not IMPORTERS[0].accepts(path, head)
    assert time.perf_counter() - begin < 1


def test_many_ports_and_equal_names(tmp_path: Path) -> None:
    """Tests that the time to read a file grows with its size, not with its square, where layers or names are wide."""
    count, port = 4000, '<port id="{}" precision="FP32"><dim>1</dim><dim>4</dim></port>'
    constants = "".join(
        f'<layer id="{n + 9}" name="w" type="Const"><output>{port.format(0)}</output></layer>' for n in range(count)
    )
    ports = "".join(port.format(n + 1) for n in range(count))
    feeds = "".join(f'<edge from-layer="{n + 9}" from-port="0" to-layer="1" to-port="{n + 1}"/>' for n in range(count))
    layers = LAYERS.replace('type="ReLU"', 'type="Concat"').replace("</input><output>", f"{ports}</input><output>")
    layers = layers.replace('<output><port id="1"', f'<output><port id="{count + 1}"')
    edges = EDGES.replace('from-port="1"', f'from-port="{count + 1}"')
    path = tmp_path / "model.xml"
    path.write_text(_ir(constants + layers, feeds + edges))
    begin = time.perf_counter()
    (op,) = read_file(path).graph.ops
    assert time.perf_counter() - begin < 4
    assert (op.kind, op.weight_bytes) == ("Concat", count * 16)


@pytest.mark.parametrize("encoding", [*sorted({*aliases.values()}), "no-such-encoding", "idna", "undefined"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    """Tests that every encoding that Python knows, and one that it does not, gives a graph or an input error."""
    text = _ir().replace("?>", f' encoding="{encoding}"?>', 1)
    path = tmp_path / "model.xml"
    for data in (text.encode(), text.encode("utf-16"), codecs.BOM_UTF8 + text.encode()):
        path.write_bytes(data)
        for read in (openvino_xml.read_xml, read_file):
            try:
                read(path)
            except InputError:
                continue


def test_unknown_encoding(tmp_path: Path) -> None:
    """Tests the sentence about an encoding that nobody knows."""
    _refused(_ir().replace("?>", ' encoding="klingon"?>', 1), tmp_path, r"encoding of the XML.*klingon")
    _refused(_ir().replace("?>", ' encoding="shift_jis"?>', 1), tmp_path, "encoding of the XML")


def test_no_pipes(tmp_path: Path) -> None:
    """Tests that a pipe is an error instead of a long wait."""
    os.mkfifo(tmp_path / "model.xml")
    with pytest.raises(InputError, match="not a regular file"):
        openvino_xml.read_xml(tmp_path / "model.xml")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4)), min_size=1, max_size=4))
def test_any_bytes(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    """Tests that changed bytes give a graph or an InputError."""
    data = bytearray(_ir().encode())
    for place, new in changes:
        data[place % len(data) : place % len(data) + len(new)] = new
    path = tmp_path / "model.xml"
    path.write_bytes(data)
    try:
        graph = read_file(path).graph
    except InputError:
        return
    assert check_graph(graph) is graph
