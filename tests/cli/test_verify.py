"""``verify`` accepts what ``synth`` writes, and nothing that was changed afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumenfarm import collectives
from lumenfarm.formats import dump_collective, load_collective

# A few sizes for every generator; what a generator needs beside --gpus is in its line.
SMALL = {
    "all-reduce-ring": "--gpus 5 --ports 2",
    "reduce-scatter-ring": "--gpus 4 --ports 1",
    "all-gather-ring": "--gpus 6 --ports 3",
    "all-reduce-rd": "--gpus 8 --ports 1",
    "reduce-scatter-rd": "--gpus 8 --ports 2 --latency shortest",
    "all-gather-rd": "--dims 2x4 --ports 2",
    "all-reduce-rd-exchange": "--gpus 8 --ports 2",
    "reduce-scatter-rd-exchange": "--gpus 8 --ports 1 --latency shortest --initial ring",
    "all-gather-rd-exchange": "--gpus 8 --ports 3",
    "all-reduce-halving-doubling": "--gpus 8 --ports 2 --initial ring",
    "reduce-scatter-halving-doubling": "--gpus 4 --ports 1",
    "all-gather-halving-doubling": "--dims 4x2 --ports 1 --latency shortest",
    "all-reduce-swing": "--gpus 8 --ports 2",
    "reduce-scatter-swing": "--dims 4x4 --ports 2",
    "all-gather-swing": "--gpus 8 --ports 3 --latency shortest",
    "all-reduce-swing-mirrored": "--dims 4x4 --ports 4",
    "reduce-scatter-swing-mirrored": "--gpus 8 --ports 2",
    "all-gather-swing-mirrored": "--dims 2x4 --ports 2 --initial ring",
    "all-to-all": "--gpus 7 --ports 1 --initial ring",
    "all-to-all-direct": "--gpus 6 --ports 2 --latency shortest",
    "all-to-all-bruck": "--gpus 9 --radix 3 --ports 2",
    "all-gather-bruck": "--gpus 7 --ports 1 --latency shortest",
    "broadcast-binomial": "--gpus 8 --root 3 --ports 2",
    "broadcast-binary": "--gpus 7 --root 2 --ports 1 --latency shortest",
}
# Segments of several steps, topologies used twice, and the first one moved to from another: all that can be forged.
FORGED = "synth all-reduce-swing --gpus 16 --ports 2 --message 1MiB --reconfig-delay 2us --initial ring --workers 0"
FORGED += " --candidates strides,matchings,subrings -o good.json"

Forgery = Callable[[dict[str, Any]], object]


def failed(ended: Any) -> set[str]:
    """The checks that failed, out of --json."""
    assert ended.json["ok"] is not bool(ended.code)
    assert all(finding.keys() == {"check", "ok", "detail"} for finding in ended.json["findings"])
    return {finding["check"] for finding in ended.json["findings"] if not finding["ok"]}


def test_no_generator_is_left_out() -> None:
    assert SMALL.keys() == collectives.GENERATORS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_accepts_what_was_made(lumenfarm, name: str) -> None:
    made = lumenfarm(f"synth {name} {SMALL[name]} --message 1MB --reconfig-delay 3us --workers 0 -o s.json")
    assert (made.code, made.err) == (0, "")
    ended = lumenfarm("verify s.json")
    assert ended.code == 0
    assert ended.out.endswith("s.json: verified\n")
    assert "FAILED" not in ended.out
    assert failed(lumenfarm("verify s.json --json")) == set()


def test_accepts_an_irregular_job_with_its_file_only(lumenfarm, tmp_path) -> None:
    demand = [[0, 1, 700], [0, 4, 11], [3, 0, 1e6], [4, 2, 5000.5], [2, 4, 1]]
    steps = [{"id": 1, "demand": demand}, {"id": 2, "demand": demand[:2]}, {"id": 3, "demand": [[1, 3, 2**40]]}]
    head = {"schema": "collective_pattern/v1", "collective": "mine", "n": 5, "units": "bytes"}
    (tmp_path / "job.json").write_text(json.dumps(head | {"steps": steps}))
    assert lumenfarm("synth job.json --ports 2 --latency shortest --workers 0 -o s.json").code == 0
    assert lumenfarm("verify s.json --collective job.json").code == 0
    alone = lumenfarm("verify s.json")
    assert alone.code == 2
    assert "collective: expected the file of 'mine'" in alone.err


def add_arc(schedule: dict[str, Any]) -> None:
    arcs = schedule["topologies"][0]["arcs"]
    taken = {(u, v) for u, v, _ in arcs}
    arcs.append(next([0, v, 1] for v in range(1, 16) if (0, v) not in taken))


def widen_arc(schedule: dict[str, Any]) -> None:
    schedule["topologies"][0]["arcs"][0][2] += 1


def remove_arc(schedule: dict[str, Any]) -> None:
    del schedule["topologies"][-1]["arcs"][0]


def redirect_arc(schedule: dict[str, Any]) -> None:
    """The same number of circuits everywhere but at one receiver."""
    arc = schedule["topologies"][0]["arcs"][0]
    arc[1] = next(v for v in range(16) if v not in (arc[0], arc[1]))


def move_boundary(schedule: dict[str, Any]) -> float:
    """A step from a segment to the one before, all costs as they were; returns the time of the step."""
    one, other = next(pair for pair in pairwise(schedule["segments"]) if pair[1]["first_step"] < pair[1]["last_step"])
    one["last_step"] += 1
    other["first_step"] += 1
    return float(schedule["steps"][one["last_step"] - 1]["time_ns"])


def move_boundary_with_costs(schedule: dict[str, Any]) -> None:
    one, other = next(pair for pair in pairwise(schedule["segments"]) if pair[1]["first_step"] < pair[1]["last_step"])
    moved_ns = move_boundary(schedule)
    one["cost_ns"] += moved_ns
    other["cost_ns"] -= moved_ns


def lower_cost(schedule: dict[str, Any]) -> None:
    schedule["cost_ns"] *= 0.99
    schedule["gap"] = 1 - schedule["lower_bound_ns"] / schedule["cost_ns"]


def lower_every_cost(schedule: dict[str, Any]) -> None:
    """Communication, segments, steps and envelope agree with each other, but not with the circuits."""
    for part in schedule["segments"]:
        part["cost_ns"] *= 0.99
        part["lower_bound_ns"] = min(part["lower_bound_ns"], part["cost_ns"])
    for step in schedule["steps"]:
        step["time_ns"] *= 0.99
    for piece in schedule["envelope"]:
        piece["communication_ns"] *= 0.99
    saved = 0.01 * schedule["communication_ns"]
    schedule["communication_ns"] -= saved
    schedule["cost_ns"] -= saved
    schedule["gap"] = max(0.0, 1 - schedule["lower_bound_ns"] / schedule["cost_ns"])


def raise_theta(schedule: dict[str, Any]) -> None:
    """Of a step whose topology is not its own: carried through hops and time."""
    step = next(step for step in schedule["steps"] if step["theta"] < 0.9)
    step["theta"] *= 1.01
    step["hops"] /= 1.01
    step["time_ns"] = 500 + (step["time_ns"] - 500) / 1.01


def raise_bound(schedule: dict[str, Any]) -> None:
    schedule["lower_bound_ns"] = schedule["cost_ns"] * 1.01
    schedule["gap"] = 0


def swap_steps(schedule: dict[str, Any]) -> None:
    digests = schedule["collective"]["step_digests"]
    digests[0], digests[1] = digests[1], digests[0]


def forget_initial(schedule: dict[str, Any]) -> None:
    """The move off it stays paid for in the cost, but is not counted."""
    schedule["initial"] = None
    schedule["reconfigurations"] -= 1


# Each with a check that must fail.
REJECTED: list[tuple[Forgery, str]] = [
    (add_arc, "degree"),
    (widen_arc, "degree"),
    (remove_arc, "theta"),
    (redirect_arc, "degree"),
    (move_boundary, "cost"),
    (move_boundary_with_costs, "theta"),
    (lower_cost, "cost"),
    (lower_every_cost, "time"),
    (raise_theta, "theta"),
    (raise_bound, "bound"),
    (swap_steps, "contract"),
    (forget_initial, "cost"),
]


@pytest.fixture
def forge(lumenfarm, tmp_path) -> Callable[[Forgery], None]:
    """Writes bad.json: a good schedule after a change."""
    made = lumenfarm(FORGED)
    assert made.code == 0

    def write(forgery: Forgery) -> None:
        schedule = json.loads((tmp_path / "good.json").read_text())
        assert schedule["reconfigurations"] == len(schedule["segments"]) >= 3
        forgery(schedule)
        (tmp_path / "bad.json").write_text(json.dumps(schedule))

    return write


@pytest.mark.parametrize(("forgery", "check"), REJECTED, ids=[forgery.__name__ for forgery, _ in REJECTED])
def test_rejects_a_readable_forgery(lumenfarm, forge, forgery: Forgery, check: str) -> None:
    forge(forgery)
    ended = lumenfarm("verify bad.json")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.endswith("bad.json: REJECTED\n")
    assert check in failed(lumenfarm("verify bad.json --json"))


def overlap(schedule: dict[str, Any]) -> None:
    schedule["segments"][1]["first_step"] -= 1


def leave_a_gap(schedule: dict[str, Any]) -> None:
    schedule["segments"][0]["last_step"] -= 1 if schedule["segments"][0]["last_step"] > 1 else -1


def name_no_topology(schedule: dict[str, Any]) -> None:
    schedule["segments"][0]["topology"] = 99


def lower_one_sum(schedule: dict[str, Any]) -> None:
    schedule["communication_ns"] *= 0.99


def name_another_message(schedule: dict[str, Any]) -> None:
    schedule["contract"]["message_bytes"] = 2**21


def send_to_oneself(schedule: dict[str, Any]) -> None:
    schedule["topologies"][0]["arcs"].append([1, 1, 1])


# What contradicts itself within the file is refused by the reader: field of the error.
UNREADABLE: list[tuple[Forgery, str]] = [
    (overlap, "segments"),
    (leave_a_gap, "segments"),
    (name_no_topology, "segments[0].topology"),
    (lower_one_sum, "communication_ns"),
    (name_another_message, "contract.digest"),
    (send_to_oneself, "topologies[0].arcs"),
]


@pytest.mark.parametrize(("forgery", "field"), UNREADABLE, ids=[forgery.__name__ for forgery, _ in UNREADABLE])
def test_refuses_what_contradicts_itself(lumenfarm, forge, forgery: Forgery, field: str) -> None:
    forge(forgery)
    ended = lumenfarm("verify bad.json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"lumenfarm: {field}")
    assert ended.err.count("\n") == 1


def test_rejects_another_message_in_the_file(lumenfarm, forge) -> None:
    def double(schedule: dict[str, Any]) -> None:
        schedule["collective"]["message_bytes"] *= 2

    forge(double)
    assert lumenfarm("verify bad.json").code == 1
    assert "contract" in failed(lumenfarm("verify bad.json --json"))


@pytest.mark.usefixtures("forge")
@pytest.mark.parametrize(("size", "code"), [("1MiB", 0), ("1025KiB", 1), ("1048575", 1)])
def test_rejects_another_message_of_a_given_collective(lumenfarm, size: str, code: int) -> None:
    lumenfarm(f"collectives all-reduce-swing --gpus 16 --ports 2 --message {size} -o other.json")
    ended = lumenfarm("verify good.json --collective other.json --json")
    assert ended.code == code
    assert ("contract" in failed(ended)) is bool(code)


def test_rejects_another_rank_order(lumenfarm, tmp_path) -> None:
    lumenfarm("collectives all-reduce-rd-exchange --gpus 8 --message 1MiB -o job.json")
    assert lumenfarm("synth job.json --ports 2 --workers 0 -o s.json").code == 0
    assert lumenfarm("verify s.json --collective job.json").code == 0
    relabel(tmp_path / "job.json", tmp_path / "relabelled.json", [3, 0, 1, 2, 7, 5, 6, 4])
    relabel(tmp_path / "job.json", tmp_path / "same.json", [1, 0, 3, 2, 5, 4, 7, 6])
    ended = lumenfarm("verify s.json --collective relabelled.json --json")
    assert ended.code == 1
    assert "contract" in failed(ended)
    assert lumenfarm("verify s.json --collective same.json").code == 0


def relabel(source: Path, target: Path, ranks: list[int]) -> None:
    target.write_text(dump_collective(load_collective(source).relabelled(np.array(ranks))))


def test_rejects_the_schedule_of_another_job(lumenfarm) -> None:
    lumenfarm("synth all-reduce-rd --gpus 8 --message 1MiB -o s.json")
    for other in ("all-reduce-rd --gpus 16", "reduce-scatter-rd --gpus 8", "all-reduce-ring --gpus 8"):
        lumenfarm(f"collectives {other} --message 1MiB -o other.json --force")
        ended = lumenfarm("verify s.json --collective other.json --json")
        assert ended.code == 1
        assert "contract" in failed(ended)
