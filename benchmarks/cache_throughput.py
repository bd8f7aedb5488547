"""Put and get per second of the result cache, beside joblib.Memory and diskcache on the same values.

Run as ``python benchmarks/cache_throughput.py``; joblib and diskcache come with the ``dev`` extra. What each
promises differs: only LumenFarm flushes every entry to the device and checks a digest on every read, only
diskcache keeps one database file instead of a file an entry. The row without flushing shows what that costs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from unittest import mock

import diskcache
import joblib
from common import parser, setting, table, timed

from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.results import ResultCache

# As large as the row of one topology for the six patterns of a 64-GPU Swing AllReduce, and a vector over its GPUs.
VALUE = {"theta": [1 / (3 + i) for i in range(6)], "load": [1 / (7 + i) for i in range(64)]}
REQUEST = {"gpus": 64, "topology": "circulant{+1,-1}"}
OURS = "lumenfarm"


@dataclass(frozen=True, slots=True)
class Store:
    """One contender: both operations take a key; ``get`` returns the value."""

    put: Callable[[str], object]
    get: Callable[[str], object]


@contextmanager
def lumenfarm_store(folder: Path) -> Iterator[Store]:
    """The result cache on a folder."""
    cache = ResultCache(DirectoryStore(folder))
    yield Store(lambda key: cache.save(key, "theta-row/1", REQUEST, VALUE), cache.load)


@contextmanager
def unflushed_store(folder: Path) -> Iterator[Store]:
    """The same, with fsync doing nothing."""
    with mock.patch("os.fsync", skip), lumenfarm_store(folder) as store:
        yield store


@contextmanager
def joblib_store(folder: Path) -> Iterator[Store]:
    """A memoised function: its first call with a key is a put, the second a get."""
    call = joblib.Memory(folder, verbose=0).cache(solve)
    yield Store(call, call)


@contextmanager
def diskcache_store(folder: Path) -> Iterator[Store]:
    """A SQLite file, with large values in files of their own."""
    with diskcache.Cache(folder) as cache:
        yield Store(lambda key: cache.set(key, VALUE), cache.get)


CONTENDERS: dict[str, Callable[[Path], AbstractContextManager[Store]]] = {
    OURS: lumenfarm_store,
    "lumenfarm, no fsync": unflushed_store,
    "joblib.Memory": joblib_store,
    "diskcache.Cache": diskcache_store,
}


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second."""

    put: float
    get: float


def solve(_key: str) -> object:
    """What joblib.Memory memoises."""
    return VALUE


def skip(_descriptor: int) -> None:
    """In place of fsync."""


def measure(open_store: Callable[[Path], AbstractContextManager[Store]], parent: Path, entries: int) -> Rates:
    """One round in a fresh folder: ``entries`` puts, then as many gets.

    Raises:
        ValueError: a get did not return what was put.
    """
    keys = [f"{number:016x}"[::-1] * 4 for number in range(entries)]
    with tempfile.TemporaryDirectory(dir=parent) as folder, open_store(Path(folder)) as store:
        rates = Rates(put=per_second(store.put, keys), get=per_second(store.get, keys))
        if store.get(keys[-1]) != VALUE:
            raise ValueError(f"{open_store.__name__} lost a value")
    return rates


def per_second(action: Callable[[str], object], keys: Sequence[str]) -> float:
    """How many keys a second ``action`` takes."""
    return len(keys) / timed(lambda: [action(key) for key in keys]).seconds


def fsync_share(parent: Path, entries: int) -> float:
    """The part of the time of LumenFarm's puts that is spent in fsync."""
    spent_s: list[float] = []
    flush = os.fsync

    def timed(descriptor: int) -> None:
        start = time.perf_counter()
        flush(descriptor)
        spent_s.append(time.perf_counter() - start)

    with mock.patch("os.fsync", timed):
        rates = measure(lumenfarm_store, parent, entries)
    return sum(spent_s) * rates.put / entries


def compare(parent: Path, entries: int, rounds: int) -> dict[str, Rates]:
    """Median rates of each contender over alternating rounds."""
    found: dict[str, list[Rates]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, open_store in CONTENDERS.items():
            found[name].append(measure(open_store, parent, entries))
    return {name: Rates(median(r.put for r in every), median(r.get for r in every)) for name, every in found.items()}


def report(rates: dict[str, Rates]) -> str:
    """The table; ratios are to LumenFarm, above 1 is faster."""
    ours = rates[OURS]
    rows = [
        (name, f"{rate.put:,.0f}", f"{rate.put / ours.put:.2f}", f"{rate.get:,.0f}", f"{rate.get / ours.get:.2f}")
        for name, rate in rates.items()
    ]
    return table(("<store", "put/s", "ratio", "get/s", "ratio"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = parser(__doc__, small="one round of 20 entries, to see that it runs")
    arguments.add_argument("--entries", type=int, default=2000, help="puts and gets in a round")
    arguments.add_argument("--rounds", type=int, default=3, help="rounds of each store; the median counts")
    arguments.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the device to measure")
    options = arguments.parse_args(argv)
    entries, rounds = (20, 1) if options.small else (options.entries, options.rounds)
    print(setting("msgpack", "joblib", "diskcache"))
    print(f"{entries} entries, median of {rounds} rounds\n")
    print(report(compare(options.folder, entries, rounds)))
    print(f"\nfsync takes {fsync_share(options.folder, entries):.0%} of a put")
    return 0


if __name__ == "__main__":
    sys.exit(main())
