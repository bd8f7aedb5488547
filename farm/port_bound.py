"""Whole ports against flow: what the circuits at one GPU let any topology do (model section 8).

Let every GPU have the same partners up to their names, K(i,p) to partner p in pattern i, and let m_c(p) be the
circuits to partner p when a GPU's ports are spent in way c. Of the traffic to a direct partner at most min(K, T_i*m)
goes straight, the rest takes two hops or more; of the other partners at most nu*d are two hops away for nu distinct
neighbours, nu*(d + d^2) within three, and so on. Traffic times hops fits into the circuits, so with pi_c the share of
GPUs that spend their ports in way c, and T_i = 1/theta_i >= 1:

    d*T_i >= sum_c [ sum_{p direct} (2*K*pi_c - D_icp) + sum_{p other} K*(L*pi_c - sum_{l=2..L-1} e_lcp) ]
    D_icp <= K*pi_c,   D_icp <= m_c(p)*tau_ic,   pi_c <= tau_ic,   sum_c tau_ic = T_i,   sum_c pi_c = 1
    e_lcp <= pi_c,     sum_p e_lcp <= nu_c*(d + ... + d^(l-1))*pi_c

where tau_ic stands for T_i*pi_c, e_lcp for the share within l hops, and L for as many hops as are told apart. Ways that
spend ports on GPUs that are no partners, or leave them free, are never better. The program's dual is added up again,
and rounded down, so its solver need not be believed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.problem import IntervalProblem

__all__ = ["port_bound"]

# Patterns times ways to spend the ports of a GPU beyond which the program takes too long.
_LARGE = 1024
# No variable of a schedule worth having is larger; the bound says nothing about others.
_LARGEST = 1e4


def port_bound(problem: IntervalProblem) -> float:
    """A lower bound on sum_i w_i/theta_i; 0 where GPUs have different partners, or too many of them.

    The better of what the senders' and what the receivers' ports say.
    """
    matrices = [pattern.multiplicities for pattern in problem.patterns]
    sides = (_profile(matrices), _profile([_transposed(matrix) for matrix in matrices]))
    return max((_bound(problem, profile) for profile in sides if profile is not None), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """min cost*x with rows*x <= 0, equations*x = right, 0 <= x <= upper."""

    cost: Floats
    rows: csr_array
    equations: csr_array
    right: Floats
    upper: Floats

    def safe_optimum(self) -> float:
        """A value that no solution undercuts, from the solver's dual but without trusting it."""
        from scipy.optimize import linprog

        found = linprog(
            self.cost,
            A_ub=self.rows,
            b_ub=np.zeros(self.rows.shape[0]),
            A_eq=self.equations,
            b_eq=self.right,
            bounds=np.column_stack((np.zeros_like(self.upper), self.upper)),
            method="highs",
        )
        if found.x is None:
            return 0.0
        below, equal = np.minimum(found.ineqlin.marginals, 0.0), found.eqlin.marginals
        reduced = self.cost - self.rows.T @ below - self.equations.T @ equal
        return float(self.right @ equal + (np.minimum(reduced, 0.0) * self.upper).sum())


def _bound(problem: IntervalProblem, profile: Floats) -> float:
    ways = math.comb(profile.shape[1] + problem.degree - 1, problem.degree)
    if problem.degree == 1 or ways * len(problem.patterns) > _LARGE:
        return 0.0
    weights = np.array(problem.weights)
    value = _program(weights, profile, problem.degree).safe_optimum()
    return min(value, float(weights.min()) * _LARGEST) * (1 - 1e-9)


def _profile(matrices: Sequence[PairMatrix]) -> Floats | None:
    """K, shape (patterns, partners), if it is the same for every GPU up to the order of partners."""
    n = matrices[0].n
    pairs = np.concatenate([matrix.sources * n + matrix.destinations for matrix in matrices])
    pattern = np.repeat(np.arange(len(matrices)), [len(matrix) for matrix in matrices])
    distinct, where = np.unique(pairs, return_inverse=True)
    columns = np.zeros((len(distinct), len(matrices)))
    columns[where, pattern] = np.concatenate([matrix.values for matrix in matrices])
    owner = distinct // n
    order = np.lexsort((*columns.T, owner))
    partners, left = divmod(len(distinct), n)
    if left or not np.array_equal(owner, np.repeat(np.arange(n), partners)):
        return None
    profiles = columns[order].reshape(n, partners, len(matrices))
    return profiles[0].T if np.allclose(profiles, profiles[0], rtol=1e-9, atol=0.0) else None


def _transposed(matrix: PairMatrix) -> PairMatrix:
    return PairMatrix(matrix.n, matrix.destinations, matrix.sources, matrix.values)


def _program(weights: Floats, profile: Floats, degree: int) -> _Program:
    """The program of the module's docstring; variables in the order T, pi, tau, D, e."""
    patterns, partners = profile.shape
    ways = np.array([np.bincount(c, minlength=partners) for c in _ways(partners, degree)])
    reach = list(_reach(np.count_nonzero(ways, axis=1), degree, partners))
    count, levels = len(ways), len(reach)
    i, c, p = np.nonzero((profile[:, None, :] > 0) & (ways > 0))
    level, far_way, far = np.nonzero(np.broadcast_to(ways == 0, (levels, count, partners)))
    pi, tau, direct, within = np.cumsum([patterns, count, patterns * count, len(i)])
    rows = _Rows(within + len(far))
    hops = np.where(ways > 0, 2.0, 2.0 + levels)
    which, way = np.divmod(np.arange(patterns * count), count)
    volume = rows.new(patterns)
    rows.add(volume, np.arange(patterns), -float(degree))
    rows.add(volume[which], pi + way, (profile[:, None, :] * hops).sum(axis=2).ravel())
    rows.add(volume[i], direct + np.arange(len(i)), -1.0)
    for pattern in range(patterns):
        rows.add(np.full(len(far), volume[pattern]), within + np.arange(len(far)), -profile[pattern, far])
    for row, column, value in (
        (rows.new(len(i)), pi + c, -profile[i, p]),
        (rows.new(len(i)), tau + i * count + c, -ways[c, p].astype(np.float64)),
    ):
        rows.add(row, direct + np.arange(len(i)), 1.0)
        rows.add(row, column, value)
    row = rows.new(patterns * count)
    rows.add(row, pi + way, 1.0)
    rows.add(row, tau + np.arange(patterns * count), -1.0)
    row = rows.new(len(far))
    rows.add(row, within + np.arange(len(far)), 1.0)
    rows.add(row, pi + far_way, -1.0)
    row = rows.new(levels * count)
    rows.add(row[level * count + far_way], within + np.arange(len(far)), 1.0)
    rows.add(row, pi + np.tile(np.arange(count), levels), -np.array(reach, dtype=np.float64).ravel())
    equations = _Rows(rows.columns)
    row = equations.new(patterns + 1)
    equations.add(row[:patterns], np.arange(patterns), -1.0)
    equations.add(row[which], tau + np.arange(patterns * count), 1.0)
    equations.add(np.full(count, row[patterns]), pi + np.arange(count), 1.0)
    upper = np.full(rows.columns, _LARGEST)
    upper[pi:tau], upper[within:] = 1.0, 1.0
    cost = np.concatenate([weights, np.zeros(rows.columns - patterns)])
    return _Program(cost, rows.matrix(), equations.matrix(), np.append(np.zeros(patterns), 1.0), upper)


def _ways(partners: int, degree: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations_with_replacement(range(partners), degree)


def _reach(neighbours: Ints, degree: int, partners: int) -> Iterator[Ints]:
    """GPUs within two, three, ... hops but not direct, for each way, until that is enough for all partners."""
    total, ring = np.zeros_like(neighbours), neighbours
    while (total < partners - neighbours).any():
        ring = ring * degree
        total = total + ring
        yield total


class _Rows:
    """A sparse matrix that grows by rows."""

    def __init__(self, columns: int) -> None:
        self.columns = int(columns)
        self._count = 0
        self._parts: list[tuple[Ints, Ints, Floats]] = []

    def new(self, count: int) -> Ints:
        """The numbers of some new rows."""
        self._count += count
        return np.arange(self._count - count, self._count)

    def add(self, rows: Ints, columns: Ints, values: Floats | float) -> None:
        """Add entries."""
        self._parts.append((rows, columns, np.broadcast_to(np.asarray(values, dtype=np.float64), rows.shape)))

    def matrix(self) -> csr_array:
        """The matrix; entries given twice are added."""
        rows, columns, values = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        return coo_array((values, (rows, columns)), shape=(self._count, self.columns)).tocsr()
