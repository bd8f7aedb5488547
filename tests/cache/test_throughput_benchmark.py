"""The cache benchmark runs and prints a row for every store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cache_throughput.py"


def test_the_benchmark_runs_small(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--small", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for store in ("lumenfarm ", "lumenfarm, no fsync", "joblib.Memory", "diskcache.Cache"):
        assert f"\n{store}" in done.stdout
    assert "fsync takes" in done.stdout
    assert list(tmp_path.iterdir()) == []
