"""A table of step times on candidates as CSV: a header row, then one candidate a row, its name first."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass

import numpy as np

from lumenfarm.errors import InputError
from lumenfarm.formats.reading import read_content
from lumenfarm.matrix import Floats
from lumenfarm.units import parse_time_ns

__all__ = ["CostTable", "load_cost_table"]


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Names of candidates, shape (K,), and the time of each step on each, ns, shape (K, s)."""

    names: tuple[str, ...]
    times_ns: Floats


def load_cost_table(path: str | os.PathLike[str]) -> CostTable:
    """The table in a file. Times are bare ns or carry a unit; an empty cell or ``inf`` means: cannot be carried.

    Raises:
        InputError: an unreadable file, no candidates or steps, rows of different lengths, a name given twice, or a cell
            that is no time. The place is row and column, both from 1.
    """
    content = read_content(path)
    try:
        text = content.data.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(content.path, str(error), "CSV in UTF-8") from error
    if len(rows) < 2 or len(rows[0]) < 2:
        raise InputError(content.path, f"{len(rows)} rows", "a header row with the steps, and a row for each candidate")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(f"{content.path} row {number}", len(row), f"{len(rows[0])} cells")
    names = tuple(row[0].strip() for row in rows[1:])
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(content.path, repeated[0], "candidates with different names")
    times = [
        [_cell(cell, f"{content.path} row {r} column {c}") for c, cell in enumerate(row[1:], start=2)]
        for r, row in enumerate(rows[1:], start=2)
    ]
    return CostTable(names, np.array(times))


def _cell(text: str, place: str) -> float:
    return float("inf") if text.strip() in ("", "inf") else parse_time_ns(text, field=place)
