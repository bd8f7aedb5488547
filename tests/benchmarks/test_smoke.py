"""Every benchmark runs small and prints its tables; what is not a time is also checked."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def lines_of(name, *options):
    command = [sys.executable, str(FOLDER / name), "--small", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert "CPUs" in first
    assert "Python 3." in first
    return rest


def rows_of(lines, first_column):
    """Cells of the rows of every table whose header begins with ``first_column``; two spaces part cells."""
    rows = []
    for start in [number for number, line in enumerate(lines) if line.startswith(f"{first_column}  ")]:
        columns = cells(lines[start])
        for line in lines[start + 1 :]:
            if not line:
                break
            rows.append(dict(zip(columns, cells(line), strict=True)))
    return rows


def cells(line):
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_every_benchmark_is_tested_here():
    tested = {"cache_throughput.py", "demo_job.py", "published_rows.py", "scale.py", "theta_rungs.py"}
    assert {path.name for path in FOLDER.glob("*.py")} == tested | {"common.py"}


def test_cache_throughput(tmp_path):
    rows = rows_of(lines_of("cache_throughput.py", "--folder", str(tmp_path)), "store")
    assert [row["store"] for row in rows] == ["lumenfarm", "lumenfarm, no fsync", "joblib.Memory", "diskcache.Cache"]
    assert list(tmp_path.iterdir()) == []


def test_warm_demo_job_solves_nothing_and_never_imports_ray():
    cold, warm = rows_of(lines_of("demo_job.py"), "run")
    assert int(cold["linear programs"]) > 0
    assert cold["from cache"] == "0"
    assert warm["linear programs"] == "0"
    assert int(warm["from cache"]) > 0
    assert warm["Ray"] == "never imported"
    assert warm["imports"] != "0%", "the import timer was not read"


def test_published_rows_are_reached():
    rows = rows_of(lines_of("published_rows.py"), "collective")
    assert len(rows) == 3
    assert all(float(row["ratio"]) <= 1.0001 for row in rows)


def test_scale_answers_every_job():
    rows = rows_of(lines_of("scale.py"), "collective")
    assert {row["collective"] for row in rows} == {
        "all-reduce-rd",
        "all-reduce-swing",
        "all-to-all",
        "all-to-all-bruck",
    }
    costs = {(row["collective"], row["method"]): row["cost, us"] for row in rows}
    assert costs["all-reduce-rd", "auto"] == costs["all-reduce-rd", "candidates"]
    assert costs["all-to-all", "auto"] == costs["all-to-all", "candidates"]


def test_theta_rungs_agree():
    rows = rows_of(lines_of("theta_rungs.py"), "network")
    rungs = [row for row in rows if "collective" in row]
    programs = [row for row in rows if "loops ms" in row]
    assert len(rungs) == 6
    assert len(programs) == 3
    assert [float(row["2 - 3"]) for row in rungs] == pytest.approx([0.0] * 6, abs=1e-9)
    assert [float(row["difference"]) for row in programs] == pytest.approx([0.0] * 3, abs=1e-9)
