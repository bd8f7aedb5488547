"""A store in the memory of one process: for tests, and for jobs that should leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from lumenfarm.cache.blobs import check_name
from lumenfarm.errors import InputError

__all__ = ["MemoryStore"]


class MemoryStore:
    """Blobs in a dictionary; lost when the process ends, invisible to other processes."""

    url = "memory:"

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}
        self._quarantined: dict[str, bytes] = {}

    @classmethod
    def from_location(cls, location: str) -> MemoryStore:
        """The one store of this process that ``memory:`` names.

        Raises:
            InputError: anything after the colon.
        """
        if location:
            raise InputError("cache", f"memory:{location}", "memory: with nothing behind it")
        return _of_this_process()

    def get(self, name: str) -> bytes | None:
        """See `BlobStore.get`."""
        check_name(name)
        return self._blobs.get(name)

    def put(self, name: str, blob: bytes) -> None:
        """See `BlobStore.put`."""
        check_name(name)
        self._blobs[name] = bytes(blob)

    def probe(self) -> None:
        """See `BlobStore.probe`; always succeeds."""

    def names(self) -> Iterator[str]:
        """See `BlobStore.names`."""
        return iter(tuple(self._blobs))

    def quarantine(self, name: str) -> None:
        """See `BlobStore.quarantine`."""
        check_name(name)
        if name in self._blobs:
            self._quarantined[name] = self._blobs.pop(name)

    def quarantined(self) -> Iterator[str]:
        """See `BlobStore.quarantined`."""
        return iter(tuple(self._quarantined))


@cache
def _of_this_process() -> MemoryStore:
    return MemoryStore()
