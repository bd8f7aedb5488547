"""Cold and warm runs of the demo job as whole processes: wall time, work done, and whether Ray came into it.

Run as ``python benchmarks/demo_job.py``. A run is the command line as a user types it. Imports are taken from one more
run with Python's own import timer on: a process that never imports Ray has not started it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import parser, setting, table, timed

JOB = "--ports 2 --message 16MiB --link 800Gbps --alpha 500ns --delta 500ns --reconfig-delay 10us --json"
IN_PROCESS = ("--workers", "0")
SMALL_COLD = {"cold, in this process": IN_PROCESS}
COLD = {"cold, 2 Ray workers": ("--workers", "2"), **SMALL_COLD}
IMPORTED = re.compile(r"^import time: +(\d+) \| +\d+ \| +(\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """One sort of run.

    Attributes:
        wall_s: median time of the process.
        work: what it says of its own work.
        import_share: part of the time that imports take.
        ray: whether Ray was imported.
    """

    wall_s: float
    work: dict[str, int]
    import_share: float
    ray: bool


def command(gpus: int, cache: Path, options: Sequence[str]) -> list[str]:
    """The installed command, or the module behind it where it is not installed."""
    installed = Path(sys.executable).with_name("lumenfarm")
    program = [str(installed)] if installed.exists() else [sys.executable, "-m", "lumenfarm.cli.main"]
    return [*program, "synth", "all-reduce-swing", "--gpus", str(gpus), *JOB.split(), "--cache", str(cache), *options]


def call(words: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command.

    Raises:
        RuntimeError: it fails; what it wrote to stderr is in the message.
    """
    done = subprocess.run(words, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done


def measure(gpus: int, options: Sequence[str], caches: Iterator[Path], repetitions: int) -> Run:
    """Run the job ``repetitions`` times, and once more with the import timer, each time with the next cache."""
    plain = timed(lambda: call(command(gpus, next(caches), options)), repetitions=repetitions)
    traced = timed(lambda: call(command(gpus, next(caches), options), PYTHONPROFILEIMPORTTIME="1"))
    imported = {name: int(own_us) for own_us, name in IMPORTED.findall(traced.value.stderr)}
    return Run(
        wall_s=plain.seconds,
        work=json.loads(plain.value.stdout)["work"],
        import_share=sum(imported.values()) / 1e6 / traced.seconds,
        ray="ray" in imported,
    )


def compare(gpus: int, folder: Path, repetitions: int, *, cold: Mapping[str, Sequence[str]]) -> dict[str, Run]:
    """Every sort of cold run, each time in a fresh cache, then the warm one, which is free to start Ray."""
    caches = (folder / str(number) for number in itertools.count())
    runs = {name: measure(gpus, options, caches, repetitions) for name, options in cold.items()}
    filled = next(caches)
    call(command(gpus, filled, IN_PROCESS))
    return runs | {"warm": measure(gpus, (), itertools.repeat(filled), repetitions)}


def report(runs: dict[str, Run]) -> str:
    """The table; ratios are to the warm run."""
    rows = [
        (
            name,
            f"{run.wall_s:.2f}",
            f"{run.wall_s / runs['warm'].wall_s:.1f}",
            str(run.work["theta"]),
            str(run.work["from_cache"]),
            "imported" if run.ray else "never imported",
            f"{run.import_share:.0%}",
        )
        for name, run in runs.items()
    ]
    return table(("<run", "wall s", "to warm", "linear programs", "from cache", "Ray", "imports"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = parser(__doc__, small="8 GPUs, once, without Ray")
    arguments.add_argument("--repetitions", type=int, default=5, help="of each run; the median counts")
    options = arguments.parse_args(argv)
    gpus, repetitions, cold = (8, 1, SMALL_COLD) if options.small else (64, options.repetitions, COLD)
    print(setting("highspy", "ray", "scipy", "numpy"))
    print(f"Swing AllReduce on {gpus} GPUs, median of {repetitions}\n")
    with tempfile.TemporaryDirectory() as folder:
        print(report(compare(gpus, Path(folder), repetitions, cold=cold)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
