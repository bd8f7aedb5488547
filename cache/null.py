"""The store of those who want no store: always empty, never an `if cache` anywhere else."""

from __future__ import annotations

from collections.abc import Iterator

from lumenfarm.cache.blobs import check_name
from lumenfarm.errors import InputError

__all__ = ["NullStore"]


class NullStore:
    """Accepts every blob and keeps none."""

    url = "none"

    @classmethod
    def from_location(cls, location: str) -> NullStore:
        """The store that ``none:`` names.

        Raises:
            InputError: anything after the colon.
        """
        if location:
            raise InputError("cache", f"none:{location}", "none with nothing behind it")
        return cls()

    def get(self, name: str) -> bytes | None:
        """None."""
        check_name(name)
        return None

    def put(self, name: str, blob: bytes) -> None:  # noqa: ARG002 - the protocol's signature
        """Forget the blob."""
        check_name(name)

    def probe(self) -> None:
        """See `BlobStore.probe`; always succeeds."""

    def names(self) -> Iterator[str]:
        """No name."""
        return iter(())

    def quarantine(self, name: str) -> None:
        """Nothing to take out of service."""
        check_name(name)

    def quarantined(self) -> Iterator[str]:
        """No name."""
        return iter(())
