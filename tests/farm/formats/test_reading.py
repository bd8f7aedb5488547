"""Bounded strict reading and atomic writing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lumenfarm.errors import EnvironmentFailure, InputError
from lumenfarm.formats.reading import Overwrite, json_text, number, read_content, read_json, write_bytes, write_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given.json"


def refusal(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_json(path)
    assert caught.value.field == str(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_reads_a_value(file: Path) -> None:
    file.write_text('{"a": [1, 2.5, "µs", null, true]}', encoding="utf-8")
    assert read_json(file) == {"a": [1, 2.5, "µs", None, True]}
    assert read_json(str(file)) == read_json(file)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a": 1,\n "b": [1, 2', "line 2 column 1"),
        (b'{"a": tru}', "line 1 column 7"),
        (b"", "line 1 column 1"),
        (b"{} {}", "Extra data"),
        (b'{"a": 1, "b": 2, "a": 3}', "duplicate key 'a'"),
        (b'[{"x": {"k": 1, "k": 1}}]', "duplicate key 'k'"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b'["\xff"]', "UTF-8"),
        (b'"\\ud800"', "UTF-8"),
        (b"[" * 100_000 + b"]" * 100_000, "nesting"),
        (b'{"a":' * 100_000, "nesting"),
        (b"1" * 5000, "4300 digits"),
    ],
)
def test_refuses_bad_json(file: Path, data: bytes, says: str) -> None:
    file.write_bytes(data)
    assert says in str(refusal(file))


def test_surrogate_pairs_are_text(file: Path) -> None:
    file.write_text(json.dumps("\U0001f4a1"))
    assert read_json(file) == "\U0001f4a1"


def test_refuses_a_large_file_unread(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(file, "wb") as sparse:
        sparse.truncate(10**9)
    monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("the file was opened"))
    assert "1000000000 bytes" in str(refusal(file))


def test_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path):
        assert "regular file" in str(refusal(path))


def test_refuses_a_missing_file(file: Path) -> None:
    assert "No such file" in str(refusal(file))
    refusal(Path(str(file) + "\0"))


def test_looks_like_json(file: Path) -> None:
    for data, expected in ((b' \n{"a"', True), (b"[", True), (b"<xml/>", False), (b"", False)):
        file.write_bytes(data)
        assert read_content(file).is_json is expected


def test_writes_text_and_leaves_nothing_else(file: Path) -> None:
    write_text(file, "µ\n", force=Overwrite.REFUSE)
    assert file.read_bytes() == b"\xc2\xb5\n"
    assert list(file.parent.iterdir()) == [file]


def test_an_existing_path_needs_force(file: Path) -> None:
    file.write_text("old")
    with pytest.raises(InputError, match="--force") as caught:
        write_text(file, "new", force=Overwrite.REFUSE)
    assert caught.value.field == "output"
    assert file.read_text() == "old"
    write_text(file, "new", force=Overwrite.REPLACE)
    assert file.read_text() == "new"


def test_a_link_stays_a_link(file: Path) -> None:
    file.write_text("old")
    link = file.with_name("link")
    link.symlink_to(file)
    write_text(link, "new", force=Overwrite.REPLACE)
    assert link.is_symlink()
    assert file.read_text() == "new"


@pytest.mark.parametrize("name", ["missing/out.json", ".", "fifo"])
def test_refuses_places_that_are_no_file(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InputError) as caught:
        write_text(tmp_path / name, "x", force=Overwrite.REPLACE)
    assert caught.value.field == "output"
    assert [path.name for path in tmp_path.iterdir()] == ["fifo"]


def test_a_failed_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFailure, match="No space left"):
        write_bytes(file, b"new", force=Overwrite.REPLACE)
    assert file.read_text() == "old"
    assert list(file.parent.iterdir()) == [file]


def test_json_text_is_json() -> None:
    value = {"a": 1, "b": [{"c": [[0, 1, 2]], "d": 0.1}, {"e": "µ\n"}], "f": {"g": {}}, "h": []}
    text = json_text(value)
    assert json.loads(text) == value
    assert '    {"c": [[0, 1, 2]], "d": 0.1},\n' in text
    assert text.endswith("}\n")
    with pytest.raises(ValueError, match="JSON"):
        json_text({"a": float("nan")})


@pytest.mark.parametrize(("value", "text"), [(16.0, "16"), (16, "16"), (0.5, "0.5"), (-0.0, "0"), (1e300, "1e+300")])
def test_whole_numbers_have_no_fraction(value: float, text: str) -> None:
    assert json.dumps(number(value)) == text
