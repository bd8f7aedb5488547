"""The result cache: what a solved task answered, by content address, over any store of blobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from lumenfarm.cache.blobs import BlobStore, StoreError
from lumenfarm.cache.entries import Entry, EntryError, decode_entry, encode_entry
from lumenfarm.ports import Record
from lumenfarm.versions import versions

__all__ = ["Counters", "ResultCache", "warn_by_log"]

warn_by_log: Callable[[str], None] = logging.getLogger(__name__).warning


@dataclass(frozen=True, slots=True)
class Counters:
    """What happened to one `ResultCache` so far.

    Attributes:
        hits: loads that gave a result.
        misses: loads that gave none, the damaged ones included.
        puts: results published.
        damaged: entries that could not be trusted and were set aside.
        refused: results that could not be published.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    damaged: int = 0
    refused: int = 0


class ResultCache:
    """A `lumenfarm.ports.ResultStore` that never fails: a store in trouble behaves like an empty one.

    The first trouble of each kind is told to ``warn`` in one line. A store that refuses to be written is not
    tried again; it is still read.

    Args:
        store: where entries live.
        warn: told of trouble; by default a log record of this module.
    """

    def __init__(self, store: BlobStore, *, warn: Callable[[str], None] = warn_by_log) -> None:
        self.store = store
        self._warn = warn
        self._warned: set[str] = set()
        self._writable = True
        self._counts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """What `lumenfarm.cache.opening.open_cache` makes a cache on the same store of, in any process."""
        return self.store.url

    @property
    def counters(self) -> Counters:
        """What happened so far in this process."""
        return Counters(**self._counts)

    def load(self, key: str) -> Record | None:
        """The result under ``key``; None if there is none, or it is damaged, of an unknown format or unreadable.

        Raises:
            InputError: ``key`` is not 64 lower-case hexadecimal digits.
        """
        entry = self._entry(key)
        self._counts["misses" if entry is None else "hits"] += 1
        return None if entry is None else entry.result

    def save(self, key: str, kind: str, request: Record, result: Record) -> None:
        """Publish a result, or warn once that it cannot be published.

        Raises:
            InputError: ``key`` is not 64 lower-case hexadecimal digits.
        """
        entry = Entry(key, kind, request, result, versions(), datetime.now(UTC))
        published = self._writable and self._published(entry)
        self._counts["puts" if published else "refused"] += 1

    def probe(self) -> StoreError | None:
        """What `save` would meet now: None, or the trouble, of which this warns like `save` does.

        Lets whoever starts many workers on one store warn once in their place.
        """
        try:
            self.store.probe()
        except StoreError as error:
            self._stop_writing(error)
            return error
        return None

    def _entry(self, key: str) -> Entry | None:
        try:
            blob = self.store.get(key)
            return None if blob is None else decode_entry(blob, key)
        except StoreError as error:
            self._warn_once("read", f"{error}; going on without what is in it")
        except EntryError:
            self._set_aside(key)
        return None

    def _published(self, entry: Entry) -> bool:
        try:
            self.store.put(entry.key, encode_entry(entry))
            return True
        except EntryError as error:
            self._warn_once("entry", f"a {entry.kind} result is not cached: {error}")
        except StoreError as error:
            self._stop_writing(error)
        return False

    def _set_aside(self, key: str) -> None:
        self._counts["damaged"] += 1
        try:
            self.store.quarantine(key)
        except StoreError as error:
            self._stop_writing(error)

    def _stop_writing(self, error: StoreError) -> None:
        self._writable = False
        self._warn_once("write", f"{error}; going on without saving results")

    def _warn_once(self, topic: str, message: str) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            self._warn(message)
