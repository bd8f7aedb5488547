"""The maximum concurrent flow by shortest paths, where arcs fall into few groups.

A path system sends every demand whole along one path. It loads group g by load_g, in units of the group's capacity, and
1/theta is the least largest load that a mixture of path systems can have (Dantzig and Wolfe, Operations Research 8,
1960):

    1/theta = min over mixtures of max_g load_g = max over prices l >= 0, sum_g l_g = 1, of min over systems of l*load

The minimum on the right is taken by shortest paths, where the price of a group is the length of its arcs. A basis with
one row a group and one for the mixture keeps the systems that matter: the simplex method, with columns made when they
are needed. Several programs over the same arcs take every step together, for their shortest paths are those of one
graph in many parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from lumenfarm.matrix import Floats, Ints
from lumenfarm.tasks.flow_lp import FlowProgram, FlowSolution, max_concurrent_flow

__all__ = ["max_concurrent_flows"]

# With more groups linear programs are as fast (docs/findings.md).
_FEW_GROUPS = 8
# Nodes of a graph in many parts beyond which nothing is gained by more parts.
_MANY_NODES = 2**16
# Steps for each group after which rounding is to blame; a handful is usual.
_PATIENCE = 25
# Bounds from both sides that agree to this relative precision have met.
_MEETING = 1e-10
# Of numbers around one, what is not above this counts as zero.
_ZERO = 1e-10


def max_concurrent_flows(programs: Sequence[FlowProgram]) -> list[FlowSolution]:
    """The optimum of each program: by path systems for few groups, otherwise by `max_concurrent_flow`.

    Args:
        programs: all over the same arcs, no two between the same GPUs, in the same groups; every demand has a path, and
            a unit of a source's flow weighs the same on all arcs of a group.

    Raises:
        EnvironmentFailure: see `max_concurrent_flow`.
    """
    if not programs or len(programs[0].capacity) > _FEW_GROUPS:
        return [max_concurrent_flow(program) for program in programs]
    together = max(1, _MANY_NODES // max(program.demand.size for program in programs))
    batches = [programs[first : first + together] for first in range(0, len(programs), together)]
    found = [flow for batch in batches for flow in _by_path_systems(batch)]
    return [flow or max_concurrent_flow(program) for flow, program in zip(found, programs, strict=True)]


def _by_path_systems(programs: Sequence[FlowProgram]) -> list[FlowSolution | None]:
    """The optimum of each program, None where it does not close."""
    parts = _Parts(programs)
    open_ = np.arange(len(programs))
    loads = parts.systems(open_, np.full((len(open_), parts.groups), 1.0 / parts.groups)).loads
    unit = loads.max(axis=1)
    parts.scale /= unit[parts.program, None]
    bases = _bases(loads / unit[:, None])
    found: list[FlowSolution | None] = [None] * len(programs)
    for _ in range(_PATIENCE * parts.groups):
        inverse = np.linalg.inv(bases[open_]).astype(np.float64)
        duals, largest = -inverse[:, 0, 1:], inverse[:, 0, 0]
        systems = parts.systems(open_, _prices(duals))
        closed = systems.cost >= largest * (1.0 - _MEETING)
        for row in np.flatnonzero(closed).tolist():
            theta = 1.0 / float(largest[row] * unit[open_[row]])
            found[open_[row]] = FlowSolution(theta, systems.potentials(row))
        going = ~closed
        open_ = open_[going]
        if not len(open_):
            break
        bases[open_] = _pivoted(bases[open_], inverse[going], _entering(duals[going], systems.loads[going]))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Systems:
    """The cheapest path system of some programs.

    Attributes:
        loads: of the groups, shape (programs, groups).
        cost: sum over groups of price*load, shape (programs,).
        distances: from the source of each part of these programs, but none farther than the farthest partner, shape
            (parts, n).
        row: of the program that a part belongs to, shape (parts,).
    """

    loads: Floats
    cost: Floats
    distances: Floats
    row: Ints

    def potentials(self, row: int) -> Floats:
        """Distances of one program so that the demand times the potentials is 1, shape (sources, n)."""
        potentials: Floats = self.distances[self.row == row] / self.cost[row]
        return potentials


class _Parts:
    """The arcs, once for each source of each program.

    Attributes:
        groups: how many there are.
        program: of each part, ascending, shape (parts,).
        scale: load of a group from one unit of the source's flow on one of its arcs, shape (parts, groups).
    """

    def __init__(self, programs: Sequence[FlowProgram]) -> None:
        arcs = programs[0]
        order = np.lexsort((arcs.heads, arcs.tails))
        tails, one_of_group = arcs.tails[order], np.unique(arcs.group, return_index=True)[1]
        self.groups = len(arcs.capacity)
        self.program = np.repeat(np.arange(len(programs)), [len(program.sources) for program in programs])
        self.scale = np.concatenate([program.weight[:, one_of_group] / program.capacity for program in programs])
        self._n, self._heads, self._group = arcs.n, arcs.heads[order], arcs.group[order]
        self._keys, self._starts = tails * arcs.n + self._heads, np.searchsorted(tails, np.arange(arcs.n))
        self._sources = np.concatenate([program.sources for program in programs])
        self._demand = np.concatenate([program.demand for program in programs])

    def systems(self, programs: Ints, prices: Floats) -> _Systems:
        """The cheapest path systems of some programs, ascending, at prices of shape (programs, groups)."""
        place = np.full(self.program[-1] + 1, -1)
        place[programs] = np.arange(len(programs))
        mine = np.flatnonzero(place[self.program] >= 0)
        row, scale = place[self.program[mine]], self.scale[mine]
        distances, counts = self._trees(self._sources[mine], prices[row] * scale)
        of_part = (self._demand[mine][:, None, :] @ counts)[:, 0, :] * scale
        loads = np.add.reduceat(of_part, np.searchsorted(row, np.arange(len(programs))))
        farthest = np.max(distances, where=self._demand[mine] > 0, initial=0.0, axis=1, keepdims=True)
        return _Systems(loads, (prices * loads).sum(axis=1), np.minimum(distances, farthest), row)

    def _trees(self, sources: Ints, lengths: Floats) -> tuple[Floats, Floats]:
        """Shortest paths of each part for lengths of its groups.

        Returns:
            Distances, shape (parts, n), and the arcs of each group on the way to each GPU, shape (parts, n, groups).
        """
        parts, arcs = len(sources), len(self._heads)
        numbers = np.arange(parts)[:, None]
        heads, starts = (self._heads + self._n * numbers).ravel(), (self._starts + arcs * numbers).ravel()
        arrays = (
            lengths[:, self._group].ravel(),
            heads.astype(np.int32),
            np.append(starts, parts * arcs).astype(np.int32),
        )
        graph = csr_array(arrays, shape=(parts * self._n, parts * self._n))
        roots = sources + self._n * numbers[:, 0]
        distances, before, _ = dijkstra(graph, indices=roots, min_only=True, return_predecessors=True)
        return distances.reshape(parts, self._n), self._counts(before).reshape(parts, self._n, self.groups)

    def _counts(self, before: NDArray[np.int32]) -> Floats:
        """Arcs of each group on the way to each GPU, by the GPU before it, negative if there is none."""
        here, reached = np.arange(len(before)), before >= 0
        ahead = np.where(reached, before, here)
        arc = np.searchsorted(self._keys, ahead[reached] % self._n * self._n + here[reached] % self._n)
        counts = np.zeros((len(before), self.groups))
        counts[reached, self._group[arc]] = 1.0
        # Twice as far towards the source each time.
        while reached[ahead].any():
            counts += counts[ahead]
            ahead = ahead[ahead]
        return counts


def _prices(duals: Floats) -> Floats:
    """The nearest prices to duals, some of which may be negative until the basis is optimal."""
    positive = np.maximum(duals, 0.0)
    prices: Floats = positive / positive.sum(axis=1, keepdims=True)
    return prices


def _bases(loads: Floats) -> Floats:
    """The basis of one system each: columns are the largest load, the system, and what groups are below the largest.

    Rows are the mixture's sum and, for every group, load + slack - largest load = 0.
    """
    programs, groups = loads.shape
    bases = np.zeros((programs, groups + 1, groups + 1))
    bases[:, 1:, 0] = -1.0
    bases[:, 1:, 1:] = np.eye(groups)
    here, busiest = np.arange(programs), 1 + loads.argmax(axis=1)
    bases[here, 0, busiest] = 1.0
    bases[here, 1:, busiest] = loads
    return bases


def _entering(duals: Floats, loads: Floats) -> Floats:
    """The column that enters each basis: the slack of a group whose dual is negative, otherwise the new system."""
    columns = np.column_stack((np.ones(len(loads)), loads))
    idle = np.flatnonzero(duals.min(axis=1) < -_ZERO)
    columns[idle] = np.eye(columns.shape[1])[1 + duals[idle].argmin(axis=1)]
    return columns


def _pivoted(bases: Floats, inverse: Floats, entering: Floats) -> Floats:
    """The bases in which the column that is first used up, never the largest load, has made place."""
    shares = np.maximum(inverse[:, :, 0], 0.0)
    change = (inverse @ entering[:, :, None])[:, :, 0]
    usable = change > _ZERO * change[:, 1:].max(axis=1, keepdims=True)
    usable[:, 0] = False
    ratio = np.divide(shares, change, out=np.full_like(shares, np.inf), where=usable)
    bases[np.arange(len(bases)), :, ratio.argmin(axis=1)] = entering
    return bases
