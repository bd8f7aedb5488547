"""Graphviz DOT: one digraph for each topology, with the steps it carries."""

from __future__ import annotations

from lumenfarm.schedule import Schedule

__all__ = ["dump_dot"]


def dump_dot(schedule: Schedule) -> str:
    """Every topology as a digraph; edges are labelled with their number of circuits where it is not one."""
    return "\n".join(_digraph(schedule, index) for index in range(len(schedule.topologies)))


def _digraph(schedule: Schedule, index: int) -> str:
    topology = schedule.topologies[index]
    segments = [segment for segment in schedule.segments if segment.topology == index]
    steps = ", ".join(f"{segment.first + 1}-{segment.stop}" for segment in segments)
    edges = [f"  {u} -> {v}{f' [label={x}]' if x > 1 else ''};" for u, v, x in topology.arcs()]
    head = [
        f'digraph "topology {index + 1}" {{',
        f'  label="{_escaped(topology.label)}, steps {steps}";',
        "  layout=circo;",
        f"  {'; '.join(map(str, range(topology.n)))};",
    ]
    return "\n".join([*head, *edges, "}", ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
