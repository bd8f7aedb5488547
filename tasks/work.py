"""What a worker does with a batch: solve each task, save each result, report them together."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lumenfarm.ports import BatchDone, ResultStore, save_outcome
from lumenfarm.problem import MetricTask, Outcome, Task, ThetaTask
from lumenfarm.tasks.concurrent_flow import metric_row, theta_row

__all__ = ["solve", "solve_batch"]


def solve(task: Task) -> Outcome:
    """The answer to one task."""
    match task:
        case ThetaTask():
            return theta_row(task.topology, task.patterns, task.dims)
        case MetricTask():
            return metric_row(task.topology, task.patterns, task.symmetry)


def solve_batch(tasks: Sequence[Task], store: ResultStore) -> BatchDone:
    """The answers to a batch; each is in the store before the next task begins."""
    start = time.perf_counter()
    outcomes = []
    for task in tasks:
        outcome = solve(task)
        save_outcome(store, task, outcome)
        outcomes.append(outcome)
    return BatchDone(tasks, outcomes, time.perf_counter() - start, saved=True)
