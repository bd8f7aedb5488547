"""The checks of a schedule, one function each, and the words in which they report."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Latency, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Schedule
from lumenfarm.units import finite
from lumenfarm.verify.circuits import written_out
from lumenfarm.verify.flow import Proof, prove

__all__ = ["Finding", "VerifyReport", "verify"]

# Whether a claim holds, and the words for it.
_Line = tuple[bool, str]


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
    schedule = written_out(schedule)
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
    if collective.message_bytes is None:
        # A file without it leaves the bytes of every step, which the digests compare.
        collective = replace(collective, message_bytes=schedule.message_bytes)
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
    return _verdict(
        "contract", wrong, f"contract {_short(fresh.digest)} fits {collective.name!r}, {_count(count, 'step')}"
    )


def _check_degree(schedule: Schedule) -> list[Finding]:
    used = [(f"topology {number} {top.label!r}", top) for number, top in enumerate(schedule.topologies, start=1)]
    if schedule.initial is not None:
        used.append((f"initial topology {schedule.initial.label!r}", schedule.initial))
    degree = schedule.fabric.degree
    wrong = [f"{name} {fault}" for name, topology in used for fault in _port_faults(topology, degree)]
    success = f"whole circuits and at most {_count(degree, 'port')} a GPU each way in every topology ({len(used)})"
    return _verdict("degree", wrong, success)


def _port_faults(topology: Topology, degree: int) -> list[str]:
    circuits = topology.circuits
    faults = ["has circuits that are not whole"] if (circuits.values % 1 != 0).any() else []
    for direction, ends in (("transmit", circuits.sources), ("receive", circuits.destinations)):
        ports = np.bincount(ends, weights=circuits.values, minlength=circuits.n)
        if ports.max() > degree:
            faults.append(f"uses {ports.max():g} {direction} ports of GPU {ports.argmax()}, it has {degree}")
    return faults


def _check_segments(schedule: Schedule) -> list[Finding]:
    segments, expected = schedule.segments, range(len(schedule.steps))
    steps, wrong = _step_names(expected), []
    if [step for segment in segments for step in range(segment.first, segment.stop)] != list(expected):
        wrong.append(f"the segments do not cover {steps} once in order")
    for number, (one, other) in enumerate(itertools.pairwise(_topology_of_segment(schedule)), start=1):
        if one == other:
            wrong.append(f"segments {number} and {number + 1} use the same circuits")
    unused = set(range(len(schedule.topologies))) - {segment.topology for segment in segments}
    wrong += [f"topology {index + 1} {schedule.topologies[index].label!r} is not used" for index in sorted(unused)]
    success = f"{_count(len(segments), 'segment')} for {steps} once in order; neighbours differ, all topologies used"
    return _verdict("segments", wrong, success)


def _topology_of_segment(schedule: Schedule) -> list[Topology]:
    return [schedule.topologies[segment.topology] for segment in schedule.segments]


def _check_steps(schedule: Schedule, collective: Collective, tolerance: float) -> list[Finding]:
    if (schedule.n, len(schedule.steps)) != (collective.n, len(collective)):
        reason = "not checked: the collective has another number of GPUs or of steps than the schedule"
        return [Finding(check, ok=False, detail=reason) for check in ("reachability", "theta", "hops", "time")]
    proofs = _prove_steps(schedule, collective)
    claimed = zip(schedule.steps, proofs, strict=True)
    return [
        *_by_step("reachability", [_reachability_line(proof) for proof in proofs]),
        *_by_step("theta", [_theta_line(timing.theta, proof, tolerance) for timing, proof in claimed]),
        *_by_step("hops", _hops_lines(schedule, proofs, tolerance)),
        *_by_step("time", _time_lines(schedule, collective, tolerance)),
    ]


def _prove_steps(schedule: Schedule, collective: Collective) -> list[Proof]:
    known: dict[tuple[Topology, PairMatrix], Proof] = {}
    proofs = []
    for index, step in enumerate(collective.steps):
        topology = schedule.topology_of_step(index)
        multiplicities = step.demand.scaled(schedule.fabric.degree / step.demand.largest_sum)
        if (topology, multiplicities) not in known:
            known[topology, multiplicities] = prove(topology, multiplicities)
        proofs.append(known[topology, multiplicities])
    return proofs


def _reachability_line(proof: Proof) -> _Line:
    if proof.unreached is None:
        return True, "every GPU reaches all that it sends to"
    source, destination = proof.unreached
    return False, f"no path from GPU {source} to GPU {destination} on {proof.label!r}"


def _theta_line(claimed: float, proof: Proof, tolerance: float) -> _Line:
    low, high = claimed * (1 - tolerance), claimed * (1 + tolerance)
    if low <= proof.shipped and proof.allowed <= high:
        verdict = "proved"
    elif low > proof.allowed:
        verdict = "too high"
    elif high < proof.shipped:
        verdict = "too low"
    else:
        verdict = "undecided"
    numbers = f"a flow ships {proof.shipped:.9g}, arc lengths allow {proof.allowed:.9g} ({proof.method})"
    return verdict == "proved", f"theta {claimed:.9g} on {proof.label!r} {verdict}: {numbers}"


def _hops_lines(schedule: Schedule, proofs: Sequence[Proof], tolerance: float) -> list[_Line]:
    if schedule.fabric.latency is Latency.SHORTEST:
        formula, expected = "largest hop distance between partners", [proof.hops for proof in proofs]
    else:
        formula, expected = "1/theta", [_inverse(timing.theta) for timing in schedule.steps]
    pairs = zip(schedule.steps, expected, strict=True)
    return [_compared("hops", timing.hops, hops, formula, tolerance) for timing, hops in pairs]


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
    delay_ns = schedule.fabric.reconfig_delay_ns
    expected = communication + changes * delay_ns
    terms = f"{_ns(communication)} in the segments + {_count(changes, 'reconfiguration')} of {_ns(delay_ns)}"
    if not _close(schedule.cost_ns, expected, tolerance):
        wrong.append(f"the schedule claims {_ns(schedule.cost_ns)}, but {terms} = {_ns(expected)}")
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
        f"the bound claimed for {name}, {_ns(bound)}, is not between 0 and its cost {_ns(cost)}"
        for name, bound, cost in claims
        if not 0 <= bound <= cost * (1 + tolerance)
    ]
    floor = _busiest_gpu_bound(schedule, collective)
    if not floor <= schedule.cost_ns * (1 + tolerance):
        wrong.append(
            f"no schedule takes less than {_ns(floor)} (busiest GPUs), this one claims {_ns(schedule.cost_ns)}"
        )
    proved = f"{_ns(min(floor, schedule.lower_bound_ns))} of it proved again from the busiest GPU of each step"
    if schedule.lower_bound_ns > floor * (1 + tolerance):
        kinds = ", ".join(sorted({segment.proof for segment in schedule.segments}))
        proved += f", the rest believed ({kinds})"
    success = f"bound {_ns(schedule.lower_bound_ns)} does not exceed the cost {_ns(schedule.cost_ns)}; {proved}"
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
    own = f"{_count(changes, 'reconfiguration')} and {_ns(communication)} in the segments at a delay of {_ns(delay_ns)}"
    same = [piece for piece in here if piece.reconfigurations == changes]
    if not any(_close(piece.communication_ns, communication, tolerance) for piece in same):
        found = " or ".join(f"{piece.reconfigurations} and {_ns(piece.communication_ns)}" for piece in here)
        wrong.append(f"the schedule has {own}, the envelope says {found or 'nothing'}")
    success = f"{_count(len(pieces), 'piece')} without gap or jump; one has {own}, as the schedule"
    return _verdict("envelope", wrong, success)


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ns(time_ns: float) -> str:
    return f"{time_ns:.9g} ns"


def _short(value: object) -> str:
    return f"{value[:12]}..." if isinstance(value, str) and len(value) > 12 else str(value)
