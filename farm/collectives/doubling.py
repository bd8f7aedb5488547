"""Recursive doubling in its three published forms, for power-of-two sizes.

All send m/2, m/4, .., m/n in the ReduceScatter and the same backwards in the AllGather; they differ in whom a GPU talks
to. On a torus the steps rotate over the dimensions (`lumenfarm.collectives.torus.rotation`).

- ``rd``: cyclic, u -> u + 2^i. A GPU sends to one GPU and receives from another.
- ``rd-exchange``: pairwise, u <-> u XOR 2^i, near partners and large messages first.
- ``halving-doubling``: pairwise with far partners first, so that what a GPU is responsible for stays contiguous.

Harvest uses the cyclic form as a traffic model, but it can be run (Kolmakov and Zhang, arXiv 2004.09362). In the step
with offset o, u sends u + o its partial sums of the chunks u + o + x, where x runs over all sums of offsets still to
come, and so ends with the whole sum of chunk u. On the way back it sends all it holds to u + o.
"""

from __future__ import annotations

from lumenfarm.collectives.generator import Request, Rounds, ShiftStep, Steps, steps_of, whole_and_halves
from lumenfarm.collectives.torus import halving_steps, partners, require_powers_of_two
from lumenfarm.matrix import Ints

__all__ = ["CYCLIC", "EXCHANGE", "HALVING_DOUBLING"]


def _cyclic_shifts(request: Request) -> Rounds:
    """Shift by 2^i with m/2^(i+1) bytes (Harvest, section 2; model section 10)."""
    require_powers_of_two(request.dims)
    turns = range(request.n.bit_length() - 1)
    return tuple((ShiftStep(2**turn, request.message_bytes / 2 ** (turn + 1)),) for turn in turns)


def _cyclic(request: Request) -> Steps:
    if len(request.dims) == 1:
        return steps_of(request.n, _cyclic_shifts(request))
    return halving_steps(request.message_bytes, partners(request.dims, lambda place, turn: place + 2**turn))


def _exchange(request: Request) -> Steps:
    """Vector halving with distance doubling (Rabenseifner, ICCS 2004)."""
    return halving_steps(request.message_bytes, _flipped(request))


def _halving(request: Request) -> Steps:
    """Recursive halving, whose reverse is recursive doubling (Thakur, Rabenseifner and Gropp, IJHPCA 2005)."""
    return halving_steps(request.message_bytes, _flipped(request)[::-1])


def _flipped(request: Request) -> list[Ints]:
    return partners(request.dims, lambda place, turn: place ^ 2**turn)


CYCLIC = whole_and_halves("rd", "recursive doubling, cyclic, u to u + 2^i", _cyclic, _cyclic_shifts)
EXCHANGE = whole_and_halves("rd-exchange", "recursive doubling in pairs, u XOR 2^i, nearest first", _exchange)
HALVING_DOUBLING = whole_and_halves(
    "halving-doubling", "recursive halving in pairs, u XOR 2^i, farthest first", _halving
)
