"""CSV of the circuits of each epoch."""

from __future__ import annotations

import csv
import io

from lumenfarm.formats.csv_circuits import dump_circuits_csv
from lumenfarm.model import Topology
from lumenfarm.schedule import Schedule


def test_epochs_reproduce_the_topologies(schedule: Schedule) -> None:
    rows = list(csv.DictReader(io.StringIO(dump_circuits_csv(schedule))))
    assert list(rows[0]) == ["epoch", "first_step", "last_step", "source", "destination", "circuits"]
    assert {row["epoch"] for row in rows} == {"1", "2", "3"}
    for row in rows:
        step = int(row["epoch"])
        assert (row["first_step"], row["last_step"]) == (str(step), str(step))
    for epoch, segment in enumerate(schedule.segments, start=1):
        arcs = [
            (int(row["source"]), int(row["destination"]), int(row["circuits"]))
            for row in rows
            if row["epoch"] == str(epoch)
        ]
        assert Topology.from_arcs(4, arcs) == schedule.topologies[segment.topology]
