"""Statistics agree with what was put in and with the files themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from lumenfarm.cache.blobs import BlobStore
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.entries import Entry, encode_entry
from lumenfarm.cache.maintenance import CacheStats, stats
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.results import ResultCache

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
# Later than NOON although its text sorts before it.
LATER_ELSEWHERE = datetime(2026, 1, 1, 11, tzinfo=timezone(timedelta(hours=-5)))


def put(store: BlobStore, number: int, kind: str, highs: str, created: datetime) -> None:
    key = f"{number:064x}"
    store.put(key, encode_entry(Entry(key, kind, {}, {"theta": [1.0] * number}, {"highs": highs}, created)))


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return DirectoryStore(tmp_path) if request.param == "directory" else MemoryStore()


def test_stats_count_by_kind_and_version(store: BlobStore) -> None:
    put(store, 1, "theta-row/1", "1.11", NOON)
    put(store, 2, "theta-row/1", "1.12", LATER_ELSEWHERE)
    put(store, 3, "interval/1", "1.12", NOON - timedelta(days=1))
    found = stats(ResultCache(store))
    assert (found.entries, found.damaged, found.quarantined) == (3, 0, 0)
    assert found.by_kind == {"interval/1": 1, "theta-row/1": 2}
    assert found.by_versions == {"highs 1.11": 1, "highs 1.12": 2}
    assert (found.oldest, found.newest) == (NOON - timedelta(days=1), LATER_ELSEWHERE)
    assert found.bytes == sum(len(store.get(f"{number:064x}") or b"") for number in (1, 2, 3))


def test_the_size_is_that_of_the_files(tmp_path: Path) -> None:
    cache = ResultCache(DirectoryStore(tmp_path))
    for number in range(5):
        cache.save(f"{number:064x}", "test/1", {}, {"values": [0.5] * number})
    assert stats(cache).bytes == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())


def test_stats_tell_damaged_from_quarantined_and_change_neither(store: BlobStore) -> None:
    put(store, 1, "theta-row/1", "1.11", NOON)
    for number in (2, 3):
        store.put(f"{number:064x}", b"damaged")
    cache = ResultCache(store)
    cache.load(f"{2:064x}")
    for _ in range(2):
        found = stats(cache)
        assert (found.entries, found.damaged, found.quarantined) == (1, 1, 1)


@pytest.mark.parametrize("empty", [MemoryStore(), NullStore(), DirectoryStore(Path("never-created"))])
def test_an_empty_cache_has_empty_stats(empty: BlobStore) -> None:
    assert stats(ResultCache(empty)) == CacheStats(url=empty.url)


def test_an_entry_that_vanishes_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    put(store, 1, "theta-row/1", "1.11", NOON)
    monkeypatch.setattr(store, "names", lambda: iter([f"{1:064x}", f"{2:064x}"]))
    assert stats(ResultCache(store)).entries == 1
