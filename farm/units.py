"""The one place where text with a unit becomes a number, and a number becomes text for people.

Inside LumenFarm sizes are bytes, times nanoseconds and rates Gb/s, and names carry the unit
(``message_bytes``, ``alpha_ns``, ``link_gbps``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from lumenfarm.errors import InputError, nearest

__all__ = [
    "MAX_BYTES",
    "finite",
    "format_bytes",
    "format_time_ns",
    "parse_bytes",
    "parse_rate_gbps",
    "parse_time_ns",
    "positive_int",
]

# The largest number below 2**63.
MAX_BYTES = math.nextafter(2.0**63, 0.0)

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?nan|[-+]?inf)\s*([A-Za-zµμ/]*)\s*")
_BYTES = {"B": 1.0} | {
    f"{prefix}{infix}B": float(base**power)
    for power, prefix in enumerate("KMGT", start=1)
    for infix, base in (("i", 1024), ("", 1000))
}
_BYTES["kB"] = 1000.0
_TIMES = {
    "ns": 1.0,
    "us": 1e3,
    "µs": 1e3,
    "μs": 1e3,
    "ms": 1e6,
    "s": 1e9,
    "min": 60e9,
    "h": 3600e9,
}
_RATES = {"Gbps": 1.0, "Gb/s": 1.0, "Mbps": 1e-3, "Mb/s": 1e-3, "Tbps": 1e3, "Tb/s": 1e3}


def parse_bytes(text: str | float, *, field: str = "message") -> float:
    """Bytes from ``16MiB``, ``64KB`` (decimal) or a bare number of bytes; positive and below 2**63.

    Raises:
        InputError: no number, an unknown unit, not finite, not positive, or too large.
    """
    size = _parse(text, _BYTES, field, "a size such as 16MiB or a number of bytes")
    if not 0 < size <= MAX_BYTES:
        raise InputError(field, text, "a size above 0 and below 2**63 bytes")
    return size


def parse_time_ns(text: str | float, *, field: str = "time") -> float:
    """Nanoseconds from ``500ns``, ``10us``, ``1ms`` or a bare number of ns; zero is allowed.

    Raises:
        InputError: no number, an unknown unit, not finite, or negative.
    """
    time = _parse(text, _TIMES, field, "a time such as 500ns, 10us or 1ms")
    if time < 0:
        raise InputError(field, text, "a time that is not negative")
    return time


def parse_rate_gbps(text: str | float, *, field: str = "link") -> float:
    """Gb/s from ``800Gbps``, ``1.6Tbps`` or a bare number of Gb/s; positive.

    Raises:
        InputError: no number, an unknown unit, not finite, or not positive.
    """
    rate = _parse(text, _RATES, field, "a rate such as 800Gbps")
    if rate <= 0:
        raise InputError(field, text, "a rate above 0")
    return rate


def format_bytes(size: float) -> str:
    """``16 MiB``: the largest binary unit that leaves at least one, three significant digits."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{_digits(size / 1024**power)} {unit}"
    return f"{_digits(size)} B"


def format_time_ns(time_ns: float) -> str:
    """``10 us``: the largest unit up to seconds that leaves at least one, five significant digits."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if time_ns >= factor:
            return f"{time_ns / factor:.5g} {unit}"
    return f"{time_ns:.5g} ns"


def finite(value: float, *, field: str, minimum: float = 0.0, strict: bool = False) -> float:
    """``value`` as a float, if it is a number below 2**63 and not below (``strict``: above) ``minimum``.

    Raises:
        InputError: otherwise.
    """
    relation = "above" if strict else "not below"
    expected = f"a number {relation} {minimum:g} and below 2**63"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(field, value, expected)
    number = float(value) if abs(value) < MAX_BYTES else math.inf
    if not math.isfinite(number) or number < minimum or (strict and number == minimum):
        raise InputError(field, value, expected)
    return number


def positive_int(value: int, *, field: str, minimum: int = 1) -> int:
    """``value`` if it is an integer not below ``minimum``.

    Raises:
        InputError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InputError(field, value, f"a whole number not below {minimum}")
    return value


def _parse(text: str | float, units: Mapping[str, float], field: str, expected: str) -> float:
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        number, unit = float(text), ""
    else:
        match = _QUANTITY.fullmatch(str(text))
        if match is None:
            raise InputError(field, text, expected)
        number, unit = float(match[1]), match[2]
    if not math.isfinite(number):
        raise InputError(field, text, f"{expected}, finite")
    return number * _factor(unit, units, field, text)


def _factor(unit: str, units: Mapping[str, float], field: str, text: object) -> float:
    if not unit:
        return 1.0
    if unit in units:
        return units[unit]
    close = nearest(unit, units)
    hint = f" (did you mean {close}?)" if close else ""
    raise InputError(field, text, f"a unit out of {', '.join(units)}{hint}")


def _digits(value: float) -> str:
    return f"{value:.4g}" if value < 1024 else f"{value:.0f}"
