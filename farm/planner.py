"""What to ask next and what follows from the answers: a state machine without I/O.

Tasks go out, outcomes come in, in any order; after each of them there is a best plan so far. Topologies whose answer
is still missing count as unable to carry anything, so every plan is valid, and later ones are never worse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumenfarm import recurrence
from lumenfarm.cayley import Space
from lumenfarm.digest import digest
from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.matrix import Floats
from lumenfarm.model import Topology
from lumenfarm.plan import IntervalBounds, Plan
from lumenfarm.problem import THETA_FORMULATION, MetricRow, MetricTask, Outcome, Record, Task, ThetaTask, Workload
from lumenfarm.reachability import check_reachable
from lumenfarm.symmetric_search import SymmetricSearch
from lumenfarm.versions import solver_versions

__all__ = ["SEARCH_KIND", "Planner", "SpaceProof", "Standing"]

# What a summary is called in the store.
SEARCH_KIND = "search/1"

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
        topologies: how many there are.
        answered: how many were looked at.
        lower_bound_ns: no schedule over them alone is faster, ns.
        closed: whether the best schedule over them, or a better one, is found.
    """

    group: str
    topologies: int
    answered: int
    lower_bound_ns: float
    closed: bool


class Planner:
    """The best partition of a workload's steps over candidates, and then over whole spaces of symmetric topologies.

    Work comes in rounds: first the candidates, then for each space what its `SymmetricSearch` asks for, until the space
    is closed or the effort is spent. What is asked for depends only on answers, never on their order or their time.

    Args:
        workload: the collective on its fabric.
        topologies: candidates; of equally good ones the earlier is taken.
        spaces: searched one after the other; each inherits the bounds found in the group above it.
        initial: topology in place before the first step, None if the first topology is free.
        effort: flow variables that all linear programs of the spaces may have together.

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
        self._begun = False
        self._spaces = tuple(spaces)
        self._taken_over: tuple[MetricTask, ...] = ()
        self._known_proofs: tuple[SpaceProof, ...] = ()
        self._origin: dict[Topology, tuple[int, int]] = {}
        self._searches: list[_SpaceSearch] = []
        self._effort, self._spent = effort, 0
        self._open: dict[str, _SpaceSearch | None] = {}
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
        if not self._begun and self.candidates:
            self._begun = True
            if not self._spaces:
                check_reachable([task.topology for task in self.candidates], self.workload)
            return self._handed_out(self.candidates, None)
        if self._taken_over:
            tasks, self._taken_over = self._taken_over, ()
            return self._handed_out(tasks, None)
        while self._spent < self._effort and (search := self._current_search()):
            asked = search.propose(self._interval_costs_ns())
            if asked:
                self._spent += sum(task.size for task in asked.values())
                for number, task in asked.items():
                    self._origin.setdefault(task.topology, (len(self._searches) - 1, number))
                return self._handed_out(tuple(asked.values()), search)
            search.closed = True
        return ()

    def feed(self, task: Task, outcome: Outcome) -> None:
        """Take in one answer; an answer that is not waited for changes nothing."""
        if task.key not in self._open:
            return
        search = self._open.pop(task.key)
        self._table.fill(task.topology, outcome)
        if search is not None and isinstance(outcome, MetricRow):
            search.feed(task.key, outcome)

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
        return (*self._known_proofs, *(search.proof() for search in self._searches))

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
        )

    def summary(self) -> Record:
        """What a search that has ended found: the topologies of its plans for any delay, and what is proved."""
        used = [self.topologies[row] for row in self.plan().rows_of_every_k()]
        found = [self._origin[topology] for topology in used if topology in self._origin]
        proofs = [replace(proof, lower_bound_ns=proof.lower_bound_ns / self._scale_ns) for proof in self.proofs()]
        return {"found": [list(origin) for origin in found], "proofs": [asdict(proof) for proof in proofs]}

    def resume(self, record: Record) -> None:
        """Take over what an equal search found, instead of searching; ValueError if the record does not say it."""
        if self._begun:
            raise ValueError("a search that has begun cannot take over another")
        try:
            found = [(self._spaces[space], int(number)) for space, number in record["found"]]
            tasks = tuple(_metric_task(self.workload, space, number) for space, number in found)
            proofs = tuple(_proof_of(proof, self._scale_ns) for proof in record["proofs"])
        except (KeyError, IndexError, OverflowError, TypeError) as error:
            raise ValueError(f"no record of a search: {error}") from error
        self._taken_over, self._known_proofs, self._spaces = tasks, proofs, ()

    @property
    def _scale_ns(self) -> float:
        return float(self.workload.weights_ns.max())

    def _handed_out(self, tasks: Sequence[Task], search: _SpaceSearch | None) -> tuple[Task, ...]:
        for task in tasks:
            self._table.add(task.topology)
            self._open[task.key] = search
        self._asked += len(tasks)
        return tuple(tasks)

    def _current_search(self) -> _SpaceSearch | None:
        if self._searches and not self._searches[-1].closed:
            return self._searches[-1]
        if len(self._searches) == len(self._spaces):
            return None
        space = self._spaces[len(self._searches)]
        self._searches.append(_SpaceSearch(self.workload, space, self._interval_costs_ns(), self._searches))
        return self._searches[-1]

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
    def bounds(self) -> IntervalBounds:
        """Lower bounds of all intervals."""
        return IntervalBounds.of(self.workload)

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

    def fill(self, topology: Topology, outcome: Outcome) -> None:
        row = self.row_of[topology]
        if self._theta[row] is self._empty[0]:
            self._theta[row], self._hops[row] = outcome.theta, outcome.hops

    def arrays(self) -> tuple[Floats, Floats]:
        return np.array(self._theta), np.array(self._hops)

    def carried(self) -> NDArray[np.bool_]:
        """Whether some topology carries each pattern."""
        carried: NDArray[np.bool_] = self.arrays()[0].max(axis=0, initial=0.0) > 0
        return carried


class _SpaceSearch:
    """The search of one space, with what it asked for and what it may pass on."""

    def __init__(self, workload: Workload, space: Space, costs_ns: Floats, before: Sequence[_SpaceSearch]) -> None:
        self._workload = workload
        self._space = space
        self._search = SymmetricSearch(workload, space)
        self._asked: dict[str, int] = {}
        self._answers: dict[str, MetricRow] = {}
        self._potentials: list[Floats] = []
        self.closed = False
        self._search.know(costs_ns)
        for earlier in before:
            if earlier._space.group is space.group.above:
                for potentials in earlier._potentials:
                    self._search.learn(space.group.inherited(potentials))

    def propose(self, costs_ns: Floats) -> dict[int, MetricTask]:
        """The next tasks by their topology's number in the space, when all earlier ones are answered."""
        self._take_in()
        self._search.know(costs_ns)
        tasks = {number: _metric_task(self._workload, self._space, number) for number in self._search.propose(_ROUND)}
        self._asked = {task.key: number for number, task in tasks.items()}
        return tasks

    def feed(self, key: str, outcome: MetricRow) -> None:
        self._answers[key] = outcome

    def _take_in(self) -> None:
        """Pass on the answers of a round in the order they were asked for, whatever the order they came in."""
        for key, number in self._asked.items():
            outcome = self._answers.pop(key)
            self._search.feed(number, outcome)
            if self._space.group.above is None:
                self._potentials.append(outcome.potentials)

    def proof(self) -> SpaceProof:
        bound_ns = self._search.lower_bound_ns()
        return SpaceProof(self._space.group.name, self._space.size, self._search.answered, bound_ns, self.closed)


def _proof_of(record: Record, scale_ns: float) -> SpaceProof:
    return SpaceProof(
        group=str(record["group"]),
        topologies=int(record["topologies"]),
        answered=int(record["answered"]),
        lower_bound_ns=float(record["lower_bound_ns"]) * scale_ns,
        closed=record["closed"] is True,
    )


def _metric_task(workload: Workload, space: Space, number: int) -> MetricTask:
    group = space.group
    if not 0 <= number < space.size:
        raise IndexError(f"topology {number} of {space.size}")
    return MetricTask(space.topology(number), workload.patterns, group.symmetry, len(group.representatives))


def _check_fits(topology: Topology, workload: Workload) -> None:
    if topology.n != workload.collective.n:
        raise InputError(f"topology {topology.label}", topology.n, f"{workload.collective.n} GPUs")
    if topology.degree > workload.fabric.degree:
        raise InputError(f"topology {topology.label}", topology.degree, f"at most {workload.fabric.degree} ports a GPU")
