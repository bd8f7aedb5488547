"""``export``: other formats, to stdout or to a file."""

from __future__ import annotations

import csv
import io
import json

import pytest

MADE = "synth all-reduce-rd --gpus 8 --message 1MiB --reconfig-delay 100ns -o s.json"


@pytest.fixture
def schedule(lumenfarm, tmp_path):
    assert lumenfarm(MADE).code == 0
    return json.loads((tmp_path / "s.json").read_text())


def test_harvest(lumenfarm, schedule) -> None:
    ended = lumenfarm("export s.json --to harvest")
    assert (ended.code, ended.err) == (0, "")
    written = ended.json
    assert written["cost"] == pytest.approx(schedule["cost_ns"])
    assert written["num_of_reconfigs"] == schedule["reconfigurations"]
    assert [step["step"] for step in written["steps"]] == [1, 2, 3, 4, 5, 6]


def test_csv_and_dot(lumenfarm, schedule) -> None:
    rows = list(csv.reader(io.StringIO(lumenfarm("export s.json --to csv").out)))
    assert len(rows) > 1
    assert len({len(row) for row in rows}) == 1
    dot = lumenfarm("export s.json --to dot").out
    assert dot.count("digraph") + dot.count("subgraph") >= len(schedule["topologies"])


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("to", ["harvest", "csv", "dot"])
def test_to_a_file(lumenfarm, tmp_path, to: str) -> None:
    printed = lumenfarm(f"export s.json --to {to}").out
    assert lumenfarm(f"export s.json --to {to} -o there.txt").out == ""
    assert (tmp_path / "there.txt").read_text() == printed
    (tmp_path / "there.txt").write_text("old")
    assert lumenfarm(f"export s.json --to {to} -o there.txt").code == 2
    assert (tmp_path / "there.txt").read_text() == "old"
    assert lumenfarm(f"export s.json --to {to} -o there.txt --force").code == 0
    assert (tmp_path / "there.txt").read_text() == printed
