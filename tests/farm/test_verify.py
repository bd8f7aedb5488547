"""Schedules made truthful by hand are accepted; every forgery of them is rejected, for the right reason."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import ArcOrbits, Collective, Fabric, Latency, Step, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Provenance, Schedule, Segment, StepTiming
from lumenfarm.verify import VerifyReport, checks, circuits, flow, verify
from lumenfarm.verify.flow import prove

CHECKS = {"contract", "degree", "segments", "reachability", "theta", "hops", "time", "cost", "bound", "envelope"}


def busiest(demand: PairMatrix) -> float:
    """The most that one GPU sends or receives."""
    return float(max(demand.dense().sum(axis=0).max(), demand.dense().sum(axis=1).max()))


def theta_by_pairs(topology: Topology, demand: PairMatrix, degree: int) -> float:
    """The maximum concurrent flow with one commodity a pair: another program than the one under test."""
    arcs, pairs = topology.arcs(), list(demand.items())
    scale = degree / busiest(demand)
    count = len(arcs) * len(pairs)
    conservation = np.zeros((len(pairs), topology.n, count + 1))
    load = np.zeros((len(arcs), count + 1))
    for which, (source, destination, amount) in enumerate(pairs):
        for index, (tail, head, _) in enumerate(arcs):
            variable = which * len(arcs) + index
            conservation[which, tail, variable] -= 1
            conservation[which, head, variable] += 1
            load[index, variable] = 1
        conservation[which, destination, -1] = -amount * scale
        conservation[which, source, -1] = amount * scale
    solved = linprog(
        np.append(np.zeros(count), -1.0),
        A_ub=load,
        b_ub=[circuits for _, _, circuits in arcs],
        A_eq=conservation.reshape(-1, count + 1),
        b_eq=np.zeros(len(pairs) * topology.n),
        method="highs-ds",
    )
    return -float(solved.fun)


def farthest_partners(topology: Topology, demand: PairMatrix) -> float:
    distance = dict(nx.all_pairs_shortest_path_length(topology.to_networkx()))
    return float(max(distance[source].get(destination, math.inf) for source, destination, _ in demand.items()))


@dataclass(frozen=True)
class Case:
    """A collective, a fabric, and which steps go over which topology: all that a schedule follows from."""

    collective: Collective
    fabric: Fabric
    parts: tuple[tuple[int, int, Topology], ...]
    initial: Topology | None = None

    def timing(self, step: int, topology: Topology, factor: float) -> StepTiming:
        demand, fabric = self.collective.steps[step].demand, self.fabric
        theta = theta_by_pairs(topology, demand, fabric.degree) * factor
        shortest = fabric.latency is Latency.SHORTEST
        hops = farthest_partners(topology, demand) if shortest else 1 / theta
        busiest_bytes = busiest(demand)
        transfer = 8 / fabric.link_gbps * busiest_bytes / fabric.degree / theta
        return StepTiming(theta, hops, fabric.alpha_ns + transfer + fabric.delta_ns * hops)

    def schedule(self, factors: Mapping[int, float] | None = None) -> Schedule:
        """Truthful but for the theta of some steps, multiplied by factors and carried through all sums."""
        factors = factors or {}
        steps = tuple(
            self.timing(step, topology, factors.get(step, 1.0))
            for first, stop, topology in self.parts
            for step in range(first, stop)
        )
        topologies = tuple(dict.fromkeys(topology for _, _, topology in self.parts))
        segments = tuple(
            Segment(first, stop, topologies.index(topology), sum(t.time_ns for t in steps[first:stop]), 1.0, "node")
            for first, stop, topology in self.parts
        )
        moved = self.initial is not None and self.initial != self.parts[0][2]
        changes = len(self.parts) - 1 + moved
        communication = sum(timing.time_ns for timing in steps)
        collective = self.collective
        return Schedule(
            collective_name=collective.name,
            n=collective.n,
            dims=collective.dims,
            message_bytes=collective.message_bytes,
            origin=None,
            step_digests=collective.step_digests,
            fabric=self.fabric,
            topologies=topologies,
            segments=segments,
            steps=steps,
            initial=self.initial,
            cost_ns=communication + changes * self.fabric.reconfig_delay_ns,
            lower_bound_ns=2.0,
            envelope=self.envelope(changes, communication),
            contract=Contract.of(collective, self.fabric),
            provenance=Provenance({}, "by hand", {}, "2026-01-01T00:00:00+00:00"),
        )

    def envelope(self, changes: int, communication: float) -> tuple[EnvelopePiece, ...]:
        if not changes:
            return (EnvelopePiece(0.0, None, 0, communication),)
        turn = 2 * self.fabric.reconfig_delay_ns + 100
        return (
            EnvelopePiece(0.0, turn, changes, communication),
            EnvelopePiece(turn, None, 0, communication + changes * turn),
        )


FABRIC = Fabric(degree=2, link_gbps=800, alpha_ns=500, delta_ns=300, reconfig_delay_ns=1000)
RING_4 = Topology.circulant(4, {1: 1})
RING_8 = Topology.circulant(8, {1: 1, -1: 1})
LEAP_8 = Topology.circulant(8, {4: 1, 1: 1})


def collective(name: str, demands: Sequence[PairMatrix], message_bytes: float | None = None) -> Collective:
    return Collective(name, tuple(Step(demand) for demand in demands), (demands[0].n,), message_bytes)


def swing(n: int, distance: int, amount: float) -> PairMatrix:
    ranks = np.arange(n)
    return PairMatrix.from_permutation((ranks + np.where(ranks % 2, -distance, distance)) % n, amount)


def one_port() -> Case:
    fabric = replace(FABRIC, degree=1)
    return Case(collective("ring", [PairMatrix.shift(4, 1, 4096.0)] * 3, 16384.0), fabric, ((0, 3, RING_4),))


def doubling() -> Case:
    demands = [PairMatrix.shift(8, offset, 4096.0 / offset) for offset in (1, 2, 4)]
    parts = ((0, 2, RING_8), (2, 4, LEAP_8), (4, 6, RING_8))
    return Case(collective("doubling", demands + demands[::-1], 8192.0), FABRIC, parts)


def swinging() -> Case:
    demands = [swing(16, distance, 8192.0 / 2**t) for t, distance in enumerate((1, -1, 3, -5))]
    ranks = np.arange(16)
    other = Topology.from_arcs(
        16, [(int(u), int((u + (o if u % 2 == 0 else -o)) % 16), 1) for u in ranks for o in (3, -5)], "swings"
    )
    parts = ((0, 2, Topology.circulant(16, {1: 1, -1: 1})), (2, 4, other))
    return Case(collective("swing", demands), FABRIC, parts, initial=other)


def irregular() -> Case:
    one = PairMatrix(8, [0, 0, 0, 3, 5, 6], [1, 4, 7, 0, 2, 5], [100.0, 900.5, 33.0, 700.0, 1.0, 4096.0])
    two = PairMatrix(8, [1, 2, 7], [2, 1, 3], [10.0, 20.0, 30.0])
    line = Topology.from_arcs(8, [(u, u + 1, 2) for u in range(7)] + [(7, 0, 1)], "thin ring")
    fabric = replace(FABRIC, latency=Latency.SHORTEST)
    return Case(collective("irregular", [one, two, one]), fabric, ((0, 1, line), (1, 3, RING_8)))


CASES = {case.collective.name: case for case in (one_port(), doubling(), swinging(), irregular())}


def failed(report: VerifyReport) -> set[str]:
    assert {finding.check for finding in report.findings} == CHECKS
    assert report.ok == (not report.failures)
    return {finding.check for finding in report.failures}


def lines(report: VerifyReport, check: str) -> list[str]:
    return [finding.detail for finding in report.findings if finding.check == check]


def with_topology(schedule: Schedule, index: int, arcs: Sequence[tuple[int, int, int]]) -> Schedule:
    old = schedule.topologies[index]
    new = Topology.from_arcs(schedule.n, arcs, old.label)
    return replace(schedule, topologies=tuple(new if top is old else top for top in schedule.topologies))


def with_segment(schedule: Schedule, index: int, changed: Segment) -> Schedule:
    segments = list(schedule.segments)
    segments[index] = changed
    return replace(schedule, segments=tuple(segments))


def with_timing(schedule: Schedule, step: int, changed: StepTiming) -> Schedule:
    return replace(schedule, steps=(*schedule.steps[:step], changed, *schedule.steps[step + 1 :]))


def with_piece(schedule: Schedule, index: int, changed: EnvelopePiece) -> Schedule:
    pieces = list(schedule.envelope)
    pieces[index] = changed
    return replace(schedule, envelope=tuple(pieces))


@pytest.mark.parametrize("latency", Latency)
@pytest.mark.parametrize("name", CASES)
def test_truthful_schedules_are_accepted(name: str, latency: Latency) -> None:
    case = CASES[name]
    case = replace(case, fabric=replace(case.fabric, latency=latency))
    report = verify(case.schedule(), case.collective)
    assert report.ok, report.failures
    assert failed(report) == set()


def test_swing_on_the_static_ring_costs_what_is_known() -> None:
    # 16 MiB, 64 GPUs, 2 ports, 800 Gb/s, alpha = delta = 500 ns: 2, 2, 4, 6, 12, 22 hops, 573,045 ns in all.
    half = [swing(64, distance, 2**24 / 2 ** (t + 1)) for t, distance in enumerate((1, -1, 3, -5, 11, -21))]
    swings = collective("swing", half + half[::-1], 2.0**24)
    fabric = Fabric(degree=2, link_gbps=800, alpha_ns=500, delta_ns=500, reconfig_delay_ns=10_000)
    hops = [2.0, 2.0, 4.0, 6.0, 12.0, 22.0]
    timings = [StepTiming(1 / hop, hop, 500 + (0.01 * 2**24 / 2 ** (t + 2) + 500) * hop) for t, hop in enumerate(hops)]
    steps = tuple(timings + timings[::-1])
    total = sum(timing.time_ns for timing in steps)
    assert total == pytest.approx(573_045, abs=1)
    schedule = Schedule(
        collective_name="swing",
        n=64,
        dims=(64,),
        message_bytes=2.0**24,
        origin=None,
        step_digests=swings.step_digests,
        fabric=fabric,
        topologies=(Topology.circulant(64, {1: 1, -1: 1}),),
        segments=(Segment(0, 12, 0, total, 0.0, "none"),),
        steps=steps,
        initial=None,
        cost_ns=total,
        lower_bound_ns=0.0,
        envelope=(EnvelopePiece(0.0, None, 0, total),),
        contract=Contract.of(swings, fabric),
        provenance=Provenance({}, "by hand", {}, "2026-01-01T00:00:00+00:00"),
    )
    assert failed(verify(schedule, swings)) == set()


def arc_added(true: Schedule) -> Schedule:
    return with_topology(true, 0, [*true.topologies[0].arcs(), (0, 3, 1)])


def arc_removed(true: Schedule) -> Schedule:
    return with_topology(true, 0, true.topologies[0].arcs()[1:])


def arc_redirected(true: Schedule) -> Schedule:
    return with_topology(true, 0, [*true.topologies[0].arcs()[1:], (0, 3, 1)])


def boundary_moved(true: Schedule) -> Schedule:
    first, second, *rest = true.segments
    stop = first.stop - 1
    return replace(true, segments=(replace(first, stop=stop), replace(second, first=stop), *rest))


def boundary_moved_with_sums(true: Schedule) -> Schedule:
    first, second, *rest = boundary_moved(true).segments
    moved_ns = true.steps[first.stop].time_ns
    shorter, longer = (
        replace(first, cost_ns=first.cost_ns - moved_ns),
        replace(second, cost_ns=second.cost_ns + moved_ns),
    )
    return replace(true, segments=(shorter, longer, *rest))


def cost_lowered(true: Schedule) -> Schedule:
    return replace(true, cost_ns=true.cost_ns * 0.99)


def segment_cost_lowered(true: Schedule) -> Schedule:
    return with_segment(true, 1, replace(true.segments[1], cost_ns=true.segments[1].cost_ns * 0.99))


def time_lowered(true: Schedule) -> Schedule:
    return with_timing(true, 3, replace(true.steps[3], time_ns=true.steps[3].time_ns * 0.99))


def hops_lowered(true: Schedule) -> Schedule:
    return with_timing(true, 3, replace(true.steps[3], hops=true.steps[3].hops * 0.99))


def reconfiguration_not_paid(true: Schedule) -> Schedule:
    return replace(true, cost_ns=true.cost_ns - true.fabric.reconfig_delay_ns)


def bound_above_cost(true: Schedule) -> Schedule:
    return replace(true, lower_bound_ns=true.cost_ns * 1.01)


def segment_bound_above_cost(true: Schedule) -> Schedule:
    return with_segment(true, 2, replace(true.segments[2], lower_bound_ns=true.segments[2].cost_ns * 1.01))


def bound_negative(true: Schedule) -> Schedule:
    return replace(true, lower_bound_ns=-1.0)


def bound_not_a_number(true: Schedule) -> Schedule:
    return replace(true, lower_bound_ns=math.nan)


def cost_not_a_number(true: Schedule) -> Schedule:
    return replace(true, cost_ns=math.nan)


def theta_not_a_number(true: Schedule) -> Schedule:
    return with_timing(true, 0, replace(true.steps[0], theta=math.nan))


def theta_zero(true: Schedule) -> Schedule:
    return with_timing(true, 0, replace(true.steps[0], theta=0.0))


def envelope_missing(true: Schedule) -> Schedule:
    return replace(true, envelope=())


def envelope_cut(true: Schedule) -> Schedule:
    return replace(true, envelope=true.envelope[:1])


def envelope_begins_late(true: Schedule) -> Schedule:
    return with_piece(true, 0, replace(true.envelope[0], alpha_r_from_ns=1.0))


def envelope_with_gap(true: Schedule) -> Schedule:
    return with_piece(true, 1, replace(true.envelope[1], alpha_r_from_ns=true.envelope[1].alpha_r_from_ns * 1.01))


def envelope_jumps(true: Schedule) -> Schedule:
    return with_piece(true, 1, replace(true.envelope[1], communication_ns=true.envelope[1].communication_ns * 0.99))


def envelope_cheaper_here(true: Schedule) -> Schedule:
    cheaper = [replace(piece, communication_ns=piece.communication_ns - 50.0) for piece in true.envelope]
    return replace(true, envelope=tuple(cheaper))


def envelope_counts_wrong(true: Schedule) -> Schedule:
    return with_piece(true, 0, replace(true.envelope[0], reconfigurations=true.envelope[0].reconfigurations + 1))


def envelope_rises(true: Schedule) -> Schedule:
    one, other = true.envelope
    communication = one.communication_ns - other.alpha_r_from_ns
    return with_piece(true, 1, EnvelopePiece(other.alpha_r_from_ns, None, 3, communication))


def envelope_stands_still(true: Schedule) -> Schedule:
    one, other = true.envelope
    turn = other.alpha_r_from_ns
    return replace(true, envelope=(one, EnvelopePiece(turn, turn, 1, one.communication_ns + turn), other))


def topology_unused(true: Schedule) -> Schedule:
    return replace(true, topologies=(*true.topologies, Topology.circulant(8, {3: 1})))


def neighbours_alike(true: Schedule) -> Schedule:
    return replace(true, topologies=(true.topologies[0], true.topologies[0]))


def fabric_changed(true: Schedule) -> Schedule:
    return replace(true, fabric=replace(true.fabric, reconfig_delay_ns=1001.0))


def dims_changed(true: Schedule) -> Schedule:
    return replace(true, dims=(2, 4))


def message_size_changed(true: Schedule) -> Schedule:
    return replace(true, message_bytes=4096.0)


FORGERIES: dict[Callable[[Schedule], Schedule], set[str]] = {
    arc_added: {"degree"},
    arc_removed: {"theta"},
    arc_redirected: {"degree", "theta"},
    boundary_moved: {"theta", "cost"},
    boundary_moved_with_sums: {"theta"},
    cost_lowered: {"cost"},
    segment_cost_lowered: {"cost", "envelope"},
    time_lowered: {"time", "cost"},
    hops_lowered: {"hops", "time"},
    reconfiguration_not_paid: {"cost"},
    bound_above_cost: {"bound"},
    segment_bound_above_cost: {"bound"},
    bound_negative: {"bound"},
    bound_not_a_number: {"bound"},
    cost_not_a_number: {"cost", "bound"},
    theta_not_a_number: {"theta", "hops", "time"},
    theta_zero: {"theta", "hops", "time"},
    envelope_missing: {"envelope"},
    envelope_cut: {"envelope"},
    envelope_begins_late: {"envelope"},
    envelope_with_gap: {"envelope"},
    envelope_jumps: {"envelope"},
    envelope_cheaper_here: {"envelope"},
    envelope_counts_wrong: {"envelope"},
    envelope_rises: {"envelope"},
    envelope_stands_still: {"envelope"},
    topology_unused: {"segments"},
    neighbours_alike: {"segments", "theta", "cost", "envelope"},
    fabric_changed: {"contract", "cost"},
    dims_changed: {"contract"},
    message_size_changed: {"contract"},
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forgeries_are_rejected(forge: Callable[[Schedule], Schedule]) -> None:
    case = CASES["doubling"]
    assert failed(verify(forge(case.schedule()), case.collective)) == FORGERIES[forge]


RANKS = np.arange(16)
TURN_BY_TWO, REFLECTION = (RANKS + 2) % 16, (1 - RANKS) % 16
# The topology of the swings by its orbits, and descriptions that differ from it in one place.
SWING_ORBITS = Topology.from_orbits(16, [TURN_BY_TWO, REFLECTION], [(0, 3, 1), (0, 11, 1)], "swings")
FORGED_ORBITS = {
    "another target": ([TURN_BY_TWO, REFLECTION], [(0, 3, 1), (0, 5, 1)], {"theta"}),
    "another generator": ([(RANKS + 1) % 16], [(0, 3, 1), (0, 11, 1)], {"theta"}),
    "a generator less": ([TURN_BY_TWO], [(0, 3, 1), (0, 11, 1)], {"reachability", "theta"}),
    "more circuits": ([TURN_BY_TWO, REFLECTION], [(0, 3, 2), (0, 11, 1)], {"degree", "theta"}),
    "an orbit less": ([TURN_BY_TWO, REFLECTION], [(0, 3, 1)], {"reachability", "theta"}),
}


def with_swings(topology: Topology) -> Schedule:
    true = CASES["swing"].schedule()
    return replace(true, topologies=(true.topologies[0], topology), initial=topology)


def test_a_truthful_schedule_by_orbits_is_accepted() -> None:
    case = CASES["swing"]
    by_arcs = Topology.from_arcs(16, SWING_ORBITS.arcs(), "swings")
    report = verify(with_swings(SWING_ORBITS), case.collective)
    assert failed(report) == set()
    assert report == verify(with_swings(by_arcs), case.collective)
    assert with_swings(SWING_ORBITS).topologies == case.schedule().topologies


@pytest.mark.parametrize("forgery", FORGED_ORBITS)
def test_forged_orbits_are_rejected_as_forged_arcs_are(forgery: str) -> None:
    generators, arcs, checks_failed = FORGED_ORBITS[forgery]
    forged = Topology.from_orbits(16, generators, arcs, "swings")
    by_arcs = Topology.from_arcs(16, forged.arcs(), "swings")
    collective = CASES["swing"].collective
    report = verify(with_swings(forged), collective)
    assert checks_failed <= failed(report)
    assert report == verify(with_swings(by_arcs), collective)


def test_what_a_topology_says_of_its_orbits_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArcOrbits, "circuits", lambda _: CASES["swing"].parts[1][2].circuits)
    generators, arcs, checks_failed = FORGED_ORBITS["another target"]
    forged = Topology.from_orbits(16, generators, arcs, "swings")
    assert forged == SWING_ORBITS
    assert checks_failed <= failed(verify(with_swings(forged), CASES["swing"].collective))


@pytest.mark.parametrize("factor", [0.99, 1.01, 1 - 1e-5, 1 + 1e-5])
@pytest.mark.parametrize("name", ["doubling", "swing", "irregular"])
def test_a_theta_carried_through_all_sums_is_still_found(name: str, factor: float) -> None:
    case = CASES[name]
    report = verify(case.schedule({0: factor}), case.collective)
    assert failed(report) == {"theta"}
    verdict = "too high" if factor > 1 else "too low"
    assert all(verdict in finding.detail and "step" in finding.detail for finding in report.failures)


def test_theta_within_the_tolerance_is_accepted() -> None:
    case = CASES["doubling"]
    assert verify(case.schedule({0: 1.001}), case.collective, tolerance=0.002).ok


def test_an_arc_within_the_degree_is_found_by_theta() -> None:
    case = CASES["irregular"]
    schedule = with_topology(case.schedule(), 0, [*case.parts[0][2].arcs(), (7, 0, 1)])
    assert "theta" in failed(verify(schedule, case.collective))


def test_a_pair_without_a_path_is_named() -> None:
    case = CASES["ring"]
    schedule = with_topology(case.schedule(), 0, case.parts[0][2].arcs()[:-1])
    report = verify(schedule, case.collective)
    assert {"reachability", "theta"} <= failed(report)
    assert lines(report, "reachability") == ["steps 1-3: no path from GPU 3 to GPU 0 on 'circulant{+1}'"]


def test_no_circuits_at_all() -> None:
    case = CASES["ring"]
    assert "reachability" in failed(verify(with_topology(case.schedule(), 0, []), case.collective))


@pytest.mark.parametrize("name", CASES)
def test_another_message_size_is_rejected(name: str) -> None:
    case = CASES[name]
    larger = collective(name, [step.demand.scaled(2) for step in case.collective.steps])
    assert {"contract", "time"} <= failed(verify(case.schedule(), larger))


def test_a_collective_that_does_not_say_its_message_size_is_compared_by_its_steps() -> None:
    case = CASES["irregular"]
    true = case.schedule()
    sized = replace(true, message_bytes=4096.0, contract=replace(true.contract, message_bytes=4096.0))
    unsized = replace(case.collective, message_bytes=None)
    assert verify(sized, unsized).ok
    larger = collective("irregular", [step.demand.scaled(2) for step in case.collective.steps])
    assert "contract" in failed(verify(sized, larger))


def test_another_rank_order_is_rejected() -> None:
    case = CASES["irregular"]
    renamed = case.collective.relabelled(np.array([1, 0, 2, 3, 4, 5, 6, 7]))
    report = verify(case.schedule(), renamed)
    assert "contract" in failed(report)
    assert "steps 1-3: not the demand" in lines(report, "contract")[-1]


def test_another_step_order_is_rejected() -> None:
    case = CASES["doubling"]
    steps = case.collective.steps
    swapped = replace(case.collective, steps=(steps[1], steps[0], *steps[2:]))
    report = verify(case.schedule(), swapped)
    assert {"contract", "theta"} <= failed(report)
    assert "steps 1-2: not the demand" in lines(report, "contract")[-1]


def test_steps_that_cannot_be_compared_fail_and_the_rest_is_checked() -> None:
    case = CASES["doubling"]
    fewer = replace(case.collective, steps=case.collective.steps[:-1])
    report = verify(case.schedule(), fewer)
    assert failed(report) == {"contract", "reachability", "theta", "hops", "time"}
    assert "number of steps is 5, the schedule says 6" in lines(report, "contract")
    assert "not checked" in lines(report, "theta")[0]
    assert "contract" in failed(verify(case.schedule(), CASES["swing"].collective))


def test_moving_off_the_initial_topology_is_charged() -> None:
    case = CASES["swing"]
    schedule = case.schedule()
    assert "2 reconfigurations of 1000 ns" in lines(verify(schedule, case.collective), "cost")[0]
    assert failed(verify(replace(schedule, initial=None), case.collective)) == {"cost", "envelope"}
    crowded = replace(schedule, initial=Topology.from_arcs(16, [(0, 1, 3)]))
    assert failed(verify(crowded, case.collective)) == {"degree"}


def test_what_the_types_refuse_is_checked_again() -> None:
    case = CASES["doubling"]
    schedule, half = case.schedule(), replace(RING_8)
    object.__setattr__(schedule, "segments", schedule.segments[:2])
    object.__setattr__(half, "circuits", RING_8.circuits.scaled(0.5))
    object.__setattr__(schedule, "topologies", (half, LEAP_8))
    faults = [line.detail for check in (checks._check_segments, checks._check_degree) for line in check(schedule)]
    assert faults == [
        "the segments do not cover steps 1-6 once in order",
        "topology 1 'circulant{+1,-1}' has circuits that are not whole",
    ]


def test_at_a_break_point_either_piece_will_do() -> None:
    case = CASES["doubling"]
    schedule = case.schedule()
    communication, delay = schedule.communication_ns, case.fabric.reconfig_delay_ns
    pieces = (
        EnvelopePiece(0.0, delay, 2, communication),
        EnvelopePiece(delay, None, 1, communication + delay),
    )
    assert verify(replace(schedule, envelope=pieces), case.collective).ok


def test_a_cost_below_what_the_busiest_gpus_need_is_impossible() -> None:
    # Twice the possible theta with everything else made to fit: the bound check sees it without any flow.
    case = CASES["ring"]
    report = verify(case.schedule({0: 2.0, 1: 2.0, 2: 2.0}), case.collective)
    assert failed(report) == {"theta", "bound"}


def test_the_report_says_what_was_not_proved() -> None:
    case = CASES["ring"]
    schedule = case.schedule()
    floor = 3 * (500 + 0.01 * 4096 + 300)
    [weak] = lines(verify(replace(schedule, lower_bound_ns=floor), case.collective), "bound")
    assert f"{floor:.9g} ns of it proved again" in weak
    assert "believed" not in weak
    slower = CASES["doubling"]
    true = slower.schedule()
    [strong] = lines(verify(replace(true, lower_bound_ns=true.cost_ns), slower.collective), "bound")
    assert "the rest believed (node)" in strong


def test_lines_count_steps_from_one_and_give_numbers() -> None:
    case = CASES["doubling"]
    report = verify(case.schedule({1: 1.1}), case.collective)
    [failure] = report.failures
    assert failure.detail.startswith(
        "step 2: theta 0.366666667 on 'circulant{+1,-1}' too high: a flow ships 0.333333333"
    )
    assert lines(report, "hops") == ["steps 1-6: hops = 1/theta"]


@pytest.mark.parametrize(
    ("steps", "expected"), [([0], "step 1"), ([0, 1, 2, 6], "steps 1-3, 7"), ([1, 3], "steps 2, 4")]
)
def test_step_names(steps: list[int], expected: str) -> None:
    assert checks._step_names(steps) == expected


@pytest.mark.parametrize("tolerance", [0.0, -1e-6, math.nan, math.inf])
def test_the_tolerance_must_be_positive(tolerance: float) -> None:
    case = CASES["ring"]
    with pytest.raises(InputError, match="tolerance"):
        verify(case.schedule(), case.collective, tolerance=tolerance)


def test_equal_steps_are_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proved = []

    def counted(topology: Topology, multiplicities: PairMatrix) -> flow.Proof:
        proved.append(topology)
        return prove(topology, multiplicities)

    monkeypatch.setattr(checks, "prove", counted)
    case = CASES["doubling"]
    verify(case.schedule(), case.collective)
    assert len(proved) == 3


def test_the_check_shares_no_code_with_the_search() -> None:
    allowed = {"matrix", "model", "schedule", "units", "verify"}
    for module in (checks, circuits, flow):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lumenfarm"):
                assert node.module.split(".")[1] in allowed


# theta itself


def forbid(*_: object) -> None:
    raise RuntimeError("a linear program was asked for")


@pytest.mark.parametrize(
    ("n", "offsets", "shift", "theta"),
    [
        (1024, {1: 1}, 100, 1 / 100),
        (1024, {1: 1, -1: 1}, 512, 1 / 256),
        (97, {1: 2}, 96, 2 / 96),
        (9, {3: 1}, 6, 1 / 2),
    ],
)
def test_rings_need_no_linear_program(
    n: int, offsets: dict[int, int], shift: int, theta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "_suggest", forbid)
    proof = prove(Topology.circulant(n, offsets), PairMatrix.shift(n, shift, 1.0))
    assert (proof.shipped, proof.allowed) == pytest.approx((theta, theta), rel=1e-12)


def test_a_ring_that_cannot_be_folded_needs_no_linear_program_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_suggest", forbid)
    monkeypatch.setattr(flow, "_period", lambda circuits, _: circuits.n)
    proof = prove(Topology.circulant(512, {1: 1}), PairMatrix.shift(512, 100, 1.0))
    assert (proof.shipped, proof.allowed) == pytest.approx((0.01, 0.01), rel=1e-12)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Topology, PairMatrix]:
    n = draw(st.integers(2, 7))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    arcs = draw(st.dictionaries(pairs, st.integers(1, 3), max_size=3 * n))
    amounts = st.one_of(st.sampled_from([1.0, 2.0]), st.floats(1e-3, 10.0))
    demand = draw(st.dictionaries(pairs, amounts, min_size=1, max_size=2 * n))
    ring = [(u, (u + 1) % n, 1) for u in range(n)] if draw(st.booleans()) else []
    topology = Topology.from_arcs(n, [*ring, *((u, v, x) for (u, v), x in arcs.items())])
    return topology, PairMatrix(n, [u for u, _ in demand], [v for _, v in demand], list(demand.values()))


@st.composite
def turned_networks(draw: st.DrawFn) -> tuple[Topology, PairMatrix]:
    """Circuits and demand that a rotation by a proper divisor of n leaves alone."""
    n, period = draw(st.sampled_from([(4, 1), (4, 2), (6, 1), (6, 2), (6, 3), (8, 2)]))
    some = st.tuples(st.integers(0, period - 1), st.integers(1, n - 1), st.integers(1, 2))
    arcs, pairs = draw(st.lists(some, min_size=1, max_size=4)), draw(st.lists(some, min_size=1, max_size=3))
    turned = [
        [((u + turn) % n, (u + offset + turn) % n, x) for u, offset, x in triples for turn in range(0, n, period)]
        for triples in (arcs, pairs)
    ]
    return Topology.from_arcs(n, turned[0]), PairMatrix(n, *zip(*turned[1], strict=True))


def normalised(demand: PairMatrix, degree: int) -> PairMatrix:
    return demand.scaled(degree / busiest(demand))


@settings(max_examples=120)
@given(st.one_of(networks(), turned_networks()))
def test_theta_agrees_with_a_program_over_pairs(network: tuple[Topology, PairMatrix]) -> None:
    topology, demand = network
    degree = max(1, topology.degree)
    proof = prove(topology, normalised(demand, degree))
    graph = topology.to_networkx()
    if all(nx.has_path(graph, source, destination) for source, destination, _ in demand.items()):
        theta = theta_by_pairs(topology, demand, degree)
        assert (proof.shipped, proof.allowed) == pytest.approx((theta, theta), rel=1e-7)
        assert proof.hops == farthest_partners(topology, demand)
    else:
        assert proof.unreached is not None
        assert not nx.has_path(graph, *proof.unreached)
        assert (proof.shipped, proof.allowed, proof.hops) == (0.0, 0.0, math.inf)


@settings(max_examples=80)
@given(
    st.one_of(networks(), turned_networks()), st.integers(0, 2**32 - 1), st.sampled_from([1e-9, 1e-2, 1.0, math.nan])
)
def test_whatever_the_solver_says_the_bounds_hold(
    network: tuple[Topology, PairMatrix], seed: int, error: float
) -> None:
    topology, demand = network
    graph = topology.to_networkx()
    assume(all(nx.has_path(graph, source, destination) for source, destination, _ in demand.items()))
    degree = topology.degree
    theta = theta_by_pairs(topology, demand, degree)
    honest, rng = flow._suggest, np.random.default_rng(seed)

    def lie(folded: flow._Network) -> SimpleNamespace:
        said = honest(folded)
        x, marginals = (values + error * rng.normal(size=values.shape) for values in (said.x, said.ineqlin.marginals))
        return SimpleNamespace(x=x, ineqlin=SimpleNamespace(marginals=marginals), status=0, fun=-99.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_suggest", lie)
        proof = prove(topology, normalised(demand, degree))
    assert 0 < proof.shipped <= theta * (1 + 1e-9)
    assert proof.allowed >= theta * (1 - 1e-9)


def test_flow_that_does_not_come_from_its_source_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # One circuit from 0 to 1, two from 2 to 1: the suggested flow ships 3 to GPU 1, but only 1 can come from GPU 0.
    suggestion = SimpleNamespace(x=np.array([1.0, 2.0, 3.0]), ineqlin=SimpleNamespace(marginals=np.array([-1.0, 0.0])))
    monkeypatch.setattr(flow, "_suggest", lambda _: suggestion)
    proof = prove(Topology.from_arcs(3, [(0, 1, 1), (2, 1, 2)]), PairMatrix(3, [0], [1], [1.0]))
    assert (proof.shipped, proof.allowed) == (1.0, 1.0)


def test_flow_below_zero_makes_no_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    # GPUs 0 and 3 both send to 1. On the one circuit from 2 to 1 the suggestion is -1 from GPU 0 and 2 from GPU 3.
    topology = Topology.from_arcs(4, [(0, 1, 3), (0, 2, 1), (2, 1, 1), (3, 2, 3)])
    x = np.array([3.0, 0.0, -1.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0])
    suggestion = SimpleNamespace(x=x, ineqlin=SimpleNamespace(marginals=np.array([0.0, 0.0, -1.0, 0.0])))
    monkeypatch.setattr(flow, "_suggest", lambda _: suggestion)
    proof = prove(topology, PairMatrix(4, [0, 3], [1, 1], 1.0))
    assert (proof.shipped, proof.allowed) == (1.0, 1.0)


@pytest.mark.parametrize("x", [None, np.zeros(17), np.full(17, np.nan)], ids=["none", "zero", "nan"])
def test_without_an_answer_from_the_solver_the_claim_stays_undecided(
    x: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    suggestion = SimpleNamespace(x=x, ineqlin=SimpleNamespace(marginals=np.zeros(2)))
    monkeypatch.setattr(flow, "_suggest", lambda _: suggestion)
    case = CASES["doubling"]
    report = verify(case.schedule(), case.collective)
    assert failed(report) == {"theta"}
    assert all("undecided" in finding.detail for finding in report.failures)


def test_a_renamed_network_has_the_same_theta() -> None:
    topology, demand, names = LEAP_8, PairMatrix.shift(8, 2, 2.0), np.array([3, 1, 4, 0, 5, 2, 7, 6])
    plain = prove(topology, demand)
    renamed = prove(Topology(topology.circuits.relabelled(names)), demand.relabelled(names))
    assert (renamed.shipped, renamed.allowed) == pytest.approx((plain.shipped, plain.allowed), rel=1e-9)
