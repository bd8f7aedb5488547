"""Planner, store and executor in one loop: look up, solve what is missing, feed, stop when it is good enough."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lumenfarm.planner import SEARCH_KIND, Planner, Standing
from lumenfarm.ports import BatchDone, Clock, Executor, Record, ResultStore, save_outcome
from lumenfarm.problem import Outcome, RelaxationRow, Task

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
        bounds: relaxations solved.
        solved: tasks answered by an executor; 0 means that none was started.
        from_cache: tasks answered by the store.
        left_out: tasks not answered because a limit stopped the run.
        finished: whether there was nothing left to ask.
    """

    theta: int = 0
    bounds: int = 0
    solved: int = 0
    from_cache: int = 0
    left_out: int = 0
    finished: bool = True


def run(
    planner: Planner,
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
        store: looked up first; executors save into it themselves, and what they cannot save is saved here.
        make_executor: called at most once, and only if some task is not in the store.
        limits: when to stop early.
        clock: for the time limit.
        listen: told now and then where the search stands.
    """
    watch = _Watch(planner, limits, clock, listen)
    resumed = _resumed(planner, store)
    theta = bounds = found = 0
    with contextlib.ExitStack() as stack:
        executor: Executor | None = None
        while not watch.stopped and (tasks := planner.next_round()):
            missing = [task for task in tasks if not _answered_by(store, planner, task)]
            found += len(tasks) - len(missing)
            if watch.enough(busy=0) or not missing:
                continue
            executor = executor or stack.enter_context(contextlib.closing(make_executor()))
            batches = _Batches(missing, executor.workers)
            for done in executor.run(batches):
                batches.learn(done)
                _take_in(done, store, planner)
                theta += sum(outcome.solves for outcome in done.outcomes)
                bounds += sum(isinstance(outcome, RelaxationRow) for outcome in done.outcomes)
                if watch.enough(busy=executor.busy):
                    break
    standing = watch.tell(busy=0)
    if planner.searches and not (resumed or watch.stopped):
        store.save(planner.key, SEARCH_KIND, planner.describe(), planner.summary())
    return Work(
        theta=theta,
        bounds=bounds,
        solved=standing.done - found,
        from_cache=found,
        left_out=standing.known - standing.done,
        finished=not watch.stopped or planner.finished,
    )


def _resumed(planner: Planner, store: ResultStore) -> bool:
    """Whether an equal search has ended before, so that its result is taken over."""
    record = store.load(planner.key) if planner.searches else None
    if record is None:
        return False
    try:
        planner.resume(record)
    except ValueError:
        return False
    return True


def _take_in(done: BatchDone, store: ResultStore, planner: Planner) -> None:
    for task, outcome in zip(done.tasks, done.outcomes, strict=True):
        planner.feed(task, outcome)
        if not done.saved:
            save_outcome(store, task, outcome)


def _answered_by(store: ResultStore, planner: Planner, task: Task) -> bool:
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


class _Batches(Iterator[Sequence[Task]]):
    """Tasks not handed out yet, cut into batches whose size follows the time that the latest ones took.

    Tasks that were left come back to the front, so that there can be another batch after the last one.
    """

    def __init__(self, tasks: Sequence[Task], workers: int) -> None:
        self._tasks = deque(tasks)
        self._workers = workers
        self._measured, self._busy_s = 0.0, 0.0

    def learn(self, done: BatchDone) -> None:
        self._tasks.extendleft(reversed(done.left))
        self._measured = self._measured / 2 + len(done.tasks)
        self._busy_s = self._busy_s / 2 + done.busy_s

    def __next__(self) -> Sequence[Task]:
        if not self._tasks:
            raise StopIteration
        return [self._tasks.popleft() for _ in range(self._size())]

    def _size(self) -> int:
        fair = math.ceil(len(self._tasks) / (2 * self._workers))
        in_time = int(_BATCH_S * self._measured / max(self._busy_s, 1e-9))
        return max(1, min(fair, in_time))


class _Watch:
    """Looks at the limits, and tells the listener, without taking more than its share of the time."""

    def __init__(self, planner: Planner, limits: Limits, clock: Clock, listen: Listener) -> None:
        self._planner, self._limits, self._clock, self._listen = planner, limits, clock, listen
        self.stopped = False
        self._start = clock()
        # The first time bounds are worked out, which is not what it takes from then on.
        planner.standing()
        self._next_look = clock()

    def enough(self, *, busy: int) -> bool:
        """Whether a limit is reached and there is a plan; once true, ``stopped`` stays so."""
        self.stopped = self.stopped or self._reached(busy)
        return self.stopped

    def tell(self, *, busy: int) -> Standing:
        standing = self._planner.standing()
        self._listen(standing, busy)
        return standing

    def _reached(self, busy: int) -> bool:
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
