"""Ring algorithms: one chunk a step to the next GPU, bandwidth-optimal for any n.

The ring follows the ranks; ``dims`` do not change it.
"""

from __future__ import annotations

from lumenfarm.collectives.generator import Request, Rounds, ShiftStep, steps_of, whole_and_halves

__all__ = ["RING"]


def _scatter(request: Request) -> Rounds:
    """n-1 steps of m/n bytes to u + 1 (Patarasuk and Yuan, JPDC 2009)."""
    return ((ShiftStep(1, request.message_bytes / request.n),),) * request.steps(request.n - 1)


RING = whole_and_halves(
    "ring", "m/n to the next GPU in each step", lambda request: steps_of(request.n, _scatter(request)), _scatter
)
