"""The result cache: hits, misses, damage and stores that refuse; never an error for the caller."""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.cache.blobs import StoreError
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.results import Counters, ResultCache
from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Pattern, Topology
from lumenfarm.ports import ResultStore
from lumenfarm.problem import ThetaRow, ThetaTask

KEY = "42" + "a" * 62
OTHER = "0123456789abcdef" * 4
Refusing = Callable[[str, int], AbstractContextManager[None]]
REQUEST = {"gpus": 8}
RESULT = {"theta": [0.5, 1.0], "hops": [2, -1], "solves": 1}


def save(cache: ResultStore, key: str = KEY) -> None:
    cache.save(key, "theta-row/1", REQUEST, RESULT)


def entry_file(root: Path, key: str = KEY) -> Path:
    return root / "entries" / key[0] / key[1:3] / key


def test_a_saved_result_is_found_and_counted() -> None:
    cache = ResultCache(MemoryStore())
    assert cache.load(KEY) is None
    save(cache)
    assert cache.load(KEY) == RESULT
    assert cache.load(OTHER) is None
    assert cache.counters == Counters(hits=1, misses=2, puts=1)


def test_counters_are_a_snapshot() -> None:
    cache = ResultCache(MemoryStore())
    before = cache.counters
    cache.load(KEY)
    assert before == Counters()


def test_saving_again_replaces() -> None:
    cache = ResultCache(MemoryStore())
    save(cache)
    cache.save(KEY, "theta-row/1", REQUEST, {"theta": [1.0]})
    assert cache.load(KEY) == {"theta": [1.0]}


def test_a_theta_row_comes_back_to_its_task() -> None:
    patterns = [Pattern(PairMatrix.shift(8, 1, 1.0)), Pattern(PairMatrix.shift(8, 3, 1.0))]
    task = ThetaTask(Topology.circulant(8, {1: 1}), patterns, dims=(8,))
    row = ThetaRow((1.0, 0.0), (1.0, math.inf), 2)
    cache = ResultCache(MemoryStore())
    cache.save(task.key, task.kind, task.describe(), row.to_record())
    record = cache.load(task.key)
    assert record is not None
    assert task.read(record) == row


def test_the_null_store_makes_every_load_a_miss() -> None:
    cache = ResultCache(NullStore())
    save(cache)
    assert cache.load(KEY) is None


def test_what_is_no_key_is_refused() -> None:
    cache = ResultCache(MemoryStore())
    with pytest.raises(InputError):
        cache.load("../../etc/passwd")
    with pytest.raises(InputError):
        save(cache, "42")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    save(ResultCache(DirectoryStore(folder)))
    return folder


def check_damage_is_a_miss_and_set_aside(root: Path, blob: bytes) -> None:
    warnings: list[str] = []
    entry_file(root).write_bytes(blob)
    cache = ResultCache(DirectoryStore(root), warn=warnings.append)
    assert cache.load(KEY) is None
    assert not entry_file(root).exists()
    assert (root / "quarantine" / KEY).read_bytes() == blob
    assert cache.load(KEY) is None
    assert cache.counters == Counters(misses=2, damaged=1)
    assert warnings == []


@given(st.binary(max_size=200))
def test_any_bytes_in_a_file_are_a_miss_and_set_aside(root: Path, blob: bytes) -> None:
    check_damage_is_a_miss_and_set_aside(root, blob)


def test_any_flipped_or_missing_byte_is_a_miss_and_set_aside(tmp_path: Path) -> None:
    save(ResultCache(DirectoryStore(tmp_path)))
    sound = entry_file(tmp_path).read_bytes()
    for at in range(len(sound)):
        check_damage_is_a_miss_and_set_aside(tmp_path, sound[:at] + bytes([sound[at] ^ 0x20]) + sound[at + 1 :])
        check_damage_is_a_miss_and_set_aside(tmp_path, sound[:at])


@pytest.mark.parametrize("change", [{"format": 2}, {"key": OTHER}], ids=["unknown version", "wrong key"])
def test_an_unknown_version_and_a_wrong_key_are_misses_and_set_aside(root: Path, change: dict[str, object]) -> None:
    save(ResultCache(DirectoryStore(root)))
    fields = msgpack.unpackb(entry_file(root).read_bytes()[32:])
    payload = msgpack.packb(fields | change)
    check_damage_is_a_miss_and_set_aside(root, hashlib.sha256(payload).digest() + payload)


def test_a_file_too_large_is_set_aside_without_being_read_whole(tmp_path: Path) -> None:
    cache = ResultCache(DirectoryStore(tmp_path))
    save(cache)
    with open(entry_file(tmp_path), "r+b") as file:
        file.truncate(2**40)
    assert cache.load(KEY) is None
    assert cache.counters.damaged == 1
    assert not entry_file(tmp_path).exists()


def test_a_result_is_solved_again_after_damage(tmp_path: Path) -> None:
    cache = ResultCache(DirectoryStore(tmp_path))
    save(cache)
    entry_file(tmp_path).write_bytes(b"damaged")
    assert cache.load(KEY) is None
    save(cache)
    assert cache.load(KEY) == RESULT


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_folder_warns_once_and_is_still_read(
    tmp_path: Path, refusing: Refusing, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    save(ResultCache(DirectoryStore(tmp_path)))
    cache = ResultCache(DirectoryStore(tmp_path))
    with refusing("fsync", code), caplog.at_level(logging.WARNING):
        for _ in range(3):
            save(cache, OTHER)
    assert caplog.messages == [
        f"cache folder {tmp_path} cannot be written: {os.strerror(code)}; going on without saving results"
    ]
    save(cache, OTHER)
    assert cache.load(KEY) == RESULT
    assert cache.load(OTHER) is None, "a store that refused is not tried again"
    assert cache.counters == Counters(hits=1, misses=1, refused=4)


def test_damage_in_a_read_only_folder_is_a_miss(tmp_path: Path, refusing: Refusing) -> None:
    warnings: list[str] = []
    cache = ResultCache(DirectoryStore(tmp_path), warn=warnings.append)
    save(cache)
    entry_file(tmp_path).write_bytes(b"damaged")
    with refusing("replace", errno.EROFS):
        assert [cache.load(KEY), cache.load(KEY)] == [None, None]
    save(cache)
    assert len(warnings) == 1


def test_a_folder_that_cannot_be_read_warns_once(tmp_path: Path, refusing: Refusing) -> None:
    warnings: list[str] = []
    cache = ResultCache(DirectoryStore(tmp_path), warn=warnings.append)
    save(cache)
    with refusing("fstat", errno.EACCES):
        assert [cache.load(KEY), cache.load(KEY)] == [None, None]
    assert warnings == [f"cache folder {tmp_path} cannot be read: Permission denied; going on without what is in it"]


def test_a_regular_file_in_the_way_warns_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    cache = ResultCache(DirectoryStore(tmp_path / "file" / "results"), warn=warnings.append)
    for key in (KEY, OTHER):
        assert cache.load(key) is None
        save(cache, key)
    assert len(warnings) == 1
    assert cache.counters == Counters(misses=2, refused=2)


def test_probe_warns_in_place_of_save(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    warnings: list[str] = []
    cache = ResultCache(DirectoryStore(tmp_path / "file"), warn=warnings.append)
    assert isinstance(cache.probe(), StoreError)
    save(cache)
    assert isinstance(cache.probe(), StoreError)
    assert len(warnings) == 1


def test_probe_of_a_sound_store_is_silent(tmp_path: Path) -> None:
    warnings: list[str] = []
    cache = ResultCache(DirectoryStore(tmp_path), warn=warnings.append)
    assert cache.probe() is None
    assert list(cache.store.names()) == []
    assert warnings == []


def test_a_result_that_is_not_plain_data_is_refused_and_the_next_one_saved() -> None:
    warnings: list[str] = []
    cache = ResultCache(MemoryStore(), warn=warnings.append)
    for _ in range(2):
        cache.save(KEY, "theta-row/1", REQUEST, {"theta": {1, 2}})
    save(cache, OTHER)
    assert cache.counters == Counters(puts=1, refused=2)
    assert len(warnings) == 1
    assert "theta-row/1 result is not cached: not plain data" in warnings[0]


LIMITED = """
import resource, sys
from pathlib import Path
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.results import ResultCache

cache = ResultCache(DirectoryStore(Path(sys.argv[1])))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
for number in range(5):
    cache.save(f"{number:064x}", "test/1", {}, {"values": list(range(1000))})
    cache.load(f"{number:064x}")
print(cache.counters)
"""


def test_writes_that_the_system_cuts_short_warn_once_on_stderr(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "Counters(hits=0, misses=5, puts=0, damaged=0, refused=5)\n"
    assert done.stderr.splitlines() == [
        f"cache folder {tmp_path} cannot be written: File too large; going on without saving results"
    ]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


SAVING = """
import sys
from lumenfarm.cache.opening import open_cache

open_cache(sys.argv[1]).save(sys.argv[2], "theta-row/1", {"gpus": 8}, {"theta": [0.1, float("inf")]})
"""


def test_a_result_of_another_process_is_found_through_the_url(tmp_path: Path) -> None:
    cache = ResultCache(DirectoryStore(tmp_path / "50% of it, ä #1?"))
    subprocess.run([sys.executable, "-c", SAVING, cache.url, KEY], timeout=60, check=True)
    assert cache.load(KEY) == {"theta": [0.1, math.inf]}
