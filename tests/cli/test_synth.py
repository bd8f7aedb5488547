"""``synth``: what is promised about its output, its options and its exit codes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lumenfarm import api
from lumenfarm.cli import progress
from lumenfarm.verify import Finding, VerifyReport

# Linear programs to solve.
SWING = "synth all-reduce-swing --gpus 16 --ports 2 --message 1MiB --method candidates --workers 0"
# Answered by arithmetic.
RD = "synth all-reduce-rd --gpus 16 --message 1MiB"
RING = {"label": "ring", "arcs": [[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 0, 1]]}
SWAP = {"label": "swap", "arcs": [[0, 2, 1], [2, 0, 1], [1, 3, 1], [3, 1, 1]]}

KEYS = {
    "cost_ns",
    "communication_ns",
    "reconfigurations",
    "lower_bound_ns",
    "gap",
    "optimal",
    "segments",
    "envelope",
    "baselines",
    "work",
    "wall_s",
    "method",
    "versions",
}


def write_pattern(path: Path, *steps: list[list[int]]) -> None:
    numbered = [{"id": number, "demand": demand} for number, demand in enumerate(steps, start=1)]
    head = {"schema": "collective_pattern/v1", "collective": "mine", "n": 4, "units": "bytes"}
    path.write_text(json.dumps(head | {"steps": numbered}))


def write_topologies(path: Path, *entries: dict[str, Any]) -> None:
    path.write_text(json.dumps({"schema": "lumenfarm.topologies/1", "n": 4, "topologies": entries}))


def piece_at(envelope: list[dict[str, Any]], delay_ns: float) -> dict[str, Any]:
    return next(
        piece
        for piece in envelope
        if piece["alpha_r_from_ns"] <= delay_ns
        and (piece["alpha_r_to_ns"] is None or delay_ns < piece["alpha_r_to_ns"])
    )


@pytest.mark.parametrize(
    "line", [SWING, RD, f"{RD} --method candidates --workers 0", "synth all-reduce-rd --gpus 8192 --message 1MiB"]
)
def test_the_object_of_json(lumenfarm, line: str) -> None:
    ended = lumenfarm(f"{line} --reconfig-delay 3us --json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.json
    assert found.keys() >= KEYS
    assert found["cost_ns"] == pytest.approx(found["communication_ns"] + 3000 * found["reconfigurations"])
    assert 0 < found["lower_bound_ns"] <= found["cost_ns"]
    assert found["gap"] == pytest.approx(1 - found["lower_bound_ns"] / found["cost_ns"])
    assert found["optimal"] is (found["gap"] <= 1e-6)
    assert found["method"] in ("closed-form", "candidates")
    assert found["work"].keys() == {"theta", "misocp", "bounds", "from_cache"}
    assert found["versions"].keys() >= {"lumenfarm", "scip", "highs", "ray"}
    assert found["wall_s"] > 0


def test_segments_cover_the_steps_counted_from_one(lumenfarm) -> None:
    found = lumenfarm(f"{SWING} --json").json
    covered = [step for part in found["segments"] for step in range(part["first_step"], part["last_step"] + 1)]
    assert covered == list(range(1, 9))
    assert sum(part["cost_ns"] for part in found["segments"]) == pytest.approx(found["communication_ns"])
    assert len(found["segments"]) == found["reconfigurations"] + 1
    assert all(isinstance(part["topology"], str) for part in found["segments"])


def test_the_envelope_tells_the_best_schedule_at_every_delay(lumenfarm) -> None:
    envelope = lumenfarm(f"{SWING} --json").json["envelope"]
    assert envelope[0]["alpha_r_from_ns"] == 0
    assert envelope[-1]["alpha_r_to_ns"] is None
    for delay in (0, 700, 2500, 20_000, 1_000_000):
        found = lumenfarm(f"{SWING} --reconfig-delay {delay} --json").json
        assert found["work"]["from_cache"] > 0
        piece = piece_at(envelope, delay)
        assert found["reconfigurations"] == piece["reconfigurations"]
        assert found["communication_ns"] == pytest.approx(piece["communication_ns"])


def test_baselines(lumenfarm) -> None:
    """The static one is what a prohibitive delay leaves, the one for every step what free changes leave."""
    baselines = lumenfarm(f"{SWING} --reconfig-delay 1us --json").json["baselines"]
    assert baselines["static_ns"] == pytest.approx(lumenfarm(f"{SWING} --reconfig-delay 1s --json").json["cost_ns"])
    free = lumenfarm(f"{SWING} --reconfig-delay 0 --json").json
    assert baselines["every_step_ns"] == pytest.approx(free["communication_ns"] + 6 * 1000)


def test_a_baseline_that_does_not_exist(lumenfarm, tmp_path) -> None:
    """Neither of the topologies carries both steps."""
    write_pattern(tmp_path / "job.json", [[0, 1, 100]], [[1, 0, 100]])
    there, back = ({"label": f"{u} to {v}", "arcs": [[u, v, 1]]} for u, v in ((0, 1), (1, 0)))
    write_topologies(tmp_path / "both.json", there, back)
    line = "synth job.json --candidates file:both.json --workers 0"
    baselines = lumenfarm(f"{line} --json").json["baselines"]
    assert baselines["static_ns"] is None
    assert baselines["every_step_ns"] > 0
    assert "best fixed topology" in lumenfarm(line).out
    assert "inf" not in lumenfarm(line).out


def test_the_table_for_people(lumenfarm, tmp_path) -> None:
    ended = lumenfarm(f"{SWING} -o schedule.json")
    assert (ended.code, ended.err) == (0, "")
    for said in ("all-reduce-swing, 16 GPUs, 1 MiB", "2 ports of 800 Gb/s", "lower bound", "best fixed topology"):
        assert said in ended.out
    assert "schedule written to schedule.json" in ended.out
    assert (tmp_path / "schedule.json").exists()


def test_quiet_says_nothing(lumenfarm, tmp_path) -> None:
    ended = lumenfarm(f"{SWING} --quiet -o schedule.json")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    assert (tmp_path / "schedule.json").exists()


def test_progress_goes_to_stderr_as_lines(lumenfarm, monkeypatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    ended = lumenfarm(f"{SWING} --json --cache none")
    assert ended.json["cost_ns"] > 0
    lines = ended.err.splitlines()
    assert lines
    for line in lines:
        for said in ("tasks", "bound", "workers busy"):
            assert said in line
    assert "best " in lines[-1]
    assert "gap " in lines[-1]


@pytest.mark.parametrize(
    "same",
    [
        "--message 1048576",
        "--message 1024KiB",
        "--message 1048.576KB",
        "--link 800",
        "--link 0.8Tbps",
        "--alpha 500 --delta 0.5us",
        "--reconfig-delay 10000",
        "--reconfig-delay 0.01ms",
        "--dims 16",
        "--latency congestion --initial free --method auto",
    ],
)
def test_units_and_defaults(lumenfarm, same: str) -> None:
    one, other = lumenfarm(f"{RD} --json").json, lumenfarm(f"{RD} {same} --json").json
    assert other["cost_ns"] == pytest.approx(one["cost_ns"], rel=1e-12)
    assert other["segments"] == one["segments"]


def test_the_cost_of_a_ring(lumenfarm) -> None:
    """2(n-1) steps of m/n bytes to the neighbour: alpha + beta*m/n + delta each."""
    found = lumenfarm(
        "synth all-reduce-ring --gpus 8 --message 8000 --link 400 --alpha 100 --delta 20 --reconfig-delay 1ms --json"
    ).json
    assert found["cost_ns"] == pytest.approx(14 * (100 + 1000 * 8 / 400 + 20))
    assert found["optimal"] is True


def test_ports_and_dims(lumenfarm) -> None:
    """On a torus every direction has a port, so that one of two dimensions at a time leaves half of them idle."""
    line = "synth all-reduce-swing --dims 4x4 --ports 4 --message 1MiB --method candidates --workers 0"
    found = lumenfarm(f"{line} --json").json
    assert found["segments"][-1]["last_step"] == 8
    assert "16 GPUs as 4x4" in lumenfarm(line).out


@pytest.mark.parametrize(("latency", "hops"), [("congestion", 1), ("shortest", 2)])
def test_latency(lumenfarm, tmp_path, latency: str, hops: int) -> None:
    """0 -> 1 and 3 -> 1 share a circuit of the ring without overloading it: theta is 1, but 3 -> 1 is two hops long."""
    write_pattern(tmp_path / "job.json", [[0, 1, 5000], [3, 1, 5000]])
    write_topologies(tmp_path / "ring.json", RING)
    line = "synth job.json --candidates file:ring.json --workers 0 --link 8 --alpha 30 --delta 700 --json"
    found = lumenfarm(f"{line} --latency {latency}").json
    assert found["cost_ns"] == pytest.approx(30 + 10_000 + 700 * hops)


@pytest.mark.parametrize(
    ("initial", "delay_ns", "changes", "hops"),
    [
        ("free", 300, 0, 1),
        ("ring", 300, 1, 1),
        ("ring", 9000, 0, 2),
        ("swap.json", 9000, 0, 1),
        ("far.json", 9000, 1, 1),
    ],
)
def test_initial(lumenfarm, tmp_path, initial: str, delay_ns: int, changes: int, hops: int) -> None:
    """One step that swaps opposite GPUs: one hop on its own circuits, two on the ring, no path on two other ones."""
    write_pattern(tmp_path / "job.json", [[0, 2, 1000], [2, 0, 1000], [1, 3, 1000], [3, 1, 1000]])
    write_topologies(tmp_path / "swap.json", SWAP)
    write_topologies(tmp_path / "far.json", {"label": "far", "arcs": [[0, 1, 1], [1, 0, 1], [2, 3, 1], [3, 2, 1]]})
    line = f"synth job.json --initial {initial} --reconfig-delay {delay_ns} --workers 0 --link 8 --alpha 0 --delta 500"
    found = lumenfarm(f"{line} --json").json
    assert found["reconfigurations"] == changes
    assert found["cost_ns"] == pytest.approx(changes * delay_ns + hops * 1500)


def test_candidates_from_a_file_and_by_name(lumenfarm, tmp_path) -> None:
    write_pattern(tmp_path / "job.json", [[0, 2, 1000], [2, 0, 1000], [1, 3, 1000], [3, 1, 1000]])
    write_topologies(tmp_path / "both.json", RING, SWAP)
    chosen = {
        families: lumenfarm(f"synth job.json --workers 0 --candidates {families} --json").json["segments"][0][
            "topology"
        ]
        for families in ("file:both.json", "strides,file:both.json", "matchings", "published")
    }
    assert chosen == {
        "file:both.json": "swap",
        "strides,file:both.json": "ring stride 2",
        "matchings": "matching of step 1",
        "published": "ring stride 2",
    }


def test_named_candidates_are_searched_and_nothing_else(lumenfarm) -> None:
    """``auto`` would answer with circulants, which do better than the ring alone."""
    found = lumenfarm("synth all-to-all --gpus 9 --message 1KiB --candidates matchings --workers 0 --json").json
    assert found["method"] == "candidates"
    assert all("matching" in part["topology"] for part in found["segments"])


def test_a_file_and_its_forced_format(lumenfarm, tmp_path) -> None:
    generated = lumenfarm("collectives all-reduce-rd --gpus 16 --message 1MiB -o job.json")
    assert generated.code == 0
    (tmp_path / "job.json").rename(tmp_path / "all-reduce-rd")
    found = lumenfarm("synth all-reduce-rd --format harvest --json").json
    assert found["cost_ns"] == lumenfarm(f"{RD} --json").json["cost_ns"]
    assert "all-reduce-rd, 16 GPUs, 1 port" in lumenfarm("synth all-reduce-rd --format harvest").out


def test_force_replaces_the_output(lumenfarm, tmp_path) -> None:
    (tmp_path / "schedule.json").write_text("old")
    assert lumenfarm(f"{RD} -o schedule.json").code == 2
    assert (tmp_path / "schedule.json").read_text() == "old"
    assert lumenfarm(f"{RD} -o schedule.json --force").code == 0
    assert json.loads((tmp_path / "schedule.json").read_text())["schema"] == "lumenfarm.schedule/1"


def test_what_does_not_pass_verification_is_not_written(lumenfarm, tmp_path, monkeypatch) -> None:
    report = VerifyReport((Finding("cost", ok=True, detail="well"), Finding("theta", ok=False, detail="too high")))
    monkeypatch.setattr(api, "verify_schedule", lambda *_: report)
    ended = lumenfarm(f"{RD} -o schedule.json --json")
    assert ended.code == 3
    assert ended.json["error"]["where"] == "theta"
    assert "too high" in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limits", "code", "complete"),
    [
        ("", 0, True),
        ("--gap 0.99", 0, False),
        ("--gap 0.000001", 1, True),
        ("--time-limit 1h", 0, True),
        ("--time-limit 1ns", 1, False),
        ("--time-limit 1ns --gap 0.99", 0, False),
        ("--time-limit 1ns --gap 0.000001", 1, False),
    ],
)
def test_strict_is_about_the_targets(lumenfarm, limits: str, code: int, complete: bool) -> None:
    everything = lumenfarm(f"{SWING} --cache none --json").json["work"]["theta"]
    ended = lumenfarm(f"{SWING} --cache none {limits} --strict --json")
    assert ended.code == code
    assert (ended.json["work"]["theta"] == everything) is complete
    assert lumenfarm(f"{SWING} --cache none {limits} --json").code == 0


def test_what_time_allows_of_a_search_among_billions(lumenfarm) -> None:
    """64 GPUs with eight ports: no less than 9,440,350,920 symmetric topologies, and an answer with its bound."""
    line = "synth reduce-scatter-swing --gpus 64 --ports 8 --message 1MiB --method symmetric --workers 0"
    ended = lumenfarm(f"{line} --time-limit 5s --candidates rings --json")
    assert (ended.code, ended.err) == (0, "")
    found = ended.json
    assert (found["method"], found["reason"]) == ("symmetric", "asked for")
    assert 0 < found["lower_bound_ns"] <= found["cost_ns"]
    assert found["optimal"] is False
    for space in found["spaces"]:
        assert space["topologies"] >= 9_440_350_920
        assert (space["listed"], space["closed"]) == (False, False)


def test_optimal_is_what_the_gap_asked_for(lumenfarm) -> None:
    gap = lumenfarm(f"{SWING} --json").json["gap"]
    assert 0.01 < gap < 0.9
    assert lumenfarm(f"{SWING} --gap {gap * 1.01} --json").json["optimal"] is True
    assert lumenfarm(f"{SWING} --gap {gap * 0.99} --json").json["optimal"] is False
    assert "optimal" not in lumenfarm(f"{SWING} --gap 0.9").out.replace("bound for any schedule (gap", "")


def test_a_second_run_solves_nothing(lumenfarm, cache_folder) -> None:
    first, second = lumenfarm(f"{SWING} --json").json, lumenfarm(f"{SWING} --json").json
    entries = [path for path in cache_folder.rglob("*") if path.is_file()]
    assert first["work"]["from_cache"] == 0
    assert second["work"] == {"theta": 0, "misocp": 0, "bounds": 0, "from_cache": len(entries)}
    assert second["cost_ns"] == first["cost_ns"]
    assert second["segments"] == first["segments"]


def test_a_second_run_does_not_import_ray(lumenfarm, cache_folder) -> None:
    lumenfarm(SWING)
    words = SWING.replace("--workers 0", "--workers 2").split()
    program = "import sys; from lumenfarm.cli.main import run; print(run(sys.argv[1:]), 'ray' in sys.modules)"
    command = [sys.executable, "-c", program, *words, "--quiet"]
    environment = os.environ | {"LUMENFARM_CACHE": str(cache_folder)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert (ended.stdout, ended.stderr) == ("0 False\n", "")


def test_no_cache_leaves_nothing(lumenfarm, tmp_path) -> None:
    assert lumenfarm(f"{SWING} --cache none").code == 0
    assert list(tmp_path.iterdir()) == []


def test_the_option_overrides_the_environment(lumenfarm, tmp_path) -> None:
    assert lumenfarm(f"{SWING} --cache elsewhere").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]


def block_by_a_file(cache_folder: Path, _: pytest.MonkeyPatch) -> None:
    cache_folder.write_text("in the way")


def make_read_only(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who may not write, which permissions cannot do to root."""

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)


def fill(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.parametrize("trouble", [block_by_a_file, make_read_only, fill])
def test_a_cache_that_cannot_be_written_is_one_warning(lumenfarm, cache_folder, monkeypatch, trouble) -> None:
    well = lumenfarm(f"{SWING} --cache none --json").json
    trouble(cache_folder, monkeypatch)
    ended = lumenfarm(f"{SWING} --json")
    assert ended.code == 0
    assert ended.json["cost_ns"] == well["cost_ns"]
    assert ended.err.startswith("warning: cache folder")
    assert ended.err.count("\n") == 1
    assert "going on without" in ended.err


def test_a_cache_that_cannot_be_written_is_one_warning_with_workers_too(tmp_path) -> None:
    (tmp_path / "cache").write_text("in the way")
    words = [*SWING.replace("--workers 0", "--workers 2").split(), "--json", "--cache", str(tmp_path / "cache")]
    command = [sys.executable, "-m", "lumenfarm.cli.main", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["work"]["theta"] > 0
    warnings = [line for line in ended.stderr.splitlines() if "workers busy" not in line]
    assert len(warnings) == 1
    assert warnings[0].startswith("warning: cache folder")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_million_gpus_take_arithmetic_only(lumenfarm, cache_folder) -> None:
    found = lumenfarm("synth all-reduce-rd --gpus 1048576 --message 1GiB --json").json
    assert found["method"] == "closed-form"
    assert found["segments"][-1]["last_step"] == 40
    assert not cache_folder.exists()
