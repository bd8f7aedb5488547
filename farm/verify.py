"""The independent check of a schedule: every number is computed again from the demands and the circuits.

Nothing of the search is used or believed. A maximum concurrent flow is proved from both sides: by a flow that ships
it, mended and added up here, and by arc lengths that allow no more (model sections 2 and 6). A linear program only
suggests the flow and the lengths; neither its status nor its objective counts.

Not proved: that no other schedule is better. Of the lower bound only the part is proved again that follows from
counting the bytes at the busiest GPU of each step; the report says how much that is. Of the envelope only the piece
of this schedule is compared with its costs; of the others, that they fit together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse.csgraph import dijkstra

from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.model import Collective, Latency, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Schedule, StepTiming
from lumenfarm.units import finite

__all__ = ["Finding", "VerifyReport", "verify"]

# Relative distance at which the cheap proof counts as closed, so that no linear program is needed.
_CLOSED = 1e-9
# After the time limit a claim stays undecided, which fails.
_LP_OPTIONS = {"time_limit": 600.0, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: the check's name, whether it holds, and a line for people (steps count from 1)."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Everything that was checked, in order."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that do not hold."""
        return tuple(finding for finding in self.findings if not finding.ok)


def verify(schedule: Schedule, collective: Collective, *, tolerance: float = 1e-6) -> VerifyReport:
    """Check a schedule against the collective it is meant for; every check is always reported.

    The checks are ``contract``, ``degree``, ``segments``, ``reachability``, ``theta``, ``hops``, ``time``, ``cost``,
    ``bound`` and ``envelope``. A claimed theta holds if a flow ships at least theta*(1 - tolerance) and arc lengths
    allow at most theta*(1 + tolerance). The four checks of single steps need the schedule's number of GPUs and of
    steps in the collective; otherwise they fail as not checked.

    Args:
        schedule: what is claimed.
        collective: the demands, not taken from the schedule.
        tolerance: largest relative difference between a claim and what is computed here, above 0.

    Returns:
        The findings, at least one for each check.

    Raises:
        InputError: the tolerance is not a finite number above 0.

    Source: model sections 2, 4, 6 and 8.
    """
    finite(tolerance, field="tolerance", strict=True)
    return VerifyReport(
        (
            *_check_contract(schedule, collective),
            *_check_degree(schedule),
            *_check_segments(schedule),
            *_check_steps(schedule, collective, tolerance),
            *_check_cost(schedule, tolerance),
            *_check_bound(schedule, collective, tolerance),
            *_check_envelope(schedule, tolerance),
        )
    )


def _check_contract(schedule: Schedule, collective: Collective) -> list[Finding]:
    fresh, count = Contract.of(collective, schedule.fabric), len(collective)
    names = schedule.contract.differences(fresh)
    stated = [(f"contract.{name}", getattr(schedule.contract, name), getattr(fresh, name)) for name in names]
    stated += [
        ("gpus", schedule.n, collective.n),
        ("dims", schedule.dims, collective.dims),
        ("message_bytes", schedule.message_bytes, collective.message_bytes),
        ("number of steps", len(schedule.steps), count),
    ]
    wrong = [f"{name} is {_short(new)}, the schedule says {_short(old)}" for name, old, new in stated if old != new]
    pairs = zip(schedule.step_digests, collective.step_digests, strict=False)
    changed = [step for step, (old, new) in enumerate(pairs) if old != new]
    if changed:
        wrong.append(f"{_step_names(changed)}: not the demand of the schedule (other bytes, step order or rank order)")
    return _verdict("contract", wrong, f"contract {_short(fresh.digest)} fits {collective.name!r}, {count} steps")


def _check_degree(schedule: Schedule) -> list[Finding]:
    used = [(f"topology {number} {top.label!r}", top) for number, top in enumerate(schedule.topologies, start=1)]
    if schedule.initial is not None:
        used.append((f"initial topology {schedule.initial.label!r}", schedule.initial))
    degree = schedule.fabric.degree
    wrong = [f"{name} {fault}" for name, topology in used for fault in _port_faults(topology, schedule.n, degree)]
    return _verdict("degree", wrong, f"{len(used)} topologies: whole circuits, at most {degree} ports a GPU each way")


def _port_faults(topology: Topology, n: int, degree: int) -> list[str]:
    circuits = topology.circuits
    faults = [] if circuits.n == n else [f"joins {circuits.n} GPUs, not {n}"]
    if (circuits.values % 1 != 0).any():
        faults.append("has circuits that are not whole")
    for direction, ends in (("transmit", circuits.sources), ("receive", circuits.destinations)):
        ports = np.bincount(ends, weights=circuits.values, minlength=circuits.n)
        if ports.max() > degree:
            faults.append(f"uses {ports.max():g} {direction} ports of GPU {ports.argmax()}, it has {degree}")
    return faults


def _check_segments(schedule: Schedule) -> list[Finding]:
    segments, count = schedule.segments, len(schedule.steps)
    wrong = []
    if [step for segment in segments for step in range(segment.first, segment.stop)] != list(range(count)):
        wrong.append(f"the segments do not cover steps 1-{count} once in order")
    for number, (one, other) in enumerate(itertools.pairwise(_topology_of_segment(schedule)), start=1):
        if one == other:
            wrong.append(f"segments {number} and {number + 1} use the same circuits")
    unused = set(range(len(schedule.topologies))) - {segment.topology for segment in segments}
    wrong += [f"topology {index + 1} {schedule.topologies[index].label!r} is not used" for index in sorted(unused)]
    success = f"{len(segments)} segments cover steps 1-{count} once in order; neighbours differ; no topology is unused"
    return _verdict("segments", wrong, success)


def _topology_of_segment(schedule: Schedule) -> list[Topology]:
    return [schedule.topologies[segment.topology] for segment in schedule.segments]


def _check_steps(schedule: Schedule, collective: Collective, tolerance: float) -> list[Finding]:
    if (schedule.n, len(schedule.steps)) != (collective.n, len(collective)):
        reason = "not checked: the collective has another number of GPUs or of steps than the schedule"
        return [Finding(check, ok=False, detail=reason) for check in ("reachability", "theta", "hops", "time")]
    topologies = [schedule.topology_of_step(step) for step in range(len(collective))]
    proofs = _prove_steps(topologies, collective, schedule.fabric.degree)
    timings = schedule.steps
    theta = [_theta_line(timing.theta, proof, tolerance) for timing, proof in zip(timings, proofs, strict=True)]
    return [
        *_by_step("reachability", [_reachability_line(proof) for proof in proofs]),
        *_by_step("theta", theta),
        *_by_step("hops", _hops_lines(timings, proofs, schedule.fabric.latency, tolerance)),
        *_by_step("time", _time_lines(schedule, collective, tolerance)),
    ]


def _reachability_line(proof: _Proof) -> _Line:
    if proof.unreached is None:
        return True, "every GPU reaches all that it sends to"
    source, destination = proof.unreached
    return False, f"no path from GPU {source} to GPU {destination} on {proof.label!r}"


def _theta_line(claimed: float, proof: _Proof, tolerance: float) -> _Line:
    shipped, allowed = claimed * (1 - tolerance) <= proof.shipped, proof.allowed <= claimed * (1 + tolerance)
    numbers = f"a flow ships {proof.shipped:.9g}, arc lengths allow {proof.allowed:.9g} ({proof.method})"
    if shipped and allowed:
        verdict = "proved"
    elif claimed * (1 - tolerance) > proof.allowed:
        verdict = "too high"
    elif claimed * (1 + tolerance) < proof.shipped:
        verdict = "too low"
    else:
        verdict = "undecided"
    return shipped and allowed, f"theta {claimed:.9g} on {proof.label!r} {verdict}: {numbers}"


def _hops_lines(
    timings: Sequence[StepTiming], proofs: Sequence[_Proof], latency: Latency, tolerance: float
) -> list[_Line]:
    if latency is Latency.SHORTEST:
        name, expected = "largest hop distance between partners", [proof.hops for proof in proofs]
    else:
        name, expected = "1/theta", [_inverse(timing.theta) for timing in timings]
    return [
        _compared("hops", timing.hops, hops, name, tolerance) for timing, hops in zip(timings, expected, strict=True)
    ]


def _time_lines(schedule: Schedule, collective: Collective, tolerance: float) -> list[_Line]:
    fabric = schedule.fabric
    lines = []
    for timing, chunk_bytes in zip(schedule.steps, collective.chunk_bytes(fabric.degree), strict=True):
        transfer = fabric.ns_per_byte * float(chunk_bytes) * _inverse(timing.theta)
        expected = fabric.alpha_ns + transfer + fabric.delta_ns * timing.hops
        lines.append(_compared("time_ns", timing.time_ns, expected, "alpha + beta*m/theta + delta*hops", tolerance))
    return lines


def _check_cost(schedule: Schedule, tolerance: float) -> list[Finding]:
    wrong = []
    for number, segment in enumerate(schedule.segments, start=1):
        total = sum(timing.time_ns for timing in schedule.steps[segment.first : segment.stop])
        if not _close(segment.cost_ns, total, tolerance):
            wrong.append(f"segment {number} claims {_ns(segment.cost_ns)}, its steps add up to {_ns(total)}")
    communication, changes = schedule.communication_ns, _changes(schedule)
    expected = communication + changes * schedule.fabric.reconfig_delay_ns
    terms = f"{_ns(communication)} in the segments + {changes} reconfigurations of "
    terms += _ns(schedule.fabric.reconfig_delay_ns)
    if not _close(schedule.cost_ns, expected, tolerance):
        wrong.append(f"the schedule claims {_ns(schedule.cost_ns)}, it is {_ns(expected)} = {terms}")
    return _verdict("cost", wrong, f"{_ns(schedule.cost_ns)} = {terms}; segments are the sums of their steps")


def _changes(schedule: Schedule) -> int:
    initial = [] if schedule.initial is None else [schedule.initial]
    return sum(one != other for one, other in itertools.pairwise(initial + _topology_of_segment(schedule)))


def _check_bound(schedule: Schedule, collective: Collective, tolerance: float) -> list[Finding]:
    claims = [("the schedule", schedule.lower_bound_ns, schedule.cost_ns)]
    claims += [
        (f"segment {number}", segment.lower_bound_ns, segment.cost_ns)
        for number, segment in enumerate(schedule.segments, start=1)
    ]
    wrong = [
        f"{name} costs {_ns(cost)}, not between 0 and it is the claimed bound {_ns(bound)}"
        for name, bound, cost in claims
        if not 0 <= bound <= cost * (1 + tolerance)
    ]
    floor = _busiest_gpu_bound(schedule, collective)
    if not floor <= schedule.cost_ns * (1 + tolerance):
        wrong.append(
            f"no schedule takes less than {_ns(floor)} (busiest GPUs), this one claims {_ns(schedule.cost_ns)}"
        )
    again = f"proved again: {_ns(floor)}, from the busiest GPU of each step"
    if schedule.lower_bound_ns > floor * (1 + tolerance):
        kinds = ", ".join(sorted({segment.proof for segment in schedule.segments}))
        again += f"; the rest is believed, not proved again (claimed proofs: {kinds})"
    success = f"bounds do not exceed costs; {_ns(schedule.lower_bound_ns)} of {_ns(schedule.cost_ns)}; {again}"
    return _verdict("bound", wrong, success)


def _busiest_gpu_bound(schedule: Schedule, collective: Collective) -> float:
    """Sum over steps of alpha + beta*m + delta: theta is at most 1 and every pair at least one hop apart."""
    fabric = schedule.fabric
    chunks_bytes = float(collective.chunk_bytes(fabric.degree).sum())
    return len(collective) * (fabric.alpha_ns + fabric.delta_ns) + fabric.ns_per_byte * chunks_bytes


def _check_envelope(schedule: Schedule, tolerance: float) -> list[Finding]:
    pieces = schedule.envelope
    ends = [0.0, *(piece.alpha_r_to_ns for piece in pieces)]
    wrong = []
    if not pieces or ends[:-1] != [piece.alpha_r_from_ns for piece in pieces] or ends[-1] is not None:
        wrong.append("the pieces do not follow each other from 0 to unlimited delay")
    for number, (one, other) in enumerate(itertools.pairwise(pieces), start=1):
        wrong += [f"piece {number + 1} {fault}" for fault in _joint_faults(one, other, tolerance)]
    delay_ns, changes, communication = schedule.fabric.reconfig_delay_ns, _changes(schedule), schedule.communication_ns
    here = [piece for piece in pieces if _holds(piece, delay_ns, tolerance)]
    own = f"{changes} reconfigurations and {_ns(communication)} of communication at a delay of {_ns(delay_ns)}"
    if not any(
        piece.reconfigurations == changes and _close(piece.communication_ns, communication, tolerance) for piece in here
    ):
        found = " or ".join(f"{piece.reconfigurations} and {_ns(piece.communication_ns)}" for piece in here)
        wrong.append(f"the schedule has {own}, the envelope says {found or 'nothing'}")
    return _verdict("envelope", wrong, f"{len(pieces)} pieces fit together; one has {own}, as the schedule")


def _joint_faults(one: EnvelopePiece, other: EnvelopePiece, tolerance: float) -> Iterable[str]:
    joint_ns = other.alpha_r_from_ns
    if not one.alpha_r_from_ns < joint_ns:
        yield f"begins at {_ns(joint_ns)}, not after the piece before"
    if not 0 <= other.reconfigurations < one.reconfigurations:
        yield f"has {other.reconfigurations} reconfigurations after {one.reconfigurations}, not fewer"
    before, after = (piece.communication_ns + piece.reconfigurations * joint_ns for piece in (one, other))
    if not _close(before, after, tolerance):
        yield f"begins with cost {_ns(after)}, the piece before ends with {_ns(before)}"


def _holds(piece: EnvelopePiece, delay_ns: float, tolerance: float) -> bool:
    stop_ns = math.inf if piece.alpha_r_to_ns is None else piece.alpha_r_to_ns
    return piece.alpha_r_from_ns * (1 - tolerance) <= delay_ns <= stop_ns * (1 + tolerance)


# What a check says. A line is whether a claim holds, and the words for it.

_Line = tuple[bool, str]


def _verdict(check: str, wrong: Iterable[str], success: str) -> list[Finding]:
    return [Finding(check, ok=False, detail=fault) for fault in wrong] or [Finding(check, ok=True, detail=success)]


def _by_step(check: str, lines: Sequence[_Line]) -> list[Finding]:
    steps: dict[_Line, list[int]] = {}
    for step, line in enumerate(lines):
        steps.setdefault(line, []).append(step)
    return [Finding(check, ok, f"{_step_names(same)}: {text}") for (ok, text), same in steps.items()]


def _step_names(steps: Sequence[int]) -> str:
    """``steps 1-3, 7`` for the ascending steps 0, 1, 2, 6."""
    runs = itertools.groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])
    spans = [[step + 1 for _, step in run] for _, run in runs]
    text = ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
    return f"step {text}" if len(steps) == 1 else f"steps {text}"


def _compared(what: str, claimed: float, expected: float, formula: str, tolerance: float) -> _Line:
    if _close(claimed, expected, tolerance):
        return True, f"{what} = {formula}"
    return False, f"{what} claimed {claimed:.9g}, but {formula} = {expected:.9g}"


def _close(one: float, other: float, tolerance: float) -> bool:
    return math.isclose(one, other, rel_tol=tolerance)


def _inverse(theta: float) -> float:
    return 1 / theta if theta > 0 else math.inf


def _ns(time_ns: float) -> str:
    return f"{time_ns:.9g} ns"


def _short(value: object) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else str(value)


# theta, proved from both sides


@dataclass(frozen=True, slots=True)
class _Proof:
    """What is certain about one topology and pattern: shipped <= theta <= allowed.

    ``label`` names the topology, ``method`` where flow and lengths come from; ``hops`` is the largest hop distance
    between partners, and ``unreached`` a pair without a path, if there is one.
    """

    label: str
    shipped: float
    allowed: float
    hops: float
    method: str
    unreached: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Network:
    """Circuits and multiplicities, folded by the rotation u -> u + period (mod n) that changes neither.

    The average of a flow over the rotations is a flow, ships as much, and loads no circuit more than the most loaded
    before. So it is enough to route from the sources below the period and to count on each arc what they send over
    all arcs that rotations map to it: its orbit. Without such a rotation the period is n, and nothing is folded.

    Attributes:
        n: number of GPUs.
        sources: GPUs below the period that send, shape (sources,).
        demand: k from each of them to every GPU, shape (sources, n).
        tails, heads: ends of every arc, shape (arcs,).
        orbit: orbit of every arc, shape (arcs,).
        circuits: parallel circuits of each arc of an orbit, shape (orbits,).
    """

    n: int
    sources: Ints
    demand: Floats
    tails: Ints
    heads: Ints
    orbit: Ints
    circuits: Floats

    @classmethod
    def of(cls, circuits: PairMatrix, multiplicities: PairMatrix) -> _Network:
        n, tails, heads = circuits.n, circuits.sources, circuits.destinations
        period = _period(circuits, multiplicities)
        below = multiplicities.sources < period
        sources, row = np.unique(multiplicities.sources[below], return_inverse=True)
        demand = np.zeros((len(sources), n))
        demand[row, multiplicities.destinations[below]] = multiplicities.values[below]
        _, first, orbit = np.unique(tails % period * n + (heads - tails) % n, return_index=True, return_inverse=True)
        return cls(n, sources, demand, tails, heads, orbit, circuits.values[first])

    def distances(self, lengths: Floats) -> Floats:
        """Shortest distance from each source to every GPU for a length on each orbit, shape (sources, n)."""
        graph = sp.csr_array((lengths[self.orbit], (self.tails, self.heads)), shape=(self.n, self.n))
        distances: Floats = dijkstra(graph, indices=self.sources)
        return distances

    def allowed(self, lengths: Floats) -> float:
        """sum_e l_e*x_e / sum_{u,v} k(u,v)*dist_l(u,v): no flow ships more, whatever the lengths l >= 0."""
        partners = self.demand > 0
        volume = float(self.demand[partners] @ self.distances(lengths)[partners])
        return float(lengths @ self.circuits) / volume if volume > 0 else math.inf

    def congestion(self, load: Floats) -> float:
        """Largest load of one circuit, for a load of each orbit."""
        return float((load / self.circuits).max())


def _period(circuits: PairMatrix, multiplicities: PairMatrix) -> int:
    n = circuits.n
    for period in (period for period in range(1, n) if n % period == 0):
        turn = (np.arange(n) + period) % n
        if circuits.relabelled(turn) == circuits and multiplicities.relabelled(turn) == multiplicities:
            return period
    return n


def _prove_steps(topologies: Sequence[Topology], collective: Collective, degree: int) -> list[_Proof]:
    known: dict[tuple[Topology, PairMatrix], _Proof] = {}
    proofs = []
    for topology, step in zip(topologies, collective.steps, strict=True):
        multiplicities = step.demand.scaled(degree / step.demand.largest_sum)
        if (topology, multiplicities) not in known:
            known[topology, multiplicities] = _prove(topology, multiplicities)
        proofs.append(known[topology, multiplicities])
    return proofs


def _prove(topology: Topology, multiplicities: PairMatrix) -> _Proof:
    network = _Network.of(topology.circuits, multiplicities)
    unit = np.ones(len(network.circuits))
    hops = network.distances(unit)
    farthest = float(hops[network.demand > 0].max())
    if math.isinf(farthest):
        row, destination = np.argwhere((network.demand > 0) & np.isinf(hops))[0]
        unreached = int(network.sources[row]), int(destination)
        return _Proof(topology.label, 0.0, 0.0, farthest, "some pair has no path", unreached)
    shipped, allowed = 1 / network.congestion(_spread(network, hops, network.demand)), network.allowed(unit)
    method = "even splitting over shortest paths, unit lengths"
    if shipped < allowed * (1 - _CLOSED):
        shipped, allowed = _tightened(network, hops, shipped, allowed)
        method = "flow and lengths from a linear program, added up again"
    return _Proof(topology.label, shipped, allowed, farthest, method)


def _spread(network: _Network, hops: Floats, amount: Floats) -> Floats:
    """Load of each orbit when ``amount`` (sources, n) goes over shortest paths, split evenly where they meet.

    Every GPU receives equally over all circuits that end there and lie on shortest paths from the source. Done from
    the farthest GPUs inwards, each passing on to its predecessors what it receives and what is routed through it.
    """
    near, far = hops[:, network.tails], hops[:, network.heads]
    rows, arcs = np.nonzero(np.isfinite(near) & (near + 1 == far))
    entering = rows * network.n + network.heads[arcs]
    leaving = rows * network.n + network.tails[arcs]
    width = network.circuits[network.orbit[arcs]]
    share = width / np.bincount(entering, weights=width, minlength=amount.size)[entering]
    level = far[rows, arcs]
    order = np.argsort(-level, kind="stable")
    through = amount.ravel().copy()
    flow = np.zeros(len(arcs))
    for same in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
        flow[same] = share[same] * through[entering[same]]
        np.add.at(through, leaving[same], flow[same])
    return np.bincount(network.orbit[arcs], weights=flow, minlength=len(network.circuits))


def _tightened(network: _Network, hops: Floats, shipped: float, allowed: float) -> tuple[float, float]:
    """The better of given bounds and of those from a linear program, each computed again from flow and lengths."""
    suggestion = _suggest(network)
    if suggestion.x is None or suggestion.ineqlin.marginals is None:
        return shipped, allowed
    flow = suggestion.x[:-1].reshape(len(network.sources), -1)
    lengths = np.maximum(-suggestion.ineqlin.marginals, 0.0)
    return max(shipped, _shipped(network, hops, flow, suggestion.x[-1])), min(allowed, network.allowed(lengths))


def _suggest(network: _Network) -> OptimizeResult:
    """Max theta: each source's flow (sources, arcs) leaves theta*k(u,v) at every v; orbits carry at most their circuits."""
    count, arcs = len(network.sources), len(network.tails)
    balance = network.demand.copy()
    balance[np.arange(count), network.sources] = -network.demand.sum(axis=1)
    members = sp.coo_array((np.ones(arcs), (network.orbit, np.arange(arcs))), shape=(len(network.circuits), arcs))
    conservation = [sp.kron(sp.eye_array(count), _incidence(network)), sp.coo_array(-balance.reshape(-1, 1))]
    load = [sp.kron(np.ones((1, count)), members), sp.coo_array((len(network.circuits), 1))]
    return linprog(
        np.append(np.zeros(count * arcs), -1.0),
        A_ub=sp.hstack(load),
        b_ub=network.circuits,
        A_eq=sp.hstack(conservation),
        b_eq=np.zeros(balance.size),
        method="highs-ipm",
        options=_LP_OPTIONS,
    )


def _shipped(network: _Network, hops: Floats, suggested: Floats, theta: float) -> float:
    """What a suggested flow ships for certain.

    Flow below zero or where its source cannot reach is dropped, what then does not arrive is sent again over shortest
    paths, and all is scaled until the busiest circuit is just full: theta / congestion.
    """
    flow = np.where(np.isfinite(hops[:, network.tails]), np.maximum(suggested, 0.0), 0.0)
    missing = np.maximum(theta * network.demand - (_incidence(network) @ flow.T).T, 0.0)
    missing[np.arange(len(flow)), network.sources] = 0.0
    load = np.bincount(network.orbit, weights=flow.sum(axis=0), minlength=len(network.circuits))
    return float(theta) / network.congestion(load + _spread(network, hops, missing))


def _incidence(network: _Network) -> sp.csr_array:
    """+1 where an arc enters a GPU and -1 where it leaves, shape (n, arcs)."""
    arcs = len(network.tails)
    ends = np.concatenate([network.heads, network.tails])
    signs = np.repeat([1.0, -1.0], arcs)
    return sp.csr_array((signs, (ends, np.tile(np.arange(arcs), 2))), shape=(network.n, arcs))
