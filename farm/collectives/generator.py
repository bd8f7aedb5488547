"""The shared value types: what a generator is, what it is asked for, and steps in which all GPUs move alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from lumenfarm.errors import InputError
from lumenfarm.matrix import MAX_GPUS, PairMatrix
from lumenfarm.model import Step
from lumenfarm.units import MAX_BYTES, finite, positive_int

__all__ = [
    "MAX_PAIRS",
    "MAX_STEPS",
    "Builder",
    "Generator",
    "Request",
    "Round",
    "Rounds",
    "ShiftStep",
    "Steps",
    "from_shifts",
    "steps_of",
    "whole_and_halves",
]

# The partition recurrence needs steps^2 numbers, and each pair of a demand some tens of bytes.
MAX_STEPS = 2**14
MAX_PAIRS = 2**26

Item = TypeVar("Item")
Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ShiftStep:
    """Every GPU u sends ``bytes_per_gpu`` to u + offset (mod n)."""

    offset: int
    bytes_per_gpu: float


# The shifts that make up one step, and one such round for each step.
Round: TypeAlias = tuple[ShiftStep, ...]
Rounds: TypeAlias = tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What a generator is asked for.

    Attributes:
        dims: sizes of the dimensions, row-major; (n,) when there is only a ring.
        message_bytes: bytes each GPU holds.
        ports: ports the algorithm uses at a time.
        radix: base of Bruck's digits, at least 2.
        root: the GPU a broadcast starts from.

    Raises:
        InputError: no dimension or one below 2, a message that is not positive and finite or too large for all GPUs
            together, no ports, a radix below 2, a root that is no GPU.
    """

    dims: tuple[int, ...]
    message_bytes: float
    ports: int = 1
    radix: int = 2
    root: int = 0

    def __post_init__(self) -> None:
        if not self.dims:
            raise InputError("dims", self.dims, "at least one dimension")
        for size in self.dims:
            positive_int(size, field="gpus" if len(self.dims) == 1 else "dims", minimum=2)
        if self.n > MAX_GPUS:
            raise InputError("gpus", self.n, f"at most {MAX_GPUS}")
        finite(self.message_bytes, field="message", strict=True)
        if self.message_bytes > MAX_BYTES / self.n:
            raise InputError("message", self.message_bytes, f"a size below 2**63 bytes for {self.n} GPUs together")
        positive_int(self.ports, field="ports")
        positive_int(self.radix, field="radix", minimum=2)
        if positive_int(self.root, field="root", minimum=0) >= self.n:
            raise InputError("root", self.root, f"a GPU from 0 to {self.n - 1}")

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return math.prod(self.dims)

    def steps(self, count: int) -> int:
        """``count``, if a schedule of so many steps can be made.

        Raises:
            InputError: more than MAX_STEPS.
        """
        if count > MAX_STEPS:
            raise InputError("gpus", self.n, f"a size with at most {MAX_STEPS} steps; these are {count}")
        return count


Builder: TypeAlias = Callable[[Request], tuple[Item, ...]]


@dataclass(frozen=True, slots=True)
class Generator:
    """An algorithm that can be generated for any legal size.

    Attributes:
        name: what users call it.
        summary: one line for people.
        parameters: which of ``ports``, ``radix``, ``root`` change the result.
        steps: the steps with their demands.
        shifts: the steps of a one-dimensional request as shifts, if they are; ``steps`` is then built from them.
    """

    name: str
    summary: str
    parameters: tuple[str, ...]
    steps: Builder[Step]
    shifts: Builder[Round] | None = None


def from_shifts(name: str, summary: str, shifts: Builder[Round], *, parameters: tuple[str, ...] = ()) -> Generator:
    """The generator whose steps are the rounds of ``shifts``, whatever the dimensions."""
    return Generator(name, summary, parameters, lambda request: steps_of(request.n, shifts(request)), shifts)


def whole_and_halves(
    kind: str, summary: str, scatter: Builder[Step], shifts: Builder[Round] | None = None
) -> tuple[Generator, Generator, Generator]:
    """AllReduce, ReduceScatter and AllGather out of the ReduceScatter alone.

    The AllGather is the ReduceScatter with its steps in reverse order; the AllReduce is one after the other and
    shares the Step objects of both halves.

    Args:
        kind: the end of the three names.
        summary: how it works, without the collective.
        scatter: the steps of the ReduceScatter.
        shifts: the same steps as shifts, where they are.
    """
    return (
        Generator(f"all-reduce-{kind}", f"AllReduce: {summary}", (), _mirrored(scatter), shifts and _mirrored(shifts)),
        Generator(f"reduce-scatter-{kind}", f"ReduceScatter: {summary}", (), scatter, shifts),
        Generator(f"all-gather-{kind}", f"AllGather: {summary}", (), _reversed(scatter), shifts and _reversed(shifts)),
    )


def steps_of(n: int, rounds: Rounds) -> Steps:
    """One step for each round; equal rounds share one Step.

    Raises:
        InputError: demands of more than MAX_PAIRS pairs in all.
    """
    different = dict.fromkeys(rounds)
    pairs = n * sum(map(len, different))
    if pairs > MAX_PAIRS:
        raise InputError(
            "gpus", n, f"a size with at most {MAX_PAIRS} pairs in all its different steps; these are {pairs}"
        )
    distinct = {shifts: _step_of(n, shifts) for shifts in different}
    return tuple(distinct[shifts] for shifts in rounds)


def _step_of(n: int, shifts: Round) -> Step:
    ranks = np.arange(n)
    heads = [(ranks + shift.offset) % n for shift in shifts]
    amounts = np.repeat([shift.bytes_per_gpu for shift in shifts], n)
    return Step(PairMatrix(n, np.tile(ranks, len(shifts)), np.concatenate(heads), amounts))


def _reversed(builder: Builder[Item]) -> Builder[Item]:
    return lambda request: builder(request)[::-1]


def _mirrored(builder: Builder[Item]) -> Builder[Item]:
    def there_and_back(request: Request) -> tuple[Item, ...]:
        half = builder(request)
        return half + half[::-1]

    return there_and_back
