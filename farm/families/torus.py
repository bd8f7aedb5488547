"""The base ring or torus, and its strides: every direction reaches j+1 GPUs further, j = 0..n-2.

On one dimension these are the shifted base rings of Harvest's search space (model section 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from lumenfarm.matrix import PairMatrix
from lumenfarm.model import ArcOrbits, Topology
from lumenfarm.problem import Workload
from lumenfarm.symmetry import translations

__all__ = ["ring_strides", "torus", "torus_strides"]


def torus(dims: Sequence[int], degree: int, stride: int = 1) -> Topology:
    """The torus of the given sizes with ``degree`` ports spread evenly over its directions.

    The directions are + of every dimension, then - of every dimension; the first ones get a port more when the
    degree does not divide. In a dimension of size m a circuit spans ((stride-1) mod (m-1)) + 1 GPUs.

    >>> torus((4, 4), 4).label
    'torus 4x4'
    """
    directions = [(axis, sign) for sign in (1, -1) for axis in range(len(dims))]
    ports, extra = divmod(degree, len(directions))
    spans = [(stride - 1) % (size - 1) + 1 for size in dims]
    heads = [sign * spans[axis] % dims[axis] * math.prod(dims[axis + 1 :]) for axis, sign in directions]
    circuits = ports + (np.arange(len(directions)) < extra)
    first = PairMatrix(math.prod(dims), np.zeros_like(heads), heads, circuits)
    return Topology(ArcOrbits(translations(tuple(dims)), first), _label(dims, stride))


def torus_strides(workload: Workload) -> Iterator[Topology]:
    """The collective's base torus with strides 1..n-1."""
    dims = workload.collective.dims
    return (torus(dims, workload.fabric.degree, stride) for stride in range(1, max(dims)))


def ring_strides(workload: Workload) -> Iterator[Topology]:
    """The ring of all GPUs in rank order with strides 1..n-1; nothing new if that is the base torus."""
    n = workload.collective.n
    if workload.collective.dims == (n,):
        return iter(())
    return (torus((n,), workload.fabric.degree, stride) for stride in range(1, n))


def _label(dims: Sequence[int], stride: int) -> str:
    shape = "ring" if len(dims) == 1 else "torus " + "x".join(map(str, dims))
    return shape if stride == 1 else f"{shape} stride {stride}"
