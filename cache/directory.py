"""A store in a folder, local or shared over a network file system: no locks, no database, no shared counters."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote_to_bytes

from lumenfarm.cache.blobs import MAX_BLOB_BYTES, StoreError, check_name, is_name
from lumenfarm.errors import InputError

__all__ = ["DirectoryStore"]

# What a file that somebody else just removed or replaced looks like, on local and on network file systems.
_VANISHED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


class DirectoryStore:
    """One file a blob: ``entries/4/2a/42a...`` under the folder, and ``quarantine/42a...`` for damaged ones.

    The two levels keep folders small: 4096 of them hold a million blobs at 250 each. A blob is written under a
    temporary name in the folder it belongs to, flushed to the device and renamed, so it is visible as a whole or
    not at all. A writer that is killed leaves a temporary file that nothing reads. The folder is made by the
    first `put`, never by reading.

    Args:
        root: the folder; made absolute.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._entries = self.root / "entries"
        self._quarantine = self.root / "quarantine"

    @classmethod
    def from_location(cls, location: str) -> DirectoryStore:
        """The store that ``file:`` and ``location`` name, such as ``///srv/results``.

        Raises:
            InputError: no absolute path on this machine.
        """
        path = location.removeprefix("//localhost" if location.startswith("//localhost/") else "//")
        folder = os.fsdecode(unquote_to_bytes(path))
        if not folder.startswith("/") or "\0" in folder:
            raise InputError("cache", f"file:{location}", "file:///folder with an absolute path on this machine")
        return cls(Path(folder))

    @property
    def url(self) -> str:
        """``file:///folder``."""
        return self.root.as_uri()

    def get(self, name: str) -> bytes | None:
        """See `BlobStore.get`."""
        try:
            with open(self._path(name), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                return file.read(min(size, MAX_BLOB_BYTES) + 1)
        except OSError as error:
            if error.errno in _VANISHED:
                return None
            raise self._failure("read", error) from error

    def put(self, name: str, blob: bytes) -> None:
        """See `BlobStore.put`."""
        path = self._path(name)
        try:
            with _temporary_file(path.parent, blob) as temporary:
                os.replace(temporary, path)
        except OSError as error:
            raise self._failure("written", error) from error

    def probe(self) -> None:
        """See `BlobStore.probe`."""
        try:
            with _temporary_file(self._entries, b"probe"):
                pass
        except OSError as error:
            raise self._failure("written", error) from error

    def names(self) -> Iterator[str]:
        """See `BlobStore.names`."""
        return self._listing(self._entries)

    def quarantine(self, name: str) -> None:
        """See `BlobStore.quarantine`."""
        path = self._path(name)
        try:
            if path.exists():
                self._quarantine.mkdir(exist_ok=True)
                os.replace(path, self._quarantine / name)
        except OSError as error:
            if error.errno not in _VANISHED:
                raise self._failure("written", error) from error

    def quarantined(self) -> Iterator[str]:
        """See `BlobStore.quarantined`."""
        return self._listing(self._quarantine)

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._entries.joinpath(name[0], name[1:3], name)

    def _listing(self, folder: Path) -> Iterator[str]:
        for _, _, files in os.walk(folder, onerror=self._refuse_listing):
            yield from filter(is_name, files)

    def _refuse_listing(self, error: OSError) -> None:
        if error.errno not in _VANISHED:
            raise self._failure("listed", error) from error

    def _failure(self, done: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        return StoreError(f"cache folder {self.root} cannot be {done}: {reason}", where=str(self.root))


@contextlib.contextmanager
def _temporary_file(folder: Path, content: bytes) -> Iterator[Path]:
    """A flushed file with a name of its own in ``folder``, gone afterwards unless it was renamed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{_host()}.{secrets.token_hex(8)}.tmp"
    try:
        with open(path, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:64]
