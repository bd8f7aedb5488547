"""The folder store on a file system that misbehaves, and beside other processes that write, read and die."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lumenfarm.cache.blobs import StoreError
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.results import ResultCache

NAME = "42" + "a" * 62
WRITERS = 4
Refusing = Callable[[str, int], AbstractContextManager[None]]


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_blob_is_one_file_two_levels_down(tmp_path: Path) -> None:
    DirectoryStore(tmp_path).put(NAME, b"blob")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [
        Path("entries", "4", "2a", NAME)
    ]


def test_reading_creates_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "results")
    store.get(NAME)
    store.quarantine(NAME)
    assert not list(store.names())
    assert not list(store.quarantined())
    assert not list(tmp_path.iterdir())


def test_the_first_put_creates_missing_parents(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "a" / "b")
    store.put(NAME, b"blob")
    assert store.get(NAME) == b"blob"


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        DirectoryStore(tmp_path).put(NAME, b"blob")
    finally:
        os.umask(before)
    assert (tmp_path / "entries" / "4" / "2a" / NAME).stat().st_mode & 0o777 == 0o640


def test_the_content_reaches_the_device_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int]] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor: int) -> None:
        done.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def watched_replace(source: Path, target: Path) -> None:
        done.append(("replace", source.stat().st_size))
        assert source.parent == target.parent
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    DirectoryStore(tmp_path).put(NAME, b"blob")
    assert done == [("fsync", 4), ("replace", 4)]


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
def test_a_file_that_vanishes_while_it_is_read_is_a_miss(tmp_path: Path, refusing: Refusing, code: int) -> None:
    store = DirectoryStore(tmp_path)
    store.put(NAME, b"blob")
    with refusing("fstat", code):
        assert store.get(NAME) is None


@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOENT])
def test_a_file_that_vanishes_before_it_is_quarantined_is_no_trouble(
    tmp_path: Path, refusing: Refusing, code: int
) -> None:
    store = DirectoryStore(tmp_path)
    store.put(NAME, b"blob")
    with refusing("replace", code):
        store.quarantine(NAME)


def test_a_file_that_cannot_be_read_is_trouble(tmp_path: Path, refusing: Refusing) -> None:
    store = DirectoryStore(tmp_path)
    store.put(NAME, b"blob")
    with refusing("fstat", errno.EIO), pytest.raises(StoreError, match="cannot be read"):
        store.get(NAME)


def test_a_folder_that_cannot_be_listed_is_trouble(tmp_path: Path, refusing: Refusing) -> None:
    with refusing("scandir", errno.EACCES), pytest.raises(StoreError, match="cannot be listed"):
        list(DirectoryStore(tmp_path).names())


@pytest.mark.parametrize("call", ["mkdir", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_refused_put_names_folder_and_reason_and_leaves_nothing(
    tmp_path: Path, refusing: Refusing, call: str, code: int
) -> None:
    store = DirectoryStore(tmp_path / "results")
    with refusing(call, code), pytest.raises(StoreError) as caught:
        store.put(NAME, b"blob")
    assert str(tmp_path / "results") in caught.value.message
    assert os.strerror(code) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 3
    assert files_below(tmp_path) == []
    assert store.get(NAME) is None


def test_a_refused_put_keeps_the_earlier_blob(tmp_path: Path, refusing: Refusing) -> None:
    store = DirectoryStore(tmp_path)
    store.put(NAME, b"earlier")
    with refusing("fsync", errno.ENOSPC), pytest.raises(StoreError):
        store.put(NAME, b"later")
    assert store.get(NAME) == b"earlier"


@pytest.mark.parametrize("folder", ["file", "file/results"])
def test_a_regular_file_in_the_way_refuses_put_and_probe_only(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("in the way")
    store = DirectoryStore(tmp_path / folder)
    for refused in (store.probe, lambda: store.put(NAME, b"blob")):
        with pytest.raises(StoreError, match="cannot be written"):
            refused()
    assert store.get(NAME) is None
    assert not list(store.names())
    store.quarantine(NAME)
    assert (tmp_path / "file").read_text() == "in the way"


def test_files_that_are_no_blobs_are_ignored(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put(NAME, b"blob")
    for stray in (f".host.{'0' * 16}.tmp", "README", NAME.upper(), NAME + ".bak"):
        (tmp_path / "entries" / "4" / "2a" / stray).write_bytes(b"stray")
    assert list(store.names()) == [NAME]


KILLED = """
import os, signal, sys
from pathlib import Path
from lumenfarm.cache.directory import DirectoryStore

setattr(os, sys.argv[2], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
DirectoryStore(Path(sys.argv[1])).put(sys.argv[3], b"half of it" * 1000)
"""


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_killed_writer_leaves_nothing_visible(tmp_path: Path, call: str) -> None:
    writer = python(KILLED, str(tmp_path), call, NAME)
    writer.communicate(timeout=60)
    assert writer.returncode == -signal.SIGKILL
    assert len(files_below(tmp_path)) == 1, "the writer died before it had begun"

    store = DirectoryStore(tmp_path)
    assert store.get(NAME) is None
    assert list(store.names()) == []
    store.put(NAME, b"whole")
    assert store.get(NAME) == b"whole"
    assert list(store.names()) == [NAME]


WRITER = """
import sys
from pathlib import Path
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.results import ResultCache

me = int(sys.argv[2])
cache = ResultCache(DirectoryStore(Path(sys.argv[1])))
for round in range(10):
    for key in (*range(4), 100 + 10 * me + round):
        cache.save(f"{key:064x}", "test/1", {"writer": me}, {"values": [me] * (3000 + 700 * me)})
print(cache.counters)
"""


def test_writers_of_equal_and_different_keys_never_show_half_an_entry(tmp_path: Path) -> None:
    keys = [*range(4), *(100 + 10 * me + round_ for me in range(WRITERS) for round_ in range(10))]
    writers = [python(WRITER, str(tmp_path), str(me)) for me in range(WRITERS)]
    reader = ResultCache(DirectoryStore(tmp_path))
    while any(writer.poll() is None for writer in writers):
        for key in range(4):
            check_whole(reader, key)
    for writer in writers:
        out, errors = writer.communicate()
        assert (writer.returncode, errors) == (0, "")
        assert "puts=50, damaged=0, refused=0" in out

    assert sorted(reader.store.names()) == sorted(f"{key:064x}" for key in keys)
    assert all(check_whole(reader, key) for key in keys)
    assert reader.counters.damaged == 0
    assert files_below(tmp_path) == sorted(reader.store.names())


def check_whole(reader: ResultCache, key: int) -> bool:
    result = reader.load(f"{key:064x}")
    if result is None:
        return False
    (writer,) = set(result["values"])
    assert len(result["values"]) == 3000 + 700 * writer
    return True
