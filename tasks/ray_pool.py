"""Batches as Ray tasks, one CPU each, a bounded number in flight. The only module that imports Ray."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import ray
import ray._private.worker as ray_worker

from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.opening import open_cache
from lumenfarm.cache.results import ResultCache
from lumenfarm.errors import EnvironmentFailure, LumenFarmError
from lumenfarm.ports import BatchDone
from lumenfarm.problem import Outcome, Task
from lumenfarm.tasks.work import solve_batch
from lumenfarm.versions import versions

__all__ = ["RayExecutor"]

_IN_FLIGHT_PER_WORKER = 2
_RETRIES = 3
_LISTENING_S = 5.0
_ATTEMPTS = "RAY_gcs_server_port_wait_time_s"
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_OWN: dict[str, Any] = {
    "include_dashboard": False,
    "object_store_memory": 256 * 1024**2,
    # Without it Ray starts again for ever what runs out of memory.
    "_system_config": {"task_oom_retries": _RETRIES},
}


class RayExecutor:
    """Workers of a Ray cluster.

    The cluster is the one this process is connected to already, which is then left connected; or the one at
    ``address``; or one started on this machine for the lifetime of the executor.

    Args:
        store_url: where workers save results; what they cannot write, such as memory, they report as not saved. A
            folder must be shared by all machines of the cluster.
        workers: how many tasks at once; for a cluster started here that is also its number of CPUs.
        address: ``host:port`` or ``auto`` for a running cluster, None for one of the others.

    Raises:
        EnvironmentFailure: Ray cannot be started or reached, its workers run other versions, or there is an address
            although this process is connected already.
    """

    def __init__(self, store_url: str, *, workers: int, address: str | None = None) -> None:
        self.workers = workers
        self._saves = store_url != MemoryStore.url
        self._worker_url = store_url if self._saves else NullStore.url
        self._pending: dict[Any, Sequence[Task]] = {}
        self._shared = ray.is_initialized()
        self._solve = ray.remote(num_cpus=1, max_retries=_RETRIES)(_solve_remotely)
        with contextlib.ExitStack() as session:
            if not ray.is_initialized():
                session.enter_context(_connected(workers, address))
            elif address is not None:
                raise EnvironmentFailure(f"connected to a Ray cluster already, not looking at {address}", where="ray")
            _check_versions()
            self._session = session.pop_all()

    @property
    def busy(self) -> int:
        """How many workers have something to do now."""
        return min(len(self._pending), self.workers)

    def run(self, batches: Iterable[Sequence[Task]]) -> Iterator[BatchDone]:
        """Each batch as it finishes.

        Raises:
            EnvironmentFailure: a batch failed again after its retries, or the cluster is gone.
        """
        waiting = iter(batches)
        self._fill(waiting)
        while self._pending:
            (finished,), _ = ray.wait(list(self._pending), num_returns=1)
            batch = self._pending.pop(finished)
            outcomes, busy_s, saved = _fetch(finished)
            done = len(outcomes)
            # The consumer hears of the result first: the next batch follows from it.
            yield BatchDone(batch[:done], outcomes, busy_s, saved and self._saves, batch[done:])
            self._fill(waiting)

    def close(self) -> None:
        """Give up what is not finished; leave the cluster, and end it if this executor started it."""
        if self._shared:
            # Elsewhere leaving the cluster ends its tasks, and a cancellation that meets this can abort the process.
            for reference in self._pending:
                ray.cancel(reference, force=True)
        self._pending.clear()
        self._session.close()

    def _fill(self, waiting: Iterator[Sequence[Task]]) -> None:
        room = self.workers * _IN_FLIGHT_PER_WORKER - len(self._pending)
        for batch in itertools.islice(waiting, room):
            self._pending[self._solve.remote(batch, self._worker_url)] = batch


@contextlib.contextmanager
def _connected(workers: int, address: str | None) -> Iterator[None]:
    printing = ray_worker._worker_logs_enabled
    # What Ray says about workers that die goes to stdout, where a result may be expected.
    ray_worker._worker_logs_enabled = False
    try:
        _connect(workers, address)
        yield
    finally:
        ray.shutdown()
        ray_worker._worker_logs_enabled = printing


def _connect(workers: int, address: str | None) -> None:
    try:
        if address is None:
            with _interrupts_held():
                ray.init("local", num_cpus=workers, **_OWN, **_QUIET)
        else:
            _check_listening(address)
            with _one_attempt():
                ray.init(address, **_QUIET)
    except (OSError, OverflowError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        how = "started" if address is None else f"reached at {address}"
        raise EnvironmentFailure(f"Ray cannot be {how}: {_first_line(error)}", where="ray") from error


def _check_listening(address: str) -> None:
    """Fail where nothing listens, which Ray takes minutes to find out."""
    host, _, port = address.rpartition(":")
    if "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_LISTENING_S).close()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Interrupted while it starts, Ray can crash or leave half of itself behind; a second interrupt gets through."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    held = []

    def hold(number: int, _: object) -> None:
        held.append(number)
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    for number in held:
        signal.raise_signal(number)


@contextlib.contextmanager
def _one_attempt() -> Iterator[None]:
    """Without it Ray tries twenty times to join a cluster, each time for most of a minute."""
    wanted = os.environ.get(_ATTEMPTS)
    os.environ[_ATTEMPTS] = wanted or "1"
    try:
        yield
    finally:
        if wanted is None:
            del os.environ[_ATTEMPTS]


def _check_versions() -> None:
    theirs = _fetch(ray.remote(num_cpus=0)(_versions_there).remote())
    differing = [name for name, version in versions().items() if theirs.get(name) != version]
    if differing:
        both = ", ".join(f"{name} {versions()[name]} here, {theirs.get(name)} there" for name in differing)
        raise EnvironmentFailure(f"the cluster runs other versions: {both}", where="address")


def _fetch(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, LumenFarmError):
            raise error.cause from error
        raise EnvironmentFailure(f"a worker failed: {_first_line(error.cause)}", where="ray") from error
    except ray.exceptions.RayError as error:
        raise EnvironmentFailure(f"Ray lost a batch: {_first_line(error)}", where="ray") from error


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _versions_there() -> dict[str, str]:
    return versions()


def _solve_remotely(batch: Sequence[Task], store_url: str) -> tuple[Sequence[Outcome], float, bool]:
    """Outcomes of the first tasks, how long they took in seconds, and whether the store has taken all of them."""
    store = _opened(store_url)
    refused = store.counters.refused
    done = solve_batch(batch, store)
    return done.outcomes, done.busy_s, store.counters.refused == refused


@cache
def _opened(store_url: str) -> ResultCache:
    return open_cache(store_url)
