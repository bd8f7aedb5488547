"""Quantities with units, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.units import (
    finite,
    format_bytes,
    format_time_ns,
    parse_bytes,
    parse_rate_gbps,
    parse_time_ns,
    positive_int,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16MiB", 16 * 2**20),
        ("1 KiB", 1024),
        ("16777216", 16777216),
        ("64KB", 64000),
        ("1.5GiB", 1.5 * 2**30),
        ("8B", 8),
        (4096, 4096),
    ],
)
def test_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "time"),
    [("500ns", 500), ("10us", 1e4), ("10µs", 1e4), ("1ms", 1e6), ("0", 0), ("2 s", 2e9), ("1.5e3", 1500)],
)
def test_times(text, time):
    assert parse_time_ns(text) == pytest.approx(time)


@pytest.mark.parametrize(("text", "rate"), [("800Gbps", 800), ("800", 800), ("1.6Tbps", 1600), ("400Gb/s", 400)])
def test_rates(text, rate):
    assert parse_rate_gbps(text) == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["", "x", "1e400", "nan", "inf", "-inf", "-1", "16MB/s", "16Mib", "1,5ms", "0x10", "٣٤ x"]
)
@pytest.mark.parametrize("parse", [parse_bytes, parse_time_ns, parse_rate_gbps])
def test_refused_everywhere(parse, text):
    with pytest.raises(InputError) as caught:
        parse(text, field="thing")
    assert caught.value.field == "thing"
    assert "\n" not in str(caught.value)


def test_refusal_names_the_nearest_unit():
    with pytest.raises(InputError, match=r"did you mean MiB\?"):
        parse_bytes("16Mib")


@pytest.mark.parametrize("text", ["0", "9223372036854775808", "9000000TiB"])
def test_bytes_out_of_range(text):
    with pytest.raises(InputError, match="above 0 and below 2"):
        parse_bytes(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 10**400, True, "1", None, 2**63])
def test_finite_refuses(value):
    with pytest.raises(InputError):
        finite(value, field="x")


def test_finite_strict_and_int():
    assert finite(0, field="x") == 0.0
    with pytest.raises(InputError, match="above 0"):
        finite(0.0, field="x", strict=True)
    for value in (0, 1.0, True):
        with pytest.raises(InputError):
            positive_int(value, field="x")


@given(st.floats(1, 1e15))
def test_formats_read_back(value):
    assert parse_bytes(format_bytes(value).replace(" ", "")) == pytest.approx(value, rel=1e-3)
    assert parse_time_ns(format_time_ns(value).replace(" ", "")) == pytest.approx(value, rel=1e-4)
