"""Broadcast trees: the whole message along every edge. Any n; GPUs are numbered from the root, in a ring."""

from __future__ import annotations

import numpy as np

from lumenfarm.collectives.generator import Generator, Request, Steps
from lumenfarm.matrix import Ints, PairMatrix
from lumenfarm.model import Step

__all__ = ["BROADCAST"]


def _binomial(request: Request) -> Steps:
    """In step k every GPU that has the message passes it on at distance 2^k: ceil(log2 n) steps."""
    newcomers = [np.arange(2**k, min(2 ** (k + 1), request.n)) for k in range((request.n - 1).bit_length())]
    return tuple(_step(request, heads - 2**k, heads) for k, heads in enumerate(newcomers))


def _binary(request: Request) -> Steps:
    """Node v passes it on to 2v+1 and 2v+2 in one step, a level of the tree at a time: floor(log2 n) steps."""
    depth = request.n.bit_length() - 1
    levels = [np.arange(2**k - 1, min(2 ** (k + 1) - 1, request.n)) for k in range(1, depth + 1)]
    return tuple(_step(request, (heads - 1) // 2, heads) for heads in levels)


def _step(request: Request, tails: Ints, heads: Ints) -> Step:
    """The message from each of ``tails`` to the same entry of ``heads``, both counted from the root."""
    n, root = request.n, request.root
    return Step(PairMatrix(n, (tails + root) % n, (heads + root) % n, request.message_bytes))


BROADCAST = (
    Generator("broadcast-binomial", "Broadcast: binomial tree, distance 2^k in step k", ("root",), _binomial),
    Generator("broadcast-binary", "Broadcast: binary tree, both children in one step", ("root",), _binary),
)
