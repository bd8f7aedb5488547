"""Entries as bytes: they round trip, and any other bytes are refused with one kind of error."""

from __future__ import annotations

import contextlib
import hashlib
import math
from datetime import UTC, datetime
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.cache.blobs import MAX_BLOB_BYTES
from lumenfarm.cache.entries import MAX_ITEMS, Entry, EntryError, decode_entry, encode_entry

KEY = "42" + "a" * 62
CREATED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts | st.binary(max_size=8)
plain = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4))
records = st.dictionaries(texts, plain, max_size=4)


def entry(*, request: Any = None, result: Any = None) -> Entry:
    return Entry(KEY, "test/1", request or {"gpus": 8}, result or {"theta": [0.5]}, {"highs": "1.11"}, CREATED)


def sealed(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest() + payload


def fields(**changed: Any) -> dict[str, Any]:
    made = {"versions": {"highs": "1.11"}, "created": CREATED.isoformat()}
    sound = {"format": 1, "key": KEY, "kind": "test/1", "request": {}, "result": {}, "made": made}
    return sound | changed


@given(records, records)
def test_an_entry_round_trips(request: dict[str, Any], result: dict[str, Any]) -> None:
    before = Entry(KEY, "test/1", request, result, {"highs": "1.11"}, CREATED)
    # repr tells -0.0 from 0.0 and True from 1, and takes one nan for another.
    assert repr(decode_entry(encode_entry(before), KEY)) == repr(before)


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -0.0, 5e-324, 0.1, 1.7976931348623157e308])
def test_every_float_round_trips_to_the_bit(number: float) -> None:
    result = decode_entry(encode_entry(entry(result={"cost_ns": number})), KEY).result
    assert repr(result["cost_ns"]) == repr(number)


def test_the_layout_is_a_digest_and_a_readable_map() -> None:
    blob = encode_entry(entry())
    assert blob[:32].hex() == hashlib.sha256(blob[32:]).hexdigest()
    assert msgpack.unpackb(blob[32:]) == {
        "format": 1,
        "key": KEY,
        "kind": "test/1",
        "request": {"gpus": 8},
        "result": {"theta": [0.5]},
        "made": {"versions": {"highs": "1.11"}, "created": "2026-01-02T03:04:05+00:00"},
    }


def test_equal_entries_have_equal_bytes() -> None:
    assert encode_entry(entry()) == encode_entry(entry())


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        object(),
        2**64,
        {1: "a number as key"},
        {b"bytes": "as key"},
        "\ud800",
        CREATED,
        msgpack.ExtType(5, b""),
        msgpack.Timestamp(0),
        bytes(MAX_BLOB_BYTES),
        [0] * (MAX_ITEMS + 1),
    ],
    ids=["set", "object", "int", "int-key", "bytes-key", "surrogate", "datetime", "ext", "timestamp", "size", "items"],
)
def test_what_would_not_be_read_back_is_not_encoded(value: object) -> None:
    with pytest.raises(EntryError):
        encode_entry(entry(result={"value": value}))


def test_data_nested_too_deeply_is_not_encoded() -> None:
    nested: list[Any] = []
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(EntryError):
        encode_entry(entry(result={"value": nested}))


@given(st.binary(max_size=300))
def test_any_bytes_are_an_entry_or_refused(blob: bytes) -> None:
    with pytest.raises(EntryError):
        decode_entry(blob, KEY)


@given(st.binary(max_size=300) | plain.map(msgpack.packb))
def test_any_bytes_under_a_good_digest_are_an_entry_or_refused(payload: bytes) -> None:
    with pytest.raises(EntryError):
        decode_entry(sealed(payload), KEY)


@given(st.data())
def test_any_value_in_any_field_is_an_entry_or_refused(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(fields())))
    blob = sealed(msgpack.packb(fields(**{field: data.draw(plain)})))
    with contextlib.suppress(EntryError):
        assert decode_entry(blob, KEY).key == KEY


@given(st.data())
def test_bytes_changed_under_a_good_digest_are_an_entry_or_refused(data: st.DataObject) -> None:
    payload = bytearray(encode_entry(entry())[32:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(EntryError):
        assert decode_entry(sealed(bytes(payload)), KEY).key == KEY


def test_every_flipped_byte_and_every_truncation_is_refused() -> None:
    blob = encode_entry(entry())
    flipped = [blob[:at] + bytes([blob[at] ^ (1 << at % 8)]) + blob[at + 1 :] for at in range(len(blob))]
    truncated = [blob[:length] for length in range(len(blob))]
    for damaged in (*flipped, *truncated, blob + b"\0"):
        with pytest.raises(EntryError):
            decode_entry(damaged, KEY)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"format": 2}, "entry format 2 instead of 1"),
        ({"format": None}, "entry format None instead of 1"),
        ({"key": "0" * 64}, "an entry for '0000"),
        ({"result": [1]}, "missing or of a wrong type"),
        ({"kind": 7}, "missing or of a wrong type"),
        ({"made": {"versions": {"highs": 1}, "created": CREATED.isoformat()}}, "missing or of a wrong type"),
        ({"made": {"versions": {}, "created": "yesterday"}}, "created at 'yesterday'"),
        ({"made": {"versions": {}, "created": "2026-01-02T03:04:05"}}, "no time zone"),
    ],
)
def test_a_well_formed_map_that_is_no_entry_for_the_key_is_refused(changed: dict[str, Any], reason: str) -> None:
    decode_entry(sealed(msgpack.packb(fields())), KEY)
    with pytest.raises(EntryError, match=reason):
        decode_entry(sealed(msgpack.packb(fields(**changed))), KEY)


@pytest.mark.parametrize("missing", sorted(fields()))
def test_a_missing_field_is_refused(missing: str) -> None:
    kept = {name: value for name, value in fields().items() if name != missing}
    with pytest.raises(EntryError):
        decode_entry(sealed(msgpack.packb(kept)), KEY)


@pytest.mark.parametrize(
    "payload",
    [
        b"\xdd\x7f\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x05",
        b"\xdd\x00\x01\x00\x00" * 1000 + bytes(70_000),
        b"\x91" * 100_000,
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xc7\x00\x05",
    ],
    ids=["array", "map", "text", "bytes", "extension", "nested arrays", "depth", "timestamp", "empty extension"],
)
def test_huge_declared_lengths_and_extensions_are_refused(payload: bytes) -> None:
    with pytest.raises(EntryError, match="not msgpack of plain data"):
        decode_entry(sealed(payload), KEY)


def test_a_blob_above_the_limit_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(EntryError, match="more than"):
        decode_entry(bytes(MAX_BLOB_BYTES + 1), KEY)
