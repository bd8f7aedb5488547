"""Progress on stderr: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lumenfarm.driver import Listener
from lumenfarm.planner import Standing
from lumenfarm.units import format_time_ns

__all__ = ["progress"]

_LINE_EVERY_S = 5.0


@contextmanager
def progress(*, quiet: bool) -> Iterator[Listener | None]:
    """A listener that shows how far a search is, for as long as the context lasts; None if it is to be quiet."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("tasks", total=None, standing="")
            yield lambda standing, busy: bar.update(
                task, completed=standing.done, total=standing.known, standing=_line(standing, busy)
            )
    else:
        yield _Lines()


class _Lines:
    def __init__(self) -> None:
        self._next = time.monotonic() + _LINE_EVERY_S

    def __call__(self, standing: Standing, busy: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY_S
            print(f"{standing.done}/{standing.known} tasks, {_line(standing, busy)}", file=sys.stderr, flush=True)


def _bar() -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[standing]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _line(standing: Standing, busy: int) -> str:
    known = standing.cost_ns < float("inf")
    cost = f"best {format_time_ns(standing.cost_ns)}, gap {standing.gap:.1%}" if known else "no schedule yet"
    return f"{cost}, bound {format_time_ns(standing.lower_bound_ns)}, {busy} workers busy"
