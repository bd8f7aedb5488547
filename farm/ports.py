"""The seams: what the driver needs from executors, stores and clocks, and what those need from a task.

Concrete classes live in `lumenfarm.tasks` and `lumenfarm.cache`; only `lumenfarm.api` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

__all__ = ["BatchDone", "Clock", "Executor", "Outcome", "Record", "ResultStore", "Task"]

# What a result looks like at rest: numbers, strings, bytes, lists and string-keyed mappings of these.
Record: TypeAlias = Mapping[str, Any]


class Outcome(Protocol):
    """The answer to a task."""

    def to_record(self) -> Record:
        """The answer as plain data."""
        ...


class Task(Protocol):
    """One unit of work: a pure function of what it holds."""

    @property
    def kind(self) -> str:
        """The sort of task, with its format version, such as ``theta-row/1``."""
        ...

    @property
    def key(self) -> str:
        """Content address of the normalised problem, formulation and solver versions; 64 hexadecimal digits."""
        ...

    def describe(self) -> Record:
        """The problem in a form people can read; kept beside the result."""
        ...

    def read(self, record: Record) -> Outcome:
        """The answer out of a record; ValueError if the record does not answer this task."""
        ...


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch of tasks, finished: each task's outcome, and how long a worker was busy."""

    tasks: Sequence[Task]
    outcomes: Sequence[Outcome]
    busy_s: float


class Executor(Protocol):
    """Runs batches of tasks, in any order, with a bounded number in flight."""

    @property
    def workers(self) -> int:
        """How many batches can run at once."""
        ...

    def run(self, batches: Iterable[Sequence[Task]]) -> Iterator[BatchDone]:
        """Each batch as it finishes. Batches are drawn lazily, so later ones can be sized by earlier ones."""
        ...

    def close(self) -> None:
        """End workers that this executor started; idempotent."""
        ...


class ResultStore(Protocol):
    """Results by content address. A store that fails behaves like an empty one."""

    def load(self, key: str) -> Record | None:
        """The verified result under ``key``; None when there is none, or it cannot be read or trusted."""
        ...

    def save(self, key: str, kind: str, request: Record, result: Record) -> None:
        """Publish a result; idempotent, and never an error for the caller."""
        ...


class Clock(Protocol):
    """Monotonic seconds."""

    def __call__(self) -> float:
        """Seconds since some fixed moment."""
        ...
