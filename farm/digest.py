"""Content addresses: SHA-256 over canonical bytes that do not change with process, platform or version.

Floats enter as decimal strings of twelve significant digits, arrays as little-endian bytes, mappings in
key order. No pickles, no ``repr`` of floats, no ``hash``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Canonical", "canonical_bytes", "digest", "round_significant"]

# Any: a recursive alias would have to name ndarray for every dtype and gains no checking.
Canonical: TypeAlias = Any

_SIGNIFICANT = 12


def digest(kind: str, **fields: Canonical) -> str:
    """Hexadecimal SHA-256 of ``kind`` and the named ``fields``.

    Fields may be None, booleans, integers, floats, strings, bytes, integer or float arrays, and
    sequences or string-keyed mappings of these.

    Raises:
        TypeError: a field holds anything else.
    """
    return hashlib.sha256(canonical_bytes([kind, fields])).hexdigest()


def canonical_bytes(value: Canonical) -> bytes:
    """A prefix-free encoding: different values never share their bytes; equal values always do."""
    out = bytearray()
    _encode(value, out)
    return bytes(out)


def round_significant(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positive ``values`` rounded to twelve significant digits, so that rounding noise cannot tell equals apart."""
    magnitude = np.floor(np.log10(values))
    scale = 10.0 ** (_SIGNIFICANT - 1 - magnitude)
    rounded: NDArray[np.float64] = np.rint(values * scale) / scale
    return rounded


def _encode(value: Canonical, out: bytearray) -> None:
    match value:
        case None:
            out += b"n"
        case bool():
            out += b"t" if value else b"f"
        case int() | np.integer():
            _tagged(b"i", str(int(value)).encode(), out)
        case float() | np.floating():
            _tagged(b"d", _decimal(float(value)).encode(), out)
        case str():
            _tagged(b"s", value.encode(), out)
        case bytes():
            _tagged(b"b", value, out)
        case np.ndarray():
            _encode_array(value, out)
        case Mapping():
            _encode_mapping(value, out)
        case Sequence():
            out += b"l%d:" % len(value)
            for item in value:
                _encode(item, out)
        case _:
            raise TypeError(f"no canonical bytes for {type(value).__name__}")


def _encode_mapping(value: Mapping[Any, Canonical], out: bytearray) -> None:
    if not all(isinstance(key, str) for key in value):
        raise TypeError("no canonical bytes for a mapping with keys that are not strings")
    out += b"m%d:" % len(value)
    for key in sorted(value):
        _encode(key, out)
        _encode(value[key], out)


def _encode_array(value: NDArray[Any], out: bytearray) -> None:
    out += f"a{','.join(map(str, value.shape))}:".encode()
    if value.dtype.kind in "iu" and value.dtype != np.uint64:
        _tagged(b"I", np.ascontiguousarray(value, dtype="<i8").tobytes(), out)
    elif value.dtype.kind == "f":
        distinct, where = np.unique(value, return_inverse=True)
        decimals = np.array([_decimal(float(number)) for number in distinct])
        words, which = np.unique(decimals, return_inverse=True)
        _encode(words.tolist(), out)
        _tagged(b"I", which[where].astype("<u4").tobytes(), out)
    else:
        raise TypeError(f"no canonical bytes for an array of {value.dtype}")


def _decimal(number: float) -> str:
    return f"{number + 0.0:.{_SIGNIFICANT - 1}e}"


def _tagged(tag: bytes, body: bytes, out: bytearray) -> None:
    out += tag + b"%d:" % len(body) + body
