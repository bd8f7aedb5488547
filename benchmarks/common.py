"""What the benchmarks share: options, the line about machine and versions, timing, tables."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import Generic, TypeVar

__all__ = ["Timed", "parser", "setting", "table", "timed"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Timed(Generic[T]):
    """What a call returned, and how long it took."""

    value: T
    seconds: float


def parser(description: str | None, *, small: str) -> argparse.ArgumentParser:
    """A parser with ``--small``.

    Args:
        description: docstring of the benchmark; its first line is shown.
        small: what ``--small`` does.
    """
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--small", action="store_true", help=small)
    return made


def setting(*packages: str) -> str:
    """CPUs, how many processes want them, Python and the versions of ``packages``, in one line."""
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), load {os.getloadavg()[0]:.1f}"
    return f"{machine}; " + ", ".join([f"Python {platform.python_version()}", *(f"{p} {version(p)}" for p in packages)])


def timed(action: Callable[[], T], *, repetitions: int = 1, clock: Callable[[], float] = time.perf_counter) -> Timed[T]:
    """The median time of calling ``action``, and what it returned last.

    Args:
        action: called ``repetitions`` times.
        repetitions: at least 1.
        clock: `time.perf_counter` for wall time, `time.process_time` for the CPU time of this process.
    """
    seconds = []
    for _ in range(repetitions):
        start = clock()
        value = action()
        seconds.append(clock() - start)
    return Timed(value, median(seconds))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text in columns; numbers, that is all but the columns whose name begins with ``<``, are aligned to the right."""
    cells = [[column.lstrip("<") for column in columns], *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    signs = ["<" if column.startswith("<") else ">" for column in columns]
    layout = "  ".join(f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True))
    return "\n".join(layout.format(*row).rstrip() for row in cells)
