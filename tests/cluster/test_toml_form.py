"""Tests of reading cluster files."""

import os
from pathlib import Path

import pytest

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.errors import InputError

EXAMPLE = """
version = 1
[[device]]
id = "gpu0"
kind = "gpu"
memory = "24 GiB"
reserve = "1 GiB"
rate = { fp32 = "35 TFLOP/s", fp16 = "71 TFLOP/s", bandwidth = "936 GB/s", launch = "5 us", source = "datasheet" }
runtime = "ort:CUDAExecutionProvider:0"
[[device]]
id = "cpu0"
kind = "cpu"
rate = { fp32 = "1.5 TFLOP/s", int8 = "6 TOP/s", bandwidth = "50 GB/s", launch = "0.1 us" }
host = true
[[link]]
between = ["gpu0", "cpu0"]
bandwidth = "12.3 GB/s"
latency = "9 us"
shared = "pcie0"
source = "measured"
[limits]
pin = [{ op = "embed*", device = "gpu0" }]
together = [["lm_head", "embed"]]
forbid = [{ op = "*NMS*", device = "cpu0" }]
"""
DEVICES = 'version = 1\n[[device]]\nid = "a"\nkind = "cpu"\n[[device]]\nid = "b"\nkind = "cpu"\n'
NUMBERS = 'bandwidth = "100 Gb/s"\nlatency = "1.5 us"\n'
RATE = 'rate = { fp32 = "1 TFLOP/s", bandwidth = "1 GB/s", launch = "1 us" }\n'


def test_example() -> None:
    """Tests that every field of the format arrives, in bytes, nanoseconds and operations per second."""
    gpu_rate = Rate(fp32=35 * 10**12, fp16=71 * 10**12, bandwidth=936 * 10**9, launch=5_000, source="datasheet")
    cpu_rate = Rate(fp32=15 * 10**11, bandwidth=50 * 10**9, launch=100, int8=6 * 10**12)
    gpu = Device("gpu0", "gpu", 24 * 2**30, 2**30, gpu_rate, "ort:CUDAExecutionProvider:0")
    cpu = Device("cpu0", "cpu", None, rate=cpu_rate, host=True)
    rest = (12_300_000_000, 9_000, "pcie0", "measured")
    limits = Limits((OpDevice("embed*", "gpu0"),), (("lm_head", "embed"),), (OpDevice("*NMS*", "cpu0"),))
    links = (Link("gpu0", "cpu0", *rest), Link("cpu0", "gpu0", *rest))
    assert Cluster.parse(EXAMPLE) == Cluster("cluster", (gpu, cpu), links, limits)


def test_load(tmp_path: Path) -> None:
    """Tests that a file is read, that it gives the name, and that a byte-order mark and CRLF do no harm."""
    path = tmp_path / "lab.toml"
    path.write_bytes(b"\xef\xbb\xbf" + EXAMPLE.replace("\n", "\r\n").encode())
    cluster = Cluster.load(path)
    assert cluster.name == "lab"
    assert cluster == Cluster.parse('name = "lab"' + EXAMPLE)
    assert Cluster.load(str(path)) == cluster


@pytest.mark.parametrize(
    ("ends", "pairs"),
    [
        ('between = ["a", "b"]', ["ab", "ba"]),
        ('between = ["c", "a", "b"]', ["ca", "ac", "cb", "bc", "ab", "ba"]),
        ('from = "a"\nto = "b"', ["ab"]),
        ('from = ["a", "b"]\nto = "c"', ["ac", "bc"]),
        ('from = ["a", "b"]\nto = ["d", "c"]', ["ad", "ac", "bd", "bc"]),
    ],
)
def test_ends_of_links(ends: str, pairs: list[str]) -> None:
    """Tests which one-way links an entry makes."""
    devices = "".join(f'[[device]]\nid = "{id}"\nkind = "cpu"\n' for id in "abcd")
    cluster = Cluster.parse(f"version = 1\n{devices}[[link]]\n{ends}\n{NUMBERS}")
    assert cluster.links == tuple(Link(pair[0], pair[1], 12_500_000_000, 1_500) for pair in pairs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.toml: version: is missing (write version = 1 on the first line)"),
        ("version = 2", "f.toml: version: is not a version that can be read"),
        ("version = true", "f.toml: version: is not a version that can be read"),
        ("version = 1.0", "f.toml: version: is not a version that can be read"),
        ("version = 1", "f.toml: device: is missing"),
        ("version = 1\ndevices = []", "f.toml: devices: unknown field, did you mean 'device'?"),
        ("version = 1\n[device]\nid = 'a'", "f.toml: device: is a table, not a list (write [[device]])"),
        ("version = 1\ndevice = [3]", "f.toml: device[0]: is a number, not a table"),
        (DEVICES + 'memroy = "1 GiB"', "f.toml: device[1].memroy: unknown field, did you mean 'memory'?"),
        (DEVICES + "zzzz = 1", "f.toml: device[1].zzzz: unknown field (known here: id, kind, memory,"),
        (DEVICES + '"\\u001b" = 1', r"f.toml: device[1].'\x1b': unknown field (known here"),
        (DEVICES + "memory = 24", "f.toml: device[1].memory: no unit in '24' for a size (write it like '24 GiB'"),
        (DEVICES + "memory = 0.5", "f.toml: device[1].memory: no unit in '0.5' for a size"),
        (DEVICES + f"memory = 0x{'f' * 9000}", "f.toml: device[1].memory: 'a number without a unit' is not a size"),
        (DEVICES + f"memory = {'9' * 9000}", "f.toml: not valid TOML: "),
        (DEVICES + "memory = nan", "f.toml: device[1].memory: 'a number without a unit' is not a size"),
        (DEVICES + "memory = true", "f.toml: device[1].memory: is true or false, not text in quotes"),
        (DEVICES + "memory = 1979-05-27", "f.toml: device[1].memory: is a date or time, not text in quotes"),
        (DEVICES + 'memory = "-1 GiB"', "f.toml: device[1].memory: '-1 GiB' is not a size"),
        (DEVICES + 'memory = "1 Gb"', "f.toml: device[1].memory: unknown unit 'Gb' in '1 Gb' for a size"),
        (DEVICES + 'memory = "0 B"', "f.toml: device[1].memory: 0 is not in 1..2^60"),
        (DEVICES + 'memory = "2000 PB"', "f.toml: device[1].memory: '2000 PB' is absurdly large"),
        (
            DEVICES + 'memory = "1 GiB"\nreserve = "2 GiB"',
            "f.toml: device[1].reserve: the reserve of 'b' leaves nothing",
        ),
        (DEVICES + "host = 1", "f.toml: device[1].host: is a number, not true or false"),
        (DEVICES + "speed = '0.5'", "f.toml: device[1].speed: is text, not a number"),
        (DEVICES + "speed = true", "f.toml: device[1].speed: is true or false, not a number"),
        (DEVICES + "speed = nan", "f.toml: device[1].speed: nan is not in 0.001..1"),
        (DEVICES + f"speed = 1{'0' * 400}", "f.toml: device[1].speed: 1.15"),
        (DEVICES + "runtime = []", "f.toml: device[1].runtime: is a list, not text in quotes"),
        (DEVICES + 'memory_source = "rumour"', "f.toml: device[1].memory_source: 'rumour' is not a source"),
        (DEVICES + "rate = 5", "f.toml: device[1].rate: is a number, not a table"),
        (DEVICES + 'rate = { fp32 = "1 TFLOP/s" }', "f.toml: device[1].rate.bandwidth: is missing"),
        (DEVICES + RATE.replace("TFLOP/s", "TB/s"), "f.toml: device[1].rate.fp32: unknown unit 'TB/s'"),
        (
            DEVICES + RATE.replace("1 TFLOP", "0 TFLOP"),
            "f.toml: device[1].rate.fp32: '0 TFLOP/s' is not a compute rate",
        ),
        (DEVICES + RATE.replace("fp32", 'fp16 = "1 s", fp32'), "f.toml: device[1].rate.fp16: unknown unit 's'"),
        (
            DEVICES + RATE.replace(" }", ', source = "datasheets" }'),
            "f.toml: device[1].rate.source: 'datasheets' is not a",
        ),
        (DEVICES + '[[device]]\nid = "a"\nkind = "gpu"', "f.toml: device[2].id: 'a' is already the id of device[0]"),
        (DEVICES + '[[device]]\nid = "a b"\nkind = "gpu"', "f.toml: device[2].id: 'a b' is not a device id"),
        (DEVICES + '[[device]]\nkind = "gpu"', "f.toml: device[2].id: is missing"),
        (DEVICES + '[[device]]\nid = "c"', "f.toml: device[2].kind: is missing"),
        (DEVICES + '[link]\nfrom = "a"', "f.toml: link: is a table, not a list (write [[link]])"),
        (DEVICES + f"[[link]]\n{NUMBERS}", "f.toml: link[0]: does not say what it links"),
        (DEVICES + f'[[link]]\nto = "a"\n{NUMBERS}', "f.toml: link[0].from: is missing"),
        (DEVICES + f'[[link]]\nbetween = ["a"]\n{NUMBERS}', "f.toml: link[0].between: needs two devices or more"),
        (DEVICES + f'[[link]]\nbetween = ["a", 2]\n{NUMBERS}', "f.toml: link[0].between[1]: is a number, not text"),
        (
            DEVICES + '[[link]]\nbetween = ["a", "b"]\nto = "b"',
            "f.toml: link[0]: has 'between' and also 'from' or 'to'",
        ),
        (DEVICES + f'[[link]]\nbetween = ["a", "c"]\n{NUMBERS}', "f.toml: link[0].between: unknown device 'c'"),
        (DEVICES + f'[[link]]\nfrom = "b"\nto = "c"\n{NUMBERS}', "f.toml: link[0].to: unknown device 'c'"),
        (DEVICES + f'[[link]]\nfrom = "b"\nto = "b"\n{NUMBERS}', "f.toml: link[0].to: links 'b' with itself"),
        (
            DEVICES + f'[[link]]\nbetween = ["a", "b"]\n{NUMBERS}[[link]]\nfrom = "b"\nto = "a"\n{NUMBERS}',
            "f.toml: link[1].to: a second link from 'b' to 'a' (give each direction once",
        ),
        (DEVICES + '[[link]]\nbetween = ["a", "b"]\nlatency = "1 us"', "f.toml: link[0].bandwidth: is missing"),
        (
            DEVICES + '[[link]]\nbetween = ["a", "b"]\nbandwidth = "5 GX/s"\nlatency = "1 us"',
            "f.toml: link[0].bandwidth: unknown unit 'GX/s' in '5 GX/s' for a bandwidth (write it like",
        ),
        (
            DEVICES + '[[link]]\nbetween = ["a", "b"]\nbandwidth = "5 GB/s"\nlatency = "1 GB"',
            "f.toml: link[0].latency: unknown unit 'GB' in '1 GB' for a time",
        ),
        (
            DEVICES + f'[[link]]\nbetween = ["a", "b"]\n{NUMBERS}source = "hearsay"',
            "f.toml: link[0].source: 'hearsay' is not a source",
        ),
        (DEVICES + "[limits]\npins = []", "f.toml: limits.pins: unknown field, did you mean 'pin'?"),
        (DEVICES + "[limits]\npin = [{ op = 'x' }]", "f.toml: limits.pin[0].device: is missing"),
        (DEVICES + "[limits]\npin = [{ op = 'x', device = 'd' }]", "f.toml: limits.pin[0].device: unknown device 'd'"),
        (DEVICES + "[limits]\ntogether = ['x']", "f.toml: limits.together[0]: is text, not a list"),
        (DEVICES + "[limits]\ntogether = [['x', 1]]", "f.toml: limits.together[0][1]: is a number, not text"),
        (DEVICES + "[limits]\nforbid = 'x'", "f.toml: limits.forbid: is text, not a list"),
        (
            "version = 1\n[[device]\n",
            "f.toml: not valid TOML: Expected ']]' at the end of an array declaration (at line 2,",
        ),
        ("version = 1\nversion = 1\n", "f.toml: not valid TOML: Cannot overwrite a value (at line 2, column 12)"),
        ("x = " + "[" * 100_000, "f.toml: not valid TOML: nested too deeply"),
        ("a." * 400_000 + "a = 1", "f.toml: a key or a name has more than 64 parts"),
        ("[" + '"a" . ' * 100_000 + "a]", "f.toml: a key or a name has more than 64 parts"),
        ("#" * (2**20 + 1), "f.toml: is larger than the limit of 1 MiB"),
    ],
)
def test_bad_files(text: str, message: str) -> None:
    """Tests that every mistake is an input error with file, place and a remedy."""
    with pytest.raises(InputError) as caught:
        Cluster.parse(text, "f.toml")
    assert str(caught.value).startswith(message)


def test_too_many_links() -> None:
    """Tests that a short text cannot ask for more links than a cluster can have."""
    ids = ", ".join(['"a"'] * 1025)
    with pytest.raises(InputError, match=r"f: link\[0\]: the cluster has more than 1047552 links"):
        Cluster.parse(f"{DEVICES}[[link]]\nfrom = [{ids}]\nto = [{ids}]\n{NUMBERS}", "f")


def test_bad_paths(tmp_path: Path) -> None:
    """Tests that what is not a readable file of a sane size is an input error that names it."""
    large, binary = tmp_path / "large.toml", tmp_path / "binary.toml"
    large.write_bytes(b"#" * (2**20 + 1))
    binary.write_bytes(b"version = \xff")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, message in [
        (tmp_path / "none.toml", "no such file"),
        (tmp_path, "not a file"),
        (fifo, "not a file"),
        (large, "is larger than the limit of 1 MiB"),
        (binary, "cannot be read: 'utf-8' codec can't decode byte 0xff in position 10"),
    ]:
        with pytest.raises(InputError) as caught:
            Cluster.load(path)
        assert str(caught.value).startswith(f"{path}: {message}")
    with pytest.raises(InputError):
        Cluster.load("a\0b")
