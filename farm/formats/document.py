"""What the JSON formats share: a strict base model, errors that name the place in the file, pairs of GPUs."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from lumenfarm.errors import InputError, unknown_word
from lumenfarm.matrix import PairMatrix

__all__ = [
    "MAX_GPUS",
    "Arc",
    "Dims",
    "Document",
    "FastList",
    "Gpu",
    "Gpus",
    "ShortDict",
    "pair_matrix",
    "require_schema",
    "schema_of",
    "validate",
]

# A file must not make the reader allocate more than it brings: arrays of this length are still small.
MAX_GPUS = 2**20

Gpu = Annotated[int, Field(ge=0, lt=MAX_GPUS)]
Gpus = Annotated[int, Field(ge=2, le=MAX_GPUS)]

# JSON arrays arrive as lists; only the container is taken leniently, its items stay strict.
Arc = Annotated[tuple[Gpu, Gpu, Annotated[int, Field(ge=1, le=MAX_GPUS)]], Strict(False)]

_T = TypeVar("_T")
_Document = TypeVar("_Document", bound="Document")

_MAX_KEYS = 100


def _few_keys(value: object) -> object:
    if isinstance(value, Mapping) and len(value) > _MAX_KEYS:
        raise PydanticCustomError("too_long", f"Input should be an object of at most {_MAX_KEYS} keys")
    return value


# A file of a million bad entries must not become a million errors: lists stop at the first, and the objects whose
# keys are free are short.
FastList = Annotated[list[_T], Field(fail_fast=True)]
ShortDict = Annotated[dict[str, _T], BeforeValidator(_few_keys), Field(max_length=_MAX_KEYS)]
Dims = Annotated[list[Gpus], Field(min_length=1, max_length=20, fail_fast=True)]

_UNKNOWN_KEY = "unknown_key"

# Looking for the nearest word takes time and memory in proportion to the word.
_LONGEST_KEY = 80


class Document(BaseModel):
    """An object in a file: exactly the declared keys, exactly their types, finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in data if key not in keys] if isinstance(data, Mapping) else []
        if unknown:
            raise PydanticCustomError(_UNKNOWN_KEY, "unknown key", {"key": unknown[0], "keys": keys})
        return data


def validate(model: type[_Document], value: object) -> _Document:
    """``value`` as a ``model``.

    Raises:
        InputError: the first thing wrong; the field is its place in the file, such as ``steps[3].demand[2][0]``.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _input_error(error.errors(include_url=False)[0]) from error


def schema_of(value: object) -> str:
    """The document's ``schema`` key, empty if it has none."""
    schema = value.get("schema") if isinstance(value, Mapping) else None
    return schema if isinstance(schema, str) else ""


def require_schema(value: object, schema: str) -> None:
    """Refuse a document of another kind or of a major version that is not known here.

    Raises:
        InputError: the document's ``schema`` is not ``schema``.
    """
    found = schema_of(value)
    if found == schema:
        return
    kind = schema.rpartition("/")[0]
    other_major = re.fullmatch(re.escape(kind) + r"/\d+", found)
    hint = ", the only version known here" if other_major else ""
    raise InputError("schema", found, f"{schema!r}{hint}")


def pair_matrix(n: int, rows: Sequence[tuple[int, int, float]], place: str) -> PairMatrix:
    """The matrix of (source, destination, value) rows, repeated pairs added.

    Args:
        n: number of GPUs.
        rows: ranks below `MAX_GPUS`, values not negative.
        place: where the rows are in the file.

    Raises:
        InputError: a rank not below n, a pair of equal ranks, or a sum of 2**63 or more.
    """
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    ranks = table[:, :2].astype(np.int64)
    outside = np.argwhere(ranks >= n)
    if len(outside):
        row, side = outside[0].tolist()
        raise InputError(f"{place}[{row}][{side}]", rows[row][side], f"a rank from 0 to {n - 1}")
    loops = np.flatnonzero(ranks[:, 0] == ranks[:, 1])
    if len(loops):
        raise InputError(f"{place}[{loops[0]}]", rows[loops[0]], "two different GPUs")
    return PairMatrix(n, ranks[:, 0], ranks[:, 1], table[:, 2], field=place)


def _input_error(error: ErrorDetails) -> InputError:
    place, value = _place(error["loc"]), error["input"]
    if error["type"] == _UNKNOWN_KEY:
        return unknown_word(place, error["ctx"]["key"][:_LONGEST_KEY], error["ctx"]["keys"])
    if error["type"] == "missing":
        return InputError(place, "nothing", "a value")
    shown = reprlib.repr(value) if isinstance(value, (list, dict)) else value
    return InputError(place, shown, _expectation(error["msg"]))


def _place(loc: Sequence[int | str]) -> str:
    """``steps[3].demand`` for ("steps", 3, "demand"); ``document`` for the whole."""
    text = "".join(f".{part}" if str(part).isidentifier() else f"[{reprlib.repr(part)}]" for part in loc)
    return text.removeprefix(".") or "document"


def _expectation(message: str) -> str:
    """``a valid integer`` for "Input should be a valid integer"."""
    match = re.fullmatch(r"(\w+) should (be )?(.*)", message)
    if match is None:
        return message
    return match[3] if match[2] else f"a {match[1].lower()} to {match[3]}"
