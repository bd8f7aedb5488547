"""Best-first search over a whole space of symmetric topologies, for all intervals of a workload at once.

Every answer about one topology comes with potentials, and they bound theta of all others from above, so every interval
has an optimistic cost for each topology not looked at yet. The partition recurrence over optimistic interval costs
names the intervals that could still improve the schedule; the topologies that are most promising there are asked for
next. When no such interval is left, the schedule is the best one over the whole space, and that is a proof.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lumenfarm import recurrence
from lumenfarm.cayley import Choice, Listing, Space
from lumenfarm.matrix import Floats
from lumenfarm.problem import MetricRow, Workload

__all__ = ["ExhaustiveSearch"]

# Bounds are sums of a few hundred single-precision numbers; what rounding may have taken is given back.
_ROUNDING = 1e-6
# An interval whose bound comes this near to its cost is closed.
_CLOSED = 1e-5
# Useless topologies are forgotten after so many bounds, and whenever their number has grown by so much.
_FIRST_PRUNING, _PRUNING_GROWTH = 16, 1.25


class ExhaustiveSearch:
    """What to look at next in a space, and what is proved about it.

    Args:
        workload: the steps.
        space: where topologies are sought; small enough to be listed.

    Attributes:
        answered: how many topologies of the space are known.
    """

    def __init__(self, workload: Workload, space: Space) -> None:
        self.workload = workload
        self.space = space
        self.answered = 0
        self._listing = Listing(space)
        self._intervals = workload.intervals
        self._lower = np.array([sum(problem.weights) for problem in self._intervals.problems])
        self._looked = np.full(len(self._lower), -1)
        self.know(np.full((len(workload), len(workload) + 1), np.inf))
        self._learned, self._next_pruning = 0, _FIRST_PRUNING
        # Of each problem, the best topology of this space and its value.
        self._best_values = np.full(len(self._lower), np.inf)
        self._best_numbers = np.zeros(len(self._lower), dtype=np.int64)
        # Topologies that may still be of use, the options they take, and bounds on their theta, pattern by pattern.
        self._alive = np.arange(self._listing.size)
        self._members = self._listing.members
        self._upper = np.ones((len(workload.patterns), self._listing.size), np.float32)

    @property
    def topologies(self) -> int:
        """How many the space has."""
        return self._listing.size

    def feed(self, choice: Choice, row: MetricRow) -> None:
        """Take in the answer about one topology."""
        self.answered += 1
        number = self._listing.number(choice)
        values = self._intervals.values(row.theta)
        better = values < self._best_values
        self._best_values[better], self._best_numbers[better] = values[better], number
        for known in (number, self._listing.twin(number)):
            place = np.searchsorted(self._alive, known)
            if place < len(self._alive) and self._alive[place] == known:
                self._upper[:, place] = 0.0
        self.learn(row.potentials)
        if self.space.classes == 2:
            self.learn(self.space.group.mirrored(row.potentials))

    def learn(self, potentials: Floats) -> None:
        """Bound all topologies by potentials of each pattern, wherever they come from, shape (patterns, classes, n)."""
        if self._learned >= self._next_pruning:
            self._prune()
        self._learned += 1
        for pattern, upper, potential in zip(self.workload.patterns, self._upper, potentials, strict=True):
            lengths = self.space.relative_lengths(pattern, potential)
            if lengths is not None:
                np.minimum(upper, self._listing.totals(lengths, self._members), out=upper)

    def know(self, costs_ns: Floats) -> None:
        """Take in the best known cost of every interval, ns, shape (s, s+1)."""
        self._known_ns = costs_ns * (1 - _CLOSED)
        self._limits = self._intervals.normalised(self._known_ns)
        alpha_r = self.workload.fabric.reconfig_delay_ns
        self._best_ns = float(recurrence.cheapest_through(self._known_ns, alpha_r).min())

    def propose(self, count: int) -> list[Choice]:
        """The most promising topologies that are not known yet, about ``count``; none when the space is closed."""
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            open_ = [index for index in self._on_optimistic_path() if self._lower[index] < self._limits[index]]
            fresh = [index for index in open_ if self._looked[index] < self._learned]
            if not fresh:
                break
            for index in fresh:
                chosen |= dict.fromkeys(self._look(index, math.ceil(count / len(fresh))))
        return [self._listing.choice(number) for number in list(chosen)[:count]]

    def lower_bound_ns(self) -> float:
        """No schedule over this space is faster, ns."""
        return float(recurrence.cheapest_through(self._lower_ns(), self.workload.fabric.reconfig_delay_ns).min())

    def _on_optimistic_path(self) -> list[int]:
        cheapest = recurrence.cheapest_intervals(self._lower_ns(), self.workload.fabric.reconfig_delay_ns)
        return list(dict.fromkeys(int(self._intervals.index[interval]) for interval in cheapest))

    def _look(self, index: int, count: int) -> list[int]:
        """Renew the lower bound of a problem; the topologies that could get below its limit, the best first."""
        values = self._optimistic(self._congestion(), index)
        self._renew(index, values)
        self._looked[index] = self._learned
        chosen: dict[int, None] = {}
        # Twins come in pairs, and one of each is enough.
        for place in (*self._near_best(index, values, count), *_least(values, 2 * count)):
            number = int(self._alive[place])
            if values[place] < self._limits[index] and self._listing.twin(number) not in chosen:
                chosen[number] = None
            if len(chosen) == count:
                break
        return list(chosen)

    def _near_best(self, index: int, values: NDArray[np.float32], count: int) -> list[int]:
        """Half as many topologies that differ from the best known one in the choice of a single class."""
        if np.isinf(self._best_values[index]):
            return []
        best = self._listing.members[:, self._best_numbers[index]]
        near = np.flatnonzero((self._members == best[:, None]).sum(axis=0) == self.space.classes - 1)
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
        total = np.zeros(len(self._alive), np.float32)
        weights = self._intervals.problems[index].weights
        for pattern, weight in zip(self._intervals.patterns[index], weights, strict=True):
            total += np.float32(weight) * congestion[pattern]
        return total


def _least(values: NDArray[np.float32], count: int) -> list[int]:
    """Places of the least values in ascending order, ties by place."""
    if 0 < count < len(values):
        least = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    else:
        least = np.arange(len(values))
    ordered: list[int] = least[np.argsort(values[least], kind="stable")][:count].tolist()
    return ordered
