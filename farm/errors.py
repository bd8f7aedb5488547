"""What can go wrong, one class per kind, each with the exit code the command line gives it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "EnvironmentFailure",
    "InputError",
    "Interrupted",
    "LumenFarmError",
    "UnreachableError",
    "nearest",
    "unknown_word",
]

_LONGEST_VALUE = 80


class LumenFarmError(Exception):
    """Any error LumenFarm raises on purpose.

    ``kind`` is a stable word for scripts, ``where`` names the field, file or place, ``exit_code`` is
    what the command line ends with.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, where: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where


class InputError(LumenFarmError):
    """A value from the user is not usable: says which field, what was expected and what came."""

    kind = "bad-input"
    exit_code = 2

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}, got {_short(value)}", where=field)
        self.field = field
        self.value = value
        self.expected = expected

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.expected)


class UnreachableError(InputError):
    """No candidate topology lets some pair of GPUs communicate."""

    kind = "unreachable"


class EnvironmentFailure(LumenFarmError):
    """The machine, a file system or the cluster failed, not the input."""

    kind = "environment"
    exit_code = 3


class Interrupted(LumenFarmError):
    """The user stopped the work; what was finished is kept in the cache."""

    kind = "interrupted"
    exit_code = 130


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The valid word that looks most like ``word``, or None if none comes close."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[close[0]] if close else None


def unknown_word(field: str, word: str, options: Iterable[str]) -> InputError:
    """The error for a name that is not one of ``options``, with the nearest valid name."""
    names = sorted(options)
    close = nearest(word, names)
    hint = f" (did you mean {close!r}?)" if close else ""
    return InputError(field, word, f"one of {', '.join(names)}{hint}")


def _short(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
