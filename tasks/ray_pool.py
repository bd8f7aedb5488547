"""Batches as Ray tasks, one CPU each, a bounded number in flight. The only module that imports Ray."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import ray

from lumenfarm.cache.opening import open_cache
from lumenfarm.cache.results import ResultCache
from lumenfarm.errors import EnvironmentFailure, LumenFarmError
from lumenfarm.ports import BatchDone
from lumenfarm.problem import Task
from lumenfarm.tasks.work import solve_batch
from lumenfarm.versions import versions

__all__ = ["RayExecutor"]

_IN_FLIGHT_PER_WORKER = 2
_RETRIES = 3
_OBJECT_STORE_BYTES = 256 * 1024**2


class RayExecutor:
    """A Ray cluster: the one at ``address``, or one started on this machine for the lifetime of the executor.

    Args:
        store_url: where workers save results.
        workers: how many tasks at once; on a cluster of its own that is also its number of CPUs.
        address: a running cluster; None starts one.

    Raises:
        EnvironmentFailure: Ray cannot be started or reached, or its workers run other versions.
    """

    def __init__(self, store_url: str, *, workers: int, address: str | None = None) -> None:
        self.workers = workers
        self.busy = 0
        self._store_url = store_url
        self._solve = ray.remote(num_cpus=1, max_retries=_RETRIES)(_solve_remotely)
        _connect(workers, address)
        if address is not None:
            _check_versions()

    def run(self, batches: Iterable[Sequence[Task]]) -> Iterator[BatchDone]:
        """Each batch as it finishes.

        Raises:
            EnvironmentFailure: a batch failed again after its retries, or the cluster is gone.
        """
        waiting = iter(batches)
        pending = [self._submit(batch) for batch in itertools.islice(waiting, self.workers * _IN_FLIGHT_PER_WORKER)]
        try:
            while pending:
                finished, pending = ray.wait(pending, num_returns=1)
                self.busy = min(len(pending), self.workers)
                # The consumer hears of the result first: the size of the next batch follows from it.
                yield _result(finished[0])
                pending += [self._submit(batch) for batch in itertools.islice(waiting, 1)]
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster; end it if this executor started it."""
        ray.shutdown()

    def _submit(self, batch: Sequence[Task]) -> Any:
        return self._solve.remote(batch, self._store_url)


def _connect(workers: int, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    own = {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    options: dict[str, Any] = quiet if address else quiet | own
    try:
        ray.init(address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        how = f"reached at {address}" if address else "started"
        raise EnvironmentFailure(f"Ray cannot be {how}: {error}", where="ray") from error


def _check_versions() -> None:
    theirs = ray.get(ray.remote(num_cpus=0)(versions).remote())
    differing = [name for name, version in versions().items() if theirs.get(name) != version]
    if differing:
        both = ", ".join(f"{name} {versions()[name]} here, {theirs.get(name)} there" for name in differing)
        raise EnvironmentFailure(f"the cluster runs other versions: {both}", where="address")


def _result(reference: Any) -> BatchDone:
    try:
        done: BatchDone = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LumenFarmError):
            raise error.cause from error
        raise EnvironmentFailure(f"a worker failed: {error.cause!r}", where="ray") from error
    except ray.exceptions.RayError as error:
        raise EnvironmentFailure(f"Ray lost a batch: {error}", where="ray") from error
    return done


def _solve_remotely(batch: Sequence[Task], store_url: str) -> BatchDone:
    return solve_batch(batch, _opened(store_url))


@cache
def _opened(store_url: str) -> ResultCache:
    return open_cache(store_url)
