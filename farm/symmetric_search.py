"""Best-first search over a space of symmetric topologies, for all intervals of a workload at once.

Every answer about one topology comes with potentials, and they bound theta of all others from above, so every interval
has an optimistic cost for each topology not looked at yet. The partition recurrence over optimistic interval costs
names the intervals that could still improve the schedule; the topologies that are most promising there are asked for
next. When no such interval is left, the schedule is the best one over the whole space, and that is a proof.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumenfarm import recurrence
from lumenfarm.cayley import Space
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Pattern
from lumenfarm.problem import IntervalProblem, MetricRow, Workload

__all__ = ["SymmetricSearch"]

# Bounds are sums of a few hundred single-precision numbers; what rounding may have taken is given back.
_ROUNDING = 1e-6
# An interval whose bound comes this near to its cost is closed.
_CLOSED = 1e-5
# Useless topologies are forgotten after so many bounds, and whenever their number has grown by so much.
_FIRST_PRUNING, _PRUNING_GROWTH = 16, 1.25


class SymmetricSearch:
    """What to look at next in a space, and what is proved about it.

    Args:
        workload: the steps.
        space: where topologies are sought.

    Attributes:
        answered: how many topologies of the space are known.
    """

    def __init__(self, workload: Workload, space: Space) -> None:
        self.workload = workload
        self.space = space
        self.answered = 0
        self._intervals = _Intervals.of(workload)
        self._lower = np.array([sum(problem.weights) for problem in self._intervals.problems])
        self._looked = np.full(len(self._lower), -1)
        self.know(np.full((len(workload), len(workload) + 1), np.inf))
        self._learned, self._next_pruning = 0, _FIRST_PRUNING
        # Of each problem, the best topology of this space and its value.
        self._best_values = np.full(len(self._lower), np.inf)
        self._best_numbers = np.zeros(len(self._lower), dtype=np.int64)
        # Topologies that may still be of use, the options they take, and bounds on their theta, pattern by pattern.
        self._alive = np.arange(space.size)
        self._members = space.members
        self._upper = np.ones((len(workload.patterns), space.size), np.float32)

    def feed(self, number: int, row: MetricRow) -> None:
        """Take in the answer about one topology."""
        self.answered += 1
        values = self._intervals.values(row.theta)
        better = values < self._best_values
        self._best_values[better], self._best_numbers[better] = values[better], number
        for known in (number, self.space.twin(number)):
            place = np.searchsorted(self._alive, known)
            if place < len(self._alive) and self._alive[place] == known:
                self._upper[:, place] = 0.0
        self.learn(row.potentials)
        if self.space.group.above is not None:
            self.learn(self.space.group.mirrored(row.potentials))

    def learn(self, potentials: Floats) -> None:
        """Bound all topologies by potentials of each pattern, wherever they come from, shape (patterns, classes, n)."""
        if self._learned >= self._next_pruning:
            self._prune()
        self._learned += 1
        sources = self.space.group.representatives
        for pattern, upper, potential in zip(self.workload.patterns, self._upper, potentials, strict=True):
            shipped = float((pattern.multiplicities.rows(sources) * potential).sum())
            if shipped > 0:
                np.minimum(upper, self.space.totals(self.space.lengths(potential) / shipped, self._members), out=upper)

    def know(self, costs_ns: Floats) -> None:
        """Take in the best known cost of every interval, ns, shape (s, s+1)."""
        self._known_ns = costs_ns * (1 - _CLOSED)
        self._limits = self._intervals.normalised(self._known_ns)
        alpha_r = self.workload.fabric.reconfig_delay_ns
        self._best_ns = float(recurrence.cheapest_through(self._known_ns, alpha_r).min())

    def propose(self, count: int) -> list[int]:
        """The most promising topologies that are not known yet, about ``count``; none when the space is closed."""
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            open_ = [index for index in self._on_optimistic_path() if self._lower[index] < self._limits[index]]
            fresh = [index for index in open_ if self._looked[index] < self._learned]
            if not fresh:
                break
            for index in fresh:
                chosen |= dict.fromkeys(self._look(index, math.ceil(count / len(fresh))))
        return list(chosen)[:count]

    def lower_bound_ns(self) -> float:
        """No schedule over this space is faster, ns."""
        return float(recurrence.cheapest_through(self._lower_ns(), self.workload.fabric.reconfig_delay_ns).min())

    def _on_optimistic_path(self) -> list[int]:
        curve = recurrence.partition(self._lower_ns())
        k = recurrence.best(curve, self.workload.fabric.reconfig_delay_ns)
        return list(dict.fromkeys(int(self._intervals.index[interval]) for interval in curve.boundaries(k)))

    def _look(self, index: int, count: int) -> list[int]:
        """Renew the lower bound of a problem; the topologies that could get below its limit, the best first."""
        values = self._optimistic(self._congestion(), index)
        self._renew(index, values)
        self._looked[index] = self._learned
        chosen: dict[int, None] = {}
        # Twins come in pairs, and one of each is enough.
        for place in (*self._near_best(index, values, count), *_least(values, 2 * count)):
            number = int(self._alive[place])
            if values[place] < self._limits[index] and self.space.twin(number) not in chosen:
                chosen[number] = None
            if len(chosen) == count:
                break
        return list(chosen)

    def _near_best(self, index: int, values: NDArray[np.float32], count: int) -> list[int]:
        """Half as many topologies that differ from the best known one in the choice of a single class."""
        if np.isinf(self._best_values[index]):
            return []
        best = self.space.members[:, self._best_numbers[index]]
        near = np.flatnonzero((self._members == best[:, None]).any(axis=0))
        places: list[int] = near[_least(values[near], count // 2)].tolist()
        return places

    def _prune(self) -> None:
        """Forget the topologies that cannot get below the limit of any problem that still matters."""
        congestion = self._congestion()
        useful = np.zeros(len(self._alive), dtype=bool)
        for index in self._relevant():
            values = self._optimistic(congestion, index)
            self._renew(index, values)
            useful |= values < self._limits[index]
        self._alive, self._members = self._alive[useful], self._members[:, useful]
        self._upper = np.ascontiguousarray(self._upper[:, useful])
        self._next_pruning = math.ceil(_PRUNING_GROWTH * self._learned)

    def _relevant(self) -> list[int]:
        """Problems some interval of which could be part of a schedule better than the best known one.

        Optimistic costs only rise and the best cost only falls, so a problem that is left out stays out.
        """
        through = recurrence.cheapest_through(self._lower_ns(), self.workload.fabric.reconfig_delay_ns)
        relevant: list[int] = np.unique(self._intervals.index[through < self._best_ns]).tolist()
        return relevant

    def _lower_ns(self) -> Floats:
        """Lower bound of every interval, ns, shape (s, s+1); never above what is known."""
        return np.minimum(self._intervals.costs_ns(self._lower), self._known_ns)

    def _renew(self, index: int, values: NDArray[np.float32]) -> None:
        lowest = float(values.min(initial=np.inf)) * (1 - _ROUNDING)
        self._lower[index] = max(self._lower[index], min(lowest, self._limits[index]))

    def _congestion(self) -> NDArray[np.float32]:
        with np.errstate(divide="ignore"):
            return np.float32(1.0) / self._upper

    def _optimistic(self, congestion: NDArray[np.float32], index: int) -> NDArray[np.float32]:
        """The least value that the problem can have on each topology."""
        problem = self._intervals.problems[index]
        total = np.zeros(len(self._alive), np.float32)
        for pattern, weight in zip(problem.patterns, problem.weights, strict=True):
            total += np.float32(weight) * congestion[self._intervals.row_of[pattern]]
        return total


def _least(values: NDArray[np.float32], count: int) -> list[int]:
    """Places of the least values in ascending order, ties by place."""
    if 0 < count < len(values):
        least = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    else:
        least = np.arange(len(values))
    ordered: list[int] = least[np.argsort(values[least], kind="stable")][:count].tolist()
    return ordered


@dataclass(frozen=True, slots=True, eq=False)
class _Intervals:
    """The distinct interval problems of a workload, and which of them each interval is.

    Attributes:
        index: problem of each interval, shape (s, s+1), -1 for stop <= first.
        scale_ns, startup_ns: an interval costs startup + scale * the value of its problem, same shape.
    """

    problems: tuple[IntervalProblem, ...]
    row_of: Mapping[Pattern, int]
    index: Ints
    scale_ns: Floats
    startup_ns: Floats

    @classmethod
    def of(cls, workload: Workload) -> _Intervals:
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
        return cls(tuple(problem for _, problem in problems.values()), rows, index, scale, startup)

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
        return np.array(
            [
                sum(w * congestion[self.row_of[pattern]] for pattern, w in zip(p.patterns, p.weights, strict=True))
                for p in self.problems
            ]
        )

    def costs_ns(self, values: Floats) -> Floats:
        """Interval costs behind the values of the problems, ns, shape (s, s+1)."""
        return np.where(self.index >= 0, self.startup_ns + self.scale_ns * values[self.index], np.inf)
