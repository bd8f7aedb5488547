"""The seams: what the driver needs from executors, stores and clocks.

Concrete classes live in `lumenfarm.tasks` and `lumenfarm.cache`; only `lumenfarm.api` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lumenfarm.problem import Outcome, Record, Task

__all__ = ["BatchDone", "Clock", "Executor", "Record", "ResultStore", "save_outcome"]


@dataclass(frozen=True, slots=True)
class BatchDone:
    """One batch of tasks, finished.

    Attributes:
        tasks: those of the batch that are done.
        outcomes: one for each of them.
        busy_s: how long a worker was busy with it.
        saved: whether all outcomes reached the store from where they were found. If not, whoever asked saves them.
        left: the other tasks of the batch, for which there was no time.
    """

    tasks: Sequence[Task]
    outcomes: Sequence[Outcome]
    busy_s: float
    saved: bool
    left: Sequence[Task]


class Executor(Protocol):
    """Runs batches of tasks, in any order, with a bounded number in flight."""

    @property
    def workers(self) -> int:
        """How many batches can run at once."""
        ...

    @property
    def busy(self) -> int:
        """How many workers have something to do now."""
        ...

    def run(self, batches: Iterable[Sequence[Task]]) -> Iterator[BatchDone]:
        """Each batch as it finishes.

        Batches are drawn lazily, so that later ones can be sized by earlier ones; and when no more come, once again
        after each batch that finishes, since tasks may have been left.
        """
        ...

    def close(self) -> None:
        """Give up what is not finished, and end workers that this executor started; idempotent."""
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


def save_outcome(store: ResultStore, task: Task, outcome: Outcome) -> None:
    """Publish an outcome under its task's key, the readable request beside it."""
    store.save(task.key, task.kind, task.describe(), outcome.to_record())
