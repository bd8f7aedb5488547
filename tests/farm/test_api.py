"""The Python API: the best of the candidates by brute force, limits, caches, and what is refused at once."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import linprog

import lumenfarm
from lumenfarm import api
from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.families import DEFAULT_FAMILIES, FAMILIES
from lumenfarm.formats import dump_topologies
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Latency, Step, Topology
from lumenfarm.planner import Standing
from lumenfarm.problem import Workload
from lumenfarm.synthesis import Method

FABRIC = Fabric(2, link_gbps=80, alpha_ns=100, delta_ns=250, reconfig_delay_ns=900)
SWING = lumenfarm.generate("all-reduce-swing", gpus=8, message_bytes=2**16)
RD = lumenfarm.generate("all-reduce-rd", gpus=8, message_bytes=2**16)
ONE_PORT = Fabric(1, link_gbps=80, alpha_ns=100, delta_ns=250, reconfig_delay_ns=900)
SHIFTS = lumenfarm.shift_steps("all-reduce-rd", gpus=8, message_bytes=2**16)


def synthesize(job: Collective, fabric: Fabric, **options: Any) -> lumenfarm.Synthesis:
    """In this process, without a cache unless one is given."""
    settings: dict[str, Any] = {"cache": "none", "workers": 0}
    return lumenfarm.synthesize(job, fabric, **(settings | options))


def irregular(seed: int, n: int = 5, steps: int = 3) -> Collective:
    """Several receivers a GPU, idle GPUs, and any number of bytes a pair."""
    random = np.random.default_rng(seed)
    demands = [np.where(random.random((n, n)) < 0.4, random.integers(1, 9999, (n, n)), 0) for _ in range(steps)]
    for demand in demands:
        demand[0, 1] += 17
        np.fill_diagonal(demand, 0)
    return Collective(f"irregular {seed}", tuple(Step(PairMatrix.from_dense(demand)) for demand in demands), (n,))


def some_topologies(n: int = 5) -> list[Topology]:
    """Each within two ports; the last one leaves most pairs without a path."""
    return [
        Topology.circulant(n, {1: 1, -1: 1}),
        Topology.circulant(n, {1: 1, 2: 1}),
        Topology.circulant(n, {2: 2}),
        Topology.from_arcs(n, [(0, 1, 2), (1, 0, 1), (1, 2, 1), (2, 3, 1), (3, 4, 1), (4, 0, 1)], "by hand"),
        Topology.from_arcs(n, [(0, 1, 2), (1, 0, 2)], "a pair"),
    ]


def step_ns(topology: Topology, demand: PairMatrix, fabric: Fabric) -> float:
    """alpha + beta*m/theta + delta*hops with a flow variable for every pair and arc."""
    arcs, pairs = topology.arcs(), list(demand.items())
    graph = topology.to_networkx()
    if not all(nx.has_path(graph, source, destination) for source, destination, _ in pairs):
        return float("inf")
    chunk_bytes = max(demand.dense().sum(axis=0).max(), demand.dense().sum(axis=1).max()) / fabric.degree
    balance = np.zeros((len(pairs), topology.n, len(pairs) * len(arcs) + 1))
    for which, (source, destination, amount) in enumerate(pairs):
        for index, (tail, head, _) in enumerate(arcs):
            balance[which, [tail, head], which * len(arcs) + index] = -1, 1
        balance[which, [source, destination], -1] = amount / chunk_bytes, -amount / chunk_bytes
    load = np.hstack([np.tile(np.eye(len(arcs)), len(pairs)), np.zeros((len(arcs), 1))])
    objective = np.zeros(load.shape[1])
    objective[-1] = -1
    rows = balance.reshape(-1, load.shape[1])
    circuits = [count for _, _, count in arcs]
    theta = -linprog(objective, A_ub=load, b_ub=circuits, A_eq=rows, b_eq=np.zeros(len(rows))).fun
    farthest = max(nx.shortest_path_length(graph, source, destination) for source, destination, _ in pairs)
    hops = farthest if fabric.latency is Latency.SHORTEST else 1 / theta
    return float(fabric.alpha_ns + 8 / fabric.link_gbps * chunk_bytes / theta + fabric.delta_ns * hops)


def cheapest_ns(job: Collective, fabric: Fabric, topologies: Sequence[Topology], initial: Topology | None) -> float:
    """The best of all sequences of topologies."""
    times = [[step_ns(topology, step.demand, fabric) for step in job.steps] for topology in topologies]

    def cost_ns(rows: tuple[int, ...]) -> float:
        changes = sum(one != other for one, other in itertools.pairwise(rows))
        moved = initial is not None and topologies[rows[0]] != initial
        return sum(times[row][step] for step, row in enumerate(rows)) + (changes + moved) * fabric.reconfig_delay_ns

    return min(map(cost_ns, itertools.product(range(len(topologies)), repeat=len(job))))


def test_every_offered_name_exists() -> None:
    assert all(getattr(lumenfarm, name) is not None for name in lumenfarm.__all__)
    with pytest.raises(AttributeError, match="synthesise"):
        lumenfarm.synthesise  # noqa: B018 - only asked for


@pytest.mark.parametrize("latency", Latency)
@pytest.mark.parametrize("delay_ns", [0, 150, 900, 1e6])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_all_sequences(seed: int, delay_ns: float, latency: Latency) -> None:
    fabric = Fabric(2, 80, 100, 250, delay_ns, latency)
    job, topologies = irregular(seed), some_topologies()
    for initial in (None, topologies[1]):
        found = synthesize(job, fabric, candidates=topologies, initial=initial)
        assert found.cost_ns == pytest.approx(cheapest_ns(job, fabric, topologies, initial), rel=1e-7)
        assert found.lower_bound_ns <= found.cost_ns
        assert found.schedule is not None
        assert lumenfarm.verify_schedule(found.schedule, job).ok


@pytest.mark.parametrize("job", [irregular(7), irregular(8, n=9, steps=4), SWING, RD], ids=lambda job: job.name)
@pytest.mark.parametrize("ports", [1, 2, 3])
@pytest.mark.parametrize("latency", Latency)
def test_all_families_together_are_no_worse_than_one_and_verified(
    job: Collective, ports: int, latency: Latency
) -> None:
    fabric = Fabric(ports, 80, 100, 250, 900, latency)
    found = synthesize(job, fabric, method="candidates")
    assert found.schedule is not None
    assert lumenfarm.verify_schedule(found.schedule, job).ok
    for family in FAMILIES:
        try:
            alone = synthesize(job, fabric, candidates=[family])
        except InputError:
            continue  # nothing in this family, or nothing that carries every step
        assert found.cost_ns <= alone.cost_ns * (1 + 1e-9)


def test_auto_takes_the_closed_form_where_there_is_one() -> None:
    assert synthesize(RD, ONE_PORT).method.value == "closed-form"
    assert synthesize(irregular(1), ONE_PORT).method.value == "candidates"
    assert synthesize(RD, ONE_PORT, initial=Topology.circulant(8, {3: 1})).method.value == "closed-form"
    assert synthesize(RD, ONE_PORT, initial=irregular_ring(8)).method.value != "closed-form"
    assert synthesize(RD, ONE_PORT, candidates=["strides"]).method.value == "candidates"


def irregular_ring(n: int) -> Topology:
    order = [0, 2, 1, *range(3, n)]
    return Topology.from_arcs(n, [(u, v, 1) for u, v in zip(order, [*order[1:], 0], strict=True)])


@pytest.mark.parametrize("initial", [None, Topology.circulant(8, {1: 1}), Topology.circulant(8, {3: 1})])
@pytest.mark.parametrize("delay_ns", [0, 900, 1e5])
def test_the_closed_form_is_the_best_of_the_circulants(initial: Topology | None, delay_ns: float) -> None:
    fabric = Fabric(1, 80, 100, 250, delay_ns)
    arithmetic = synthesize(RD, fabric, method="closed-form", initial=initial)
    searched = synthesize(RD, fabric, candidates=["strides"], initial=initial)
    assert arithmetic.cost_ns == pytest.approx(searched.cost_ns, rel=1e-12)
    assert arithmetic.reconfigurations == searched.reconfigurations
    for one, other in zip(arithmetic.envelope, searched.envelope, strict=True):
        assert astuple(one) == pytest.approx(astuple(other))
    assert arithmetic.work.solved == 0


@pytest.mark.parametrize(
    ("job", "fabric", "options", "because"),
    [
        (RD, FABRIC, {}, "more than one port"),
        (irregular(1), ONE_PORT, {}, "no shift"),
        (RD, ONE_PORT, {"initial": irregular_ring(8)}, "no circulant"),
        (RD, ONE_PORT, {"candidates": ["strides"]}, "candidates are named"),
    ],
)
def test_no_closed_form_and_why(job: Collective, fabric: Fabric, options: dict[str, Any], because: str) -> None:
    with pytest.raises(InputError, match=because):
        synthesize(job, fabric, method="closed-form", **options)


def test_candidates_by_name_by_file_and_by_hand(tmp_path: Path) -> None:
    workload = Workload.of(SWING, FABRIC)
    mine = [Topology.circulant(8, {3: 2}), Topology.circulant(8, {1: 1, -1: 1})]
    (tmp_path / "mine.json").write_text(dump_topologies(mine))
    strides = api.load_candidates(["strides"], workload)
    assert mine[1] in strides
    assert api.load_candidates([f"file:{tmp_path / 'mine.json'}"], workload) == tuple(mine)
    together = api.load_candidates(["strides", f"file:{tmp_path / 'mine.json'}", mine[0]], workload)
    assert together == (*strides, mine[0])
    assert len(set(api.load_candidates(DEFAULT_FAMILIES, workload))) == len(
        api.load_candidates(DEFAULT_FAMILIES, workload)
    )


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"method": "fast"}, "method"),
        ({"candidates": ["strids"]}, "candidates"),
        ({"candidates": []}, "candidates"),
        ({"gap": 1.0}, "gap"),
        ({"gap": float("nan")}, "gap"),
        ({"gap": -0.1}, "gap"),
        ({"time_limit_s": 0}, "time-limit"),
        ({"time_limit_s": float("inf")}, "time-limit"),
        ({"workers": -1}, "workers"),
        ({"workers": 10**5}, "workers"),
        ({"workers": 0, "address": "auto"}, "workers"),
        ({"cache": "ftp:x"}, "cache"),
        ({"initial": Topology.circulant(4, {1: 1})}, "topology circulant{+1}"),
        ({"initial": Topology.circulant(8, {1: 3})}, "topology circulant{+1x3}"),
        ({"candidates": [Topology.circulant(8, {1: 3})]}, "topology circulant{+1x3}"),
    ],
)
def test_what_is_refused_before_anything_is_solved(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], field: str
) -> None:
    monkeypatch.delattr(api, "run")
    with pytest.raises(InputError) as caught:
        synthesize(SWING, FABRIC, **options)
    assert caught.value.field == field


def test_unused_options_are_checked_too() -> None:
    with pytest.raises(InputError, match="workers"):
        synthesize(RD, ONE_PORT, method="closed-form", workers=-2)
    with pytest.raises(InputError, match="gap"):
        lumenfarm.synthesize_shifts(SHIFTS or (), 8, ONE_PORT, gap=2.0)
    with pytest.raises(InputError, match="ports"):
        lumenfarm.synthesize_shifts(SHIFTS or (), 8, FABRIC)


def chain(n: int) -> Topology:
    """Paths upwards only, so that no two GPUs lie on a cycle."""
    return Topology.from_arcs(n, [(u, u + 1, 1) for u in range(n - 1)], "chain")


def test_a_path_counts_even_where_there_is_no_way_back() -> None:
    job = Collective("up", (Step(PairMatrix(5, [0, 1], [3, 4], [100.0, 100.0])),), (5,))
    assert synthesize(job, FABRIC, candidates=[chain(5)]).reconfigurations == 0


def test_an_unreachable_pair_is_named_before_anything_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("lumenfarm.tasks.local_pool.LocalExecutor")
    up = Step(PairMatrix(5, [0], [3], [100.0]))
    both = Step(PairMatrix(5, [0, 4], [3, 2], [100.0, 100.0]))
    with pytest.raises(UnreachableError, match=r"every pair of step 2, got 'chain: no path 4 -> 2'"):
        synthesize(Collective("down", (up, both), (5,)), FABRIC, candidates=[chain(5)])


def test_steps_may_need_different_candidates() -> None:
    steps = (Step(PairMatrix(5, [0], [3], [100.0])), Step(PairMatrix(5, [3], [0], [100.0])))
    down = Topology.from_arcs(5, [(u + 1, u, 1) for u in range(4)], "down")
    assert synthesize(Collective("up and down", steps, (5,)), FABRIC, candidates=[chain(5), down]).reconfigurations == 1


def test_a_limit_leaves_a_valid_schedule() -> None:
    full = synthesize(SWING, FABRIC, method="candidates")
    for options in ({"time_limit_s": 1e-9}, {"gap": 0.99}):
        early = synthesize(SWING, FABRIC, method="candidates", **options)
        assert not early.complete
        assert early.work.left_out > 0
        assert early.cost_ns >= full.cost_ns
        assert early.schedule is not None
        assert lumenfarm.verify_schedule(early.schedule).ok
    assert full.complete
    assert full.work.left_out == 0


@pytest.mark.parametrize(("gpus", "ports", "listed"), [(32, 8, False), (32, 4, True)])
def test_time_may_be_up_before_a_space_is_searched(
    gpus: int, ports: int, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48,903,492 topologies are too many to be listed, and of 46,376 some are not ruled out by then."""
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=time.perf_counter, monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr(api, "time", clock)
    job = lumenfarm.generate("reduce-scatter-swing", gpus=gpus, message_bytes=2**20, ports=ports)
    fabric, ring = Fabric(ports, 800, 500, 500, 10_000), Topology.circulant(gpus, {1: ports // 2, -1: ports // 2})
    found = synthesize(job, fabric, candidates=[ring], method="symmetric", time_limit_s=25)
    assert found.method is Method.SYMMETRIC
    assert found.lower_bound_ns <= found.cost_ns
    assert all(part.topology.startswith("cayley") for part in found.segments)
    (space,) = found.proofs
    assert space.topologies == math.comb(gpus + ports - 2, ports)
    assert (space.listed, space.closed) == (listed, False)
    assert 0 < space.answered < 1000
    assert found.lower_bound_ns <= space.lower_bound_ns


def test_a_search_stopped_between_two_rounds_is_not_complete() -> None:
    """Spaces are not even entered."""
    job = lumenfarm.generate("all-to-all-direct", gpus=8, message_bytes=1e6, ports=2)
    ring = Topology.circulant(8, {1: 2})
    found = synthesize(job, FABRIC, candidates=[ring], method="symmetric", time_limit_s=1e-9)
    assert found.proofs == ()
    assert not found.complete


def test_a_search_without_a_limit_ends_by_itself() -> None:
    """Everything is proved about the group and about its subgroups that leave two and four classes of GPUs."""
    found = synthesize(SWING, FABRIC, method="symmetric")
    assert found.complete
    assert [space.topologies for space in found.proofs] == [28, 280, 280, 280, 19_944, 19_944, 19_944]
    assert all(space.listed and space.closed for space in found.proofs)
    assert found.lower_bound_ns <= min(space.lower_bound_ns for space in found.proofs) <= found.cost_ns
    assert found.cost_ns <= synthesize(SWING, FABRIC, method="candidates").cost_ns


@pytest.mark.parametrize(("gap", "optimal"), [(None, False), (0.0, False), (0.9999, True)])
def test_optimal_is_within_the_gap_asked_for(gap: float | None, optimal: bool) -> None:
    found = synthesize(SWING, FABRIC, method="candidates", gap=gap)
    assert 1e-3 < found.gap < 0.99
    assert found.optimal is optimal


def test_the_listener_hears_of_everything() -> None:
    heard: list[Standing] = []
    found = synthesize(SWING, FABRIC, method="candidates", listen=lambda standing, _: heard.append(standing))
    assert [standing.done for standing in heard] == sorted(standing.done for standing in heard)
    costs = [standing.cost_ns for standing in heard]
    assert costs == sorted(costs, reverse=True)
    assert heard[-1].done == heard[-1].known == found.work.solved
    assert heard[-1].cost_ns == found.cost_ns


def test_a_second_run_answers_from_the_cache(tmp_path: Path) -> None:
    """Also at other delays, but for the relaxations, where these weigh steps otherwise."""
    first = synthesize(SWING, FABRIC, method="candidates", cache=str(tmp_path))
    again = synthesize(SWING, FABRIC, method="candidates", cache=str(tmp_path), workers=2)
    cheaper = Fabric(2, 400, 0, 10, 5)
    other = synthesize(SWING, cheaper, method="candidates", cache=tmp_path.as_uri())
    assert first.work.from_cache == 0
    assert (again.work.solved, again.work.from_cache) == (0, first.work.solved)
    assert other.work.theta == 0
    assert other.work.solved + other.work.from_cache == first.work.solved
    assert again.cost_ns == first.cost_ns
    assert other.cost_ns == synthesize(SWING, cheaper, method="candidates").cost_ns


def test_a_cache_in_trouble_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    said: list[str] = []
    found = synthesize(SWING, FABRIC, method="candidates", cache=str(tmp_path / "cache"), warn=said.append)
    assert found.cost_ns == synthesize(SWING, FABRIC, method="candidates").cost_ns
    assert len(said) == 1
    assert str(tmp_path / "cache") in said[0]


def test_verification_generates_the_collective_again_or_asks_for_it() -> None:
    made = synthesize(RD, ONE_PORT).schedule
    unknown = synthesize(irregular(3), FABRIC).schedule
    assert made is not None
    assert unknown is not None
    assert lumenfarm.verify_schedule(made).ok
    assert lumenfarm.verify_schedule(unknown, irregular(3)).ok
    assert not lumenfarm.verify_schedule(unknown, irregular(4)).ok
    with pytest.raises(InputError, match="'irregular 3', which no generator made"):
        lumenfarm.verify_schedule(unknown)


def test_shifts_alone_give_the_same_as_the_whole_collective() -> None:
    assert SHIFTS is not None
    alone, whole = lumenfarm.synthesize_shifts(SHIFTS, 8, ONE_PORT), synthesize(RD, ONE_PORT)
    assert alone.schedule is None
    assert alone.cost_ns == pytest.approx(whole.cost_ns, rel=1e-12)
    assert astuple(alone.baselines) == pytest.approx(astuple(whole.baselines))
    assert [(part.first, part.stop) for part in alone.segments] == [(part.first, part.stop) for part in whole.segments]
    assert alone.to_json().keys() == whole.to_json().keys()


def test_this_installation() -> None:
    assert api.default_workers() >= 1
    assert set(api.self_test()) == {"highs", "scip"}


def test_auto_says_why_it_does_not_search_symmetric_topologies() -> None:
    tree = lumenfarm.generate("broadcast-binomial", gpus=8, message_bytes=1e6)
    answer = synthesize(tree, FABRIC)
    assert answer.method is Method.CANDIDATES
    assert "no group" in answer.reason
    assert answer.proofs == ()


def test_a_renamed_collective_is_searched_as_well() -> None:
    """The best that full symmetry gives does not depend on names."""
    plain = lumenfarm.generate("all-reduce-swing", gpus=8, message_bytes=1e6, ports=2)
    renamed = plain.relabelled(np.random.default_rng(5).permutation(8))
    answers = [synthesize(job, FABRIC, method="symmetric", candidates=["matchings"]) for job in (plain, renamed)]
    assert [answer.proofs[0].topologies for answer in answers] == [28, 28]
    assert answers[0].proofs[0].lower_bound_ns == pytest.approx(answers[1].proofs[0].lower_bound_ns, rel=1e-4)
    assert synthesize(renamed, FABRIC).method is Method.SYMMETRIC


def test_gpus_may_be_numbered_in_any_way() -> None:
    """Partners alone tell the symmetry, so that the same search finds as good a schedule."""
    renamed = np.random.default_rng(3).permutation(SWING.n)
    steps = tuple(Step(step.demand.relabelled(renamed)) for step in SWING.steps)
    plain = synthesize(SWING, FABRIC, method="symmetric")
    found = synthesize(Collective("renamed", steps, SWING.dims), FABRIC, method="symmetric")
    assert found.cost_ns == pytest.approx(plain.cost_ns, rel=1e-6)
    assert found.lower_bound_ns == pytest.approx(plain.lower_bound_ns, rel=1e-4)
    assert found.proofs[0].topologies == plain.proofs[0].topologies
