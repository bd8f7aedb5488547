"""``lumenfarm.topologies/1``: a user's own topologies, for ``--candidates file:PATH`` and ``--initial FILE``.

    {"schema": "lumenfarm.topologies/1", "n": 4,
     "topologies": [{"label": "ring", "arcs": [[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 0, 1]]}]}

An arc is [source, destination, number of parallel circuits], GPUs from 0; ``label`` may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from lumenfarm.errors import InputError
from lumenfarm.formats.document import Arc, Document, FastList, Gpus, pair_matrix, require_schema, validate
from lumenfarm.formats.reading import json_text
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Topology

__all__ = ["SCHEMA", "arcs_record", "dump_topologies", "read_topologies", "topology_from_arcs"]

SCHEMA = "lumenfarm.topologies/1"


class _TopologyEntry(Document):
    label: str = "topology"
    arcs: FastList[Arc]


class _TopologiesFile(Document):
    schema_: str = Field(alias="schema")
    n: Gpus
    topologies: FastList[_TopologyEntry] = Field(min_length=1)


def read_topologies(value: object) -> tuple[Topology, ...]:
    """The topologies in a parsed ``lumenfarm.topologies/1`` document, in order; at least one.

    Raises:
        InputError: the document is not of that form; the field names the place in it.
    """
    require_schema(value, SCHEMA)
    file = validate(_TopologiesFile, value)
    return tuple(
        topology_from_arcs(file.n, entry.arcs, entry.label, f"topologies[{position}]")
        for position, entry in enumerate(file.topologies)
    )


def dump_topologies(topologies: Sequence[Topology]) -> str:
    """The topologies as ``lumenfarm.topologies/1`` text, byte-stable.

    Raises:
        InputError: no topology, or topologies over different numbers of GPUs.
    """
    sizes = {topology.n for topology in topologies}
    if len(sizes) != 1:
        raise InputError("topologies", sorted(sizes), "topologies over one number of GPUs")
    entries = [{"label": topology.label, "arcs": arcs_record(topology.circuits)} for topology in topologies]
    return json_text({"schema": SCHEMA, "n": sizes.pop(), "topologies": entries})


def topology_from_arcs(n: int, arcs: Sequence[tuple[int, int, int]], label: str, place: str) -> Topology:
    """The topology of an entry at ``place`` in a file; arcs given twice add up.

    Raises:
        InputError: an arc outside 0..n-1, or from a GPU to itself.
    """
    return Topology(pair_matrix(n, arcs, f"{place}.arcs"), label)


def arcs_record(circuits: PairMatrix) -> list[list[int]]:
    """The ``arcs`` of an entry."""
    return [[u, v, int(count)] for u, v, count in circuits.items()]
