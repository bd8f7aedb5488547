"""Topology files for --candidates and --initial."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lumenfarm.errors import InputError
from lumenfarm.formats.topologies import dump_topologies, read_topologies
from lumenfarm.model import Topology

VALID: dict[str, Any] = {
    "schema": "lumenfarm.topologies/1",
    "n": 3,
    "topologies": [{"label": "ring", "arcs": [[0, 1, 1], [1, 2, 1], [2, 0, 1]]}, {"arcs": [[0, 2, 1], [0, 2, 1]]}],
}


def test_reads_topologies_in_order() -> None:
    ring, pair = read_topologies(VALID)
    assert ring == Topology.circulant(3, {1: 1})
    assert (ring.label, pair.label) == ("ring", "topology")
    assert pair.arcs() == [(0, 2, 2)]


def test_round_trip() -> None:
    topologies = (Topology.circulant(8, {1: 1, 3: 2}), Topology.from_arcs(8, [], "dark"))
    text = dump_topologies(topologies)
    again = read_topologies(json.loads(text))
    assert again == topologies
    assert [topology.label for topology in again] == ["circulant{+1,+3x2}", "dark"]
    assert dump_topologies(again) == text


@pytest.mark.parametrize("topologies", [(), (Topology.circulant(3, {1: 1}), Topology.circulant(4, {1: 1}))])
def test_writes_only_topologies_of_one_size(topologies: tuple[Topology, ...]) -> None:
    with pytest.raises(InputError, match="topologies"):
        dump_topologies(topologies)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"n": 2}, "topologies[0].arcs[1][1]"),
        ({"n": 1}, "n"),
        ({"topologies": []}, "topologies"),
        ({"topologies": [{"arcs": [[0, 1, 1], [1, 1, 1]]}]}, "topologies[0].arcs[1]"),
        ({"topologies": [{"arcs": [[0, 1, 0]]}]}, "topologies[0].arcs[0][2]"),
        ({"topologies": [{"arcs": [[0, 1, 1.5]]}]}, "topologies[0].arcs[0][2]"),
        ({"topologies": [{"arcs": [[0, 1]]}]}, "topologies[0].arcs[0][2]"),
        ({"topologies": [{"label": "x"}]}, "topologies[0].arcs"),
        ({"topologies": [{"arc": []}]}, "topologies[0]"),
        ({"schema": "lumenfarm.topologies/2"}, "schema"),
    ],
)
def test_errors_name_the_place(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_topologies(VALID | change)
    assert caught.value.field == field
