"""Local search in a space of symmetric topologies that is too large to be listed, for all intervals of a workload.

Around the best topology of an interval all others that differ in at most two ports are bounded by metric inequalities,
and the most promising are asked for; every answer adds inequalities, so a neighbourhood is soon either left for
something better or closed by proof. The partition recurrence says which intervals are worth the effort: an interval
not worked on yet is hoped to improve as much as any before it did.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lumenfarm import recurrence
from lumenfarm.cayley import Choice, Singles, Space
from lumenfarm.matrix import Floats, Ints
from lumenfarm.problem import IntervalProblem, MetricRow, Workload

__all__ = ["FIRST_HOPE", "GuidedSearch", "apportioned"]

# A topology whose bound comes this near to the best is not worth a look.
_CLOSED = 1e-5
# Neighbours bounded at a time, and inequalities that a new neighbourhood begins with, out of so many latest ones.
_MOST_NEIGHBOURS, _MOST_INEQUALITIES, _MOST_KEPT = 2**16, 48, 1024
# Relative improvement of an interval hoped for before some are done, and at least afterwards.
FIRST_HOPE = 0.2
_LEAST_HOPE = 0.01
# A theta below this counts as this where new targets are compared one by one.
_LEAST_THETA = 1e-6
# Pairs of ports that are changed at random to leave a local optimum.
_SHAKEN_PAIRS = 2


class GuidedSearch:
    """What to look at next around the best topologies of each interval.

    Args:
        workload: the steps.
        space: where topologies are sought.
        seeds: for each interval problem, by number, a topology to begin with.
        lowest_ns: lower bound of every interval, ns, shape (s, s+1).
        hope: relative improvement of an interval that is hoped for, until some have been worked on.

    Attributes:
        answered: how many topologies of the space are known.
    """

    def __init__(
        self,
        workload: Workload,
        space: Space,
        seeds: Mapping[int, Choice],
        lowest_ns: Floats,
        *,
        hope: float = FIRST_HOPE,
    ) -> None:
        self.workload = workload
        self.space = space
        self.answered = 0
        self._intervals = workload.intervals
        self._lowest_ns = lowest_ns
        self._centres = {index: _Centre(index, choice) for index, choice in seeds.items()}
        self._inequalities: deque[Singles] = deque(maxlen=_MOST_KEPT)
        self._learned = 0
        self._values: dict[Choice, Floats] = {}
        self._hope = hope
        self._gains: list[float] = []
        self._learning = True
        self._random = np.random.default_rng(0)

    @property
    def topologies(self) -> int:
        """How many the space has at most."""
        return self.space.most

    def feed(self, choice: Choice, row: MetricRow) -> None:
        """Take in the answer about one topology."""
        self.answered += 1
        self.learn(row.potentials)
        self._values[choice] = self._intervals.values(row.theta)
        for centre in self._centres.values():
            self._compare(centre, choice)

    def learn(self, potentials: Floats) -> None:
        """Bound all topologies by potentials of each pattern, shape (patterns, classes, n)."""
        pairs = zip(self.workload.patterns, potentials, strict=True)
        lengths = [self.space.relative_lengths(pattern, potential) for pattern, potential in pairs]
        # theta <= 1 says the same as lengths of 1.
        plain = np.ones(self.space.classes * self.space.group.n, dtype=np.float32)
        self._inequalities.append(np.stack([plain if one is None else one for one in lengths]))
        self._learned += 1

    def know(self, costs_ns: Floats) -> None:
        """Take in the best known cost of every interval, ns, shape (s, s+1)."""
        self._known_ns = costs_ns
        self._known = self._intervals.normalised(costs_ns)

    def propose(self, count: int) -> list[Choice]:
        """The most promising topologies that are not known yet, about ``count``; none when all are closed."""
        chosen: dict[Choice, None] = {}
        while len(chosen) < count and (open_ := self._open_on_hopeful_path()):
            unknown = [centre.choice for centre in open_ if not centre.answered]
            if unknown:
                chosen |= dict.fromkeys(unknown)
                break
            for centre in open_:
                found = self._look(centre, math.ceil(count / len(open_)))
                chosen |= dict.fromkeys(found)
                if not found:
                    self._finish(centre)
        return list(chosen)

    def lower_bound_ns(self) -> float:
        """Nothing is proved about the space as a whole."""
        return 0.0

    def persist(self) -> None:
        """Look at intervals with less promise; when all are done, begin again a few random changes away."""
        self._learning = False
        if self._hope < 1:
            self._hope = min(1.0, max(_LEAST_HOPE, 2 * self._hope))
            return
        for centre in self._centres.values():
            centre.restart(self._shaken(centre.best or centre.choice))
            self._compare(centre, centre.choice)

    def _shaken(self, choice: Choice) -> Choice:
        """Random other targets for a few pairs of ports, in the same two classes."""
        targets, class_of = np.array(choice), self.space.group.class_of
        for _ in range(_SHAKEN_PAIRS):
            ports = self._random.permutation(len(targets))[:2]
            ends = self._random.permutation(class_of[targets[ports]])
            for port, end in zip(ports, ends, strict=True):
                allowed = np.flatnonzero((class_of == end) & (np.arange(len(class_of)) != self.space.sources[port]))
                targets[port] = self._random.choice(allowed)
        return self.space.choice(targets)

    def _open_on_hopeful_path(self) -> list[_Centre]:
        """Open centres of the best schedule, should every interval that is not done improve as hoped."""
        values = np.full(len(self._intervals.problems), np.inf)
        for index, centre in self._centres.items():
            if not centre.done:
                here = centre.value if centre.answered else self._known[index]
                values[index] = here * (1 - self._hope) if math.isfinite(here) else 0.0
        hopeful = np.maximum(self._lowest_ns, self._intervals.costs_ns(values))
        open_ = hopeful < self._known_ns
        costs_ns = np.where(open_, hopeful, self._known_ns)
        cheapest = recurrence.cheapest_intervals(costs_ns, self.workload.fabric.reconfig_delay_ns)
        path = dict.fromkeys(int(self._intervals.index[pair]) for pair in cheapest if open_[pair])
        return [self._centres[index] for index in path]

    def _look(self, centre: _Centre, count: int) -> list[Choice]:
        """Topologies near a centre that could be better, the best first; known ones are gone over to on the way."""
        while True:
            here = centre.neighbourhood = centre.neighbourhood or self._neighbourhood(centre)
            here.learn(self._latest(self._learned - here.learned), self._learned)
            found = here.best(count, centre.value * (1 - _CLOSED))
            for choice in found:
                self._compare(centre, choice)
            fresh = [choice for choice in found if choice not in self._values]
            if fresh or not found:
                return fresh

    def _neighbourhood(self, centre: _Centre) -> _Neighbourhood:
        problem, patterns = self._intervals.problems[centre.problem], self._intervals.patterns[centre.problem]
        known = self._latest(self._learned)
        return _Neighbourhood(self.space, centre.choice, patterns, problem.weights, known, self._learned)

    def _latest(self, count: int) -> list[Singles]:
        """The latest inequalities, as far as they are kept."""
        return list(itertools.islice(self._inequalities, max(0, len(self._inequalities) - count), None))

    def _compare(self, centre: _Centre, choice: Choice) -> None:
        if choice in self._values:
            centre.compare(choice, float(self._values[choice][centre.problem]))

    def _finish(self, centre: _Centre) -> None:
        centre.done, centre.neighbourhood = True, None
        if self._learning and math.isfinite(centre.first_value):
            self._gains.append(1 - centre.value / centre.first_value)
            self._hope = max(_LEAST_HOPE, *self._gains)


def apportioned(space: Space, problem: IntervalProblem) -> Choice:
    """A topology of a space with one class whose ports are shared out in proportion to the demands (D'Hondt's rule)."""
    matrices = [pattern.multiplicities.rows(space.group.representatives)[0] for pattern in problem.patterns]
    traffic = np.array(problem.weights) @ np.array(matrices)
    ports = np.zeros(len(traffic), dtype=np.int64)
    for _ in range(space.degree):
        ports[int((traffic / (ports + 1)).argmax())] += 1
    return space.choice(np.repeat(np.arange(len(ports)), ports))


@dataclass(slots=True, eq=False)
class _Centre:
    """The topology of a problem whose neighbours are looked at, and the best of all so far."""

    problem: int
    choice: Choice
    answered: bool = False
    value: float = math.inf
    first_value: float = math.inf
    best: Choice = ()
    best_value: float = math.inf
    done: bool = False
    neighbourhood: _Neighbourhood | None = None

    def compare(self, choice: Choice, value: float) -> None:
        """Take in the value of a topology: the centre's own, or a better one to go on from."""
        if choice == self.choice:
            self.answered, self.value, self.first_value = True, value, value
        elif self.answered and value < self.value * (1 - _CLOSED):
            self.choice, self.value = choice, value
            self.done, self.neighbourhood = False, None
        if value < self.best_value or not self.best:
            self.best, self.best_value = choice, value

    def restart(self, choice: Choice) -> None:
        """Go on from another topology, whatever its value."""
        self.choice, self.answered, self.done, self.neighbourhood = choice, False, False, None


class _Neighbourhood:
    """All topologies that differ from one in the targets of at most two ports, with upper bounds on their theta.

    A neighbour is two entries of a table with a row a port and a column a target; the entry of a port's own target
    stands for no change.

    Attributes:
        learned: how many inequalities there had been when it was last told.
    """

    def __init__(
        self,
        space: Space,
        centre: Choice,
        patterns: Sequence[int],
        weights: Sequence[float],
        inequalities: Sequence[Singles],
        learned: int,
    ) -> None:
        self._space = space
        self._centre = np.array(centre)
        self._patterns = list(patterns)
        self._weights = np.array(weights, dtype=np.float32)
        self._orbits = space.first_orbit + self._centre
        stack = np.stack([one[self._patterns] for one in inequalities])
        here = stack[:, :, self._orbits].sum(axis=2)
        tightest = np.argsort(here, axis=0, kind="stable")[:_MOST_INEQUALITIES]
        stack = np.take_along_axis(stack, tightest[:, :, None], axis=0)
        self._first, self._second = self._pairs(stack)
        self._upper = np.ones((len(patterns), len(self._first)), dtype=np.float32)
        for one in stack:
            self._tighten(one)
        self.learned = learned
        self._open = np.ones(len(self._first), dtype=bool)

    def learn(self, inequalities: Sequence[Singles], learned: int) -> None:
        """Bound the neighbours by further inequalities."""
        for one in inequalities:
            self._tighten(one[self._patterns])
        self.learned = learned

    def best(self, count: int, limit: float) -> list[Choice]:
        """Neighbours not named before whose bound is below a limit, the best first."""
        with np.errstate(divide="ignore"):
            values = self._weights @ (1 / self._upper)
        open_ = np.flatnonzero(self._open & (values < limit))
        chosen: dict[Choice, None] = {}
        for place in open_[np.argsort(values[open_], kind="stable")].tolist():
            self._open[place] = False
            chosen[self._choice(place)] = None
            if len(chosen) == count:
                break
        return list(chosen)

    def _choice(self, place: int) -> Choice:
        targets = self._centre.copy()
        for entry in (self._second[place], self._first[place]):
            port, target = divmod(int(entry), self._space.group.n)
            targets[port] = target
        return self._space.choice(targets)

    def _tighten(self, lengths: Singles) -> None:
        """Bound by one inequality a pattern: the centre's total length and what two changes add to it."""
        changes = self._changes(lengths[None])[0].reshape(len(lengths), -1)
        total = lengths[:, self._orbits].sum(axis=1)[:, None] + changes[:, self._first] + changes[:, self._second]
        np.clip(total, 0.0, self._upper, out=self._upper)

    def _changes(self, stack: Singles) -> Singles:
        """What each new target of each port adds to total lengths, shape (..., ports, n)."""
        orbits = self._space.first_orbit[:, None] + np.arange(self._space.group.n)
        changes: Singles = stack[..., orbits] - stack[..., self._orbits][..., None]
        return changes

    def _pairs(self, stack: Singles) -> tuple[Ints, Ints]:
        """All pairs of entries that keep the number of receiving ports, among the best of each port and class."""
        groups = self._promising(stack)
        own = self._space.group.class_of[self._centre]
        if len(own) == 1:
            return groups[0][0], np.full(len(groups[0][0]), self._centre[0])
        first, second = [], []
        for one, other in itertools.combinations(range(len(self._centre)), 2):
            for ends in {(own[one], own[other]), (own[other], own[one])}:
                pair = np.meshgrid(groups[one][ends[0]], groups[other][ends[1]], indexing="ij")
                first.append(pair[0].ravel())
                second.append(pair[1].ravel())
        return np.concatenate(first), np.concatenate(second)

    def _promising(self, stack: Singles) -> list[list[Ints]]:
        """For each port and class of targets the entries that would be best if nothing else changed."""
        total = stack[:, :, self._orbits].sum(axis=2)[:, :, None, None] + self._changes(stack)
        # A target that cuts a pair off by itself may serve well beside another change.
        price = np.tensordot(self._weights, 1 / np.clip(total.min(axis=0), _LEAST_THETA, 1), axes=1)
        ports, n = price.shape
        price[np.arange(ports), self._space.sources] = np.inf
        price[np.arange(ports), self._centre] = 0.0
        kept = max(2, math.isqrt(_MOST_NEIGHBOURS // (ports * ports)))
        of_class = [np.flatnonzero(self._space.group.class_of == index) for index in range(self._space.classes)]
        return [[port * n + _least(price[port], members, kept) for members in of_class] for port in range(ports)]


def _least(price: Singles, members: Ints, count: int) -> Ints:
    """Up to ``count`` of the members with the lowest finite price."""
    allowed = members[np.isfinite(price[members])]
    return allowed[np.argsort(price[allowed], kind="stable")[:count]]
