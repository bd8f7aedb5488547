"""The continuous relaxation of an interval problem on orbits of arcs, as a cone program in Clarabel.

Its dual is solved, because potentials are what is wanted. In the words of `lumenfarm.relaxation`, with orbit(u,v) the
orbit of an arc:

    max  sum_i (2*w_i*rho_i - w_i*sigma_i + mu_i) - d*L    s.t.  rho_i^2 <= sigma_i,   mu_i <= w_i*sigma_i
         sum_i l_i(o) <= L,   l_i(o) >= 0,   pi_i(v) - pi_i(u) <= l_i(orbit(u,v))

Here w_i*sigma_i - mu_i is the multiplier of theta_i <= 1, and each arc (u,v) stands for the flow from GPU 0 on it. Few
arcs carry flow at the optimum: the program begins with the arcs from GPU 0, and those that turn out steeper than the
length of their orbit join, until there are none.
"""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, block_diag, coo_array, csc_array, diags_array, eye_array, kron

from lumenfarm.errors import EnvironmentFailure
from lumenfarm.groups import Group, regular
from lumenfarm.matrix import Floats
from lumenfarm.problem import IntervalProblem, RelaxationRow
from lumenfarm.relaxation import sent_by_first
from lumenfarm.symmetry import Symmetry

__all__ = ["relaxation_row", "relaxed_potentials"]

# How much steeper; weights are at most 1 and the largest is 1, so that this needs no scale.
_STEEPER = 1e-7
# What is nearly optimal makes the bound weaker, not wrong.
_SOLVED = (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)


def relaxation_row(problem: IntervalProblem, symmetry: Symmetry) -> RelaxationRow:
    """The relaxation's potentials in the precision of the record, so that fresh and cached answers are the same."""
    potentials = relaxed_potentials(problem, regular(symmetry))
    return RelaxationRow(potentials.astype(np.float32).astype(np.float64))


def relaxed_potentials(problem: IntervalProblem, group: Group) -> Floats:
    """Potentials whose `lumenfarm.relaxation.safe_value` is the relaxation's optimum, to about 1e-6 relative.

    Args:
        problem: patterns that the group leaves as they are.
        group: with one class of GPUs; the relaxation has an optimum that the group leaves as it is (model section 7).

    Returns:
        pi_i(v), 0 at GPU 0, shape (patterns, 1, n).

    Raises:
        InputError: the group has several classes.
        EnvironmentFailure: Clarabel ends without an optimum; its reason is in the message.
    """
    program = _Program(np.array(problem.weights), sent_by_first(problem, group), group.arc_orbit, problem.degree)
    arcs = np.zeros((len(problem.patterns), group.n, group.n), dtype=bool)
    arcs[:, 0, 1:] = True
    while True:
        potentials, lengths = program.optimum(arcs)
        excess = potentials[:, None, :] - potentials[:, :, None] - lengths[:, group.arc_orbit]
        steep = _steepest(np.where(arcs, 0.0, excess))
        if not steep.any():
            return potentials[:, None]
        arcs |= steep


def _steepest(excess: Floats) -> NDArray[np.bool_]:
    """The worst arc into and the worst out of each GPU, where too steep, shape (patterns, n, n)."""
    least = np.minimum(excess.max(axis=1, keepdims=True), excess.max(axis=2, keepdims=True))
    steepest: NDArray[np.bool_] = (excess >= least) & (excess > _STEEPER)
    return steepest


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The module's program over given arcs; columns in the order pi, l, rho, sigma, L, without pi(0) and l(0)."""

    weights: Floats
    demand: Floats
    orbit: NDArray[np.int32]
    degree: int

    def optimum(self, arcs: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """pi and l, shape (patterns, n), if only some arcs of each pattern count, shape (patterns, n, n)."""
        matrix, demand, patterns = self._matrix(arcs), self.demand[:, 1:], len(self.weights)
        cost = [-demand.ravel(), np.zeros(demand.size), -2 * self.weights, self.weights, np.full(1, self.degree)]
        linear = matrix.shape[0] - 3 * patterns
        right = np.concatenate([np.zeros(linear), np.tile([1.0, 0.0, 1.0], patterns)])
        cones = [clarabel.NonnegativeConeT(linear), *[clarabel.SecondOrderConeT(3)] * patterns]
        quadratic = csc_array((matrix.shape[1], matrix.shape[1]))
        found = clarabel.DefaultSolver(quadratic, np.concatenate(cost), matrix, right, cones, _settings()).solve()
        if found.status not in _SOLVED:
            raise EnvironmentFailure(f"Clarabel ended without an optimum: {found.status}", where="clarabel")
        both = np.zeros((2, *self.demand.shape))
        both[:, :, 1:] = np.reshape(found.x[: 2 * demand.size], (2, *demand.shape))
        return both[0], both[1]

    def _matrix(self, arcs: NDArray[np.bool_]) -> csc_array:
        """Rows: the arcs, l >= 0, L, sigma, and for each pattern the cone (1 + sigma, 2*rho, 1 - sigma)."""
        patterns, others = len(self.weights), self.demand.shape[1] - 1
        pattern, start, end = np.nonzero(arcs)
        each, rho, sigma = eye_array(patterns), np.array([[0.0], [-2.0], [0.0]]), np.array([[-1.0], [0.0], [1.0]])
        rises = _entries(pattern, end, self.demand.shape) - _entries(pattern, start, self.demand.shape)
        lengths = _entries(pattern, self.orbit[start, end], self.demand.shape)
        used = block_diag([sent[None, 1:] for sent in self.demand])
        blocks = [
            [rises, -lengths, None, None, None],
            [None, -eye_array(patterns * others), None, None, None],
            [None, kron(np.ones((1, patterns)), eye_array(others)), None, None, np.full((others, 1), -1.0)],
            [used, None, None, -diags_array(self.weights), None],
            [None, None, kron(each, rho), kron(each, sigma), None],
        ]
        return block_array(blocks, format="csc")


def _entries(pattern: NDArray[np.int64], gpu: NDArray[np.integer], shape: tuple[int, int]) -> csc_array:
    """A row for each pair of pattern and GPU, 1 in the column of this pair; GPU 0 has no column."""
    rows = np.arange(len(gpu))
    full = coo_array((np.ones(len(gpu)), (rows, pattern * shape[1] + gpu)), shape=(len(gpu), shape[0] * shape[1]))
    return full.tocsc()[:, np.tile(np.arange(shape[1]) > 0, shape[0])]


def _settings() -> clarabel.DefaultSettings:
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.direct_solve_method = False, 1, "qdldl"
    return settings
