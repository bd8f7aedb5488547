"""What to ask next and what follows from the answers: a state machine without I/O.

Tasks go out, outcomes come in, in any order; after each of them there is a best plan so far. Topologies whose answer
is still missing count as unable to carry anything, so every plan is valid, and later ones are never worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.model import Pattern, Topology
from lumenfarm.plan import IntervalBounds, Plan
from lumenfarm.problem import ThetaRow, ThetaTask, Workload

__all__ = ["CandidatePlanner", "Standing"]


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
        return 1.0 if np.isinf(self.cost_ns) else max(0.0, 1.0 - self.lower_bound_ns / self.cost_ns)


class CandidatePlanner:
    """The best partition of a workload's steps over a fixed list of topologies (model sections 4 and 5).

    Args:
        workload: the collective on its fabric.
        topologies: candidates; of equally good ones the earlier is taken.
        initial: topology in place before the first step, None if the first topology is free.

    Raises:
        InputError: no candidate at all; a candidate or the initial topology is for another number of GPUs, or uses
            more ports than the fabric has.
    """

    def __init__(self, workload: Workload, topologies: Sequence[Topology], *, initial: Topology | None = None) -> None:
        self.workload = workload
        self.initial = initial
        self.topologies = tuple(dict.fromkeys([*topologies, *([] if initial is None else [initial])]))
        if not self.topologies:
            raise InputError("candidates", 0, "at least one candidate topology")
        for topology in self.topologies:
            _check_fits(topology, workload)
        self._row_of = {topology: row for row, topology in enumerate(self.topologies)}
        shape = (len(self.topologies), len(workload.patterns))
        self._theta, self._hops = np.zeros(shape), np.full(shape, np.inf)
        self._answered = np.zeros(len(self.topologies), dtype=bool)

    def tasks(self) -> tuple[ThetaTask, ...]:
        """Everything that has to be known."""
        patterns, dims = self.workload.patterns, self.workload.collective.dims
        return tuple(ThetaTask(topology, patterns, dims) for topology in self.topologies)

    def feed(self, task: ThetaTask, outcome: ThetaRow) -> None:
        """Take in one answer; the same answer again changes nothing."""
        row = self._row_of[task.topology]
        self._theta[row], self._hops[row], self._answered[row] = outcome.theta, outcome.hops, True

    @property
    def done(self) -> int:
        """How many tasks are answered."""
        return int(self._answered.sum())

    @property
    def carried(self) -> bool:
        """Whether every step has a topology that carries it, so that there is a plan."""
        return bool(self._carried().all())

    def standing(self) -> Standing:
        """How far the search is."""
        cost = self.plan().cost_ns if self.carried else float("inf")
        return Standing(self.done, len(self.topologies), cost, self.lower_bound_ns)

    def plan(self) -> Plan:
        """The best plan over the topologies known so far.

        Raises:
            UnreachableError: some step has a pair that no topology connects; such a pair is named.
        """
        self._check_carried()
        initial = None if self.initial is None else self._row_of[self.initial]
        return Plan(self.workload, self.topologies, self._theta.copy(), self._hops.copy(), initial, self.bounds)

    @cached_property
    def bounds(self) -> IntervalBounds:
        """Lower bounds of all intervals."""
        return IntervalBounds.of(self.workload)

    @cached_property
    def lower_bound_ns(self) -> float:
        """No sequence of topologies of the fabric's degree is faster, ns."""
        return self.bounds.schedule_ns(self.workload.fabric, has_initial=self.initial is not None)

    def _carried(self) -> NDArray[np.bool_]:
        """Whether some known topology carries each pattern."""
        carried: NDArray[np.bool_] = np.max(self._theta, axis=0) > 0
        return carried

    def _check_carried(self) -> None:
        missing = np.flatnonzero(~self._carried()[self.workload.pattern_of_step])
        if not len(missing):
            return
        step = int(missing[0])
        pattern = self.workload.patterns[self.workload.pattern_of_step[step]]
        closest = self.topologies[int(self._theta.sum(axis=1).argmax())]
        source, destination = _lost_pair(closest, pattern)
        raise UnreachableError(
            "candidates",
            f"{closest.label}: no path {source} -> {destination}",
            f"a topology with a path for every pair of step {step + 1}",
        )


def _check_fits(topology: Topology, workload: Workload) -> None:
    if topology.n != workload.collective.n:
        raise InputError(f"topology {topology.label}", topology.n, f"{workload.collective.n} GPUs")
    if topology.degree > workload.fabric.degree:
        raise InputError(f"topology {topology.label}", topology.degree, f"at most {workload.fabric.degree} ports a GPU")


def _lost_pair(topology: Topology, pattern: Pattern) -> tuple[int, int]:
    graph = topology.to_networkx()
    for source, destination, _ in pattern.multiplicities.items():
        if not nx.has_path(graph, source, destination):
            return source, destination
    raise UnreachableError("candidates", topology.label, "an answer for every topology; some are still missing")
