"""``doctor``: says what works, and exits 3 when something does not."""

from __future__ import annotations

import json
import subprocess
import sys

CHECKS = {"python", "versions", "solvers", "cache", "memory", "open files"}


def test_all_is_well(lumenfarm, tmp_path) -> None:
    ended = lumenfarm("doctor --no-ray --json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json.keys() == CHECKS
    assert all(found["ok"] and found["detail"] for found in ended.json.values())
    for solver in ("highs", "scip"):
        assert f"{solver} finds 0.5" in ended.json["solvers"]["detail"]
    table = lumenfarm("doctor --no-ray").out
    assert "FAILED" not in table
    assert str(tmp_path) in table


def test_a_cache_out_of_reach(lumenfarm, cache_folder) -> None:
    cache_folder.write_text("in the way")
    ended = lumenfarm("doctor --no-ray --json")
    assert ended.code == 3
    assert [name for name, found in ended.json.items() if not found["ok"]] == ["cache"]
    assert str(cache_folder) in ended.json["cache"]["detail"]


def test_ray_answers() -> None:
    command = [sys.executable, "-m", "lumenfarm.cli.main", "doctor", "--cache", "none", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(ended.stdout)["ray"]["ok"] is True
    assert (ended.returncode, ended.stderr) == (0, "")
