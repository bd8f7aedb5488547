"""The JSON that the Harvest paper's simulator reads: every step with its full topology. Times in ns."""

from __future__ import annotations

import enum

from lumenfarm.errors import InputError
from lumenfarm.formats.reading import json_text, number
from lumenfarm.schedule import Schedule

__all__ = ["Scheme", "dump_harvest", "file_name"]

# What the published file names call our algorithms; others get our name in their spelling.
_ALGORITHMS = {"all-reduce-rd": "halvingDoubling", "all-reduce-swing": "swing", "all-to-all": "direct1"}

# Harvest's solver can stop early by this relaxation; a schedule of ours has none.
_RELAXATION = 0


class Scheme(enum.Enum):
    """How the simulator's file names say that a schedule was made.

    ``HARVEST``: optimised; ``BVN``: a matching every step; ``STATIC``: one topology throughout.
    """

    HARVEST = "harvest"
    BVN = "bvn"
    STATIC = "static"


def dump_harvest(schedule: Schedule) -> str:
    """The schedule as the simulator's JSON text; arcs are [source, destination, circuits]."""
    steps = range(len(schedule.steps))
    delay_ns = schedule.fabric.reconfig_delay_ns
    return json_text(
        {
            "alpha_r": number(delay_ns),
            "collective": schedule.collective_name,
            "cost": number(schedule.cost_ns),
            "num_of_reconfigs": schedule.reconfigurations,
            "reconf_cost_total": number(schedule.reconfigurations * delay_ns),
            "steps": [
                {"step": step + 1, "topology": [list(arc) for arc in schedule.topology_of_step(step).arcs()]}
                for step in steps
            ],
        }
    )


def file_name(schedule: Schedule, *, scheme: Scheme = Scheme.HARVEST) -> str:
    """The name the simulator's scripts look for: scheme-algorithm-n-degree-size-Gbps-alpha-delta-alpha_r-0.json.

    Raises:
        InputError: the schedule's message size is not known.
    """
    if schedule.message_bytes is None:
        raise InputError("message", None, "a schedule whose message size is known")
    fabric = schedule.fabric
    times = (fabric.link_gbps, fabric.alpha_ns, fabric.delta_ns, fabric.reconfig_delay_ns)
    size = _size(schedule.message_bytes)
    head = [scheme.value, _algorithm(schedule.collective_name), schedule.n, fabric.degree, size]
    return "-".join(map(str, [*head, *map(number, times), _RELAXATION])) + ".json"


def _algorithm(name: str) -> str:
    first, *rest = name.split("-")
    return _ALGORITHMS.get(name, first + "".join(word.capitalize() for word in rest))


def _size(message_bytes: float) -> str:
    """``64KB``: the largest unit, in powers of 1024, that leaves a whole number."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if message_bytes % 1024**power == 0:
            return f"{number(message_bytes / 1024**power)}{unit}"
    return f"{number(message_bytes)}B"
