"""Can every pair of every step be connected by some candidate? Answered before anything is solved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lumenfarm.errors import UnreachableError
from lumenfarm.model import Pattern, Topology
from lumenfarm.problem import Workload

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["check_reachable"]


def check_reachable(topologies: Sequence[Topology], workload: Workload) -> None:
    """Refuse a step that no topology can carry; that most are carried is seen at a glance.

    Raises:
        UnreachableError: some step has pairs without a path in every topology; one of the best topology is named.
    """
    missing = set(range(len(workload.patterns)))
    for reachable in (_same_component, _path_exists):
        for topology in topologies:
            missing = {index for index in missing if not reachable(topology, workload.patterns[index]).all()}
            if not missing:
                return
    step = int(np.flatnonzero(np.isin(workload.pattern_of_step, list(missing)))[0])
    pattern = workload.patterns[workload.pattern_of_step[step]]
    best = max(topologies, key=lambda topology: int(_path_exists(topology, pattern).sum()))
    pair = int(np.flatnonzero(~_path_exists(best, pattern))[0])
    source, destination = pattern.multiplicities.sources[pair], pattern.multiplicities.destinations[pair]
    raise UnreachableError(
        "candidates",
        f"{best.label}: no path {source} -> {destination}",
        f"a topology with a path for every pair of step {step + 1}",
    )


def _same_component(topology: Topology, pattern: Pattern) -> NDArray[np.bool_]:
    """Whether each pair lies on a cycle of circuits, which in the usual topologies is the same as having a path."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(_graph(topology), connection="strong")
    pairs = pattern.multiplicities
    same: NDArray[np.bool_] = component[pairs.sources] == component[pairs.destinations]
    return same


def _path_exists(topology: Topology, pattern: Pattern) -> NDArray[np.bool_]:
    """Whether each pair has a path."""
    from scipy.sparse.csgraph import dijkstra

    pairs = pattern.multiplicities
    sources, row = np.unique(pairs.sources, return_inverse=True)
    hops = dijkstra(_graph(topology), indices=sources, unweighted=True)
    found: NDArray[np.bool_] = np.isfinite(hops[row, pairs.destinations])
    return found


def _graph(topology: Topology) -> csr_array:
    from scipy.sparse import csr_array

    circuits = topology.circuits
    return csr_array((circuits.values, (circuits.sources, circuits.destinations)), shape=(topology.n, topology.n))
