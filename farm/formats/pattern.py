"""Harvest's ``collective_pattern/v1`` JSON in and out.

An object with ``schema``, ``collective``, ``n``, ``units`` ("bytes"), ``steps`` and, if known, ``dims`` and
``ports``. A step has an ``id`` (from 1), ``demand`` as [source, destination, bytes] rows and, if known,
``chunksize``. The format has no place for the message size, so a collective read from it has none.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from lumenfarm.errors import InputError
from lumenfarm.formats.document import (
    MAX_GPUS,
    Dims,
    Document,
    FastList,
    Gpu,
    Gpus,
    pair_matrix,
    require_schema,
    schema_of,
    validate,
)
from lumenfarm.formats.reading import Content, json_text, number
from lumenfarm.model import Collective, Step
from lumenfarm.units import MAX_BYTES

__all__ = ["SCHEMA", "detect", "dump_collective", "read_collective"]

SCHEMA = "collective_pattern/v1"

# Rounding noise of a file's own sums.
_RELATIVE_NOISE = 1e-9

_Row = Annotated[tuple[Gpu, Gpu, Annotated[float, Field(ge=0, le=MAX_BYTES)]], Strict(False)]


class _StepEntry(Document):
    id: int
    chunksize: Annotated[float, Field(gt=0, le=MAX_BYTES)] | None = None
    demand: FastList[_Row] = Field(min_length=1)


class _PatternFile(Document):
    schema_: str = Field(alias="schema")
    collective: str = Field(min_length=1)
    n: Gpus
    dims: Dims | None = None
    ports: Annotated[int, Field(ge=1, lt=MAX_GPUS)] | None = None
    units: Literal["bytes"]
    steps: FastList[_StepEntry] = Field(min_length=1)


def detect(content: Content) -> bool:
    """Whether the content calls itself a collective pattern, of whatever version."""
    return content.is_json and schema_of(content.json).startswith("collective_pattern/")


def read_collective(content: Content) -> Collective:
    """The collective in a ``collective_pattern/v1`` file; rows of the same pair are added.

    Without ``dims`` the GPUs form a ring. ``ports`` is checked and dropped: a collective runs on any fabric.

    Raises:
        InputError: the file is not such a pattern; the field names the place in it.
    """
    value = content.json
    require_schema(value, SCHEMA)
    file = validate(_PatternFile, value)
    steps = tuple(_step(file.n, position, entry) for position, entry in enumerate(file.steps))
    return Collective(file.collective, steps, tuple(file.dims or (file.n,)))


def dump_collective(collective: Collective, *, ports: int | None = None) -> str:
    """The collective as ``collective_pattern/v1`` text: one row a pair, row-major, byte-stable.

    Args:
        collective: what to write; its message size and origin are lost.
        ports: ports of the algorithm, left out if None.
    """
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "collective": collective.name,
        "n": collective.n,
        "dims": list(collective.dims),
    }
    if ports is not None:
        head["ports"] = ports
    steps = [_step_record(position, step) for position, step in enumerate(collective.steps, start=1)]
    return json_text(head | {"units": "bytes", "steps": steps})


def _step(n: int, position: int, entry: _StepEntry) -> Step:
    place = f"steps[{position}]"
    if entry.id != position + 1:
        raise InputError(f"{place}.id", entry.id, f"{position + 1}, since steps count from 1")
    demand = pair_matrix(n, entry.demand, f"{place}.demand")
    if not len(demand):
        raise InputError(f"{place}.demand", 0, "at least one GPU that sends something")
    # A chunk is a part of what some GPU sends, but how many a GPU handles at once differs between algorithms.
    if entry.chunksize is not None and entry.chunksize > demand.largest_sum * (1 + _RELATIVE_NOISE):
        expected = f"at most the {demand.largest_sum:g} bytes of the busiest GPU"
        raise InputError(f"{place}.chunksize", entry.chunksize, expected)
    return Step(demand, entry.chunksize)


def _step_record(position: int, step: Step) -> dict[str, Any]:
    record: dict[str, Any] = {"id": position}
    if step.declared_chunk_bytes is not None:
        record["chunksize"] = number(step.declared_chunk_bytes)
    rows = [[source, destination, number(size)] for source, destination, size in step.demand.items()]
    return record | {"demand": rows}
