"""What a worker does with a batch: solve each task, save each result, report them together."""

from __future__ import annotations

import time
from collections.abc import Sequence

from lumenfarm.ports import BatchDone, ResultStore, save_outcome
from lumenfarm.problem import MetricTask, Outcome, RelaxationTask, Task, ThetaTask
from lumenfarm.tasks.concurrent_flow import metric_row, theta_row
from lumenfarm.tasks.relaxation import relaxation_row

__all__ = ["solve", "solve_batch"]

# Batches are made for half of this, from the time that tasks before took; the next ones may be far harder.
_LONGEST_S = 2.0


def solve(task: Task) -> Outcome:
    """The answer to one task."""
    match task:
        case ThetaTask():
            return theta_row(task.topology, task.patterns, task.dims)
        case MetricTask():
            return metric_row(task.topology, task.patterns, task.symmetry)
        case RelaxationTask():
            return relaxation_row(task.problem, task.symmetry)


def solve_batch(tasks: Sequence[Task], store: ResultStore) -> BatchDone:
    """The answers to as much of a batch as there is time for; each is in the store before the next task begins."""
    start = time.perf_counter()
    busy_s = 0.0
    outcomes: list[Outcome] = []
    while len(outcomes) < len(tasks) and busy_s < _LONGEST_S:
        task = tasks[len(outcomes)]
        outcomes.append(solve(task))
        save_outcome(store, task, outcomes[-1])
        busy_s = time.perf_counter() - start
    done = len(outcomes)
    return BatchDone(tasks[:done], outcomes, busy_s, saved=True, left=tasks[done:])
