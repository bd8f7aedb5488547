"""From a collective on a fabric to what has to be computed: patterns, step weights, intervals and theta rows.

Everything here is arithmetic on demands. Nothing depends on the reconfiguration delay (model section 3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from lumenfarm.digest import digest
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Collective, Fabric, Latency, Pattern, Topology
from lumenfarm.symmetry import Symmetry
from lumenfarm.versions import solver_versions, versions

__all__ = [
    "IntervalProblem",
    "Intervals",
    "MetricRow",
    "MetricTask",
    "Outcome",
    "Record",
    "RelaxationRow",
    "RelaxationTask",
    "Task",
    "ThetaRow",
    "ThetaTask",
    "Workload",
]

# What a result looks like at rest: numbers, strings, bytes, lists and string-keyed mappings of these.
Record: TypeAlias = Mapping[str, Any]

# Raise when the meaning or the precision of theta or hops changes: old cache entries then no longer answer.
THETA_FORMULATION = 2

# Multiplicities are rounded to twelve digits, which can lift a theta of 1 by as much.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Workload:
    """A collective on a fabric, reduced to distinct patterns.

    Attributes:
        patterns: the distinct patterns, in order of their digests.
        pattern_of_step: index into patterns of each step, shape (s,).
        chunk_bytes: m_i of each step, bytes, shape (s,).
    """

    collective: Collective
    fabric: Fabric
    patterns: tuple[Pattern, ...]
    pattern_of_step: Ints
    chunk_bytes: Floats

    @classmethod
    def of(cls, collective: Collective, fabric: Fabric) -> Workload:
        """Merge steps with equal patterns (model section 3)."""
        of_step = [step.pattern(fabric.degree) for step in collective.steps]
        patterns = tuple(sorted(set(of_step), key=lambda pattern: pattern.digest))
        position = {pattern: index for index, pattern in enumerate(patterns)}
        pattern_of_step = np.array([position[pattern] for pattern in of_step])
        return cls(collective, fabric, patterns, pattern_of_step, collective.chunk_bytes(fabric.degree))

    def __len__(self) -> int:
        return len(self.chunk_bytes)

    @cached_property
    def weights_ns(self) -> Floats:
        """w_i, ns, shape (s,): beta*m_i + delta, or beta*m_i alone when hops are counted by shortest paths."""
        transfer = self.fabric.ns_per_byte * self.chunk_bytes
        congested = self.fabric.latency is Latency.CONGESTION
        return transfer + self.fabric.delta_ns if congested else transfer

    def times_ns(self, theta: Floats, hops: Floats) -> Floats:
        """t_i(G) for a stack of topologies (model section 2); infinite where theta is 0.

        Args:
            theta: concurrent flow of each topology and pattern, shape (topologies, patterns).
            hops: largest hop distance between partners, same shape.

        Returns:
            ns, shape (topologies, s).
        """
        fabric = self.fabric
        theta, hops = theta[:, self.pattern_of_step], hops[:, self.pattern_of_step]
        reached = theta > 0
        times = fabric.alpha_ns + self.weights_ns / np.where(reached, theta, 1.0)
        if fabric.latency is Latency.SHORTEST:
            times += fabric.delta_ns * np.where(reached, hops, 0.0)
        return np.where(reached, times, np.inf)

    def interval(self, first: int, stop: int) -> IntervalProblem:
        """The interval problem of steps first..stop-1, normalised."""
        steps = slice(first, stop)
        present, where = np.unique(self.pattern_of_step[steps], return_inverse=True)
        weights = np.bincount(where, weights=self.weights_ns[steps], minlength=len(present))
        scale = float(weights.max())
        return IntervalProblem(
            patterns=tuple(self.patterns[index] for index in present),
            weights=tuple((weights / scale).tolist()) if scale > 0 else (0.0,) * len(present),
            degree=self.fabric.degree,
            scale_ns=scale,
        )

    def startup_ns(self, first: int, stop: int) -> float:
        """What steps first..stop-1 cost on any topology beside their weights: alpha, and one hop if counted apart."""
        apart = self.fabric.latency is Latency.SHORTEST
        return (stop - first) * (self.fabric.alpha_ns + (self.fabric.delta_ns if apart else 0.0))

    @cached_property
    def intervals(self) -> Intervals:
        """All intervals, equal problems merged."""
        return Intervals.of(self)


@dataclass(frozen=True, slots=True)
class IntervalProblem:
    """min over topologies of sum_i w_i/theta_i for a set of patterns with weights (model section 3).

    The time of the interval's steps on a topology is at least startup_ns + scale_ns * sum_i w_i/theta_i, with
    equality when latency is counted by congestion.

    Attributes:
        patterns: distinct, in order of their digests.
        weights: one a pattern, the largest is 1.
        degree: ports d of the topology sought.
        scale_ns: what the weights were divided by, ns; not part of the key.
    """

    patterns: tuple[Pattern, ...]
    weights: tuple[float, ...]
    degree: int
    scale_ns: float

    @property
    def key(self) -> str:
        """Content address; the same for every order, multiplicity and scale of the steps behind it."""
        return digest(
            "interval/1",
            degree=self.degree,
            patterns=[pattern.digest for pattern in self.patterns],
            weights=list(self.weights),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """The distinct interval problems of a workload, and which of them each interval is.

    Attributes:
        problems: each once, in the order of their first intervals.
        patterns: for each problem the numbers of its patterns in the workload.
        index: problem of each interval, shape (s, s+1), -1 for stop <= first.
        scale_ns, startup_ns: an interval costs startup + scale * the value of its problem, same shape.
    """

    problems: tuple[IntervalProblem, ...]
    patterns: tuple[tuple[int, ...], ...]
    index: Ints
    scale_ns: Floats
    startup_ns: Floats

    @classmethod
    def of(cls, workload: Workload) -> Intervals:
        """Those of a workload."""
        steps = len(workload)
        shape = (steps, steps + 1)
        index, scale, startup = np.full(shape, -1), np.zeros(shape), np.zeros(shape)
        problems: dict[str, tuple[int, IntervalProblem]] = {}
        for first in range(steps):
            for stop in range(first + 1, steps + 1):
                problem = workload.interval(first, stop)
                index[first, stop] = problems.setdefault(problem.key, (len(problems), problem))[0]
                scale[first, stop], startup[first, stop] = problem.scale_ns, workload.startup_ns(first, stop)
        rows = {pattern: row for row, pattern in enumerate(workload.patterns)}
        merged = tuple(problem for _, problem in problems.values())
        return cls(merged, tuple(tuple(rows[one] for one in p.patterns) for p in merged), index, scale, startup)

    def normalised(self, costs_ns: Floats) -> Floats:
        """The value of each problem behind interval costs, shape (problems,); the largest if its intervals differ.

        They do where hops are counted apart from congestion.
        """
        values = np.zeros(len(self.problems))
        real = self.index >= 0
        np.maximum.at(values, self.index[real], (costs_ns - self.startup_ns)[real] / self.scale_ns[real])
        return values

    def values(self, theta: Sequence[float]) -> Floats:
        """The value of each problem on a topology with these theta, shape (problems,)."""
        with np.errstate(divide="ignore"):
            congestion = 1.0 / np.array(theta)
        pairs = zip(self.problems, self.patterns, strict=True)
        return np.array([congestion[list(patterns)] @ problem.weights for problem, patterns in pairs])

    def costs_ns(self, values: Floats) -> Floats:
        """Interval costs behind the values of the problems, ns, shape (s, s+1)."""
        costs, real = np.full(self.index.shape, np.inf), self.index >= 0
        costs[real] = self.startup_ns[real] + self.scale_ns[real] * values[self.index[real]]
        return costs


@dataclass(frozen=True, slots=True)
class ThetaRow:
    """theta and hops of one topology for several patterns.

    Attributes:
        theta: maximum concurrent flow of each pattern, in [0, 1]; 0 when some pair has no path.
        hops: largest hop distance between partners; infinite when some pair has no path.
        solves: how many linear programs it took.
    """

    theta: tuple[float, ...]
    hops: tuple[float, ...]
    solves: int

    def to_record(self) -> Record:
        """Plain data; unreachable hops are written as -1."""
        hops = [-1 if math.isinf(hop) else int(hop) for hop in self.hops]
        return {"theta": list(self.theta), "hops": hops, "solves": self.solves}


@dataclass(frozen=True, eq=False)
class ThetaTask:
    """theta(G, P) and hop distances of one topology for a fixed list of patterns.

    ``dims`` says in which torus to look for symmetry; it changes the effort, not the answer, so it is not in the key.
    """

    topology: Topology
    patterns: Sequence[Pattern]
    dims: tuple[int, ...]

    @property
    def kind(self) -> str:
        """``theta-row/1``."""
        return "theta-row/1"

    @cached_property
    def key(self) -> str:
        """Content address: topology, patterns, formulation and solver version."""
        return digest(self.kind, **_identity(self.topology, self.patterns))

    def describe(self) -> Record:
        """Topology label and digest, pattern digests."""
        return _describe(self.topology, self.patterns)

    def read(self, record: Record) -> ThetaRow:
        """The row out of a record.

        Raises:
            ValueError: the record has not one theta in [0, 1] and one number of hops in [1, n) for every pattern, or
                0 and -1 where a pair has no path.
        """
        theta, hops, solves = record.get("theta"), record.get("hops"), record.get("solves")
        expected = len(self.patterns)
        if not (_numbers(theta, expected) and _numbers(hops, expected) and isinstance(solves, int)):
            raise ValueError(f"a theta row needs {expected} theta, {expected} hops and the number of solves")
        for flow, hop in zip(theta, hops, strict=True):
            if not (0 < flow <= 1 + _ROUNDING and hop in range(1, self.topology.n)) and (flow, hop) != (0, -1):
                raise ValueError(f"theta {flow!r} over {hop!r} hops is no answer")
        return ThetaRow(tuple(map(float, theta)), tuple(math.inf if hop == -1 else float(hop) for hop in hops), solves)


@dataclass(frozen=True, slots=True, eq=False)
class MetricRow:
    """theta and hops of one topology for several patterns, with potentials that bound theta of all other topologies.

    Attributes:
        theta, hops, solves: as in `ThetaRow`.
        potentials: pi_r(v) of each pattern, class of GPUs and GPU, shape (patterns, classes, n). Any numbers give true
            bounds (see `lumenfarm.cayley`), so they are kept in single precision.
    """

    theta: tuple[float, ...]
    hops: tuple[float, ...]
    solves: int
    potentials: Floats

    def to_record(self) -> Record:
        """Plain data; potentials as little-endian single-precision bytes."""
        shared = ThetaRow(self.theta, self.hops, self.solves).to_record()
        return {**shared, "potentials": self.potentials.astype("<f4").tobytes()}


@dataclass(frozen=True, eq=False)
class MetricTask:
    """theta(G, P) with potentials, for a topology and patterns that a group preserves.

    Attributes:
        symmetry: the group, by generators.
        classes: its number of orbits of GPUs.
    """

    topology: Topology
    patterns: Sequence[Pattern]
    symmetry: Symmetry
    classes: int

    @property
    def effort(self) -> float:
        """About the microseconds it takes: for every pattern, flow variables times orbits of arcs."""
        variables = self.classes * len(self.topology.circuits)
        return len(self.patterns) * variables * variables / self.topology.n

    @property
    def kind(self) -> str:
        """``metric-row/1``."""
        return "metric-row/1"

    @cached_property
    def key(self) -> str:
        """Content address: topology, patterns, group, formulation and solver version."""
        group = list(self.symmetry.generators)
        return digest(self.kind, **_identity(self.topology, self.patterns), group=group)

    def describe(self) -> Record:
        """Topology label and digest, pattern digests, number of classes."""
        return {**_describe(self.topology, self.patterns), "classes": self.classes}

    def read(self, record: Record) -> MetricRow:
        """The row out of a record.

        Raises:
            ValueError: theta or hops that `ThetaTask.read` refuses, or potentials of another size or not finite.
        """
        row = ThetaTask(self.topology, self.patterns, (self.topology.n,)).read(record)
        potentials = _potentials(record, (len(self.patterns), self.classes, self.topology.n))
        return MetricRow(row.theta, row.hops, row.solves, potentials)


@dataclass(frozen=True, slots=True, eq=False)
class RelaxationRow:
    """What proves a lower bound on an interval, see `lumenfarm.relaxation`.

    Attributes:
        potentials: pi_i(v), shape (patterns, 1, n); any numbers give a true bound, so single precision is enough.
        solves: linear programs for theta, none.
    """

    potentials: Floats
    solves: int = 0

    def to_record(self) -> Record:
        """Plain data; potentials as little-endian single-precision bytes."""
        return {"potentials": self.potentials.astype("<f4").tobytes()}


@dataclass(frozen=True, eq=False)
class RelaxationTask:
    """The continuous relaxation of an interval whose patterns a group with one class of GPUs preserves.

    Attributes:
        problem: the interval.
        symmetry: the group, by generators.
    """

    problem: IntervalProblem
    symmetry: Symmetry

    @property
    def kind(self) -> str:
        """``relaxation/1``."""
        return "relaxation/1"

    @cached_property
    def key(self) -> str:
        """Content address: interval, group and solver version."""
        group, solver = list(self.symmetry.generators), versions()["clarabel"]
        return digest(self.kind, interval=self.problem.key, group=group, clarabel=solver)

    def describe(self) -> Record:
        """Pattern digests, weights and ports."""
        problem = self.problem
        patterns = [pattern.digest for pattern in problem.patterns]
        return {"patterns": patterns, "weights": list(problem.weights), "ports": problem.degree}

    def read(self, record: Record) -> RelaxationRow:
        """The answer out of a record.

        Raises:
            ValueError: potentials of another size or not finite.
        """
        return RelaxationRow(_potentials(record, (len(self.problem.patterns), 1, self.symmetry.n)))


# Each sort of work joins these unions, and the worker's `solve`.
Task: TypeAlias = ThetaTask | MetricTask | RelaxationTask
Outcome: TypeAlias = ThetaRow | MetricRow | RelaxationRow


def _potentials(record: Record, shape: tuple[int, ...]) -> Floats:
    data = record.get("potentials")
    if not isinstance(data, bytes) or len(data) != 4 * math.prod(shape):
        raise ValueError(f"expected potentials of shape {shape}")
    potentials = np.frombuffer(data, dtype="<f4").reshape(shape).astype(np.float64)
    if not np.isfinite(potentials).all():
        raise ValueError("potentials must be finite")
    return potentials


def _identity(topology: Topology, patterns: Sequence[Pattern]) -> dict[str, Any]:
    """What theta of a topology and patterns depends on, by content."""
    return {
        "topology": topology.digest,
        "patterns": [pattern.digest for pattern in patterns],
        "formulation": THETA_FORMULATION,
        "solvers": solver_versions(),
    }


def _describe(topology: Topology, patterns: Sequence[Pattern]) -> dict[str, Any]:
    named = {"label": topology.label, "digest": topology.digest}
    return {**_identity(topology, patterns), "gpus": topology.n, "topology": named}


def _numbers(values: object, length: int) -> TypeGuard[list[float]]:
    return (
        isinstance(values, list)
        and len(values) == length
        and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    )
