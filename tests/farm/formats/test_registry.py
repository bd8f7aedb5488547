"""The tables of formats, and loading by content."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumenfarm import formats
from lumenfarm.errors import InputError
from lumenfarm.formats.reading import Content
from lumenfarm.model import Collective, Topology
from lumenfarm.schedule import Schedule


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "given"


@pytest.mark.parametrize("name", formats.EXPORTERS)
def test_every_exporter_gives_the_same_text_each_time(name: str, schedule: Schedule) -> None:
    text = formats.EXPORTERS[name](schedule)
    assert text == formats.EXPORTERS[name](schedule)
    assert text.endswith("\n")


def test_exporters_have_their_published_names() -> None:
    assert set(formats.EXPORTERS) == {"harvest", "dot", "csv"}


@pytest.mark.parametrize("chosen", [None, "harvest"])
def test_loads_a_collective(file: Path, collective: Collective, chosen: str | None) -> None:
    file.write_text(formats.dump_collective(collective))
    assert formats.load_collective(file, format=chosen).digest == collective.digest


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"<algo/>", b"[]", b'{"schema": "other/1"}'])
def test_every_reader_and_its_detection_take_any_bytes(file: Path, data: bytes) -> None:
    for reader in formats.COLLECTIVE_READERS.values():
        assert not reader.detect(Content("x", data))
    file.write_bytes(data)
    for chosen in (None, *formats.COLLECTIVE_READERS):
        with pytest.raises(InputError):
            formats.load_collective(file, format=chosen)


def test_broken_json_is_reported_as_such(file: Path) -> None:
    file.write_text('{"schema": "collective_pattern/v1",\n "n": ')
    with pytest.raises(InputError, match="line 2 column 7"):
        formats.load_collective(file)


def test_an_unknown_format_gets_the_nearest_word(file: Path) -> None:
    file.write_text("{}")
    with pytest.raises(InputError, match="did you mean 'harvest'"):
        formats.load_collective(file, format="harvst")


def test_loads_a_schedule(file: Path, schedule: Schedule) -> None:
    file.write_text(formats.dump_schedule(schedule))
    assert formats.dump_schedule(formats.load_schedule(file)) == formats.dump_schedule(schedule)


def test_topologies_come_from_either_file(file: Path, schedule: Schedule) -> None:
    for text in (formats.dump_schedule(schedule), formats.dump_topologies(schedule.topologies)):
        file.write_text(text)
        loaded = formats.load_topologies(file)
        assert loaded == (Topology.circulant(4, {1: 1}), Topology.circulant(4, {2: 2}))


def test_another_document_has_no_topologies(file: Path, collective: Collective) -> None:
    file.write_text(formats.dump_collective(collective))
    with pytest.raises(InputError, match=r"lumenfarm\.topologies/1"):
        formats.load_topologies(file)
