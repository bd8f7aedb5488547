"""What to ask next and what follows from the answers: a state machine without I/O.

Tasks go out, outcomes come in, in any order; after each of them there is a best plan so far. Topologies whose answer
is still missing count as unable to carry anything, so every plan is valid, and later ones are never worse.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumenfarm import recurrence
from lumenfarm.cayley import Choice, Space
from lumenfarm.digest import digest
from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.exhaustive_search import ExhaustiveSearch
from lumenfarm.groups import Group
from lumenfarm.guided_search import FIRST_HOPE, GuidedSearch, apportioned
from lumenfarm.matrix import Floats
from lumenfarm.model import Topology
from lumenfarm.plan import IntervalBounds, Plan
from lumenfarm.problem import (
    THETA_FORMULATION,
    MetricRow,
    MetricTask,
    Outcome,
    Record,
    RelaxationRow,
    RelaxationTask,
    Task,
    ThetaRow,
    ThetaTask,
    Workload,
)
from lumenfarm.reachability import check_reachable
from lumenfarm.relaxation import safe_value
from lumenfarm.versions import solver_versions

__all__ = ["SEARCH_KIND", "Planner", "SpaceProof", "Standing"]

# What a summary is called in the store.
SEARCH_KIND = "search/1"

# Beyond, a relaxation takes minutes, or there are thousands of them.
_MOST_RELAXED_GPUS, _MOST_RELAXED_STEPS = 128, 20

# Numbers looked up and compared in the time of one unit of effort, about a microsecond.
_LOOKED_UP_A_UNIT = 200

# Fewer classes must have brought this relative gain for more to be hopeful.
_GAIN = 1e-3

# Answers whose potentials a space passes on to those of smaller groups.
_MOST_INHERITED = 1024

# So often each search is told to look further before there is taken to be nothing more.
_PERSISTENCE = 10

# Spaces are listed if topologies times patterns are no more: 64 GPUs in two classes, with two ports and 8 patterns, fit
# into some hundred megabytes.
_MOST_LISTED = 2**25

# Topologies asked for at a time in a space; a fixed number, so that the search does not depend on the workers.
_ROUND = 32


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the search is: answers in, answers wanted, cost of the best plan (infinite if none), its bound, ns."""

    done: int
    known: int
    cost_ns: float
    lower_bound_ns: float

    @property
    def gap(self) -> float:
        """(cost - bound)/cost; 1 as long as there is no plan."""
        return 1.0 if math.isinf(self.cost_ns) else max(0.0, 1.0 - self.lower_bound_ns / self.cost_ns)


@dataclass(frozen=True, slots=True)
class SpaceProof:
    """What is proved about all topologies that one group leaves as they are.

    Attributes:
        group: its name.
        topologies: how many there are, or a number above that if they were too many to be listed.
        listed: whether the space was searched whole, or around the best topologies only.
        answered: how many were looked at.
        lower_bound_ns: no schedule over them alone is faster, ns.
        closed: whether the best schedule over them, or a better one, is found.
    """

    group: str
    topologies: int
    listed: bool
    answered: int
    lower_bound_ns: float
    closed: bool


class Planner:
    """The best partition of a workload's steps over candidates, and then over spaces of symmetric topologies.

    Work comes in rounds: first the candidates, then for each space what its search asks for, until that has nothing
    left to ask or the effort is spent. Small spaces are searched whole (`ExhaustiveSearch`), large ones around the best
    topologies known (`GuidedSearch`). What is asked for depends only on answers, never on their order or their time.

    Args:
        workload: the collective on its fabric.
        topologies: candidates; of equally good ones the earlier is taken.
        spaces: searched one after the other; each inherits what is known about the spaces of larger groups.
        initial: topology in place before the first step, None if the first topology is free.
        effort: that the searches may take together, about microseconds of one CPU, see `MetricTask.effort`.
        most_listed: spaces with more topologies times patterns are not searched whole.
        group: with one class of GPUs, preserves all patterns; makes bounds stronger. None if none is known.

    Attributes:
        candidates: the tasks of the first round.

    Raises:
        InputError: no candidate and no space; a candidate or the initial topology is for another number of GPUs, or
            uses more ports than the fabric has.
    """

    def __init__(
        self,
        workload: Workload,
        topologies: Sequence[Topology],
        *,
        spaces: Sequence[Space] = (),
        initial: Topology | None = None,
        effort: float = math.inf,
        most_listed: int = _MOST_LISTED,
        group: Group | None = None,
    ) -> None:
        self.workload = workload
        self.initial = initial
        candidates = dict.fromkeys([*topologies, *([] if initial is None else [initial])])
        if not candidates and not spaces:
            raise InputError("candidates", 0, "at least one candidate topology")
        for topology in candidates:
            _check_fits(topology, workload)
        self._table = _Table(len(workload.patterns))
        patterns, dims = workload.patterns, workload.collective.dims
        self.candidates = tuple(ThetaTask(topology, patterns, dims) for topology in candidates)
        self.bounds = IntervalBounds.of(workload, group)
        self._group = group
        self._relaxations = _relaxations(workload, group)
        self._begun = False
        self._spaces = tuple(spaces)
        self._taken_over: tuple[MetricTask, ...] = ()
        self._known_proofs: tuple[SpaceProof, ...] = ()
        self._most_listed = most_listed
        self._origin: dict[Topology, tuple[int, Choice]] = {}
        self._searches: list[_SpaceSearch] = []
        self._effort, self._spent = effort, 0.0
        self._open: dict[str, _SpaceSearch | None] = {}
        self._further = -1
        self._cost_before: dict[int, float] = {}
        self._asked = 0

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """All topologies asked about so far."""
        return tuple(self._table.row_of)

    def next_round(self) -> tuple[Task, ...]:
        """What has to be answered now; nothing when the search is over. To be called again when all of it is fed.

        Raises:
            UnreachableError: there are only candidates, and none connects every pair of some step.
        """
        if not self._begun:
            self._begun = True
            if not self._spaces and not self._taken_over:
                check_reachable([task.topology for task in self.candidates], self.workload)
            first: list[Task] = [*self.candidates, *(task for _, task in self._relaxations.values())]
            if first:
                return self._handed_out(first, None)
        if self._taken_over:
            known, self._taken_over = self._taken_over, ()
            return self._handed_out(known, None)
        while search := self._current_search():
            if tasks := self._asked_by(search):
                return tasks
        return self._further_round() if math.isinf(self._effort) else ()

    def feed(self, task: Task, outcome: Outcome) -> None:
        """Take in one answer; an answer that is not waited for changes nothing."""
        if task.key not in self._open:
            return
        search = self._open.pop(task.key)
        if isinstance(task, RelaxationTask) and isinstance(outcome, RelaxationRow):
            self._raise_bounds(task, outcome)
        elif isinstance(task, ThetaTask | MetricTask) and isinstance(outcome, ThetaRow | MetricRow):
            self._table.fill(task.topology, outcome)
        if search is not None and isinstance(outcome, MetricRow):
            search.feed(task.key, outcome)

    def _raise_bounds(self, task: RelaxationTask, outcome: RelaxationRow) -> None:
        """Let the relaxation of one problem bound all its intervals; what its potentials prove is worked out here."""
        if self._group is None:
            return
        intervals, index = self.workload.intervals, self._relaxations[task.key][0]
        values = np.zeros(len(intervals.problems))
        values[index] = safe_value(task.problem, self._group, outcome.potentials)
        at_least = np.where(intervals.index == index, intervals.costs_ns(values), 0.0)
        self.bounds = self.bounds.raised(at_least, "relaxation")
        self.__dict__.pop("lower_bound_ns", None)

    @property
    def finished(self) -> bool:
        """Whether all is answered and nothing is left to ask, as far as the searches know."""
        entered = len(self._searches) == len(self._spaces) and not self._taken_over
        return self._begun and not self._open and entered and all(search.ended for search in self._searches)

    @property
    def done(self) -> int:
        """How many tasks are answered."""
        return self._asked - len(self._open)

    @property
    def carried(self) -> bool:
        """Whether every step has a topology that carries it, so that there is a plan."""
        return bool(self._table.carried().all())

    def standing(self) -> Standing:
        """How far the search is."""
        cost = self.plan().cost_ns if self.carried else math.inf
        return Standing(self.done, self._asked, cost, self.lower_bound_ns)

    def proofs(self) -> tuple[SpaceProof, ...]:
        """What is proved about each space that was entered."""
        return (*self._known_proofs, *(search.proof(self.lower_bound_ns) for search in self._searches))

    @property
    def searches(self) -> bool:
        """Whether there are spaces to search, so that `summary` is worth keeping."""
        return bool(self._spaces)

    def describe(self) -> Record:
        """The search in a form people can read."""
        groups = [space.group.name for space in self._spaces]
        return {"gpus": self.workload.collective.n, "steps": len(self.workload), "groups": groups}

    @cached_property
    def key(self) -> str:
        """Content address of the search of the spaces: all that its course depends on, scale apart."""
        workload, fabric = self.workload, self.workload.fabric
        times = np.array([*workload.weights_ns, fabric.alpha_ns, fabric.delta_ns, fabric.reconfig_delay_ns])
        return digest(
            SEARCH_KIND,
            formulation=THETA_FORMULATION,
            solvers=solver_versions(),
            patterns=[workload.patterns[index].digest for index in workload.pattern_of_step],
            times=times / self._scale_ns,
            latency=fabric.latency.value,
            degree=fabric.degree,
            candidates=[task.topology.digest for task in self.candidates],
            groups=[list(space.group.generators) for space in self._spaces],
            initial=None if self.initial is None else self.initial.digest,
            effort=self._effort,
            most_listed=self._most_listed,
            group=None if self._group is None else list(self._group.generators),
        )

    def summary(self) -> Record:
        """What a search that has ended found: the topologies of its plans for any delay, and what is proved."""
        used = [self.topologies[row] for row in self.plan().rows_of_every_k()]
        found = [self._origin[topology] for topology in used if topology in self._origin]
        proofs = [_proof_record(proof, self._scale_ns) for proof in self.proofs()]
        return {"found": [[space, list(choice)] for space, choice in found], "proofs": proofs}

    def resume(self, record: Record) -> None:
        """Take over what an equal search found, instead of searching; ValueError if the record does not say it."""
        if self._begun:
            raise ValueError("a search that has begun cannot take over another")
        try:
            found = [(self._spaces[space], tuple(choice)) for space, choice in record["found"]]
            tasks = tuple(_metric_task(self.workload, space, choice) for space, choice in found)
            proofs = tuple(_proof_of(proof, self._scale_ns) for proof in record["proofs"])
        except (KeyError, IndexError, OverflowError, TypeError) as error:
            raise ValueError(f"no record of a search: {error}") from error
        self._taken_over, self._known_proofs, self._spaces = tasks, proofs, ()

    @property
    def _scale_ns(self) -> float:
        return float(self.workload.weights_ns.max())

    def _handed_out(self, tasks: Sequence[Task], search: _SpaceSearch | None) -> tuple[Task, ...]:
        for task in tasks:
            if not isinstance(task, RelaxationTask):
                self._table.add(task.topology)
            self._open[task.key] = search
        self._asked += len(tasks)
        return tuple(tasks)

    def _current_search(self) -> _SpaceSearch | None:
        """The search that goes on, or else that of the next space."""
        for search in self._searches:
            if not search.ended:
                return search
        if len(self._searches) < len(self._spaces):
            self._searches.append(self._search_of(self._spaces[len(self._searches)]))
            return self._searches[-1]
        return None

    def _search_of(self, space: Space) -> _SpaceSearch:
        left = self._effort - self._spent
        hope = self._hope(space.classes)
        if space.most * len(self.workload.patterns) <= self._most_listed:
            return _SpaceSearch(self.workload, ExhaustiveSearch(self.workload, space), self._searches, left)
        search = GuidedSearch(self.workload, space, self._seeds(space), self.bounds.values_ns, hope=hope)
        return _SpaceSearch(self.workload, search, self._searches, left / 2)

    def _hope(self, classes: int) -> float:
        """How much better intervals may get with so many classes: not at all if half as many have brought nothing."""
        now = self.plan().cost_ns if self.carried else math.inf
        self._cost_before.setdefault(classes, now)
        before = self._cost_before.get(classes // 2, math.inf)
        return FIRST_HOPE if classes <= 2 or now < before * (1 - _GAIN) else 0.0

    def _seeds(self, space: Space) -> dict[int, Choice]:
        """For each interval problem the best topology known that is in a space, or one that its demands suggest."""
        intervals = self.workload.intervals
        rows = [(row, choice) for row, topology in enumerate(self.topologies) if (choice := space.choice_of(topology))]
        theta = self._table.arrays()[0]
        values = np.array([intervals.values(theta[row]) for row, _ in rows]).reshape(-1, len(intervals.problems))
        seeds = {}
        for index, problem in enumerate(intervals.problems):
            best = int(values[:, index].argmin()) if rows else 0
            if space.classes == 1 and not (rows and np.isfinite(values[best, index])):
                seeds[index] = apportioned(space, problem)
            elif rows:
                seeds[index] = rows[best][1]
        return seeds

    def _asked_by(self, search: _SpaceSearch) -> tuple[Task, ...]:
        """The next round of a search; nothing if it has nothing left to ask, or may not."""
        asked = search.propose(self._interval_costs_ns())
        effort = sum(task.effort + search.overhead for task in asked.values())
        self._spent, search.effort = self._spent + effort, search.effort - effort
        for choice, task in asked.items():
            self._origin.setdefault(task.topology, (self._searches.index(search), choice))
        return self._handed_out(tuple(asked.values()), search)

    def _further_round(self) -> tuple[Task, ...]:
        """The first round of the next search that finds more to look at."""
        for _ in range(_PERSISTENCE * len(self._searches)):
            self._further = (self._further + 1) % len(self._searches)
            search = self._searches[self._further]
            if search.persist() and (tasks := self._asked_by(search)):
                return tasks
        return ()

    def _interval_costs_ns(self) -> Floats:
        costs, _ = recurrence.interval_costs(self.workload.times_ns(*self._table.arrays()))
        return costs

    def plan(self) -> Plan:
        """The best plan over the topologies known so far.

        Raises:
            UnreachableError: some step has a pair that no topology connects; such a pair is named.
        """
        self._check_carried()
        initial = None if self.initial is None else self._table.row_of[self.initial]
        theta, hops = self._table.arrays()
        return Plan(self.workload, self.topologies, theta, hops, initial, self.bounds)

    @cached_property
    def lower_bound_ns(self) -> float:
        """No sequence of topologies of the fabric's degree is faster, ns."""
        return self.bounds.schedule_ns(self.workload.fabric, has_initial=self.initial is not None)

    def _check_carried(self) -> None:
        if not self.carried:
            check_reachable(self.topologies, self.workload)
            raise UnreachableError("candidates", self.done, "an answer for every topology; some are still missing")


class _Table:
    """theta and hops of topologies by pattern, growing; a row without an answer cannot carry anything."""

    def __init__(self, patterns: int) -> None:
        self.row_of: dict[Topology, int] = {}
        self._theta: list[tuple[float, ...]] = []
        self._hops: list[tuple[float, ...]] = []
        self._empty = (0.0,) * patterns, (math.inf,) * patterns

    def add(self, topology: Topology) -> None:
        if topology not in self.row_of:
            self.row_of[topology] = len(self.row_of)
            self._theta.append(self._empty[0])
            self._hops.append(self._empty[1])

    def fill(self, topology: Topology, outcome: ThetaRow | MetricRow) -> None:
        row = self.row_of[topology]
        if self._theta[row] is self._empty[0]:
            self._theta[row], self._hops[row] = outcome.theta, outcome.hops

    def arrays(self) -> tuple[Floats, Floats]:
        return np.array(self._theta or [self._empty[0]]), np.array(self._hops or [self._empty[1]])

    def carried(self) -> NDArray[np.bool_]:
        """Whether some topology carries each pattern."""
        carried: NDArray[np.bool_] = self.arrays()[0].max(axis=0, initial=0.0) > 0
        return carried


class _SpaceSearch:
    """The search of one space, with what it asked for and what it may pass on."""

    def __init__(
        self,
        workload: Workload,
        search: ExhaustiveSearch | GuidedSearch,
        before: Sequence[_SpaceSearch],
        effort: float,
    ) -> None:
        self._workload = workload
        self._search = search
        self.effort = effort
        self._asked: dict[str, Choice] = {}
        self._answers: dict[str, MetricRow] = {}
        self._potentials: deque[Floats] = deque(maxlen=_MOST_INHERITED)
        self.ended = self._closed = False
        group = search.space.group
        for earlier in before:
            if earlier._search.space.group is group.above:
                for potentials in earlier._potentials:
                    self._search.learn(group.inherited(potentials, group.above))

    @property
    def overhead(self) -> float:
        """What it takes to learn from one answer, in units of `MetricTask.effort`: lengths of arcs, and bounds."""
        space = self._search.space
        listed = self._search.topologies if isinstance(self._search, ExhaustiveSearch) else 0
        return len(self._workload.patterns) * (space.classes * space.group.n**2 + listed) / _LOOKED_UP_A_UNIT

    def propose(self, costs_ns: Floats) -> dict[Choice, MetricTask]:
        """The next tasks by their choice in the space, when all earlier ones are answered; nothing at the end."""
        self._take_in()
        self._search.know(costs_ns)
        space = self._search.space
        choices = self._search.propose(_ROUND) if self.effort > 0 else []
        self.ended = not choices
        self._closed = self.ended and self.effort > 0
        tasks = {choice: _metric_task(self._workload, space, choice) for choice in choices}
        self._asked = {task.key: choice for choice, task in tasks.items()}
        return tasks

    def persist(self) -> bool:
        """Look further; False for a search that has no need to."""
        if isinstance(self._search, ExhaustiveSearch):
            return False
        self._search.persist()
        return True

    def feed(self, key: str, outcome: MetricRow) -> None:
        self._answers[key] = outcome

    def _take_in(self) -> None:
        """Pass on the answers of a round in the order they were asked for, whatever the order they came in."""
        for key, choice in self._asked.items():
            outcome = self._answers.pop(key)
            self._search.feed(choice, outcome)
            self._potentials.append(outcome.potentials)

    def proof(self, lower_bound_ns: float) -> SpaceProof:
        search, listed = self._search, isinstance(self._search, ExhaustiveSearch)
        return SpaceProof(
            group=search.space.group.name,
            topologies=search.topologies,
            listed=listed,
            answered=search.answered,
            lower_bound_ns=max(lower_bound_ns, search.lower_bound_ns()),
            closed=listed and self._closed,
        )


def _proof_record(proof: SpaceProof, scale_ns: float) -> Record:
    """Plain data; the number of topologies may have more than 64 bits, so it is text."""
    scaled = {"topologies": str(proof.topologies), "lower_bound_ns": proof.lower_bound_ns / scale_ns}
    return asdict(proof) | scaled


def _proof_of(record: Record, scale_ns: float) -> SpaceProof:
    return SpaceProof(
        group=str(record["group"]),
        topologies=int(record["topologies"]),
        listed=record["listed"] is True,
        answered=int(record["answered"]),
        lower_bound_ns=float(record["lower_bound_ns"]) * scale_ns,
        closed=record["closed"] is True,
    )


def _metric_task(workload: Workload, space: Space, choice: Choice) -> MetricTask:
    return MetricTask(space.topology(choice), workload.patterns, space.group.symmetry, space.classes)


def _relaxations(workload: Workload, group: Group | None) -> dict[str, tuple[int, RelaxationTask]]:
    """By key: one for each interval problem with several patterns, and its number; none if too many or too large."""
    if group is None or group.n > _MOST_RELAXED_GPUS or len(workload) > _MOST_RELAXED_STEPS:
        return {}
    tasks = (RelaxationTask(problem, group.symmetry) for problem in workload.intervals.problems)
    return {task.key: (index, task) for index, task in enumerate(tasks) if len(task.problem.patterns) > 1}


def _check_fits(topology: Topology, workload: Workload) -> None:
    if topology.n != workload.collective.n:
        raise InputError(f"topology {topology.label}", topology.n, f"{workload.collective.n} GPUs")
    if topology.degree > workload.fabric.degree:
        raise InputError(f"topology {topology.label}", topology.degree, f"at most {workload.fabric.degree} ports a GPU")
