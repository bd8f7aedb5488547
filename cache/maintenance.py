"""What is in a cache, for any store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lumenfarm.cache.blobs import BlobStore
from lumenfarm.cache.entries import Entry, EntryError, decode_entry
from lumenfarm.cache.results import ResultCache

__all__ = ["CacheStats", "stats"]


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What is in a cache.

    Attributes:
        url: the cache.
        entries: entries that can be used.
        bytes: their total size.
        by_kind: entries by kind of task.
        by_versions: entries by the versions that made them, such as ``highs 1.11.0, lumenfarm 0.1.0``.
        damaged: entries that cannot be used and would be set aside when asked for.
        quarantined: entries set aside.
        oldest, newest: when the first and the last entry were made, by the clocks of their makers; None if empty.
    """

    url: str
    entries: int = 0
    bytes: int = 0
    by_kind: Mapping[str, int] = field(default_factory=dict)
    by_versions: Mapping[str, int] = field(default_factory=dict)
    damaged: int = 0
    quarantined: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None


def stats(cache: ResultCache) -> CacheStats:
    """Read every entry and count; nothing is changed. Entries that vanish meanwhile are left out.

    Raises:
        StoreError: the store cannot be listed or read.
    """
    kinds: Counter[str] = Counter()
    makers: Counter[str] = Counter()
    sizes, moments, damaged = [], [], 0
    for size, entry in _entries(cache.store):
        if entry is None:
            damaged += 1
            continue
        kinds[entry.kind] += 1
        makers[_label(entry.versions)] += 1
        sizes.append(size)
        moments.append(entry.created)
    return CacheStats(
        url=cache.url,
        entries=len(sizes),
        bytes=sum(sizes),
        by_kind=dict(sorted(kinds.items())),
        by_versions=dict(sorted(makers.items())),
        damaged=damaged,
        quarantined=sum(1 for _ in cache.store.quarantined()),
        oldest=min(moments, default=None),
        newest=max(moments, default=None),
    )


def _entries(store: BlobStore) -> Iterator[tuple[int, Entry | None]]:
    for name in store.names():
        blob = store.get(name)
        if blob is None:
            continue
        try:
            yield len(blob), decode_entry(blob, name)
        except EntryError:
            yield len(blob), None


def _label(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
