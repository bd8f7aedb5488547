"""Cost and time of whole jobs as GPUs are added, cold, on all CPUs; the exponent of cost against GPUs.

Each job runs in a process of its own with an empty cache.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import parser, setting, table

# Collective, ports, method, numbers of GPUs.
JOBS = (
    ("all-reduce-rd", 1, "auto", (64, 256, 1024, 4096)),
    ("all-reduce-rd", 1, "candidates", (64, 256, 1024, 4096)),
    ("all-to-all-bruck", 1, "auto", (64, 256, 1024, 4096)),
    ("all-to-all", 1, "auto", (64, 256, 1024)),
    ("all-to-all", 1, "candidates", (64, 256, 1024)),
    ("all-reduce-swing", 2, "auto", (64, 128, 256, 512, 1024)),
)

MEASURED = """
import json, resource, sys, time
start = time.perf_counter()
from lumenfarm.cli.main import run
code = run(sys.argv[1:])
peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({"code": code, "wall_s": time.perf_counter() - start, "peak_mib": peak / 1024}), file=sys.stderr)
"""


def main(argv: Sequence[str]) -> None:
    """Run the benchmark."""
    made = parser(__doc__, small="the smallest size of each job without workers")
    made.add_argument("--plot", metavar="FILE", help="draw cost against GPUs")
    options = made.parse_args(argv)
    print(setting("lumenfarm", "highspy", "ray"))
    lines = []
    curves: dict[str, list[tuple[int, float]]] = {}
    for collective, ports, method, sizes in JOBS:
        before = None
        for gpus in sizes[:1] if options.small else sizes:
            answer = _answered(collective, ports, method, gpus, small=options.small)
            lines.append((collective, str(ports), method, str(gpus), *_cells(answer, before, gpus)))
            before = gpus, answer["cost_ns"]
            if method == "auto":
                curves.setdefault(f"{collective}, {ports} port{'s' * (ports > 1)}", []).append(before)
    columns = (
        "<collective",
        "ports",
        "<method",
        "GPUs",
        "cost, us",
        "exponent",
        "k",
        "gap",
        "solved",
        "wall, s",
        "peak, MiB",
    )
    print(table(columns, lines))
    if options.plot:
        _plot(curves, options.plot)


def _answered(collective: str, ports: int, method: str, gpus: int, *, small: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "synth",
            collective,
            "--gpus",
            gpus,
            "--ports",
            ports,
            "--method",
            method,
            "--message",
            "16MiB",
            "--json",
        ]
        words += ["--cache", str(Path(folder) / "cache"), *(["--workers", "0"] if small else [])]
        command = [sys.executable, "-c", MEASURED, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = json.loads(done.stderr.splitlines()[-1])
    if measured["code"]:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    answer |= measured
    answer["solved"] = answer["work"]["theta"]
    return answer


def _cells(answer: dict[str, Any], before: tuple[int, float] | None, gpus: int) -> tuple[str, ...]:
    """The exponent is log(cost/cost before)/log(GPUs/GPUs before)."""
    exponent = "-" if before is None else f"{math.log(answer['cost_ns'] / before[1]) / math.log(gpus / before[0]):.2f}"
    return (
        f"{answer['cost_ns'] / 1e3:,.1f}",
        exponent,
        str(answer["reconfigurations"]),
        f"{answer['gap']:.1%}",
        str(answer["solved"]),
        f"{answer['wall_s']:.1f}",
        f"{answer['peak_mib']:.0f}",
    )


def _plot(curves: dict[str, list[tuple[int, float]]], path: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    for (name, points), marker in zip(curves.items(), "osD^", strict=False):
        gpus, costs = zip(*points, strict=True)
        axes.loglog(gpus, [cost / 1e3 for cost in costs], marker=marker, label=name)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("completion time, us (16 MiB)")
    axes.set_xticks(ticks := (64, 256, 1024, 4096), labels=[f"{tick}" for tick in ticks])
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=160)


if __name__ == "__main__":
    main(sys.argv[1:])
