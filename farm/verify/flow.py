"""The maximum concurrent flow theta of a topology and a pattern, proved from both sides.

From below by a flow that is mended and added up here, from above by arc lengths. Where even splitting over shortest
paths does not meet unit lengths, a linear program suggests a flow and lengths; neither its status nor its objective
counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse.csgraph import dijkstra

from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.model import Topology

__all__ = ["Proof", "prove"]

# Relative distance at which the cheap proof counts as closed, so that no linear program is needed.
_CLOSED = 1e-9
# Without an answer in time theta stays between the cheap bounds.
_LP_OPTIONS = {"time_limit": 600.0, "primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


@dataclass(frozen=True, slots=True)
class Proof:
    """What is certain about one topology and pattern: shipped <= theta <= allowed.

    ``label`` names the topology, ``method`` where flow and lengths come from; ``hops`` is the largest hop distance
    between partners, and ``unreached`` a pair without a path, if there is one.
    """

    label: str
    shipped: float
    allowed: float
    hops: float
    method: str
    unreached: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Network:
    """Circuits and multiplicities, folded by the rotation u -> u + period (mod n) that changes neither.

    The average of a flow over the rotations is a flow, ships as much, and loads no circuit more than the most loaded
    before. So it is enough to route from the sources below the period and to count on each arc what they send over
    all arcs that rotations map to it: its orbit. Without such a rotation the period is n, and nothing is folded.

    Attributes:
        n: number of GPUs.
        sources: GPUs below the period that send, shape (sources,).
        demand: k from each of them to every GPU, shape (sources, n).
        tails, heads: ends of every arc, shape (arcs,).
        orbit: orbit of every arc, shape (arcs,).
        circuits: parallel circuits of each arc of an orbit, shape (orbits,).
    """

    n: int
    sources: Ints
    demand: Floats
    tails: Ints
    heads: Ints
    orbit: Ints
    circuits: Floats

    @classmethod
    def of(cls, circuits: PairMatrix, multiplicities: PairMatrix) -> _Network:
        n, tails, heads = circuits.n, circuits.sources, circuits.destinations
        period = _period(circuits, multiplicities)
        below = multiplicities.sources < period
        sources, row = np.unique(multiplicities.sources[below], return_inverse=True)
        demand = np.zeros((len(sources), n))
        demand[row, multiplicities.destinations[below]] = multiplicities.values[below]
        _, first, orbit = np.unique(tails % period * n + (heads - tails) % n, return_index=True, return_inverse=True)
        return cls(n, sources, demand, tails, heads, orbit, circuits.values[first])

    def distances(self, lengths: Floats) -> Floats:
        """Shortest distance from each source to every GPU for a length on each orbit, shape (sources, n)."""
        graph = sp.csr_array((lengths[self.orbit], (self.tails, self.heads)), shape=(self.n, self.n))
        distances: Floats = dijkstra(graph, indices=self.sources)
        return distances

    def allowed(self, lengths: Floats) -> float:
        """sum_e l_e*x_e / sum_{u,v} k(u,v)*dist_l(u,v): no flow ships more, whatever the lengths l >= 0."""
        partners = self.demand > 0
        volume = float(self.demand[partners] @ self.distances(lengths)[partners])
        return float(lengths @ self.circuits) / volume if volume > 0 else math.inf

    def load(self, arcs: Ints, flow: Floats) -> Floats:
        """What each orbit carries if ``flow`` is sent over ``arcs``, shape (orbits,)."""
        return np.bincount(self.orbit[arcs], weights=flow, minlength=len(self.circuits)).astype(np.float64)

    def congestion(self, load: Floats) -> float:
        """Largest load of one circuit, for a load of each orbit."""
        return float((load / self.circuits).max())


def _period(circuits: PairMatrix, multiplicities: PairMatrix) -> int:
    n = circuits.n
    for period in (period for period in range(1, n) if n % period == 0):
        turn = (np.arange(n) + period) % n
        if circuits.relabelled(turn) == circuits and multiplicities.relabelled(turn) == multiplicities:
            return period
    return n


def prove(topology: Topology, multiplicities: PairMatrix) -> Proof:
    """Bounds on theta(G, P), the largest theta for which theta*k(u,v) can be routed for all pairs at once.

    Args:
        topology: the circuits x.
        multiplicities: k, with at least one entry, over the same GPUs.

    Returns:
        shipped <= theta <= allowed, up to rounding; both 0 if some pair has no path.

    Source: model sections 2 and 6.
    """
    network = _Network.of(topology.circuits, multiplicities)
    unit = np.ones(len(network.circuits))
    hops = network.distances(unit)
    farthest = float(hops[network.demand > 0].max())
    if math.isinf(farthest):
        row, destination = np.argwhere((network.demand > 0) & np.isinf(hops))[0]
        unreached = int(network.sources[row]), int(destination)
        return Proof(topology.label, 0.0, 0.0, farthest, "some pair has no path", unreached)
    shipped, allowed = 1 / network.congestion(_spread(network, hops, network.demand)), network.allowed(unit)
    method = "even splitting over shortest paths, unit lengths"
    if shipped < allowed * (1 - _CLOSED):
        shipped, allowed = _tightened(network, hops, shipped, allowed)
        method = "flow and lengths from a linear program, added up again"
    return Proof(topology.label, shipped, allowed, farthest, method)


def _spread(network: _Network, hops: Floats, amount: Floats) -> Floats:
    """Load of each orbit when ``amount`` (sources, n) goes over shortest paths, split evenly where they meet.

    Every GPU receives equally over all circuits that end there and lie on shortest paths from the source. Done from
    the farthest GPUs inwards, each passing on to its predecessors what it receives and what is routed through it.
    """
    near, far = hops[:, network.tails], hops[:, network.heads]
    rows, arcs = np.nonzero(np.isfinite(near) & (near + 1 == far))
    entering = rows * network.n + network.heads[arcs]
    leaving = rows * network.n + network.tails[arcs]
    width = network.circuits[network.orbit[arcs]]
    share = width / np.bincount(entering, weights=width, minlength=amount.size)[entering]
    level = far[rows, arcs]
    order = np.argsort(-level, kind="stable")
    through = amount.ravel().copy()
    flow = np.zeros(len(arcs))
    for same in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
        flow[same] = share[same] * through[entering[same]]
        np.add.at(through, leaving[same], flow[same])
    return network.load(arcs, flow)


def _tightened(network: _Network, hops: Floats, shipped: float, allowed: float) -> tuple[float, float]:
    """The better of given bounds and of those from a linear program, each computed again from flow and lengths."""
    suggestion = _suggest(network)
    if suggestion.x is None or suggestion.ineqlin.marginals is None or not suggestion.x[-1] > 0:
        return shipped, allowed
    flow, theta = suggestion.x[:-1].reshape(len(network.sources), -1), float(suggestion.x[-1])
    lengths = np.abs(suggestion.ineqlin.marginals)
    return max(shipped, _shipped(network, hops, flow, theta)), min(allowed, network.allowed(lengths))


def _suggest(network: _Network) -> OptimizeResult:
    """Max theta such that the flow of each source u, shape (sources, arcs), leaves theta*k(u,v) at every v.

    The load of an orbit is at most its circuits; the marginals of that are, but for their sign, arc lengths.
    """
    count, arcs = len(network.sources), len(network.tails)
    balance = network.demand.copy()
    balance[np.arange(count), network.sources] = -network.demand.sum(axis=1)
    members = sp.coo_array((np.ones(arcs), (network.orbit, np.arange(arcs))), shape=(len(network.circuits), arcs))
    conservation = [sp.kron(sp.eye_array(count), _incidence(network)), sp.coo_array(-balance.reshape(-1, 1))]
    load = [sp.kron(np.ones((1, count)), members), sp.coo_array((len(network.circuits), 1))]
    return linprog(
        np.append(np.zeros(count * arcs), -1.0),
        A_ub=sp.hstack(load),
        b_ub=network.circuits,
        A_eq=sp.hstack(conservation),
        b_eq=np.zeros(balance.size),
        method="highs-ipm",
        options=_LP_OPTIONS,
    )


def _shipped(network: _Network, hops: Floats, suggested: Floats, theta: float) -> float:
    """What a suggested flow ships for certain.

    Flow below zero or where its source cannot reach is dropped, what then does not arrive is sent again over shortest
    paths, and all is scaled until the busiest circuit is just full: theta / congestion.
    """
    flow = np.where(np.isfinite(hops[:, network.tails]), np.maximum(suggested, 0.0), 0.0)
    missing = np.maximum(theta * network.demand - (_incidence(network) @ flow.T).T, 0.0)
    load = network.load(np.arange(len(network.tails)), flow.sum(axis=0)) + _spread(network, hops, missing)
    return theta / network.congestion(load)


def _incidence(network: _Network) -> sp.csr_array:
    """+1 where an arc enters a GPU and -1 where it leaves, shape (n, arcs)."""
    arcs = len(network.tails)
    ends = np.concatenate([network.heads, network.tails])
    signs = np.repeat([1.0, -1.0], arcs)
    return sp.csr_array((signs, (ends, np.tile(np.arange(arcs), 2))), shape=(network.n, arcs))
