"""Halving algorithms on a torus: the dimension each step works on, whom a GPU reaches along it, how much it sends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from lumenfarm.collectives.generator import Steps
from lumenfarm.errors import InputError
from lumenfarm.matrix import Ints, PairMatrix
from lumenfarm.model import Step

__all__ = ["Move", "halving_steps", "partners", "require_powers_of_two", "rotation"]

# (coordinates along one dimension, how many steps that dimension had before) -> coordinates reached, before the wrap.
Move: TypeAlias = Callable[[Ints, int], Ints]


def require_powers_of_two(dims: Sequence[int]) -> None:
    """Refuse sizes for which halving the message at every step is not defined.

    Raises:
        InputError: a dimension is not a power of two.
    """
    if any(size & (size - 1) for size in dims):
        reason = "because every step halves what each GPU is responsible for"
        if len(dims) == 1:
            raise InputError("gpus", dims[0], f"a power of two, {reason}")
        raise InputError("dims", "x".join(map(str, dims)), f"a power of two in every dimension, {reason}")


def rotation(dims: Sequence[int], *, start: int = 0) -> tuple[tuple[int, int], ...]:
    """(dimension, how many steps it had before) for each of the log2 n steps.

    Step t, from 0, works on the first dimension at or after (start + t) mod D, cyclically, that has fewer than
    log2(size) steps behind it. Multi-dimensional Swing (NSDI 2024) and Harvest's multi-dimensional recursive doubling
    (arXiv 2602.09188, artifact) rotate in this way.

    >>> rotation((8, 2))
    ((0, 0), (1, 0), (0, 1), (0, 2))
    """
    limits = [size.bit_length() - 1 for size in dims]
    used = [0] * len(dims)
    order = []
    for turn in range(start, start + sum(limits)):
        cyclic = ((turn + further) % len(dims) for further in range(len(dims)))
        axis = next(axis for axis in cyclic if used[axis] < limits[axis])
        order.append((axis, used[axis]))
        used[axis] += 1
    return tuple(order)


def partners(dims: Sequence[int], move: Move, *, start: int = 0) -> list[Ints]:
    """The rank that each GPU sends to in each step, shape (log2 n, n).

    Args:
        dims: sizes of the torus, powers of two.
        move: applied to the coordinate on the dimension of the step; the result wraps around.
        start: the dimension of the first step.

    Raises:
        InputError: a dimension is not a power of two.
    """
    require_powers_of_two(dims)
    ranks = np.arange(math.prod(dims))
    strides = [math.prod(dims[axis + 1 :]) for axis in range(len(dims))]
    reached = []
    for axis, turn in rotation(dims, start=start):
        places = ranks // strides[axis] % dims[axis]
        reached.append(ranks + (move(places, turn) % dims[axis] - places) * strides[axis])
    return reached


def halving_steps(message_bytes: float, *instances: Sequence[Ints]) -> Steps:
    """Step t, from 0: in each instance every GPU u sends m/2^(t+1) to its partner, m = message/instances.

    Args:
        message_bytes: bytes each GPU holds.
        instances: one or more, each with the `partners` of all steps.
    """
    share = message_bytes / len(instances)
    n = len(instances[0][0])
    sources = np.tile(np.arange(n), len(instances))
    return tuple(
        Step(PairMatrix(n, sources, np.concatenate(destinations), share / 2 ** (turn + 1)))
        for turn, destinations in enumerate(zip(*instances, strict=True))
    )
