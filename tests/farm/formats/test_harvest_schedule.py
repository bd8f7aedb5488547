"""The file the paper's simulator reads."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lumenfarm.errors import InputError
from lumenfarm.formats.harvest_schedule import Scheme, dump_harvest, file_name
from lumenfarm.model import Fabric, Topology
from lumenfarm.schedule import Schedule

RING = [[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 0, 1]]
DOUBLED = [[0, 2, 2], [1, 3, 2], [2, 0, 2], [3, 1, 2]]


def test_every_step_has_its_full_topology(schedule: Schedule) -> None:
    text = dump_harvest(schedule)
    assert json.loads(text) == {
        "alpha_r": 50,
        "collective": "all-reduce-rd",
        "cost": 540.72,
        "num_of_reconfigs": 3,
        "reconf_cost_total": 150,
        "steps": [{"step": 1, "topology": RING}, {"step": 2, "topology": DOUBLED}, {"step": 3, "topology": RING}],
    }
    assert '"num_of_reconfigs": 3,\n' in text


# Names as published with the paper's artifact (data of model section 10).
@pytest.mark.parametrize(
    ("name", "degree", "message_bytes", "times_ns", "expected"),
    [
        ("all-reduce-rd", 1, 65536, (500, 500, 1000), "harvest-halvingDoubling-64-1-64KB-800-500-500-1000-0.json"),
        ("all-reduce-swing", 2, 2**24, (500, 500, 1e7), "harvest-swing-64-2-16MB-800-500-500-10000000-0.json"),
        ("all-reduce-swing", 2, 1024, (10, 1e4, 1e5), "harvest-swing-64-2-1KB-800-10-10000-100000-0.json"),
        ("all-to-all", 1, 2**20, (500, 500, 1e3), "harvest-direct1-64-1-1MB-800-500-500-1000-0.json"),
        ("all-reduce-rd", 1, 2**30, (500, 500, 1e8), "harvest-halvingDoubling-64-1-1GB-800-500-500-100000000-0.json"),
        ("all-gather-ring", 1, 1000, (0.5, 0, 0), "harvest-allGatherRing-64-1-1000B-800-0.5-0-0-0.json"),
    ],
)
def test_file_names(
    schedule: Schedule,
    name: str,
    degree: int,
    message_bytes: float,
    times_ns: tuple[float, float, float],
    expected: str,
) -> None:
    alpha_ns, delta_ns, reconfig_delay_ns = map(float, times_ns)
    job = replace(
        schedule,
        n=64,
        dims=(64,),
        initial=None,
        topologies=(Topology.circulant(64, {1: 1}),) * 2,
        collective_name=name,
        message_bytes=float(message_bytes),
        fabric=Fabric(degree, 800.0, alpha_ns, delta_ns, reconfig_delay_ns),
    )
    assert file_name(job) == expected
    assert file_name(job, scheme=Scheme.STATIC) == expected.replace("harvest", "static")


def test_a_name_needs_the_message_size(schedule: Schedule) -> None:
    with pytest.raises(InputError, match="message"):
        file_name(replace(schedule, message_bytes=None))
