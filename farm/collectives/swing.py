"""Swing: partners at distances 1, -1, 3, -5, 11, -21, .. so that none is far on a torus (De Sensi et al., NSDI 2024).

On a torus the steps rotate over the dimensions, each with its own counter (`lumenfarm.collectives.torus.rotation`).
Sizes are powers of two.
"""

from __future__ import annotations

from lumenfarm.collectives.generator import Request, Steps, whole_and_halves
from lumenfarm.collectives.torus import halving_steps, partners
from lumenfarm.matrix import Ints

__all__ = ["MIRRORED_SWING", "SWING"]


def _scatter(request: Request) -> Steps:
    """All ports to the same partner: m/2^(t+1) bytes in step t, from 0 (model section 10)."""
    return halving_steps(request.message_bytes, _partners(request))


def _mirrored_scatter(request: Request) -> Steps:
    """Multi-port Swing: 2D instances of m/(2D) bytes, one starting at each dimension and its mirror image."""
    starts = range(len(request.dims))
    instances = [_partners(request, start=start, sign=sign) for sign in (1, -1) for start in starts]
    return halving_steps(request.message_bytes, *instances)


def _partners(request: Request, *, start: int = 0, sign: int = 1) -> list[Ints]:
    """Even coordinates move by sign*r(t), odd ones by -sign*r(t)."""
    return partners(
        request.dims, lambda place, turn: place + sign * _distance(turn) * (1 - 2 * (place % 2)), start=start
    )


def _distance(turn: int) -> int:
    """r(t) = (1 - (-2)^(t+1)) / 3."""
    return int(1 - (-2) ** (turn + 1)) // 3


SWING = whole_and_halves("swing", "Swing, all ports to the same partner", _scatter)
MIRRORED_SWING = whole_and_halves(
    "swing-mirrored", "Swing, 2D instances, mirrored and rotated over the D dimensions", _mirrored_scatter
)
