"""``collectives``: the list, a table of steps, and files that come back the same."""

from __future__ import annotations

import json

import pytest

from lumenfarm import generate, load_collective

# The names promised to users.
NAMES = {
    *(
        f"{whole}-{how}"
        for whole in ("all-reduce", "reduce-scatter", "all-gather")
        for how in ("ring", "rd", "rd-exchange", "halving-doubling", "swing", "swing-mirrored")
    ),
    "all-to-all",
    "all-to-all-direct",
    "all-to-all-bruck",
    "all-gather-bruck",
    "broadcast-binomial",
    "broadcast-binary",
}


def test_the_list(lumenfarm) -> None:
    ended = lumenfarm("collectives")
    assert (ended.code, ended.err) == (0, "")
    assert {line.split()[0] for line in ended.out.splitlines()[1:]} >= NAMES
    listed = lumenfarm("collectives --json").json
    assert listed.keys() == NAMES
    assert listed["all-to-all-bruck"]["parameters"] == ["ports", "radix"]
    assert listed["broadcast-binary"]["parameters"] == ["root"]


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("all-reduce-ring --gpus 5", generate("all-reduce-ring", gpus=5, message_bytes=2**20)),
        ("all-reduce-swing --dims 4x4", generate("all-reduce-swing", dims=(4, 4), message_bytes=2**20)),
        (
            "all-to-all-bruck --gpus 9 --radix 3 --ports 2",
            generate("all-to-all-bruck", gpus=9, message_bytes=2**20, radix=3, ports=2),
        ),
        ("broadcast-binary --gpus 6 --root 5", generate("broadcast-binary", gpus=6, message_bytes=2**20, root=5)),
    ],
)
def test_a_file(lumenfarm, tmp_path, line: str, made) -> None:
    ended = lumenfarm(f"collectives {line} --message 1MiB -o job.json --json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.json["gpus"] == made.n
    assert ended.json["dims"] == list(made.dims)
    assert [step["pairs"] for step in ended.json["steps"]] == [len(step.demand) for step in made.steps]
    assert load_collective(tmp_path / "job.json").digest == made.digest
    raw = json.loads((tmp_path / "job.json").read_text())
    assert raw["schema"] == "collective_pattern/v1"
    assert [step["id"] for step in raw["steps"]] == list(range(1, len(made) + 1))


def test_the_table_of_steps(lumenfarm, tmp_path) -> None:
    ended = lumenfarm("collectives all-reduce-rd --gpus 4 --message 1KiB")
    assert ended.code == 0
    assert "all-reduce-rd, 4 GPUs" in ended.out
    rows = [line.split() for line in ended.out.splitlines()[-4:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert [" ".join(row[-2:]) for row in rows] == ["512 B", "256 B", "256 B", "512 B"]
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_a_file(lumenfarm, tmp_path) -> None:
    (tmp_path / "job.json").write_text("old")
    line = "collectives all-reduce-rd --gpus 4 --message 1KiB -o job.json"
    assert lumenfarm(line).code == 2
    assert (tmp_path / "job.json").read_text() == "old"
    assert lumenfarm(f"{line} --force").code == 0
    assert load_collective(tmp_path / "job.json").n == 4
