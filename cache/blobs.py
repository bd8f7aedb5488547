"""What every store offers: whole blobs of bytes under content addresses, and nothing about their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from lumenfarm.errors import EnvironmentFailure, InputError

__all__ = ["MAX_BLOB_BYTES", "BlobStore", "StoreError", "check_name", "is_name"]

# No store keeps more in one blob, and none reads much more than this into memory.
MAX_BLOB_BYTES = 16 * 2**20

_NAME = re.compile(r"[0-9a-f]{64}")


class StoreError(EnvironmentFailure):
    """A store cannot be read or written: one line that names the store and the reason."""

    kind = "cache"


class BlobStore(Protocol):
    """Blobs by name, where a name is 64 lower-case hexadecimal digits.

    Readers see whole blobs only, however many processes write. What vanishes while it is being read is a miss.
    Every method that takes a name raises InputError if it is not a name.
    """

    @property
    def url(self) -> str:
        """What `lumenfarm.cache.opening.open_cache` makes the same store of, in any process."""
        ...

    def get(self, name: str) -> bytes | None:
        """The blob; None if there is none. A blob above MAX_BLOB_BYTES comes cut, but still above it.

        Raises:
            StoreError: the blob is there but cannot be read.
        """
        ...

    def put(self, name: str, blob: bytes) -> None:
        """Publish a blob as a whole, in place of an earlier one; idempotent.

        Raises:
            StoreError: the store is read-only, full or out of reach; nothing has changed.
        """
        ...

    def probe(self) -> None:
        """Do all that `put` does but publish.

        Raises:
            StoreError: a `put` would be refused now.
        """
        ...

    def names(self) -> Iterator[str]:
        """The names of all published blobs, each once, in no particular order.

        Raises:
            StoreError: the store cannot be listed.
        """
        ...

    def quarantine(self, name: str) -> None:
        """Take a blob out of service but keep it to be looked at; nothing happens if there is none.

        Raises:
            StoreError: the store is read-only or out of reach.
        """
        ...

    def quarantined(self) -> Iterator[str]:
        """The names of blobs taken out of service, each once.

        Raises:
            StoreError: the store cannot be listed.
        """
        ...


def is_name(text: str) -> bool:
    """Whether ``text`` is 64 lower-case hexadecimal digits."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Let only names pass: no other text ever becomes part of a path.

    Raises:
        InputError: ``name`` is not 64 lower-case hexadecimal digits.
    """
    if not is_name(name):
        raise InputError("cache key", name, "64 lower-case hexadecimal digits")
