"""theta(G, P), the maximum concurrent flow, by three exact rungs of rising price (model sections 6 and 7).

Shifts on a circulant of one offset need none of them. Else:

1. A sandwich: port and volume bounds from above, even splitting over shortest paths from below.
2. A program with one source per orbit of GPUs and one capacity per orbit of circuits; with few orbits of circuits it is
   solved by path systems instead of a linear program.
3. The same program without symmetry: every GPU and every circuit is its own orbit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from lumenfarm import closed_form
from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.model import Pattern, Topology
from lumenfarm.problem import MetricRow, ThetaRow
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.flow_lp import FlowProgram
from lumenfarm.tasks.path_systems import max_concurrent_flows

__all__ = ["OrbitNetwork", "metric_row", "theta_row"]

# Two bounds that agree to this relative precision have met; above it a value counts as its bound.
_MEETING = 1e-12
_AT_BOUND = 1e-9


def theta_row(topology: Topology, patterns: Sequence[Pattern], dims: Sequence[int]) -> ThetaRow:
    """theta and hops of one topology for several patterns.

    Args:
        topology: the circuits.
        patterns: over the same GPUs.
        dims: sizes of the torus in which symmetry is looked for; their product is n.

    Returns:
        One theta in [0, 1] and one hop count a pattern, and the number of linear programs solved.
    """
    theta, hops, solves = np.zeros(len(patterns)), np.full(len(patterns), np.inf), 0
    shifts = _shifts(topology, patterns)
    for index, shift in shifts.items():
        theta[index], hops[index] = shift
    shared = Symmetry.shared([topology.circuits], dims) if len(shifts) < len(patterns) else Symmetry(topology.n)
    alike: dict[tuple[bool, ...], list[int]] = defaultdict(list)
    for index in sorted(set(range(len(patterns))) - set(shifts)):
        alike[shared.preserving(patterns[index].multiplicities)].append(index)
    for kept, indices in alike.items():
        network = OrbitNetwork(topology, shared.subgroup(kept))
        found = _ladder(network, [patterns[index].multiplicities for index in indices])
        theta[indices], hops[indices] = found.theta, found.hops
        solves += found.solves
    return ThetaRow(tuple(theta.tolist()), tuple(hops.tolist()), solves)


def _shifts(topology: Topology, patterns: Sequence[Pattern]) -> dict[int, tuple[float, float]]:
    """theta and hops of the patterns that are shifts, if the topology is one too: a single path, all circuits alike."""
    generator = topology.circuits.shift_offset()
    offsets = {i: o for i, p in enumerate(patterns) if (o := p.multiplicities.shift_offset()) is not None}
    if generator is None or not offsets:
        return {}
    circuits = topology.circuits.values[0]
    hops = closed_form.hops(list(offsets.values()), generator, topology.n).tolist()
    shares = [circuits / patterns[index].multiplicities.values[0] for index in offsets]
    return {index: (share / h, h) for index, share, h in zip(offsets, shares, hops, strict=True)}


def metric_row(topology: Topology, patterns: Sequence[Pattern], symmetry: Symmetry) -> MetricRow:
    """theta and hops of one topology for several patterns, and potentials that prove theta.

    Args:
        topology: preserved by ``symmetry``.
        patterns: likewise.
        symmetry: the group whose orbits are used; it may be smaller than that of the topology.

    Returns:
        The answers, with one row of potentials for each orbit of GPUs, in order of their least GPUs.
    """
    network = OrbitNetwork(topology, symmetry)
    found = _ladder(network, [pattern.multiplicities for pattern in patterns])
    # In the precision of the record: fresh and cached answers then lead the search the same way.
    potentials = found.potentials.astype(np.float32).astype(np.float64)
    return MetricRow(tuple(found.theta.tolist()), tuple(found.hops.tolist()), found.solves, potentials)


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    theta: Floats
    hops: Floats
    solves: int
    potentials: Floats


def _ladder(network: OrbitNetwork, patterns: Sequence[PairMatrix]) -> _Answers:
    demands = np.stack([network.demand(pattern) for pattern in patterns])
    hops = network.hops(demands)
    reachable = np.isfinite(hops)
    ports = np.array([network.port_bound(pattern) for pattern in patterns])
    upper = np.where(reachable, np.minimum(ports, network.volume_bound(demands)), 0.0)
    lower = np.where(reachable, network.even_split(demands), 0.0)
    theta, potentials = upper.copy(), np.stack([network.simple_potentials(reached=reached) for reached in reachable])
    open_ = np.flatnonzero(lower < upper * (1.0 - _MEETING))
    flows = max_concurrent_flows([network.program(demands[index]) for index in open_])
    for index, flow in zip(open_, flows, strict=True):
        active = demands[index].any(axis=1)
        potentials[index, active], potentials[index, ~active] = flow.potentials, 0.0
        theta[index] = min(max(flow.theta, lower[index]), upper[index])
        if theta[index] > upper[index] * (1.0 - _AT_BOUND):
            theta[index] = upper[index]
    return _Answers(theta, hops, len(open_), potentials)


class OrbitNetwork:
    """A topology seen from one representative source in each orbit of GPUs, its circuits grouped by orbit.

    If f_r serves the demands of the representative r, its images under the group serve the whole orbit, and the
    total on a circuit e is |orbit(r)|/|orbit(e)| times what f_r puts on the circuits of orbit(e) together. Since a
    concurrent flow may be averaged over the group, nothing is lost (model section 7).
    """

    def __init__(self, topology: Topology, symmetry: Symmetry) -> None:
        self.circuits = topology.circuits
        _, self.sources, self.sizes = np.unique(symmetry.gpu_orbits(), return_index=True, return_counts=True)
        self.group = symmetry.pair_orbits(self.circuits)
        self.group_size = np.bincount(self.group)
        self.capacity = np.bincount(self.group, weights=self.circuits.values) / self.group_size

    @cached_property
    def distance(self) -> Floats:
        """Hops from each representative to each GPU, infinite without a path, shape (sources, n)."""
        n = self.circuits.n
        graph = csr_array((self.circuits.values, (self.circuits.sources, self.circuits.destinations)), shape=(n, n))
        distance: Floats = dijkstra(graph, indices=self.sources, unweighted=True)
        return distance

    @cached_property
    def weight(self) -> Floats:
        """Load on each circuit of an orbit from one unit of a representative's flow on one of them, (sources, arcs)."""
        return np.outer(self.sizes, 1.0 / self.group_size[self.group])

    def demand(self, pattern: PairMatrix) -> Floats:
        """What each representative sends to each GPU, shape (sources, n)."""
        return pattern.rows(self.sources)

    def hops(self, demands: Floats) -> Floats:
        """Largest distance between partners of each pattern, shape (patterns,)."""
        partners = np.where(demands > 0, self.distance, 0.0)
        hops: Floats = partners.max(axis=(1, 2))
        return hops

    def port_bound(self, pattern: PairMatrix) -> float:
        """theta <= ports/demand at every GPU, in both directions."""
        return min(
            _least_ratio(self.circuits.row_sums, pattern.row_sums),
            _least_ratio(self.circuits.column_sums, pattern.column_sums),
        )

    def volume_bound(self, demands: Floats) -> Floats:
        """theta <= sum of circuits / sum of demand*distance, shape (patterns,); 0 where a partner has no path."""
        travelled = np.where(demands > 0, demands * np.where(demands > 0, self.distance, 0.0), 0.0).sum(axis=2)
        volume: Floats = self.circuits.values.sum() / (travelled @ self.sizes)
        return volume

    def even_split(self, demands: Floats) -> Floats:
        """1/largest load per circuit when every GPU splits evenly over shortest paths, shape (patterns,)."""
        n, tails, heads = self.circuits.n, self.circuits.sources, self.circuits.destinations
        tight = (self.distance[:, tails] + 1 == self.distance[:, heads]) & np.isfinite(self.distance[:, heads])
        source, arc = np.nonzero(tight)
        tail, head, circuits = source * n + tails[arc], source * n + heads[arc], self.circuits.values[arc]
        share = circuits / np.bincount(head, weights=circuits, minlength=len(self.sources) * n)[head]
        level = self.distance.ravel()[head]
        through = demands.reshape(len(demands), -1).copy()
        load = np.zeros((len(demands), len(self.capacity)))
        order = np.argsort(-level, kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
            flow = through[:, head[here]] * share[here]
            _add_columns(through, tail[here], flow)
            _add_columns(load, self.group[arc[here]], flow * self.weight[source[here], arc[here]])
        worst: Floats = (load / self.capacity).max(axis=1)
        with np.errstate(divide="ignore"):
            return 1.0 / worst

    def simple_potentials(self, *, reached: bool) -> Floats:
        """Potentials without a linear program, shape (sources, n): hop distances, the dual of the volume bound.

        GPUs out of reach count as far as the farthest within. If a partner is out of reach, potentials are 1 there and
        0 within: nothing gets across.
        """
        beyond = np.isinf(self.distance)
        if not reached:
            return beyond.astype(np.float64)
        return np.where(beyond, np.max(self.distance, where=~beyond, initial=0.0), self.distance)

    def program(self, demand: Floats) -> FlowProgram:
        """The linear program for what the representatives send, shape (sources, n); idle ones are left out."""
        active = np.flatnonzero(demand.any(axis=1))
        return FlowProgram(
            n=self.circuits.n,
            sources=self.sources[active],
            demand=demand[active],
            tails=self.circuits.sources,
            heads=self.circuits.destinations,
            group=self.group,
            weight=self.weight[active],
            capacity=self.capacity,
        )


def _add_columns(total: Floats, columns: Ints, amounts: Floats) -> None:
    for row, amount in enumerate(amounts):
        total[row] += np.bincount(columns, weights=amount, minlength=total.shape[1])


def _least_ratio(ports: Floats, demand: Floats) -> float:
    busy = demand > 0
    return float((ports[busy] / demand[busy]).min())
