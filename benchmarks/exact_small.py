"""The best of all topologies of 8 GPUs beside the best symmetric ones, for every interval of two AllReduces.

Run as ``python benchmarks/exact_small.py``. The symmetric ones are found by the planner, which closes the spaces of the
collective's group and of its subgroups.

As to all topologies, free ports do not help: a GPU that lacks circuits both ways can be put into any circuit between
two others. The rest are listed, those that the collective's group takes to each other mostly once: the first GPU takes
the least targets, as seen from itself. Metric inequalities bound theta of all of them (see `lumenfarm.cayley`). The
most promising are solved by the general program and give further inequalities, with all images under the group, until
no topology is left that could be better by more than 0.001 %.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import parser, setting, table
from numpy.typing import NDArray

from lumenfarm import Collective, Fabric, Pattern, Topology, generate
from lumenfarm.cayley import Space
from lumenfarm.groups import Group, recognised, subgroup_ladder
from lumenfarm.planner import Planner
from lumenfarm.problem import MetricRow, MetricTask, Workload
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.concurrent_flow import metric_row
from lumenfarm.tasks.work import solve
from lumenfarm.verify.flow import prove

GPUS = 8
SWING = "all-reduce-swing"
COLLECTIVES = ("all-reduce-rd", SWING)
DEGREES = (1, 2)
PROHIBITIVE_NS = 1e15
# A topology that is better by less, relative, may be missed. Bounds are sums of a few single-precision numbers.
TOLERANCE = 1e-5
# A theta below this counts as this, so that a pattern of weight 0 adds nothing.
LEAST_THETA = 1e-6
# Inequalities between two prunings: first few, later many.
FEW_CUTS, MANY_CUTS = 4, 64

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Places = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Job:
    """The distinct interval problems of a collective, for the two kinds of weights.

    Attributes:
        patterns: the distinct ones, in order of steps.
        names: where each problem comes from first.
        weights: of each pattern in each problem, 0 if it is not part of it, shape (problems, patterns).
        workloads: the steps of each problem alone, where no reconfiguration pays.
        group: preserves all patterns.
    """

    patterns: tuple[Pattern, ...]
    names: tuple[tuple[str, str], ...]
    weights: Floats
    workloads: tuple[Workload, ...]
    group: Group


def job(collective: str, degree: int) -> Job:
    """Hop delays alone, hence equal weights, and transfer times alone; intervals of a single pattern are left out."""
    found: dict[str, tuple[tuple[str, str], Workload]] = {}
    whole = generate(collective, gpus=GPUS, message_bytes=2**20, ports=degree)
    for kind, link_gbps, delta_ns in (("latency", 1e18, 1e6), ("bandwidth", 800.0, 0.0)):
        for first, stop in itertools.combinations(range(len(whole) + 1), 2):
            steps = Collective(collective, whole.steps[first:stop], whole.dims)
            workload = Workload.of(steps, Fabric(degree, link_gbps, 0.0, delta_ns, PROHIBITIVE_NS))
            if len(workload.patterns) > 1:
                key = workload.interval(0, len(workload)).key
                found.setdefault(key, ((kind, f"{first + 1}-{stop}"), workload))
    names, workloads = zip(*found.values(), strict=True)
    patterns = tuple(dict.fromkeys(step.pattern(degree) for step in whole.steps))
    group = recognised([pattern.multiplicities for pattern in patterns], whole.dims)
    if group is None:
        raise ValueError(f"{collective} has no symmetry")
    return Job(patterns, names, np.array([_weights(workload, patterns) for workload in workloads]), workloads, group)


def _weights(workload: Workload, patterns: Sequence[Pattern]) -> list[float]:
    problem = workload.interval(0, len(workload))
    weight_of = dict(zip(problem.patterns, problem.weights, strict=True))
    return [weight_of.get(pattern, 0.0) for pattern in patterns]


class Best:
    """The least value found of each problem, and where."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self.values = np.full(len(weights), np.inf)
        self.topologies: dict[int, Topology] = {}

    def take(self, topology: Topology, values: Floats) -> None:
        """Compare with one more topology, by its value for each problem."""
        for index in np.flatnonzero(values < self.values * (1 - 1e-9)).tolist():
            self.values[index], self.topologies[index] = values[index], topology

    def of(self, theta: Sequence[float]) -> Floats:
        """sum_i w_i/theta_i of each problem."""
        values: Floats = self.weights @ (1 / np.maximum(theta, LEAST_THETA))
        return values


def symmetric(job: Job, degree: int) -> tuple[Best, Best]:
    """The best over the topologies with one or two classes of GPUs, and over those with four as well.

    The planner closes one space after the other, those with few classes first.
    """
    few, four = Best(job.weights), Best(job.weights)
    spaces = [Space(group, degree) for group in subgroup_ladder(job.group, 4)]
    for index, workload in enumerate(job.workloads):
        planner = Planner(workload, (), spaces=spaces)
        while tasks := planner.next_round():
            for task in tasks:
                outcome = solve(task)
                planner.feed(task, outcome)
                if isinstance(task, MetricTask) and isinstance(outcome, MetricRow):
                    values = np.full(len(job.weights), np.inf)
                    values[index] = workload.intervals.values(outcome.theta)[workload.intervals.index[0, -1]]
                    for best in (few, four) if task.classes <= 2 else (four,):
                        best.take(task.topology, values)
    return few, four


class Listing:
    """All topologies that use every port, up to the group.

    Each GPU takes one of the options (its targets as seen from GPU 0); GPU 0 takes the least of all. The options of
    two neighbours make one number, so that a topology is n/2 small numbers, and a sum over circuits n/2 look-ups.

    Attributes:
        element: element[u] takes GPU 0 to u, shape (n, n).
        options: targets of GPU 0, shape (options, degree).
    """

    def __init__(self, group: Group, degree: int) -> None:
        self.n, self.degree = group.n, degree
        self.element = group.table[np.argsort(group.table[:, 0])].astype(np.int64)
        choices = itertools.combinations_with_replacement(range(1, group.n), degree)
        self.options = np.array(list(choices), dtype=np.int64)

    def rows(self, places: Places) -> Places:
        """The option of each GPU, shape (n, ...)."""
        halves = np.divmod(places, np.int16(len(self.options)))
        return np.stack(halves, axis=1).reshape(self.n, *places.shape[1:])

    def images(self, places: Places) -> int:
        """How many topologies listed ones stand for: each has n images, and one is listed for each GPU that has the
        least option.
        """
        options = self.rows(places)
        return round(float((self.n / (options == options[0]).sum(axis=0)).sum()))

    def topology(self, places: Places) -> Topology:
        """The topology at shape (n/2,)."""
        options = self.rows(places)
        arcs = [(u, int(v), 1) for u in range(self.n) for v in self.element[u][self.options[options[u]]]]
        return Topology.from_arcs(self.n, arcs)

    def sums(self, amounts: NDArray[Any]) -> NDArray[Any]:
        """For each pair of GPUs and choice of their options, the sum over their circuits, shape (n/2, options^2)."""
        of_gpu = np.stack([amounts[u][self.element[u][self.options]].sum(axis=1) for u in range(self.n)])
        pairs: NDArray[Any] = of_gpu[0::2, :, None] + of_gpu[1::2, None, :]
        return pairs.reshape(self.n // 2, -1)

    def pieces(self) -> Iterator[Places]:
        """The topologies by the option of GPU 0, small pieces first, each of shape (n/2, count)."""
        # Circuits that end at each GPU, four bits a GPU; more than the degree show in the highest bit.
        ends = self.sums(np.broadcast_to(1 << (4 * np.arange(self.n)), (self.n, self.n)))
        every = sum(1 << (4 * v) for v in range(self.n))
        count = len(self.options)
        for least in reversed(range(count)):
            allowed = np.flatnonzero(np.minimum(*np.divmod(np.arange(count**2), count)) >= least)
            places, sums = np.zeros((0, 1), dtype=np.int64), np.zeros(1, dtype=np.int64)
            for pair in range(self.n // 2 - 1):
                taken = allowed[allowed // count == least] if pair == 0 else allowed
                total = sums[:, None] + ends[pair][taken]
                row, column = np.nonzero((total + (7 - self.degree) * every) & (8 * every) == 0)
                places, sums = np.vstack((places[:, row], taken[column])), total[row, column]
            yield _completed(places, self.degree * every - sums, allowed, ends[-1][allowed])


def _completed(places: Ints, missing: Ints, allowed: Ints, ends: Ints) -> Places:
    """Every way to choose the last pair so that nothing is missing."""
    order = np.argsort(ends)
    first, stop = (np.searchsorted(ends[order], missing, side=side) for side in ("left", "right"))
    row = np.repeat(np.arange(len(missing)), stop - first)
    within = np.arange(len(row)) - np.repeat(np.cumsum(stop - first) - (stop - first), stop - first)
    return np.vstack((places[:, row], allowed[order[first[row] + within]])).astype(np.int16)


@dataclass(slots=True)
class Cut:
    """A metric inequality: theta of a pattern is at most the sum of a table's entries.

    Attributes:
        use: what share of the topologies it was news for, fading.
    """

    pattern: int
    table: Singles
    use: float = 0.0


class Exact:
    """The best of a listing for all problems of a job, to a relative TOLERANCE.

    Attributes:
        topologies, listed, solved: how many there are, how many up to the group, and how many got their theta.
    """

    def __init__(self, job: Job, listing: Listing, known: Best) -> None:
        self.job, self.listing = job, listing
        self.best = Best(job.weights)
        self.topologies = self.listed = self.solved = 0
        self._cuts: list[Cut] = []
        for topology in dict.fromkeys(known.topologies.values()):
            self._solve(topology)
        for places in listing.pieces():
            self._close(places)

    def _solve(self, topology: Topology) -> list[Cut]:
        """Theta by the general program; what its potentials say about all topologies."""
        row = metric_row(topology, self.job.patterns, Symmetry(topology.n))
        self.solved += 1
        self.best.take(topology, self.best.of(row.theta))
        cuts: dict[bytes, Cut] = {}
        for index, (pattern, potentials) in enumerate(zip(self.job.patterns, row.potentials, strict=True)):
            if row.theta[index] < 1 - TOLERANCE:
                shipped = float((pattern.multiplicities.dense() * potentials).sum())
                lengths = np.maximum((potentials[:, None, :] - potentials[:, :, None]).max(axis=0), 0.0) / shipped
                for element in self.listing.element:
                    sums = self.listing.sums(lengths[np.ix_(element, element)]).astype(np.float32)
                    cuts.setdefault(bytes([index]) + sums.round(5).tobytes(), Cut(index, sums))
        self._cuts += cuts.values()
        return list(cuts.values())

    def _close(self, places: Places) -> None:
        """Solve what the inequalities leave of a piece."""
        self.topologies += self.listing.images(places)
        self.listed += places.shape[1]
        piece = _Piece(places, self.job.weights)
        self._filter(piece)
        while promising := piece.promising(self.best.values):
            chosen = [self.listing.topology(places) for places in piece.without(promising)]
            for topology in chosen:
                for cut in self._solve(topology):
                    piece.tighten(cut)
            piece.prune(self.best.values)

    def _filter(self, piece: _Piece) -> None:
        """All inequalities, the most useful first."""
        cuts = sorted(self._cuts, key=lambda cut: -cut.use)
        start, count, whole = 0, FEW_CUTS, max(piece.size, 1)
        while start < len(cuts) and piece.size:
            for cut in cuts[start : start + count]:
                cut.use = cut.use / 2 + piece.tighten(cut) / whole
            piece.prune(self.best.values)
            start, count = start + count, min(2 * count, MANY_CUTS)


class _Piece:
    """Topologies that may still be of use, and bounds on their theta, shape (patterns, size)."""

    def __init__(self, places: Places, weights: Floats) -> None:
        self._places, self._weights = places, weights.astype(np.float32)
        self._allowed = np.ones((weights.shape[1], places.shape[1]), np.float32)

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self._places.shape[1])

    def tighten(self, cut: Cut) -> int:
        """Apply an inequality; for how many topologies it was news."""
        total = cut.table[0][self._places[0]]
        for sums, place in zip(cut.table[1:], self._places[1:], strict=True):
            total += sums[place]
        allowed = self._allowed[cut.pattern]
        news = int(np.count_nonzero(total < allowed))
        np.minimum(allowed, total, out=allowed)
        return news

    def prune(self, best: Floats) -> None:
        """Keep what could be better than the best of some problem."""
        self._keep(np.any(self._optimistic() < self._limits(best), axis=0))

    def promising(self, best: Floats) -> list[int]:
        """The most promising topology of each problem, unless none can be better than its best."""
        if not self.size:
            return []
        values = self._optimistic()
        least, limits = values.argmin(axis=1), self._limits(best)[:, 0]
        below = values[np.arange(len(values)), least] < limits
        return list(dict.fromkeys(least[below].tolist()))

    def without(self, taken: list[int]) -> Places:
        """Remove and return some, shape (count, n/2)."""
        removed = self._places[:, taken].T
        self._keep(~np.isin(np.arange(self.size), taken))
        return removed

    def _optimistic(self) -> Singles:
        values: Singles = self._weights @ np.reciprocal(np.maximum(self._allowed, np.float32(LEAST_THETA)))
        return values

    @staticmethod
    def _limits(best: Floats) -> Singles:
        limits: Singles = (best * (1 - TOLERANCE)).astype(np.float32)
        return limits[:, None]

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self._places, self._allowed = self._places[:, kept], self._allowed[:, kept]


def proved(topology: Topology, patterns: Sequence[Pattern], weights: Floats) -> float:
    """The value of a topology by flows that are added up again."""
    shipped = [prove(topology, pattern.multiplicities).shipped for pattern in patterns]
    return float(sum(weight / flow for weight, flow in zip(weights, shipped, strict=True) if weight > 0))


def compared(collective: str, degree: int) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Rows of the table of intervals, and the row of the table of effort."""
    here = job(collective, degree)
    times = [time.perf_counter()]
    few_classes, four_classes = symmetric(here, degree)
    times.append(time.perf_counter())
    exact = Exact(here, Listing(here.group, degree), four_classes)
    times.append(time.perf_counter())
    rows = []
    for index, (name, weights) in enumerate(zip(here.names, here.weights, strict=True)):
        found = proved(exact.best.topologies[index], here.patterns, weights)
        values = (few_classes.values[index], four_classes.values[index], found)
        shown = (*(f"{value:.4f}" for value in values), f"{values[0] / values[2]:.3f}")
        rows.append((collective, str(degree), *name, " ".join(f"{weight:.2f}" for weight in weights), *shown))
    seconds = (f"{stop - start:.1f}" for start, stop in itertools.pairwise(times))
    counts = (str(count) for count in (exact.topologies, exact.listed, exact.solved))
    return rows, (collective, str(degree), here.group.name, *counts, *seconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    arguments = parser(__doc__, small="Swing only").parse_args(argv)
    print(setting("numpy", "highspy"), "\n")
    found = [compared(c, d) for c in ((SWING,) if arguments.small else COLLECTIVES) for d in DEGREES]
    best = ("1 or 2 classes", "4 classes", "all", "ratio")
    rows = [row for some, _ in found for row in some]
    print(table(("<collective", "ports", "<weights of", "<steps", "<weights", *best), rows), "\n")
    effort = ("topologies", "listed", "solved", "symmetric s", "all s")
    print(table(("<collective", "ports", "<group", *effort), [effort_row for _, effort_row in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
