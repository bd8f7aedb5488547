"""Whole ports against flow: what the circuits at one GPU let any topology do (model section 8).

Let every GPU have the same partners up to their names, K(i,p) to partner p in pattern i, and let m_c(p) be the
circuits to partner p when a GPU's ports are spent in way c. Of the traffic to a direct partner at most min(K, T_i*m)
goes straight, the rest takes two hops or more; of the other partners at most nu*d are two hops away for nu distinct
neighbours, nu*(d + d^2) within three, and so on. Traffic times hops fits into the circuits, so with pi_c the share of
GPUs that spend their ports in way c, and T_i = 1/theta_i >= 1:

    d*T_i >= sum_c [ sum_{p direct} (2*K*pi_c - D_icp) + sum_{p other} K*(L*pi_c - sum_{l=2..L-1} e_lcp) ]
    D_icp <= K*pi_c,   D_icp <= m_c(p)*tau_ic,   pi_c <= tau_ic,   sum_c tau_ic = T_i,   sum_c pi_c = 1
    e_lcp <= pi_c,     sum_p e_lcp <= nu_c*(d + ... + d^(l-1))*pi_c

where tau_ic stands for T_i*pi_c, e_lcp for the share within l hops, and L for as many hops as are told apart.

Where a group takes every GPU to every other, circuits have types that multiply along a path, see
`lumenfarm.groups.Quotient`, and two hops reach a partner only if theirs multiply to its type. With xi_ba the share of
GPUs of whose circuits b_s come in with type s and a_t go out with type t:

    sum_{c, p of type q} e_2cp <= sum_{b,a} xi_ba * sum_{s*t = q} b_s*a_t
    sum_b xi_ba = sum of pi_c over ways of types a,     sum_{b,a} xi_ba*b_t = sum_{b,a} xi_ba*a_t for every type t

Swing is an example: even GPUs have odd partners only, so an even number of circuits between partners never leads to a
partner. Ways that spend ports on GPUs that are no partners count by their types; leaving ports free is never better.
The program's dual is added up again, and rounded down, so its solver need not be believed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from lumenfarm.groups import Quotient
from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.problem import IntervalProblem

__all__ = ["port_bound"]

# Variables of the program beyond which it takes too long.
_LARGE = 8192
# No variable of a schedule worth having is larger; the bound says nothing about others.
_LARGEST = 1e4


def port_bound(problem: IntervalProblem, quotient: Quotient | None = None) -> float:
    """A lower bound on sum_i w_i/theta_i; 0 where GPUs have different partners, or too many of them.

    Args:
        problem: with more than one port; with one the bound by hops alone is as strong.
        quotient: of a group that preserves all patterns, to tell types of circuits apart. None for a single type, and
            then the better of what the senders' and what the receivers' ports say; with a group these say the same.
    """
    if problem.degree == 1:
        return 0.0
    matrices = [pattern.multiplicities for pattern in problem.patterns]
    if quotient is not None:
        return _bound(problem, _Partners.typed(matrices, quotient))
    sides = (_Partners.alike(matrices), _Partners.alike([_transposed(matrix) for matrix in matrices]))
    return max((_bound(problem, partners) for partners in sides if partners is not None), default=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Partners:
    """What every GPU has to send.

    Attributes:
        amounts: K, shape (patterns, partners).
        types: of each partner, shape (partners,).
        product: of types, shape (types, types).
    """

    amounts: Floats
    types: Ints
    product: Ints

    @classmethod
    def typed(cls, matrices: Sequence[PairMatrix], quotient: Quotient) -> _Partners:
        """Those of GPU 0, which stands for all."""
        rows = np.concatenate([matrix.rows(np.array([0])) for matrix in matrices])
        partners = np.flatnonzero(rows.any(axis=0))
        return cls(rows[:, partners], quotient.type_of[partners], quotient.product)

    @classmethod
    def alike(cls, matrices: Sequence[PairMatrix]) -> _Partners | None:
        """A single type, if all GPUs have the same partners up to their order."""
        profile = _profile(matrices)
        if profile is None:
            return None
        return cls(profile, np.zeros(profile.shape[1], dtype=np.int64), np.zeros((1, 1), dtype=np.int64))

    def size(self, degree: int) -> int:
        """About how many variables the program has."""
        patterns, partners = self.amounts.shape
        types = len(self.product)
        ways, ends = math.comb(partners + types + degree - 1, degree), math.comb(types + degree - 1, degree)
        return int(ways * (patterns + partners) + ends * ends)


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


def _bound(problem: IntervalProblem, partners: _Partners) -> float:
    if partners.size(problem.degree) > _LARGE:
        return 0.0
    weights = np.array(problem.weights)
    value = _program(weights, partners, problem.degree).safe_optimum()
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


def _program(weights: Floats, partners: _Partners, degree: int) -> _Program:
    """The program of the module's docstring."""
    return _Builder(partners, degree).program(weights)


class _Builder:
    """Rows and columns of the program; variables in the order T, pi, tau, xi, D, e.

    Ways spend the ports of a GPU on partners and, by type, on others; ends are the types of its circuits.
    """

    def __init__(self, partners: _Partners, degree: int) -> None:
        self.partners, self.degree = partners, degree
        self.amounts = partners.amounts
        self.patterns, self.count = self.amounts.shape
        bundles = _bundles(self.count + len(partners.product), degree)
        self.ways, others = bundles[:, : self.count], bundles[:, self.count :]
        self.ends = _bundles(len(partners.product), degree)
        self.end_of_way = _places(self.ends, others + _by_type(self.ways, partners.types, len(partners.product)))
        self.reach = np.array(
            list(_reach(np.count_nonzero(self.ways, axis=1) + others.sum(axis=1), degree, self.count))
        )
        self.direct = np.nonzero((self.amounts[:, None, :] > 0) & (self.ways > 0))
        self.far = np.nonzero(np.broadcast_to(self.ways == 0, (len(self.reach), *self.ways.shape)))
        sizes = (
            self.patterns,
            len(self.ways),
            self.patterns * len(self.ways),
            len(self.ends) ** 2,
            len(self.direct[0]),
        )
        self.t_tau = np.divmod(np.arange(sizes[2]), len(self.ways))
        self.pi, self.tau, self.xi, self.d, self.e = np.cumsum(sizes).tolist()
        self.rows = _Rows(self.e + len(self.far[0]))
        self.equations = _Rows(self.rows.columns)

    def program(self, weights: Floats) -> _Program:
        """With all rows."""
        self._volume()
        self._straight()
        self._within()
        self._two_hops()
        self._shares()
        self._ends()
        upper = np.full(self.rows.columns, _LARGEST)
        upper[self.pi : self.tau], upper[self.xi : self.d], upper[self.e :] = 1.0, 1.0, 1.0
        cost = np.concatenate([weights, np.zeros(self.rows.columns - self.patterns)])
        equations = self.equations.matrix()
        right = np.zeros(equations.shape[0])
        right[self.patterns] = 1.0
        return _Program(cost, self.rows.matrix(), equations, right, upper)

    def _volume(self) -> None:
        """Traffic times hops fits into the circuits."""
        which, way = self.t_tau
        level, _, partner = self.far
        row = self.rows.new(self.patterns)
        self.rows.add(row, np.arange(self.patterns), -float(self.degree))
        hops = np.where(self.ways > 0, 2.0, 2.0 + len(self.reach))
        self.rows.add(row[which], self.pi + way, (self.amounts[:, None, :] * hops).sum(axis=2).ravel())
        self.rows.add(row[self.direct[0]], self.d + np.arange(len(self.direct[0])), -1.0)
        for pattern in range(self.patterns):
            column = self.e + np.arange(len(level))
            self.rows.add(np.full(len(level), row[pattern]), column, -self.amounts[pattern, partner])

    def _straight(self) -> None:
        """What goes straight to direct partners."""
        pattern, way, partner = self.direct
        count = len(pattern)
        for column, value in (
            (self.pi + way, -self.amounts[pattern, partner]),
            (self.tau + pattern * len(self.ways) + way, -self.ways[way, partner].astype(np.float64)),
        ):
            row = self.rows.new(count)
            self.rows.add(row, self.d + np.arange(count), 1.0)
            self.rows.add(row, column, value)

    def _within(self) -> None:
        """How many partners are two, three, ... hops away at most."""
        level, way, _ = self.far
        row = self.rows.new(len(level))
        self.rows.add(row, self.e + np.arange(len(level)), 1.0)
        self.rows.add(row, self.pi + way, -1.0)
        row = self.rows.new(self.reach.size)
        self.rows.add(row[level * len(self.ways) + way], self.e + np.arange(len(level)), 1.0)
        self.rows.add(row, self.pi + np.tile(np.arange(len(self.ways)), len(self.reach)), -self.reach.ravel())

    def _two_hops(self) -> None:
        """How many pairs of circuits multiply to each type."""
        level, _, partner = self.far
        product = self.partners.product
        for kind in range(len(product)):
            row = self.rows.new(1)[0]
            column = self.e + np.flatnonzero((level == 0) & (self.partners.types[partner] == kind))
            self.rows.add(np.full(len(column), row), column, 1.0)
            pairs = (self.ends @ (product == kind) @ self.ends.T).ravel()
            self.rows.add(np.full(len(pairs), row), self.xi + np.arange(len(pairs)), -pairs)

    def _shares(self) -> None:
        """T_i is spread over the ways, and the shares of the ways are 1 together."""
        which, way = self.t_tau
        row = self.equations.new(self.patterns + 1)
        self.equations.add(row[:-1], np.arange(self.patterns), -1.0)
        self.equations.add(row[which], self.tau + np.arange(len(which)), 1.0)
        self.equations.add(np.full(len(self.ways), row[-1]), self.pi + np.arange(len(self.ways)), 1.0)
        row = self.rows.new(len(which))
        self.rows.add(row, self.pi + way, 1.0)
        self.rows.add(row, self.tau + np.arange(len(which)), -1.0)

    def _ends(self) -> None:
        """Outgoing circuits are those of the ways; as many circuits of a type come in as go out."""
        incoming, outgoing = np.divmod(np.arange(len(self.ends) ** 2), len(self.ends))
        column = self.xi + np.arange(len(incoming))
        row = self.equations.new(len(self.ends))
        self.equations.add(row[outgoing], column, 1.0)
        self.equations.add(row[self.end_of_way], self.pi + np.arange(len(self.ways)), -1.0)
        for kind in self.ends.T:
            row = self.equations.new(1)
            self.equations.add(
                np.repeat(row, len(column)), column, (kind[incoming] - kind[outgoing]).astype(np.float64)
            )


def _bundles(kinds: int, size: int) -> Ints:
    """How often each kind is taken, for all ways to take ``size`` of them, shape (ways, kinds)."""
    taken = itertools.combinations_with_replacement(range(kinds), size)
    return np.array([np.bincount(kind, minlength=kinds) for kind in taken])


def _by_type(ways: Ints, types: Ints, count: int) -> Ints:
    """Circuits to partners of each type, shape (ways, types)."""
    totals: Ints = ways @ (types[:, None] == np.arange(count)).astype(np.int64)
    return totals


def _places(rows: Ints, wanted: Ints) -> Ints:
    """Where each wanted row is."""
    place = {tuple(row): index for index, row in enumerate(rows.tolist())}
    return np.array([place[tuple(row)] for row in wanted.tolist()])


def _reach(neighbours: Ints, degree: int, partners: int) -> Iterator[Ints]:
    """GPUs within two, three, ... hops but not direct, for each way, until that is enough for all partners."""
    total, ring = np.zeros_like(neighbours), neighbours
    while (total < partners).any():
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
