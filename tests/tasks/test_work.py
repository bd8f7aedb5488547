"""What a worker does with a batch, and the executor that has no workers."""

import numpy as np
import pytest

from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.results import ResultCache
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Step, Topology
from lumenfarm.problem import MetricTask, ThetaTask
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.local_pool import LocalExecutor
from lumenfarm.tasks.work import solve, solve_batch


def ring_task(gpus):
    """A shift by two on the directed ring: every flow takes two hops, so theta is 1/2. By one: 1."""
    patterns = [Step(PairMatrix.shift(gpus, offset, 1.0)).pattern(1) for offset in (1, 2)]
    return ThetaTask(Topology.circulant(gpus, {1: 1}), patterns, (gpus,))


def cut_task():
    """A shift by one where circuits join only GPUs of equal parity."""
    return ThetaTask(Topology.circulant(6, {2: 1}), [Step(PairMatrix.shift(6, 1, 1.0)).pattern(1)], (6,))


def test_a_task_is_answered():
    row = solve(ring_task(5))
    assert row.theta == pytest.approx((1.0, 0.5))
    assert row.hops == (1.0, 2.0)
    assert solve(cut_task()).theta == (0.0,)


def test_a_task_with_a_group_has_the_same_theta_and_potentials():
    plain = ring_task(5)
    rotations = Symmetry(5, ((np.arange(5) + 1) % 5,))
    task = MetricTask(plain.topology, plain.patterns, rotations, 1)
    row = solve(task)
    assert (row.theta, row.hops) == (solve(plain).theta, solve(plain).hops)
    assert row.potentials.shape == (2, 1, 5)
    again = task.read(row.to_record())
    assert (again.theta, again.hops, again.solves) == (row.theta, row.hops, row.solves)
    assert again.potentials == pytest.approx(row.potentials, rel=1e-6)
    assert task.key != plain.key


def test_a_batch_is_answered_in_order_and_saved():
    cache = ResultCache(MemoryStore())
    tasks = [ring_task(5), cut_task(), ring_task(7)]
    done = solve_batch(tasks, cache)
    assert done.tasks == tasks
    assert list(done.outcomes) == [solve(task) for task in tasks]
    assert done.busy_s > 0
    assert (done.saved, done.left) == (True, [])
    assert [task.read(cache.load(task.key)) for task in tasks] == list(done.outcomes)


def test_a_batch_ends_with_the_task_that_takes_too_long(monkeypatch):
    monkeypatch.setattr("lumenfarm.tasks.work._LONGEST_S", 1e-12)
    cache = ResultCache(MemoryStore())
    tasks = [ring_task(5), ring_task(6), ring_task(7)]
    done = solve_batch(tasks, cache)
    assert (done.tasks, done.left) == (tasks[:1], tasks[1:])
    assert list(done.outcomes) == [solve(tasks[0])]
    assert list(cache.store.names()) == [tasks[0].key]


def test_what_was_solved_before_a_failure_is_saved():
    cache = ResultCache(MemoryStore())
    good, bad = ring_task(5), ThetaTask(None, [], (5,))
    with pytest.raises(AttributeError):
        solve_batch([good, bad, ring_task(7)], cache)
    assert list(cache.store.names()) == [good.key]


def test_the_local_executor_takes_a_batch_only_when_the_one_before_is_done():
    drawn = []

    def batches():
        for gpus in (5, 6, 7):
            drawn.append(gpus)
            yield [ring_task(gpus)]

    cache = ResultCache(MemoryStore())
    executor = LocalExecutor(cache)
    for count, done in enumerate(executor.run(batches()), start=1):
        assert drawn == [5, 6, 7][:count]
        assert cache.load(done.tasks[0].key) is not None
    assert count == 3
    assert (executor.workers, executor.busy) == (1, 1)
    executor.close()
    executor.close()
