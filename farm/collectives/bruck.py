"""Bruck's All-to-All and AllGather with radix r and p ports, for any n (Bruck et al., IEEE TPDS 1997).

Write offsets between GPUs in base r. Digit x is dealt with by the shifts z*r^x, z = 1..r-1, of which p are made in one
step. Shifts that carry nothing, possible only when n is not a power of r, are left out. Ranks in a ring; ``dims`` do
not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lumenfarm.collectives.generator import Request, Rounds, ShiftStep, from_shifts

__all__ = ["BRUCK"]


def _all_to_all(request: Request) -> Rounds:
    """The shift z*r^x carries the blocks whose offset to their destination has digit z at place x: m/r if n = r^w."""

    def carried(digit: int, place: int) -> int:
        whole, rest = divmod(request.n, place * request.radix)
        return whole * place + min(max(rest - digit * place, 0), place)

    return _rounds(request, carried)


def _all_gather(request: Request) -> Rounds:
    """The shift z*r^x carries the r^x blocks a GPU holds, or as many of them as the receiver still misses."""
    return _rounds(request, lambda digit, place: min(place, request.n - digit * place))


def _rounds(request: Request, carried: Callable[[int, int], int]) -> Rounds:
    """Rounds of at most p shifts; ``carried(digit, place)`` is the number of blocks, of m/n bytes, of a shift."""
    return tuple(
        tuple(ShiftStep(digit * place, request.message_bytes * carried(digit, place) / request.n) for digit in digits)
        for place in _places(request)
        for digits in _digits(request, place)
    )


def _places(request: Request) -> Iterator[int]:
    place = 1
    while place < request.n:
        yield place
        place *= request.radix


def _digits(request: Request, place: int) -> Iterator[range]:
    """The digits z with z*place < n, at most p together: no offset has a larger one at that place."""
    stop = min(request.radix, -(-request.n // place))
    for first in range(1, stop, request.ports):
        yield range(first, min(first + request.ports, stop))


BRUCK = (
    from_shifts("all-to-all-bruck", "All-to-All: Bruck, log_r n digits", _all_to_all, parameters=("ports", "radix")),
    from_shifts("all-gather-bruck", "AllGather: Bruck, log_r n digits", _all_gather, parameters=("ports", "radix")),
)
