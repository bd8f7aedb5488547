"""Subrings and their unions: circulants whose offsets are displacements of the demand (Bridge; model section 11)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from lumenfarm.model import Topology
from lumenfarm.problem import Workload

__all__ = ["displacements", "subrings"]

# With more displacements than this only powers of two are used.
_FEW = 16


def subrings(workload: Workload) -> Iterator[Topology]:
    """u -> u+o on all ports, for each displacement o; for two ports and more, pairs of displacements share the ports.

    On links u -> u+2^a every Bruck step 2^k, k >= a, takes 2^(k-a) hops and loads every link alike.
    """
    n, degree = workload.collective.n, workload.fabric.degree
    offsets = displacements(workload)
    yield from (Topology.circulant(n, {offset: degree}) for offset in offsets)
    if degree > 1:
        pairs = itertools.combinations(offsets, 2)
        yield from (Topology.circulant(n, {a: degree - degree // 2, b: degree // 2}) for a, b in pairs)


def displacements(workload: Workload) -> list[int]:
    """Differences v-u (mod n) that occur in the demand, or the powers of two below n if there are many."""
    n = workload.collective.n
    pairs = [pattern.multiplicities for pattern in workload.patterns]
    found = np.unique(np.concatenate([(matrix.destinations - matrix.sources) % n for matrix in pairs]))
    few = found.tolist()
    return few if len(few) <= _FEW else [1 << bit for bit in range((n - 1).bit_length())]
