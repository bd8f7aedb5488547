"""Planner, store and executor in one loop: look up, solve what is missing, feed, stop when it is good enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lumenfarm.planner import CandidatePlanner, Standing
from lumenfarm.ports import Clock, Executor, Record, ResultStore
from lumenfarm.problem import Outcome, Task

__all__ = ["Limits", "Listener", "Work", "run"]

# A batch should keep a worker busy for about this long: far above the price of handing it out.
_BATCH_S = 1.0
# Working out where the search stands may take at most this share of the time.
_STANDING_SHARE = 0.1

# Told where the search stands, and how many workers are busy.
Listener: TypeAlias = Callable[[Standing, int], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop early: once the gap is reached, or after a time; None for not at all."""

    gap: float | None = None
    time_limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What a run took.

    Attributes:
        theta: linear programs solved for theta.
        solved: tasks answered by an executor; 0 means that none was started.
        from_cache: tasks answered by the store.
        left_out: tasks not answered because a limit stopped the run.
    """

    theta: int
    solved: int
    from_cache: int
    left_out: int


def run(
    planner: CandidatePlanner,
    store: ResultStore,
    make_executor: Callable[[], Executor],
    *,
    limits: Limits,
    clock: Clock,
    listen: Listener,
) -> Work:
    """Answer the planner's tasks from the store and, for the rest, from an executor made only then.

    Args:
        planner: asked for its tasks, fed their outcomes.
        store: looked up first; executors save into it themselves.
        make_executor: called at most once, and only if some task is not in the store.
        limits: when to stop early.
        clock: for the time limit.
        listen: told now and then where the search stands.
    """
    watch = _Watch(planner, limits, clock, listen)
    tasks = planner.tasks()
    missing = [task for task in tasks if not _answered_by(store, planner, task)]
    theta = 0
    waiting = _Waiting(missing)
    if missing and not watch.enough(busy=0):
        executor = make_executor()
        try:
            for done in executor.run(waiting.batches(executor.workers)):
                waiting.learn(len(done.tasks), done.busy_s)
                for task, outcome in zip(done.tasks, done.outcomes, strict=True):
                    planner.feed(task, outcome)
                    theta += outcome.solves
                if watch.enough(busy=executor.busy):
                    break
        finally:
            executor.close()
    watch.tell(busy=0)
    left_out = len(tasks) - planner.done
    found = len(tasks) - len(missing)
    return Work(theta, solved=planner.done - found, from_cache=found, left_out=left_out)


def _answered_by(store: ResultStore, planner: CandidatePlanner, task: Task) -> bool:
    record = store.load(task.key)
    outcome = None if record is None else _read(task, record)
    if outcome is not None:
        planner.feed(task, outcome)
    return outcome is not None


def _read(task: Task, record: Record) -> Outcome | None:
    try:
        return task.read(record)
    except ValueError:
        return None


class _Waiting:
    """Tasks not handed out yet, cut into batches whose size follows the time that earlier ones took."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._next = 0
        self._done, self._busy_s = 0, 0.0

    def learn(self, tasks: int, busy_s: float) -> None:
        self._done += tasks
        self._busy_s += busy_s

    def batches(self, workers: int) -> Iterator[Sequence[Task]]:
        while self._next < len(self._tasks):
            stop = self._next + self._size(workers)
            yield self._tasks[self._next : stop]
            self._next = stop

    def _size(self, workers: int) -> int:
        fair = math.ceil((len(self._tasks) - self._next) / (2 * max(workers, 1)))
        if not self._done:
            return min(fair, 4)
        return max(1, min(fair, int(_BATCH_S * self._done / max(self._busy_s, 1e-9))))


class _Watch:
    """Looks at the limits, and tells the listener, without taking more than its share of the time."""

    def __init__(self, planner: CandidatePlanner, limits: Limits, clock: Clock, listen: Listener) -> None:
        self._planner, self._limits, self._clock, self._listen = planner, limits, clock, listen
        self._start = self._next_look = clock()

    def enough(self, *, busy: int) -> bool:
        now = self._clock()
        limit = self._limits.time_limit_s
        if limit is not None and now - self._start >= limit and self._planner.carried:
            return True
        if now < self._next_look:
            return False
        standing = self.tell(busy=busy)
        took = self._clock() - now
        self._next_look = now + took / _STANDING_SHARE
        return self._limits.gap is not None and standing.gap <= self._limits.gap

    def tell(self, *, busy: int) -> Standing:
        standing = self._planner.standing()
        self._listen(standing, busy)
        return standing
