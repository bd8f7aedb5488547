"""CSV of the circuits of each epoch: what a switch controller has to connect, and for which steps."""

from __future__ import annotations

import csv
import io

from lumenfarm.schedule import Schedule

__all__ = ["dump_circuits_csv"]


def dump_circuits_csv(schedule: Schedule) -> str:
    """One row a circuit bundle: epoch, first_step, last_step (from 1), source, destination (from 0), circuits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("epoch", "first_step", "last_step", "source", "destination", "circuits"))
    for epoch, segment in enumerate(schedule.segments, start=1):
        place = (epoch, segment.first + 1, segment.stop)
        writer.writerows((*place, *arc) for arc in schedule.topologies[segment.topology].arcs())
    return text.getvalue()
