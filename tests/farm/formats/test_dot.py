"""DOT of the topologies."""

from __future__ import annotations

import re
from dataclasses import replace

from lumenfarm.formats.dot import dump_dot
from lumenfarm.model import Topology
from lumenfarm.schedule import Schedule


def test_graphs_reproduce_the_topologies(schedule: Schedule) -> None:
    graphs = dump_dot(schedule).split("digraph")[1:]
    assert len(graphs) == len(schedule.topologies)
    for graph, topology in zip(graphs, schedule.topologies, strict=True):
        edges = re.findall(r"^  (\d+) -> (\d+)(?: \[label=(\d+)\])?;$", graph, flags=re.MULTILINE)
        arcs = [(int(u), int(v), int(x or 1)) for u, v, x in edges]
        assert arcs == topology.arcs()
        assert f'label="{topology.label}, steps ' in graph


def test_steps_count_from_one(schedule: Schedule) -> None:
    ring, doubled = dump_dot(schedule).split("digraph")[1:]
    assert 'steps 1-1, 3-3"' in ring
    assert 'steps 2-2"' in doubled


def test_labels_are_escaped(schedule: Schedule) -> None:
    first, second = schedule.topologies
    odd = Topology(first.circuits, 'a"b\\')
    assert 'label="a\\"b\\\\, steps' in dump_dot(replace(schedule, topologies=(odd, second)))
