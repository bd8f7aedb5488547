"""Harvest's published schedules, and the closed forms against the search that they replace.

The rows are those of the data file harvest_published.json: numbers published with the artifact of the Harvest paper
(arXiv 2602.09188), 64 GPUs, 800 Gb/s a port. Their interior-point solver stops at a relative error of about 1e-6.
"""

from __future__ import annotations

import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import lumenfarm
from lumenfarm import families
from lumenfarm.matrix import Floats
from lumenfarm.plan import IntervalBounds, Plan
from lumenfarm.problem import Workload
from lumenfarm.tasks.concurrent_flow import theta_row

KIB, MIB, GIB = 2**10, 2**20, 2**30
TOLERANCE = 1e-4


class Row(NamedTuple):
    collective: str
    ports: int
    message_bytes: int
    alpha_ns: int
    delta_ns: int
    reconfig_delay_ns: int
    cost_ns: float
    reconfigurations: int
    bad: bool = False
    """Below what its own topology can achieve (model section 10): no target."""


RD, SWING, ALL_TO_ALL = ("all-reduce-rd", 1), ("all-reduce-swing", 2), ("all-to-all", 1)
ROWS = [
    Row(*RD, 64 * KIB, 500, 500, 1_000, 20720.32359721313, 4),
    Row(*RD, 64 * KIB, 500, 500, 10_000, 42211.83990248441, 2),
    Row(*RD, MIB, 500, 500, 100_000, 131914.70139260244, 0),
    Row(*RD, 16 * MIB, 500, 500, 10_000, 428544.84547998087, 8),
    Row(*RD, 16 * MIB, 500, 500, 100_000, 727318.4174574355, 2),
    Row(*RD, 256 * MIB, 500, 500, 100_000, 6181713.0564417355, 8),
    Row(*RD, 256 * MIB, 500, 500, 1_000_000, 10077066.165673329, 2),
    Row(*RD, 256 * MIB, 500, 500, 100_000_000, 16175135.217206042, 0),
    Row(*RD, GIB, 500, 500, 1_000_000, 28831014.33772912, 6),
    Row(*SWING, KIB, 500, 500, 10_000, 53028.33458906197, 2),
    Row(*SWING, KIB, 10, 10_000, 100_000, 720144.9933783768, 4),
    Row(*SWING, 4 * MIB, 500, 500, 10_000, 153288.40607756696, 10),
    Row(*SWING, 16 * MIB, 10, 10_000, 100_000, 1126443.6837541352, 4),
    Row(*SWING, 16 * MIB, 500, 500, 1_000_000, 573045.781770707, 0),
    Row(*SWING, 16 * MIB, 500, 500, 100_000_000, 401894.43295212, 0, bad=True),
    Row(*SWING, 64 * MIB, 500, 500, 100_000, 1672605.2016142234, 10),
    Row(*SWING, 256 * MIB, 500, 500, 100_000, 3654413.794134282, 10),
    Row(*SWING, 256 * MIB, 500, 500, 1_000_000, 8358725.925305045, 0),
    Row(*SWING, 256 * MIB, 500, 500, 10_000_000, 5710311.335044929, 0, bad=True),
    Row(*ALL_TO_ALL, KIB, 500, 500, 1_000, 124010.40408287324, 60),
    Row(*ALL_TO_ALL, 64 * KIB, 500, 500, 100_000, 653981.5260468083, 1),
    Row(*ALL_TO_ALL, MIB, 500, 500, 10_000, 453716.82167536503, 16),
    Row(*ALL_TO_ALL, 256 * MIB, 500, 500, 1_000_000, 31597738.53662953, 12),
]
by_row = pytest.mark.parametrize("row", ROWS, ids=["-".join(map(str, row[:6])) for row in ROWS])


@pytest.fixture(scope="module")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Shared by all rows: theta depends on neither sizes nor delays."""
    return str(tmp_path_factory.mktemp("cache"))


def synthesis(row: Row, cache_folder: str, **options: Any) -> lumenfarm.Synthesis:
    job = lumenfarm.generate(row.collective, gpus=64, message_bytes=row.message_bytes, ports=row.ports)
    fabric = lumenfarm.Fabric(row.ports, 800, row.alpha_ns, row.delta_ns, row.reconfig_delay_ns)
    return lumenfarm.synthesize(job, fabric, cache=cache_folder, workers=0, **options)


@by_row
def test_their_search_space_gives_their_schedules(row: Row, cache_folder: str) -> None:
    found = synthesis(row, cache_folder, method="candidates", candidates=["published"])
    if row.bad:
        assert found.cost_ns > row.cost_ns * 1.4
    else:
        assert found.cost_ns == pytest.approx(row.cost_ns, rel=TOLERANCE)
        assert found.reconfigurations == row.reconfigurations


@by_row
def test_ours_are_never_worse(row: Row, cache_folder: str) -> None:
    if row.bad:
        pytest.skip("not achievable")
    searched = synthesis(row, cache_folder, method="candidates")
    # The limit ends a search beyond the candidates, which are answered by the cache now.
    chosen = synthesis(row, cache_folder, method="auto", time_limit_s=0.1)
    for found in (searched, chosen):
        assert found.lower_bound_ns <= found.cost_ns <= row.cost_ns * (1 + TOLERANCE)


def test_the_table_is_the_data_file() -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "harvest_published.json"
    if not path.exists():
        pytest.skip("no data folder beside the repository")
    fields = ("collective", "ports", "message_bytes", "alpha_ns", "delta_ns", "reconfig_delay_ns")
    last = ("published_cost_ns", "published_reconfigurations", "bad")
    rows = json.loads(path.read_text())
    assert [Row(*(row[field] for field in (*fields, *last))) for row in rows] == ROWS
    assert {(row["gpus"], row["link_gbps"]) for row in rows} == {(64, 800)}


# Collectives that shift by powers of two on one port, and numbers of GPUs for them.
DOUBLING = ("all-reduce-rd", "reduce-scatter-rd", "all-gather-rd")
BRUCK = ("all-to-all-bruck", "all-gather-bruck")
SIZES = dict.fromkeys((9, 12, 27, 60, 100), BRUCK) | dict.fromkeys((8, 16, 32, 64, 128, 512), DOUBLING + BRUCK)


@cache
def searched(n: int) -> tuple[tuple[lumenfarm.Topology, ...], Floats, Floats]:
    """The families strides, matchings and rings with theta and hops of their topologies; all jobs of n share them."""
    workload = Workload.of(lumenfarm.generate("all-to-all-bruck", gpus=n, message_bytes=1), fabric(random.Random(0)))
    topologies = families.candidates(("strides", "matchings", "rings"), workload)
    rows = [theta_row(topology, workload.patterns, (n,)) for topology in topologies]
    return topologies, np.array([row.theta for row in rows]), np.array([row.hops for row in rows])


def fabric(draw: random.Random) -> lumenfarm.Fabric:
    return lumenfarm.Fabric(
        1,
        link_gbps=draw.choice([100, 400, 800, 1600.5]),
        alpha_ns=draw.choice([0, 10, 500, 1700]),
        delta_ns=draw.choice([0, 10, 500, 10_000]),
        reconfig_delay_ns=draw.choice([0, 1e9, 10 ** draw.uniform(2, 7)]),
        latency=draw.choice(list(lumenfarm.Latency)),
    )


@pytest.mark.parametrize("n", SIZES)
def test_closed_forms_equal_the_search(n: int) -> None:
    """208 random jobs in all."""
    draw = random.Random(n)
    topologies, theta, hops = searched(n)
    for _ in range(20 if n < 512 else 8):
        name, message_bytes = draw.choice(SIZES[n]), 2 ** draw.uniform(8, 33)
        job, parameters = lumenfarm.generate(name, gpus=n, message_bytes=message_bytes), fabric(draw)
        workload = Workload.of(job, parameters)
        plan = Plan(workload, topologies, theta, hops, None, IntervalBounds.of(workload))
        shifts = lumenfarm.shift_steps(name, gpus=n, message_bytes=message_bytes)
        assert shifts is not None
        alone = lumenfarm.synthesize_shifts(shifts, n, parameters)
        whole = lumenfarm.synthesize(job, parameters, method="closed-form", cache="none")
        assert alone.cost_ns == pytest.approx(plan.cost_ns, rel=1e-9)
        assert whole.cost_ns == pytest.approx(plan.cost_ns, rel=1e-9)
        assert alone.baselines.static_ns == pytest.approx(plan.baselines.static_ns, rel=1e-9)
        assert max(alone.lower_bound_ns, whole.lower_bound_ns) <= plan.cost_ns * (1 + 1e-12)


def cheapest_ns(
    steps: tuple[lumenfarm.ShiftStep, ...], generators: list[int], n: int, fabric: lumenfarm.Fabric
) -> float:
    """Step by step: the cheapest way to be on each circulant, with a list and a loop."""
    reached = [0.0] * len(generators)
    for number, step in enumerate(steps):
        moved = min(reached) + (fabric.reconfig_delay_ns if number else 0.0)
        reached = [
            min(so_far, moved)
            + fabric.alpha_ns
            + (8 / fabric.link_gbps * step.bytes_per_gpu + fabric.delta_ns) * hops_of(step.offset, generator, n)
            for so_far, generator in zip(reached, generators, strict=True)
        ]
    return min(reached)


@cache
def hops_of(offset: int, generator: int, n: int) -> float:
    """The smallest h with h*generator = offset (mod n)."""
    common = math.gcd(generator, n)
    if offset % common:
        return math.inf
    return offset // common * pow(generator // common, -1, n // common) % (n // common)


@pytest.mark.parametrize("name", ["all-reduce-rd", "all-to-all-bruck", "all-gather-bruck"])
@pytest.mark.parametrize(("message_bytes", "delay_ns"), [(KIB, 1e3), (16 * MIB, 1e4), (GIB, 1e6), (GIB, 1e9)])
def test_large_closed_forms(name: str, message_bytes: int, delay_ns: float) -> None:
    """2^10 GPUs over all circulants; 2^20 over those of powers of two, among which the best ones are."""
    parameters = lumenfarm.Fabric(1, 800, 500, 500, delay_ns)
    for n, generators in ((2**10, list(range(1, 2**10))), (2**20, [2**a for a in range(20)])):
        steps = lumenfarm.shift_steps(name, gpus=n, message_bytes=message_bytes)
        assert steps is not None
        found = lumenfarm.synthesize_shifts(steps, n, parameters)
        assert found.cost_ns == pytest.approx(cheapest_ns(steps, generators, n, parameters), rel=1e-9)
        assert found.lower_bound_ns <= found.cost_ns
        assert found.work.solved == 0
