"""``plot``: pictures with their data beside them."""

from __future__ import annotations

import pytest

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def made(lumenfarm):
    assert lumenfarm("synth all-reduce-rd --gpus 8 --message 1MiB --reconfig-delay 100ns -o s.json").code == 0


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("kind", "suffix"), [("envelope", "png"), ("timeline", "svg"), ("timeline", "pdf")])
def test_a_picture(lumenfarm, tmp_path, kind: str, suffix: str) -> None:
    ended = lumenfarm(f"plot {kind} s.json -o picture.{suffix}")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert (tmp_path / f"picture.{suffix}").read_bytes().startswith(BEGINS[suffix])
    assert (tmp_path / "picture.csv").read_text().count("\n") > 1


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("there", ["picture.png", "picture.csv"])
def test_neither_file_is_replaced_unless_forced(lumenfarm, tmp_path, there: str) -> None:
    (tmp_path / there).write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())
    ended = lumenfarm("plot envelope s.json -o picture.png")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert there in ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert lumenfarm("plot envelope s.json -o picture.png --force").code == 0
    assert (tmp_path / there).read_bytes() != b"old"


@pytest.mark.usefixtures("made")
def test_another_suffix(lumenfarm) -> None:
    ended = lumenfarm("plot envelope s.json -o picture.gif")
    assert ended.code == 2
    assert "picture.gif" in ended.err
    assert ".png, .svg, .pdf" in ended.err
