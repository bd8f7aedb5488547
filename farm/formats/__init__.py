"""File formats: what each can read or write is one line in a table here.

To add a format, write a module beside this one and enter it in `EXPORTERS` or `COLLECTIVE_READERS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lumenfarm.errors import InputError, unknown_word
from lumenfarm.formats import pattern, schedule_json, topologies
from lumenfarm.formats.csv_circuits import dump_circuits_csv
from lumenfarm.formats.document import schema_of
from lumenfarm.formats.dot import dump_dot
from lumenfarm.formats.harvest_schedule import dump_harvest
from lumenfarm.formats.pattern import dump_collective
from lumenfarm.formats.reading import Content, read_content, read_json
from lumenfarm.formats.schedule_json import dump_schedule
from lumenfarm.formats.topologies import dump_topologies
from lumenfarm.model import Collective, Topology
from lumenfarm.schedule import Schedule

__all__ = [
    "COLLECTIVE_READERS",
    "EXPORTERS",
    "CollectiveReader",
    "dump_collective",
    "dump_schedule",
    "dump_topologies",
    "load_collective",
    "load_schedule",
    "load_topologies",
]


class CollectiveReader(NamedTuple):
    """How one format is recognised by content, and read."""

    detect: Callable[[Content], bool]
    read: Callable[[Content], Collective]


COLLECTIVE_READERS: Mapping[str, CollectiveReader] = {
    "harvest": CollectiveReader(pattern.detect, pattern.read_collective),
}

EXPORTERS: Mapping[str, Callable[[Schedule], str]] = {
    "csv": dump_circuits_csv,
    "dot": dump_dot,
    "harvest": dump_harvest,
}


def load_collective(path: str | os.PathLike[str], *, format: str | None = None) -> Collective:  # noqa: A002
    """The collective in a file.

    Args:
        path: the file.
        format: a name from `COLLECTIVE_READERS`; None finds it by content.

    Raises:
        InputError: an unreadable file, an unknown format, or content that the format does not allow.
    """
    content = read_content(path)
    if format is None:
        return _reader_for(content).read(content)
    if format not in COLLECTIVE_READERS:
        raise unknown_word("format", format, COLLECTIVE_READERS)
    return COLLECTIVE_READERS[format].read(content)


def load_schedule(path: str | os.PathLike[str]) -> Schedule:
    """The schedule in a ``lumenfarm.schedule/1`` file.

    Raises:
        InputError: an unreadable file, or see `schedule_json.read_schedule`.
    """
    return schedule_json.read_schedule(read_json(path))


def load_topologies(path: str | os.PathLike[str]) -> tuple[Topology, ...]:
    """The topologies in a ``lumenfarm.topologies/1`` file, or those of a schedule file; at least one.

    Raises:
        InputError: an unreadable file, or content of neither kind.
    """
    value = read_json(path)
    if schema_of(value).startswith("lumenfarm.schedule/"):
        return schedule_json.read_schedule(value).topologies
    return topologies.read_topologies(value)


def _reader_for(content: Content) -> CollectiveReader:
    for reader in COLLECTIVE_READERS.values():
        if reader.detect(content):
            return reader
    begins = content.data[:40].decode(errors="replace")
    raise InputError(
        content.path, begins, f"a collective in one of the formats {', '.join(sorted(COLLECTIVE_READERS))}"
    )
