"""No workers: batches are solved one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lumenfarm.ports import BatchDone, ResultStore
from lumenfarm.problem import Task
from lumenfarm.tasks.work import solve_batch

__all__ = ["LocalExecutor"]


class LocalExecutor:
    """Runs each batch here and now."""

    workers = 1
    busy = 1

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def run(self, batches: Iterable[Sequence[Task]]) -> Iterator[BatchDone]:
        """Each batch, in order."""
        for batch in batches:
            yield solve_batch(batch, self._store)

    def close(self) -> None:
        """Nothing to end."""
