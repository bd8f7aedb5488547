"""What no topology of the given degree can beat on an interval (model section 8).

``node``: theta <= 1, so T_i >= 1 for every step.

``hop-volume``: with T_i = 1/theta_i, the circuits' total capacity gives n*d*T_i >= sum k_i(u,v)*dist(u,v), and from
any GPU at most d others are one hop away, d^2 two hops, and so on. Both hold for every pattern, hence also
sum w_i*T_i >= sum over a subset S of (1/nd) sum_u min_dist sum_v sum_{i in S} w_i*k_i(u,v)*dist(u,v) + sum over the
rest of w_i, where the minimum gives the heaviest partners of u the shortest distances. The same holds from the
receivers' side.

``port-volume``: ports are whole and flow of one pattern shares them, see `lumenfarm.port_bound`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lumenfarm.groups import Quotient
from lumenfarm.matrix import Floats, Ints
from lumenfarm.port_bound import port_bound
from lumenfarm.problem import IntervalProblem

__all__ = ["Bound", "hop_volume_bound", "interval_bound", "node_bound", "quick_bound", "shift_bounds_ns"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on sum_i w_i/theta_i over all topologies of the problem's degree, and the name of its proof."""

    value: float
    proof: str


def interval_bound(problem: IntervalProblem, quotients: Sequence[Quotient] = ()) -> Bound:
    """The largest of the bounds; of equal ones the simplest.

    Args:
        problem: an interval.
        quotients: of a group that preserves all patterns.
    """
    bounds = (quick_bound(problem), Bound(_finest_port_bound(problem, quotients), "port-volume"))
    return max(bounds, key=lambda bound: bound.value)


def _finest_port_bound(problem: IntervalProblem, quotients: Sequence[Quotient]) -> float:
    """With as many types of circuits as the program takes: more types never weaken it."""
    for types in sorted({len(quotient.product) for quotient in quotients}, reverse=True):
        bound = max(port_bound(problem, quotient) for quotient in quotients if len(quotient.product) == types)
        if bound > 0:
            return bound
    return port_bound(problem)


def quick_bound(problem: IntervalProblem) -> Bound:
    """The largest of the bounds that need no linear program."""
    bounds = (node_bound(problem), hop_volume_bound(problem))
    return max(bounds, key=lambda bound: bound.value)


def node_bound(problem: IntervalProblem) -> Bound:
    """sum_i w_i: every step at the full rate of its busiest GPU."""
    return Bound(sum(problem.weights), "node")


def hop_volume_bound(problem: IntervalProblem) -> Bound:
    """The better of the senders' and the receivers' hop-volume bound; losing patterns leave the subset."""
    matrices = [pattern.multiplicities for pattern in problem.patterns]
    sending = np.concatenate([matrix.sources * matrix.n + matrix.destinations for matrix in matrices])
    receiving = np.concatenate([matrix.destinations * matrix.n + matrix.sources for matrix in matrices])
    return Bound(max(_Volume(problem, pairs).bound() for pairs in (sending, receiving)), "hop-volume")


def shift_bounds_ns(weights_ns: Floats, which: Ints) -> Floats:
    """The hop-volume bound of every interval at once, for shifts by all GPUs on one port.

    The k-th nearest partner is k hops away, so the shifts x_1 >= x_2 >= ... of an interval, equal ones added up, cost
    at least x_1 + 2 x_2 + .... That sum is the sum of min(x_i, x_j) over all i <= j, so a weight that grows adds what
    the others, clipped to its old and new value, exceed the old by. O(s^2) numbers for each of s steps, in numpy.

    Args:
        weights_ns: w_i of each step, ns, shape (s,).
        which: number of each step's shift, the same for equal shifts, shape (s,).

    Returns:
        Bounds on sum_i w_i/theta_i, ns, shape (s, s+1), infinite for stop <= first.
    """
    steps = len(weights_ns)
    weights, sums = np.zeros((steps, int(which.max()) + 1)), np.zeros(steps)
    bounds = np.full((steps, steps + 1), np.inf)
    for step in range(steps):
        rows = weights[: step + 1]
        old = rows[:, which[step]].copy()[:, None]
        rows[:, which[step]] += weights_ns[step]
        sums[: step + 1] += (np.clip(rows, old, old + weights_ns[step]) - old).sum(axis=1)
        bounds[: step + 1, step + 1] = sums[: step + 1]
    return bounds


class _Volume:
    """The volume that patterns need at least, seen from one end of every pair.

    ``pairs`` numbers the pair of every entry of every pattern as owner*n + partner.
    """

    def __init__(self, problem: IntervalProblem, pairs: Ints) -> None:
        matrices = [pattern.multiplicities for pattern in problem.patterns]
        self.n, self.degree = matrices[0].n, problem.degree
        self.weights = np.array(problem.weights)
        self.pattern = np.repeat(np.arange(len(matrices)), [len(matrix) for matrix in matrices])
        self.multiplicity = np.concatenate([matrix.values for matrix in matrices])
        distinct, self.pair = np.unique(pairs, return_inverse=True)
        self.owner = distinct // self.n
        self.first_of_owner = np.searchsorted(self.owner, np.arange(self.n))

    def bound(self) -> float:
        counted = np.ones(len(self.weights), dtype=bool)
        best = 0.0
        while counted.any():
            shares = self.shares(self.weights * counted)
            best = max(best, float(shares.sum() + self.weights[~counted].sum()))
            losing = counted & (shares < self.weights)
            if not losing.any():
                break
            counted &= ~losing
        return best

    def shares(self, weights: Floats) -> Floats:
        """Each pattern's part when every GPU has its heaviest partners nearest, shape (patterns,)."""
        worth = np.bincount(self.pair, weights=weights[self.pattern] * self.multiplicity)
        order = np.lexsort((-worth, self.owner))
        rank = np.arange(len(order)) - self.first_of_owner[self.owner]
        distance = np.empty(len(order))
        distance[order] = _hops_of_rank(rank, self.degree)
        volume = np.bincount(self.pattern, weights=self.multiplicity * distance[self.pair])
        shares: Floats = weights * volume / (self.n * self.degree)
        return shares


def _hops_of_rank(rank: Ints, degree: int) -> Floats:
    """Hops to the nearest (rank 0), second nearest, ... GPU at least: degree of them at 1 hop, degree^2 at 2, ..."""
    if degree == 1:
        return (rank + 1).astype(np.float64)
    levels: Floats = np.ceil(np.log1p((rank + 1) * (degree - 1) / degree) / np.log(degree) - 1e-9)
    return levels
