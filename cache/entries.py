"""One cache entry as bytes: a SHA-256, then a msgpack map with the request, its result and what made it.

Entries are data, never code. Decoding is total and bounded: any bytes at all give an entry or an `EntryError`,
and what a file declares about its own lengths is not believed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgpack

from lumenfarm.cache.blobs import MAX_BLOB_BYTES
from lumenfarm.errors import LumenFarmError
from lumenfarm.ports import Record

__all__ = ["FORMAT", "MAX_ITEMS", "Entry", "EntryError", "decode_entry", "encode_entry"]

# Raise when the fields or their meaning change.
FORMAT = 1
# The longest list or map inside an entry; longer data belongs into bytes.
MAX_ITEMS = 2**16

_DIGEST_BYTES = hashlib.sha256().digest_size


class EntryError(LumenFarmError):
    """Bytes that are no entry, or an entry that cannot become bytes."""

    kind = "cache-entry"


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified result with the request it answers.

    Attributes:
        key: content address of the request, 64 hexadecimal digits.
        kind: sort of task with its format version, such as ``theta-row/1``.
        request: the problem, readable.
        result: the answer.
        versions: library versions that made it, by name.
        created: when, with a time zone; for people only, clocks differ.
    """

    key: str
    kind: str
    request: Record
    result: Record
    versions: Mapping[str, str]
    created: datetime


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry; `decode_entry` is known to accept them.

    Raises:
        EntryError: something is not plain data (numbers, strings, bytes, lists, maps with string keys), or the
            entry is larger than MAX_BLOB_BYTES or holds a list longer than MAX_ITEMS.
    """
    made = {"versions": dict(entry.versions), "created": entry.created.isoformat(timespec="seconds")}
    fields = {"format": FORMAT, "key": entry.key, "kind": entry.kind}
    contents = {"request": entry.request, "result": entry.result, "made": made}
    try:
        payload: bytes = msgpack.packb(fields | contents)
    except (TypeError, ValueError, OverflowError) as error:
        raise EntryError(f"not plain data: {error}") from error
    blob = hashlib.sha256(payload).digest() + payload
    decode_entry(blob, entry.key)
    return blob


def decode_entry(blob: bytes, key: str) -> Entry:
    """The entry in ``blob``, if it is the one for ``key``.

    Raises:
        EntryError: too large, truncated, damaged, of an unknown format, for another key, or not well-formed.
    """
    fields = _unpacked(_checked_payload(blob))
    if fields.get("format") != FORMAT:
        raise EntryError(f"entry format {fields.get('format')!r} instead of {FORMAT}")
    if fields.get("key") != key:
        raise EntryError(f"an entry for {fields.get('key')!r}")
    match fields:
        case {
            "kind": str(kind),
            "request": dict(request),
            "result": dict(result),
            "made": {"versions": dict(versions), "created": str(created)},
        } if all(isinstance(version, str) for version in versions.values()):
            return Entry(key, kind, request, result, versions, _moment(created))
    raise EntryError("fields are missing or of a wrong type")


def _checked_payload(blob: bytes) -> bytes:
    if len(blob) > MAX_BLOB_BYTES:
        raise EntryError(f"more than {MAX_BLOB_BYTES} bytes")
    payload = blob[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != blob[:_DIGEST_BYTES]:
        raise EntryError("digest does not match")
    return payload


def _unpacked(payload: bytes) -> dict[str, Any]:
    # msgpack reserves memory for declared lengths before it sees the items, at every level of nesting.
    longest = min(len(payload), MAX_ITEMS)
    try:
        fields = msgpack.unpackb(
            payload,
            max_array_len=longest,
            max_map_len=longest,
            max_ext_len=0,
            ext_hook=_refuse_extension,
            object_hook=_with_string_keys,
        )
    except (ValueError, RecursionError) as error:
        raise EntryError(f"not msgpack of plain data: {error}") from error
    if not isinstance(fields, dict):
        raise EntryError("not a map")
    return fields


def _refuse_extension(code: int, _: bytes) -> None:
    raise ValueError(f"extension type {code}")


def _with_string_keys(fields: dict[Any, Any]) -> dict[str, Any]:
    if not all(isinstance(name, str) for name in fields):
        raise ValueError("a key that is not a string")
    return fields


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise EntryError(f"created at {text!r}") from error
    if moment.tzinfo is None:
        raise EntryError(f"created at {text!r} of no time zone")
    return moment
