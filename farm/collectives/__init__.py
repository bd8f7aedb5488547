"""Collective algorithms by name: who sends how much to whom in each step.

Sizes follow one convention (model section 10): the message is what each GPU holds, m bytes. A ReduceScatter reduces
vectors of m bytes, an AllGather ends with m bytes, an All-to-All has m/n bytes for each GPU (a GPU's block for itself
included), a broadcast spreads m bytes.

To add an algorithm, write a module with a tuple of `Generator` and add one line to `GENERATORS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from lumenfarm.collectives.alltoall import ALL_TO_ALL
from lumenfarm.collectives.broadcast import BROADCAST
from lumenfarm.collectives.bruck import BRUCK
from lumenfarm.collectives.doubling import CYCLIC, EXCHANGE, HALVING_DOUBLING
from lumenfarm.collectives.generator import Generator, Request, ShiftStep
from lumenfarm.collectives.ring import RING
from lumenfarm.collectives.swing import MIRRORED_SWING, SWING
from lumenfarm.errors import InputError, unknown_word
from lumenfarm.model import Collective, Origin
from lumenfarm.units import finite

__all__ = ["GENERATORS", "Generator", "ShiftStep", "compose", "generate", "regenerate", "shift_steps"]

GENERATORS: Final[Mapping[str, Generator]] = {
    generator.name: generator
    for generator in (
        *RING,
        *CYCLIC,
        *EXCHANGE,
        *HALVING_DOUBLING,
        *SWING,
        *MIRRORED_SWING,
        *ALL_TO_ALL,
        *BRUCK,
        *BROADCAST,
    )
}


def generate(
    name: str,
    *,
    gpus: int | None = None,
    dims: tuple[int, ...] | None = None,
    message_bytes: float,
    ports: int = 1,
    radix: int | None = None,
    root: int | None = None,
) -> Collective:
    """The collective ``name`` for a given size.

    Args:
        name: a key of `GENERATORS`.
        gpus: number of GPUs, at least 2; may be left out when ``dims`` are given.
        dims: sizes of the torus, row-major, each at least 2; (gpus,) by default.
        message_bytes: bytes each GPU holds, above 0; times gpus below 2**63.
        ports: ports of a GPU, at least 1; changes the steps only of generators that name it as a parameter.
        radix: base, at least 2 (default 2); only for generators that name it.
        root: rank to start from (default 0); only for generators that name it.

    Raises:
        InputError: an unknown name, a value out of range, gpus that are not the product of dims, a radix or root for a
            generator without one, or a size the algorithm is not defined for.
    """
    generator = _generator(name)
    request = _request(
        generator, dims=_dims(gpus, dims), message_bytes=message_bytes, ports=ports, radix=radix, root=root
    )
    parameters: dict[str, int | str] = {field: getattr(request, field) for field in generator.parameters}
    steps = generator.steps(request)
    return Collective(name, steps, request.dims, request.message_bytes, Origin(name, parameters))


def regenerate(origin: Origin, *, dims: tuple[int, ...], message_bytes: float) -> Collective:
    """The collective of the same origin for another, or the same, size.

    Raises:
        InputError: as `generate`; also when the origin holds a parameter its generator does not use, or one that is not
            a whole number.
    """
    used = _generator(origin.generator).parameters
    for field in origin.parameters:
        if field not in used:
            raise InputError("origin", field, f"only the parameters of {origin.generator}: {', '.join(used) or 'none'}")
    ports = _whole(origin, "ports")
    return generate(
        origin.generator,
        dims=dims,
        message_bytes=message_bytes,
        ports=1 if ports is None else ports,
        radix=_whole(origin, "radix"),
        root=_whole(origin, "root"),
    )


def shift_steps(
    name: str, *, gpus: int, message_bytes: float, ports: int = 1, radix: int | None = None
) -> tuple[ShiftStep, ...] | None:
    """The steps of a collective on a ring, if each is one shift made by every GPU; otherwise None.

    No demand is built: n = 2**20 costs microseconds for a logarithmic number of steps. `generate` builds the demands of
    these collectives from the same steps.

    Args:
        name: a key of `GENERATORS`.
        gpus: number of GPUs, at least 2.
        message_bytes: bytes each GPU holds.
        ports: ports of a GPU.
        radix: base, only for generators that name it.

    Raises:
        InputError: as `generate`.
    """
    generator = _generator(name)
    request = _request(generator, dims=(gpus,), message_bytes=message_bytes, ports=ports, radix=radix, root=None)
    if generator.shifts is None:
        return None
    rounds = generator.shifts(request)
    if any(len(shifts) != 1 for shifts in rounds):
        return None
    return tuple(shift for (shift,) in rounds)


def compose(name: str, first: Collective, second: Collective) -> Collective:
    """One collective after another over the same GPUs, such as a ReduceScatter and an AllGather; without an origin.

    Raises:
        InputError: different dims, or different messages.
    """
    if first.dims != second.dims:
        raise InputError("dims", second.dims, f"the dims of {first.name}, {first.dims}")
    if first.message_bytes != second.message_bytes:
        raise InputError("message", second.message_bytes, f"the message of {first.name}, {first.message_bytes} bytes")
    return Collective(name, first.steps + second.steps, first.dims, first.message_bytes)


def _generator(name: str) -> Generator:
    if name not in GENERATORS:
        raise unknown_word("collective", name, GENERATORS)
    return GENERATORS[name]


def _dims(gpus: int | None, dims: tuple[int, ...] | None) -> tuple[int, ...]:
    if dims is None:
        if gpus is None:
            raise InputError("gpus", None, "a number of GPUs, or dims")
        return (gpus,)
    if gpus is not None and gpus != math.prod(dims):
        raise InputError("gpus", gpus, f"the product of the dims, {math.prod(dims)}")
    return dims


def _request(
    generator: Generator,
    *,
    dims: tuple[int, ...],
    message_bytes: float,
    ports: int,
    radix: int | None,
    root: int | None,
) -> Request:
    for field, value in (("radix", radix), ("root", root)):
        if value is not None and field not in generator.parameters:
            raise InputError(field, value, f"no {field}: {generator.name} does not use one")
    return Request(
        dims=dims,
        message_bytes=finite(message_bytes, field="message", strict=True),
        ports=ports,
        radix=2 if radix is None else radix,
        root=0 if root is None else root,
    )


def _whole(origin: Origin, field: str) -> int | None:
    value = origin.parameters.get(field)
    if value is None:
        return None
    if not isinstance(value, int):
        raise InputError(field, value, "a whole number")
    return value
