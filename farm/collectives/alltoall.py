"""Direct All-to-All: every GPU sends every other its own m/n bytes, in n-1 steps or in one. Any n; ranks in a ring."""

from __future__ import annotations

from lumenfarm.collectives.generator import Request, Rounds, ShiftStep, from_shifts

__all__ = ["ALL_TO_ALL"]


def _stepwise(request: Request) -> Rounds:
    """Step i, from 1, is the shift by i (model section 10)."""
    count = request.steps(request.n - 1)
    return tuple((ShiftStep(offset, request.message_bytes / request.n),) for offset in range(1, count + 1))


def _at_once(request: Request) -> Rounds:
    """One step with all n-1 shifts."""
    return (tuple(shift for (shift,) in _stepwise(request)),)


ALL_TO_ALL = (
    from_shifts("all-to-all", "All-to-All: step i is the shift by i, m/n a pair", _stepwise),
    from_shifts("all-to-all-direct", "All-to-All: all pairs in one step, m/n each", _at_once),
)
