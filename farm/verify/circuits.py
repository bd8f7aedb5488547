"""Topologies given by orbits, written out arc by arc, so that circuits are checked and not what is said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lumenfarm.model import Topology
from lumenfarm.schedule import Schedule

__all__ = ["written_out"]


def written_out(schedule: Schedule) -> Schedule:
    """The schedule with all arcs of each topology; every orbit is followed from its given arc, generator by generator.

    Source: model section 7.
    """
    initial = None if schedule.initial is None else _by_arcs(schedule.initial)
    return replace(schedule, topologies=tuple(map(_by_arcs, schedule.topologies)), initial=initial)


def _by_arcs(topology: Topology) -> Topology:
    if topology.orbits is None:
        return topology
    generators = [generator.tolist() for generator in topology.orbits.symmetry.generators]
    circuits: Counter[tuple[int, int]] = Counter()
    for tail, head, count in topology.orbits.arcs.items():
        circuits.update(dict.fromkeys(_images((tail, head), generators), int(count)))
    return Topology.from_arcs(topology.n, [(*arc, count) for arc, count in circuits.items()], topology.label)


def _images(arc: tuple[int, int], generators: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    found, waiting = {arc}, [arc]
    while waiting:
        tail, head = waiting.pop()
        images = {(generator[tail], generator[head]) for generator in generators} - found
        found |= images
        waiting += images
    return found
