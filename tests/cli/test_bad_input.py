"""Whatever is wrong with the input: exit code 2, one line that says what, nothing solved, written or cached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# Options given twice count as given last.
SYNTH = "synth all-reduce-ring --gpus 4 --ports 2 --message 1MiB --workers 0"
RD = "synth all-reduce-rd --gpus 8 --message 1MiB"
BRUCK = "synth all-to-all-bruck --gpus 8 --message 1MiB"
BROADCAST = "synth broadcast-binomial --gpus 8 --message 1MiB"

# What is typed, and what the line on stderr must name: field, value, expectation.
OPTIONS = [
    (f"{SYNTH} --gpus 0", "gpus", "0", "not below 2"),
    (f"{SYNTH} --gpus 1", "gpus", "1", "not below 2"),
    (f"{SYNTH} --gpus -4", "gpus", "-4", "not below 2"),
    (f"{SYNTH} --gpus 4.5", "gpus", "4.5", "a whole number"),
    (f"{SYNTH} --gpus nan", "gpus", "nan", "a whole number"),
    (f"{SYNTH} --gpus 1e3", "gpus", "1e3", "a whole number"),
    (f"{SYNTH} --gpus 99999999999999999999", "gpus", "99999999999999999999", "a whole number"),
    (f"{RD} --gpus 12", "gpus", "12", "a power of two"),
    ("synth all-reduce-ring --message 1MiB", "gpus", "", "a number of GPUs"),
    (f"{SYNTH} --ports 0", "ports", "0", "not below 1"),
    (f"{SYNTH} --ports -1", "ports", "-1", "not below 1"),
    (f"{SYNTH} --ports inf", "ports", "inf", "a whole number"),
    ("synth all-reduce-ring --gpus 4", "message", "", "a size such as 16MiB"),
    *(
        (f"{SYNTH} --message {bad}", "message", bad, "a size")
        for bad in ("0", "-1MiB", "nan", "inf", "NaN", "1e30", "x")
    ),
    (f"{SYNTH} --message 9223372036854775808", "message", "9223372036854775808", "below 2**63"),
    (f"{SYNTH} --message 8000000000000000000", "message", "8", "below 2**63 bytes for 4 GPUs together"),
    (f"{SYNTH} --message 16us", "message", "16us", "a unit out of B, KiB"),
    (f"{SYNTH} --message 16miB", "message", "16miB", "did you mean MiB?"),
    *(
        (f"{SYNTH} --{field} {bad}", field, bad, "a time")
        for field in ("alpha", "delta", "reconfig-delay", "time-limit")
        for bad in ("-5ns", "nan", "inf", "fast")
    ),
    *((f"{SYNTH} --{field} 1e40", field, "1e+40", "below 2**63") for field in ("alpha", "delta", "reconfig-delay")),
    (f"{SYNTH} --alpha 5GB", "alpha", "5GB", "a unit out of ns, us"),
    (f"{SYNTH} --delta 5Us", "delta", "5Us", "did you mean us?"),
    *((f"{SYNTH} --link {bad}", "link", bad, "a rate") for bad in ("0", "-1", "nan", "inf", "wide")),
    (f"{SYNTH} --link 800GBps", "link", "800GBps", "did you mean Gbps?"),
    *((f"{SYNTH} --gap {bad}", "gap", bad, "a fraction") for bad in ("2", "1", "-0.1", "nan", "inf", "small")),
    (f"{SYNTH} --time-limit 0", "time-limit", "0", "above 0"),
    (f"{SYNTH} --workers -1", "workers", "-1", "not below 0"),
    (f"{SYNTH} --workers 99999", "workers", "99999", "on this machine"),
    (f"{SYNTH} --workers 1.5", "workers", "1.5", "a whole number"),
    (f"{SYNTH} --address auto", "workers", "0", "at least 1 beside an address"),
    (f"{SYNTH} --gpus 12 --dims 2x4", "gpus", "12", "the product of the dims, 8"),
    *((f"{SYNTH} --dims {bad}", "dims", bad, "sizes such as 8x8") for bad in ("2x", "axb", "4x-4", "2.5x2", "2*2")),
    ("synth all-reduce-ring --dims 1x4 --message 1MiB", "dims", "1", "not below 2"),
    (f"{BRUCK} --radix 1", "radix", "1", "not below 2"),
    (f"{BRUCK} --radix two", "radix", "two", "a whole number"),
    (f"{RD} --radix 2", "radix", "2", "all-reduce-rd does not use one"),
    (f"{BROADCAST} --root 8", "root", "8", "a GPU from 0 to 7"),
    (f"{BROADCAST} --root -1", "root", "-1", "not below 0"),
    (f"{RD} --root 0", "root", "0", "all-reduce-rd does not use one"),
    ("synth all-reduce-rign --gpus 4 --message 1MiB", "collective", "all-reduce-rign", "'all-reduce-ring'"),
    ("collectives all-to-al --gpus 4 --message 1MiB", "collective", "all-to-al", "'all-to-all'"),
    ("collectives --gpus 4", "gpus", "4", "without the name"),
    ("collectives -o list.json", "output", "list.json", "without the name"),
    (f"{SYNTH} --method closed-from", "method", "closed-from", "did you mean 'closed-form'?"),
    (f"{SYNTH} --method closed-form", "method", "closed-form", "auto or candidates, since"),
    (f"{RD} --method closed-form --candidates rings", "method", "closed-form", "since candidates are named"),
    (f"{SYNTH} --candidates string", "candidates", "string", "did you mean 'rings'?"),
    (f"{RD} --candidates strides,matchins", "candidates", "matchins", "did you mean 'matchings'?"),
    (f"{SYNTH} --candidates strides,,rings", "candidates", "''", "one of matchings, published"),
    (f"{SYNTH} --latency shortst", "latency", "shortst", "did you mean 'shortest'?"),
    (f"{SYNTH} --format harvst", "format", "harvst", "did you mean 'harvest'?"),
    (f"{SYNTH} --initial rng", "initial", "rng", "did you mean 'ring'?"),
    (f"{SYNTH} --cache s3://bucket/folder", "cache", "s3://bucket/folder", "not supported yet"),
    (f"{SYNTH} --cache fill:///srv", "cache", "fill", "did you mean 'file'?"),
    (f"{SYNTH} -o missing/folder.json", "output", "missing/folder.json", "a folder that exists"),
    (f"{SYNTH} -o .", "output", ".", "not a folder"),
    ("synth missing.json", "missing.json", "No such file", "a readable file"),
    ("synth .", ".", "d", "a regular file"),
    ("verify missing.json", "missing.json", "No such file", "a readable file"),
    ("export missing.json --to dot", "missing.json", "No such file", "a readable file"),
    ("export missing.json --to dott", "to", "dott", "did you mean 'dot'?"),
    ("plot envelope missing.json -o x.png", "missing.json", "No such file", "a readable file"),
    ("recurrence missing.csv --tau 1us", "missing.csv", "No such file", "a readable file"),
    ("cache stats --cache gs://bucket", "cache", "gs://bucket", "not supported yet"),
    # Words that do not fit together.
    ("sinth all-reduce-ring", "command", "sinth", "synth"),
    ("plot timelime x.json -o x.png", "command", "timelime", "timeline"),
    ("cache stat", "command", "stat", "stats"),
    (f"{SYNTH} --gpuz 4", "option", "--gpuz", "--gpus"),
    ("doctor --noray", "option", "--noray", "--no-ray"),
    (f"{SYNTH} extra", "argument", "extra", "unexpected"),
    ("synth", "argument", "COLLECTIVE", "Missing"),
    ("export x.json", "option", "--to", "Missing"),
    ("plot envelope x.json -o", "-o", "", "requires an argument"),
]

PATTERN: dict[str, Any] = {
    "schema": "collective_pattern/v1",
    "collective": "mine",
    "n": 4,
    "units": "bytes",
    "steps": [{"id": 1, "demand": [[0, 1, 100], [1, 2, 50]]}],
}
TEXT = json.dumps(PATTERN)


def with_rows(*rows: Sequence[float]) -> str:
    return json.dumps(PATTERN | {"steps": [{"id": 1, "demand": [[0, 1, 100], *rows]}]})


def with_keys(**keys: object) -> str:
    return json.dumps(PATTERN | keys)


# What is in the collective's file, and what the line must name.
COLLECTIVES = {
    "no GPUs": (with_keys(n=0), "n", "0", "2"),
    "one GPU": (with_keys(n=1), "n", "1", "2"),
    "a fraction of GPUs": (with_keys(n=2.5), "n", "2.5", "integer"),
    "no step": (with_keys(steps=[]), "steps", "[]", "at least 1"),
    "no demand": (with_keys(steps=[{"id": 1, "demand": []}]), "steps[0].demand", "[]", "at least 1"),
    "nothing sent": (with_keys(steps=[{"id": 1, "demand": [[0, 1, 0]]}]), "steps[0].demand", "0", "at least one GPU"),
    "no port": (with_keys(ports=0), "ports", "0", "1"),
    "self-demand": (with_rows([2, 2, 5]), "steps[0].demand[1]", "2, 2", "two different GPUs"),
    "rank too large": (with_rows([2, 4, 5]), "steps[0].demand[1][1]", "4", "a rank from 0 to 3"),
    "rank below 0": (with_rows([-1, 2, 5]), "steps[0].demand[1][0]", "-1", "0"),
    "negative bytes": (with_rows([1, 2, -5]), "steps[0].demand[1][2]", "-5", "0"),
    "too many bytes": (with_rows([1, 2, 2**63]), "steps[0].demand[1][2]", "9223372036854775808", "less than"),
    "too many bytes in all": (
        with_rows([1, 2, 2**62], [1, 3, 2**62]),
        "steps[0].demand",
        "e+18",
        "a total below 2**63",
    ),
    "bytes as text": (TEXT.replace("100", '"100"'), "steps[0].demand[0][2]", "100", "a valid number"),
    "infinite bytes": (TEXT.replace("100", "1e999"), "steps[0].demand[0][2]", "inf", "finite"),
    "NaN": (TEXT.replace("100", "NaN"), "bad.json", "NaN", "valid JSON"),
    "Infinity": (TEXT.replace("100", "-Infinity"), "bad.json", "-Infinity", "valid JSON"),
    "a key twice": (TEXT[:-1] + ', "n": 4}', "bad.json", "duplicate key 'n'", "valid JSON"),
    "cut off": (TEXT[:-20], "bad.json", "line 1", "valid JSON"),
    "empty": ("", "bad.json", "''", "a collective"),
    "no JSON": ("hello\nworld", "bad.json", "hello", "a collective"),
    "a schedule": ('{"schema": "lumenfarm.schedule/1"}', "bad.json", "lumenfarm.schedule/1", "a collective"),
    "another version": (with_keys(schema="collective_pattern/v2"), "schema", "v2", "collective_pattern/v1"),
    "other units": (with_keys(units="bits"), "units", "bits", "bytes"),
    "an unknown key": (with_keys(step=[]), "document", "step", "did you mean 'steps'?"),
    "an unknown key inside": (TEXT.replace("demand", "demnd"), "steps[0]", "demnd", "did you mean 'demand'?"),
    "other dims": (with_keys(dims=[2, 3]), "dims", "2x3", "product is 4"),
    "a step of another number": (TEXT.replace('"id": 1', '"id": 7'), "steps[0].id", "7", "1"),
}

RING = [[0, 1, 1], [1, 2, 1], [2, 3, 1], [3, 0, 1]]


def topologies(arcs: Sequence[Sequence[float]], n: int = 4, **keys: object) -> str:
    entry = {"label": "mine", "arcs": arcs} | keys
    return json.dumps({"schema": "lumenfarm.topologies/1", "n": n, "topologies": [entry]})


# What is in the file of topologies, and what the line must name.
TOPOLOGIES = {
    "beyond the degree": (topologies([*RING, [0, 2, 1]]), "mine", "2", "at most 1 port"),
    "of another size": (topologies(RING, n=5), "mine", "5", "4 GPUs"),
    "with a loop": (topologies([*RING, [2, 2, 1]]), "topologies[0].arcs[4]", "2, 2", "two different GPUs"),
    "with an unknown rank": (topologies([*RING, [0, 4, 1]]), "topologies[0].arcs[4][1]", "4", "a rank from 0 to 3"),
    "with half a circuit": (topologies([*RING, [0, 2, 0.5]]), "topologies[0].arcs[4][2]", "0.5", "integer"),
    "with fewer than no circuits": (topologies([*RING, [0, 2, -1]]), "topologies[0].arcs[4][2]", "-1", "1"),
    "with an unknown key": (topologies(RING, arc=[]), "topologies[0]", "arc", "did you mean 'arcs'?"),
    "none": ('{"schema": "lumenfarm.topologies/1", "n": 4, "topologies": []}', "topologies", "[]", "at least 1"),
    "cut off": (topologies(RING)[:-9], "bad.json", "line 1", "valid JSON"),
}


@pytest.fixture
def refused(lumenfarm, tmp_path, monkeypatch):
    """Runs a command twice, the second time with --json, and returns the line on stderr."""

    def solve(*_arguments: object, **_options: object) -> None:
        pytest.fail("the search was started")

    pool = ModuleType("pool")
    pool.RayExecutor = solve
    monkeypatch.setitem(sys.modules, "lumenfarm.tasks.ray_pool", pool)
    monkeypatch.setattr("lumenfarm.tasks.local_pool.LocalExecutor", solve)

    def command(line: str) -> str:
        before = everything_in(tmp_path)
        ended = lumenfarm(line)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("lumenfarm: ")
        assert ended.err.endswith("\n")
        assert ended.err.count("\n") == 1
        if not line.startswith(("export", "plot")):
            with_json = lumenfarm(f"{line} --json")
            assert (with_json.code, with_json.err) == (2, ended.err)
            assert with_json.json.keys() == {"error"}
            assert with_json.json["error"].keys() == {"kind", "message", "where"}
            assert " ".join(with_json.json["error"]["message"].split()) in ended.err
        assert everything_in(tmp_path) == before
        return str(ended.err)

    return command


def everything_in(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("line", "field", "value", "expectation"), OPTIONS, ids=[case[0] for case in OPTIONS])
def test_options_and_names(refused, line: str, field: str, value: str, expectation: str) -> None:
    message = refused(line)
    for said in (field, value, expectation):
        assert said in message


@pytest.mark.parametrize(("text", "field", "value", "expectation"), COLLECTIVES.values(), ids=COLLECTIVES.keys())
def test_a_file_with_a_collective(refused, tmp_path, text: str, field: str, value: str, expectation: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    message = refused("synth bad.json --workers 0")
    assert f"{field}: " in message
    assert value in message
    assert expectation in message


@pytest.mark.parametrize(("text", "field", "value", "expectation"), TOPOLOGIES.values(), ids=TOPOLOGIES.keys())
@pytest.mark.parametrize("option", ["--candidates file:bad.json", "--initial bad.json"])
def test_a_file_with_topologies(
    refused, tmp_path, option: str, text: str, field: str, value: str, expectation: str
) -> None:
    (tmp_path / "bad.json").write_text(text)
    message = refused(f"synth all-reduce-ring --gpus 4 --message 1MiB --workers 0 --method candidates {option}")
    assert f"{field}: " in message
    assert value in message
    assert expectation in message


@pytest.mark.parametrize(
    "line", ["synth big.json", f"{SYNTH} --initial big.json", f"{SYNTH} --candidates file:big.json", "verify big.json"]
)
def test_a_file_of_a_gibibyte_is_not_read(refused, tmp_path, line: str) -> None:
    with open(tmp_path / "big.json", "wb") as file:
        file.truncate(2**30)
    message = refused(line)
    assert "big.json: expected a file of at most 268435456 bytes, got '1073741824 bytes'" in message


@pytest.mark.parametrize("method", ["auto", "candidates"])
def test_a_demand_that_no_candidate_carries_names_the_pair(refused, tmp_path, method: str) -> None:
    (tmp_path / "cut.json").write_text(topologies([[0, 1, 1], [1, 0, 1], [2, 3, 1], [3, 2, 1]]))
    (tmp_path / "job.json").write_text(with_rows([2, 3, 7], [3, 1, 7]))
    message = refused(f"synth job.json --workers 0 --candidates file:cut.json --method {method}")
    assert "candidates: " in message
    assert "no path 3 -> 1" in message
    assert "every pair of step 1" in message


def test_an_initial_topology_out_of_many(refused, tmp_path) -> None:
    entry = {"arcs": RING}
    text = json.dumps({"schema": "lumenfarm.topologies/1", "n": 4, "topologies": [entry, entry]})
    (tmp_path / "two.json").write_text(text)
    assert "initial: expected free, ring, or a file with exactly one topology" in refused(f"{SYNTH} --initial two.json")


@pytest.mark.parametrize("option", ["--gpus 4", "--dims 2x2", "--message 1MiB", "--radix 2", "--root 0"])
def test_options_beside_a_file(refused, tmp_path, option: str) -> None:
    (tmp_path / "job.json").write_text(TEXT)
    name, value = option.split()
    message = refused(f"synth job.json --workers 0 {option}")
    assert f"{name.lstrip('-')}: expected no {name} beside a file" in message
    assert value in message


@pytest.mark.parametrize("line", [SYNTH, f"{RD} --workers 0", "collectives all-to-all --gpus 4 --message 1MiB"])
def test_an_output_that_exists_is_refused_before_anything_is_solved(refused, tmp_path, line: str) -> None:
    (tmp_path / "mine.json").write_text("precious")
    message = refused(f"{line} -o mine.json")
    assert "output: expected a path where no file is yet (--force replaces it), got 'mine.json'" in message
    assert (tmp_path / "mine.json").read_text() == "precious"


@pytest.mark.parametrize("line", ["synth all-reduce-ring --gpus 0 --message 1MiB", "synth all-reduce-rings"])
def test_as_a_process(tmp_path, line: str) -> None:
    """Nothing but the one line, no cache folder, and Ray not even imported."""
    program = "import sys; from lumenfarm.cli.main import main; sys.argv[1:] = sys.argv[1].split()\n"
    program += "try: main()\nfinally: sys.exit(9) if 'ray' in sys.modules else None"
    environment = os.environ | {"LUMENFARM_CACHE": str(tmp_path / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", program, line],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_symmetric_search_without_symmetry(refused) -> None:
    message = refused("synth broadcast-binomial --gpus 8 --ports 2 --message 1MiB --method symmetric")
    assert "method: expected auto or candidates" in message
    assert "no group takes every GPU to every other and leaves all steps as they are" in message
