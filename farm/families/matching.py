"""Topologies made of matchings: of one step, or of the steps of an interval together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lumenfarm.families.torus import torus
from lumenfarm.matrix import Floats, PairMatrix
from lumenfarm.model import Pattern, Topology
from lumenfarm.problem import Workload

__all__ = ["interval_unions", "iterated_assignment", "step_matching", "step_matchings"]

# Beyond this many steps only intervals of 2, 4, 8, ... steps, half overlapping, get unions of their own.
_ALL_INTERVALS = 24


def step_matchings(workload: Workload) -> Iterator[Topology]:
    """Each step's own circuits, in order of the steps."""
    for step, index in enumerate(workload.pattern_of_step.tolist(), start=1):
        yield step_matching(workload.patterns[index], workload.fabric.degree, f"matching of step {step}")


def step_matching(pattern: Pattern, degree: int, label: str = "matching") -> Topology:
    """One circuit for each unit of multiplicity; `iterated_assignment` where multiplicities are not whole."""
    matrix = pattern.multiplicities
    if np.all(matrix.values % 1 == 0):
        return Topology(matrix, label)
    return _topology(iterated_assignment(matrix.dense(), degree), label)


def interval_unions(workload: Workload) -> Iterator[Topology]:
    """For each interval of at least two steps, matchings of its summed demand, with and without the base torus.

    Patterns count alike once, then each by its bytes. The torus keeps every pair connected; it takes half of the
    ports. One port has room for neither, so nothing comes for degree 1.
    """
    degree = workload.fabric.degree
    if degree < 2:
        return
    for first, stop in _intervals(len(workload)):
        present = np.unique(workload.pattern_of_step[first:stop])
        if len(present) < 2:
            continue
        label = f"steps {first + 1}-{stop}"
        for demand, how in ((_alike(workload, first, stop), "union"), (_by_bytes(workload, first, stop), "byte union")):
            yield _topology(iterated_assignment(demand, degree), f"{how} of {label}")
            base = torus(workload.collective.dims, degree // 2).circuits.dense()
            mixed = iterated_assignment(demand, degree - degree // 2, base)
            yield _topology(mixed, f"torus + {how} of {label}")


def iterated_assignment(demand: Floats, rounds: int, circuits: Floats | None = None) -> Floats:
    """``rounds`` maximum-weight matchings, one after the other, on top of existing circuits.

    A further circuit on a pair that has x already is worth demand*(1/x - 1/(x+1)), the congestion it saves; the first
    one is worth the demand.

    Args:
        demand: shape (n, n), non-negative, zero diagonal.
        rounds: how many matchings.
        circuits: existing circuits, shape (n, n); none by default.

    Returns:
        Circuits, shape (n, n).
    """
    # Takes longer to import than commands without matchings take to answer.
    from scipy.optimize import linear_sum_assignment

    total = np.zeros_like(demand) if circuits is None else circuits.copy()
    for _ in range(rounds):
        worth = demand / np.maximum(total * (total + 1), 1)
        rows, columns = linear_sum_assignment(worth, maximize=True)
        useful = worth[rows, columns] > 0
        total[rows[useful], columns[useful]] += 1
    return total


def _intervals(steps: int) -> Iterator[tuple[int, int]]:
    if steps <= _ALL_INTERVALS:
        yield from ((first, stop) for first in range(steps) for stop in range(first + 2, steps + 1))
        return
    length = 2
    while length < 2 * steps:
        yield from ((first, min(first + length, steps)) for first in range(0, steps - 1, length // 2))
        length *= 2


def _alike(workload: Workload, first: int, stop: int) -> Floats:
    present = np.unique(workload.pattern_of_step[first:stop])
    return np.asarray(sum(workload.patterns[index].multiplicities.dense() for index in present))


def _by_bytes(workload: Workload, first: int, stop: int) -> Floats:
    return np.asarray(sum(step.demand.dense() for step in workload.collective.steps[first:stop]))


def _topology(circuits: Floats, label: str) -> Topology:
    return Topology(PairMatrix.from_dense(circuits, field="topology"), label)
