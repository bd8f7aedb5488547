"""Harvest's published schedules beside ours: cost, certified gap, and what is proved among symmetric topologies.

The rows are the table of tests/farm/test_published.py. One cache serves all rows, as it would a user.
"""

from __future__ import annotations

import math
import runpy
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import parser, setting, table, timed

import lumenfarm

TESTS = Path(__file__).parents[1] / "tests" / "farm" / "test_published.py"


def main(argv: Sequence[str]) -> None:
    """Run the benchmark."""
    options = parser(__doc__, small="three rows").parse_args(argv)
    rows = runpy.run_path(str(TESTS))["ROWS"]
    print(setting("lumenfarm", "highspy", "ray"))
    lines, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for row in rows[:3] if options.small else rows:
            job = lumenfarm.generate(row.collective, gpus=64, message_bytes=row.message_bytes, ports=row.ports)
            fabric = lumenfarm.Fabric(row.ports, 800, row.alpha_ns, row.delta_ns, row.reconfig_delay_ns)
            answer, seconds = _answered(job, fabric, folder)
            ratio = answer.cost_ns / row.cost_ns
            if row.ports == 2 and not row.bad:
                ratios.append(ratio)
            lines.append(_line(row, answer, ratio, seconds))
    columns = (
        "<collective",
        "MiB",
        "alpha",
        "delta",
        "alpha_r, us",
        "published, us",
        "k",
        "ours, us",
        "k",
        "ratio",
        "bound, us",
    )
    print(table((*columns, "gap", "proved among symmetric", "s"), lines))
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"two-port rows: geometric mean of ours/published {mean:.3f}")


def _answered(job: lumenfarm.Collective, fabric: lumenfarm.Fabric, folder: str) -> tuple[lumenfarm.Synthesis, float]:
    run = timed(lambda: lumenfarm.synthesize(job, fabric, cache=folder))
    schedule = run.value.schedule
    if schedule is None or not lumenfarm.verify_schedule(schedule).ok:
        raise SystemExit(f"not verified: {job.name}")
    return run.value, run.seconds


def _line(row: Any, answer: lumenfarm.Synthesis, ratio: float, seconds: float) -> tuple[str, ...]:
    counted = sum(proof.topologies for proof in answer.proofs if proof.closed)
    published = f"{row.cost_ns / 1e3:,.1f}" + (" (wrong)" if row.bad else "")
    return (
        row.collective,
        f"{row.message_bytes / 2**20:g}",
        str(row.alpha_ns),
        str(row.delta_ns),
        f"{row.reconfig_delay_ns / 1e3:g}",
        published,
        str(row.reconfigurations),
        f"{answer.cost_ns / 1e3:,.1f}",
        str(answer.reconfigurations),
        f"{ratio:.3f}",
        f"{answer.lower_bound_ns / 1e3:,.1f}",
        f"{answer.gap:.1%}",
        f"{counted:,}" if answer.proofs else "-",
        f"{seconds:.1f}",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
