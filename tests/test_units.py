"""Quantities with units: exact in, readable out."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline import units
from weftline.errors import InputError
from weftline.units import (
    MAX_QUANTITY,
    format_bytes,
    format_name,
    format_names,
    format_time,
    parse_bandwidth,
    parse_bytes,
    parse_flops,
    parse_ratio,
    parse_time,
)

PARSERS = (parse_bytes, parse_bandwidth, parse_time, parse_flops)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_time, "0.1 us", 100),
        (parse_time, "0.3us", 300),
        (parse_time, "9 us", 9_000),
        (parse_time, "9 µs", 9_000),
        (parse_time, " 1.5 ms ", 1_500_000),
        (parse_time, "2 min", 120 * 10**9),
        (parse_time, "1 h", 3_600 * 10**9),
        (parse_time, "1e-3 s", 10**6),
        (parse_time, "0.1 ns", 1),
        (parse_time, "0 s", 0),
        (parse_bytes, "24 GiB", 24 * 2**30),
        (parse_bytes, "24 GB", 24 * 10**9),
        (parse_bytes, "64 B", 64),
        (parse_bytes, "0.5 B", 0),
        (parse_bytes, "1 KB", 1000),
        (parse_bytes, "1 kB", 1000),
        (parse_bandwidth, "12.3 GB/s", 12_300_000_000),
        (parse_bandwidth, "100 Gb/s", 12_500_000_000),
        (parse_bandwidth, "100 Gbit/s", 12_500_000_000),
        (parse_bandwidth, "8 Kib/s", 1024),
        (parse_flops, "35 TFLOP/s", 35 * 10**12),
        (parse_flops, "1 FLOP/s", 1),
        (parse_ratio, "1%", 0.01),
        (parse_ratio, "0.01", 0.01),
        (parse_ratio, "100 %", 1.0),
        (parse_ratio, "0", 0.0),
    ],
)
def test_parse(parse: Callable[[str], float], text: str, value: float) -> None:
    """Tests that written quantities are read exactly: bits are an eighth, times round up, sizes down."""
    assert parse(text) == value


NOT_QUANTITIES = ("", " ", "GiB", "-1 s", "1,5 ms", "1 2 s", "nan s", "inf B", "0x10 B", "1..5 s", "\u0661 s")


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", NOT_QUANTITIES)
def test_not_a_quantity(parse: Callable[[str], int], text: str) -> None:
    """Tests that what is no quantity is refused with an example of one."""
    with pytest.raises(InputError) as error:
        parse(text)
    assert "write it like" in error.value.hint


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_time, "3 lightyears", "unknown unit 'lightyears' in '3 lightyears' for a time"),
        (parse_time, "3", "no unit in '3' for a time"),
        (parse_bytes, "3 GB/s", "unknown unit 'GB/s'"),
        (parse_bytes, "3 Gb", "unknown unit 'Gb'"),
        (parse_bandwidth, "3 GB", "unknown unit 'GB'"),
        (parse_flops, "3 GB/s", "for a compute rate"),
        (parse_bandwidth, "0 B/s", "not a bandwidth anything can be sent over"),
        (parse_bandwidth, "7 b/s", "not a bandwidth anything can be sent over"),
        (parse_flops, "0.5 FLOP/s", "not a compute rate"),
        (parse_time, "1e99 s", "absurdly large"),
        (parse_bytes, "2000 PiB", "absurdly large"),
        (parse_ratio, "101%", "not between 0 and 1"),
        (parse_ratio, "1.5", "not between 0 and 1"),
        (parse_ratio, "-1%", "not a share"),
        (parse_ratio, "one", "not a share"),
    ],
)
def test_messages(parse: Callable[[str], float], text: str, complaint: str) -> None:
    """Tests that the message says what is wrong with the unit or the size, and the hint how to write it."""
    with pytest.raises(InputError) as error:
        parse(text)
    assert complaint in str(error.value)
    assert error.value.hint


def test_unknown_unit_lists_known_ones() -> None:
    """Tests that the hint names units that exist."""
    with pytest.raises(InputError) as error:
        parse_time("3 days")
    assert "ns, us" in error.value.hint


@given(st.text(max_size=200))
def test_any_text_parses_or_is_an_input_error(text: str) -> None:
    """Tests that no text makes a parser fail in another way, and that messages stay short."""
    for parse in (*PARSERS, parse_ratio):
        message = ""
        try:
            assert 0 <= parse(text) <= MAX_QUANTITY
        except InputError as error:
            message = str(error)
        assert len(message) < 400


@given(st.integers(0, MAX_QUANTITY), st.sampled_from(["ns", "us", "ms", "s"]))
def test_exact_decimal_round_trip(nanoseconds: int, unit: str) -> None:
    """Tests that all digits survive: a time written with enough decimals is the same integer again."""
    power = {"ns": 0, "us": 3, "ms": 6, "s": 9}[unit]
    whole, part = divmod(nanoseconds, 10**power)
    text = f"{whole}.{part:0{power}d} {unit}" if power else f"{whole} {unit}"
    assert parse_time(text) == nanoseconds


@given(st.integers(0, MAX_QUANTITY))
def test_formatted_values_parse_back_closely(value: int) -> None:
    """Tests that the shown text means the value to four digits."""
    for shown, parse in ((format_time(value), parse_time), (format_bytes(value), parse_bytes)):
        again = parse(shown.replace(",", ""))
        assert abs(Fraction(again) - value) <= Fraction(value, 1_900) + 1


@pytest.mark.parametrize(
    ("format_value", "value", "text"),
    [
        (format_time, 0, "0 ns"),
        (format_time, 999, "999 ns"),
        (format_time, 1_278_110_000, "1.278 s"),
        (format_time, 100, "100 ns"),
        (format_time, -1500, "-1.5 us"),
        (format_time, 86_400 * 10**9, "86,400 s"),
        (format_bytes, 24 * 2**30, "24 GiB"),
        (format_bytes, 1023, "1023 B"),
        (format_bytes, 2**60, "1,048,576 TiB"),
    ],
)
def test_format(format_value: Callable[[int], str], value: int, text: str) -> None:
    """Tests that readers see the unit they expect, never an exponent."""
    assert format_value(value) == text


def test_names_for_human_eyes() -> None:
    """Tests that what a terminal would obey is shown as text, and that line breaks are kept only where asked."""
    assert format_name("a\x1b[2J\n") == "a\\x1b[2J\\n"
    assert format_name("a\x1b\nb", keep="\n") == "a\\x1b\nb"
    assert format_name("plain é") == "plain é"


def test_several_names() -> None:
    """Tests names in a sentence: quoted, joined by commas, the rest counted."""
    assert format_names(["a"]) == "'a'"
    assert format_names(["a", "b\n"]) == "'a', 'b\\n'"
    assert format_names(list("abcdefgh"), 2) == "'a', 'b' and 6 more"


def test_public_names() -> None:
    """Tests that what the module says it offers exists."""
    assert all(hasattr(units, name) for name in units.__all__)
