"""The best partition over the topologies known so far, with its bounds, and the schedule made of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from lumenfarm import recurrence
from lumenfarm.bounds import interval_bound, quick_bound, shift_bounds_ns
from lumenfarm.groups import Group, quotients
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Fabric, Latency, Topology
from lumenfarm.problem import Workload
from lumenfarm.schedule import Contract, Provenance, Schedule, Segment, StepTiming

__all__ = ["Baselines", "IntervalBounds", "Plan"]

# With more intervals than this no bound is worked out by linear programs, or none but the node bound.
_SOME_INTERVALS, _MANY_INTERVALS = 210, 4096
# Types of circuits told apart at most; more add little (docs/findings.md).
_MOST_TYPES = 4


@dataclass(frozen=True, slots=True)
class Baselines:
    """What a user gets without planning, ns: the best fixed topology; each step's best topology, every change paid."""

    static_ns: float
    every_step_ns: float


@dataclass(frozen=True, eq=False)
class IntervalBounds:
    """Lower bounds on the time of every interval, ns, shape (s, s+1), infinite for stop <= first; and their proofs.

    Intervals without a proof of their own have the default one.
    """

    values_ns: Floats
    proofs: Mapping[tuple[int, int], str] = field(default_factory=dict)
    default: str = "node"

    @classmethod
    def of(cls, workload: Workload, group: Group | None = None) -> IntervalBounds:
        """The best bound of each interval that can be had in reasonable time.

        Args:
            workload: the steps.
            group: with one class of GPUs, preserves all patterns; None if none is known.
        """
        if _are_shifts_on_one_port(workload):
            values = shift_bounds_ns(workload.weights_ns, workload.pattern_of_step) + _startups_ns(workload)
            return cls(values, default="hop-volume")
        intervals = len(workload) * (len(workload) + 1) // 2
        if intervals > _MANY_INTERVALS:
            return cls(_node_bounds_ns(workload))
        problems = workload.intervals.problems
        if intervals > _SOME_INTERVALS:
            bounds = [quick_bound(problem) for problem in problems]
        else:
            types = () if group is None else tuple(quotients(group, _MOST_TYPES))
            bounds = [interval_bound(problem, types) for problem in problems]
        values = workload.intervals.costs_ns(np.array([bound.value for bound in bounds]))
        pairs = itertools.combinations(range(len(workload) + 1), 2)
        return cls(values, {pair: bounds[workload.intervals.index[pair]].proof for pair in pairs})

    def raised(self, at_least_ns: Floats, proof: str) -> IntervalBounds:
        """With other bounds, ns, shape (s, s+1), wherever they are higher; these have the named proof."""
        higher = at_least_ns > self.values_ns
        better = dict.fromkeys(zip(*(places.tolist() for places in np.nonzero(higher)), strict=True), proof)
        return replace(self, values_ns=np.where(higher, at_least_ns, self.values_ns), proofs={**self.proofs, **better})

    def proof(self, first: int, stop: int) -> str:
        """How the bound of an interval was found."""
        return self.proofs.get((first, stop), self.default)

    def schedule_ns(self, fabric: Fabric, *, has_initial: bool) -> float:
        """No sequence of topologies of the fabric's degree is faster, ns: the partition recurrence over the bounds."""
        pinned = np.concatenate(([0.0], self.values_ns[0, 1:])) if has_initial else None
        curve = recurrence.partition(self.values_ns, pinned_ns=pinned)
        k = recurrence.best(curve, fabric.reconfig_delay_ns)
        return curve.communication_ns[k] + k * fabric.reconfig_delay_ns


@dataclass(frozen=True, eq=False)
class Plan:
    """The best partition of a workload's steps over a list of topologies.

    Attributes:
        topologies: the candidates.
        theta, hops: of each topology and pattern, shape (topologies, patterns).
        initial: row of the topology in place before the first step, None if the first topology is free.
        bounds: lower bounds of the intervals.
    """

    workload: Workload
    topologies: tuple[Topology, ...]
    theta: Floats
    hops: Floats
    initial: int | None
    bounds: IntervalBounds
    times_ns: Floats = field(init=False)
    choice: Ints = field(init=False)
    curve: recurrence.KCurve = field(init=False)

    def __post_init__(self) -> None:
        times = self.workload.times_ns(self.theta, self.hops)
        costs, choice = recurrence.interval_costs(times)
        pinned = None if self.initial is None else recurrence.pinned_costs(times[self.initial])
        object.__setattr__(self, "times_ns", times)
        object.__setattr__(self, "choice", choice)
        object.__setattr__(self, "curve", recurrence.partition(costs, pinned_ns=pinned))

    @property
    def reconfigurations(self) -> int:
        """The best k at the fabric's reconfiguration delay."""
        return recurrence.best(self.curve, self.workload.fabric.reconfig_delay_ns)

    @property
    def cost_ns(self) -> float:
        """Communication plus reconfigurations."""
        k = self.reconfigurations
        return self.curve.communication_ns[k] + k * self.workload.fabric.reconfig_delay_ns

    @property
    def baselines(self) -> Baselines:
        """Static and every-step schedules over the same topologies."""
        alpha_r = self.workload.fabric.reconfig_delay_ns
        moves = np.full(len(self.topologies), 0.0 if self.initial is None else alpha_r)
        moves[self.initial] = 0.0
        static = float((self.times_ns.sum(axis=1) + moves).min())
        chosen = self.times_ns.argmin(axis=0)
        changes = np.count_nonzero(np.diff(chosen)) + (self.initial is not None and chosen[0] != self.initial)
        return Baselines(static, float(self.times_ns.min(axis=0).sum() + changes * alpha_r))

    def schedule(self, provenance: Provenance) -> Schedule:
        """The schedule at the fabric's reconfiguration delay."""
        collective, fabric = self.workload.collective, self.workload.fabric
        rows = self._rows(self.reconfigurations)
        used = tuple(dict.fromkeys(row for _, _, row in rows))
        return Schedule(
            collective_name=collective.name,
            n=collective.n,
            dims=collective.dims,
            message_bytes=collective.message_bytes,
            origin=collective.origin,
            step_digests=collective.step_digests,
            fabric=fabric,
            topologies=tuple(self.topologies[row] for row in used),
            segments=tuple(self._segment(first, stop, row, used.index(row)) for first, stop, row in rows),
            steps=tuple(self._timing(step, row) for first, stop, row in rows for step in range(first, stop)),
            initial=None if self.initial is None else self.topologies[self.initial],
            cost_ns=self.cost_ns,
            lower_bound_ns=self.bounds.schedule_ns(fabric, has_initial=self.initial is not None),
            envelope=recurrence.envelope(self.curve),
            contract=Contract.of(collective, fabric),
            provenance=provenance,
        )

    def rows_of_every_k(self) -> list[int]:
        """Rows of all topologies that the best schedule with some number of reconfigurations uses, ascending."""
        counts = np.flatnonzero(np.isfinite(self.curve.communication_ns)).tolist()
        return sorted({row for k in counts for _, _, row in self._rows(k)})

    def _rows(self, k: int) -> list[tuple[int, int, int]]:
        """(first, stop, row of the topology) of every segment of the best schedule with k reconfigurations."""
        rows = [(first, stop, int(self.choice[first, stop])) for first, stop in self.curve.boundaries(k)]
        if self.initial is not None and self.curve.stays_on_initial(k):
            rows[0] = (*rows[0][:2], self.initial)
        return rows

    def _segment(self, first: int, stop: int, row: int, index: int) -> Segment:
        cost = float(self.times_ns[row, first:stop].sum())
        bound = min(cost, float(self.bounds.values_ns[first, stop]))
        return Segment(first, stop, index, cost, bound, self.bounds.proof(first, stop))

    def _timing(self, step: int, row: int) -> StepTiming:
        pattern = self.workload.pattern_of_step[step]
        theta = float(self.theta[row, pattern])
        congested = self.workload.fabric.latency is Latency.CONGESTION
        hops = 1.0 / theta if congested else float(self.hops[row, pattern])
        return StepTiming(theta, hops, float(self.times_ns[row, step]))


def _are_shifts_on_one_port(workload: Workload) -> bool:
    return workload.fabric.degree == 1 and all(
        pattern.multiplicities.shift_offset() is not None for pattern in workload.patterns
    )


def _startups_ns(workload: Workload) -> Floats:
    steps = len(workload)
    counts = np.arange(steps + 1) - np.arange(steps)[:, None]
    startups: Floats = np.maximum(counts, 0) * workload.startup_ns(0, 1)
    return startups


def _node_bounds_ns(workload: Workload) -> Floats:
    steps = len(workload)
    before = np.concatenate(([0.0], np.cumsum(workload.weights_ns)))
    bounds = before - before[:steps, None] + _startups_ns(workload)
    return np.where(np.tri(steps, steps + 1, dtype=bool), np.inf, bounds)
