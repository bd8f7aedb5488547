"""Which words the command line knows, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lumenfarm import api
from lumenfarm.cli.main import run

# Every command of this page, with every option it promises.
PROMISED = {
    "synth": "--gpus --dims --ports --message --link --alpha --delta --reconfig-delay --latency --initial --method "
    "--candidates --gap --time-limit --strict --cache --workers --address -o --output --json --quiet --format --force "
    "--radix --root",
    "verify": "--collective --json",
    "collectives": "--gpus --dims --ports --message --radix --root -o --output --force --json",
    "recurrence": "--tau --json",
    "export": "--to -o --output --force",
    "plot timeline": "-o --output --force",
    "plot envelope": "-o --output --force",
    "cache stats": "--cache --json",
    "doctor": "--cache --address --json",
}
# Some seconds of work: long enough to be interrupted.
LONG = "synth all-reduce-swing --gpus 128 --ports 2 --message 16MiB --method candidates --json"


@pytest.mark.parametrize(("command", "options"), PROMISED.items(), ids=PROMISED.keys())
def test_promised_options(lumenfarm, command: str, options: str) -> None:
    ended = lumenfarm(f"{command} --help")
    assert (ended.code, ended.err) == (0, "")
    words = set(ended.out.replace(",", " ").split())
    assert set(options.split()) <= words


@pytest.mark.parametrize("line", ["", "--help", "-h"])
def test_help_names_every_command(lumenfarm, line: str) -> None:
    ended = lumenfarm(line)
    assert (ended.code, ended.err) == (0, "")
    assert {command.split()[0] for command in PROMISED} <= set(ended.out.split())


@pytest.mark.parametrize(("group", "commands"), [("plot", {"timeline", "envelope"}), ("cache", {"stats"})])
def test_a_group_alone_shows_its_commands(lumenfarm, group: str, commands: set[str]) -> None:
    ended = lumenfarm(group)
    assert ended.code == 0
    assert commands <= set(ended.out.split())


def test_version(lumenfarm) -> None:
    ended = lumenfarm("--version")
    assert ended.code == 0
    assert ended.out.startswith("lumenfarm ")
    assert ended.out.count("\n") == 1


@pytest.mark.parametrize("line", ["--debug synth all-reduce-ring --gpus 0", "synth all-reduce-ring --gpus 0 --debug"])
def test_debug_shows_where(lumenfarm, line: str) -> None:
    with pytest.raises(Exception, match="not below 2"):
        lumenfarm(line)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), "environment"),
        (MemoryError("Unable to allocate 3 TiB"), "environment"),
        (ZeroDivisionError("division\nby zero"), "internal"),
    ],
)
def test_what_nobody_expected_is_one_line_and_exit_code_3(lumenfarm, monkeypatch, error: Exception, kind: str) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(api, "synthesize", fail)
    ended = lumenfarm("synth all-reduce-rd --gpus 8 --message 1MiB --json")
    assert ended.code == 3
    assert ended.err.count("\n") == 1
    assert ended.json["error"]["kind"] == kind
    for word in str(error).split():
        assert word in ended.err


def test_an_interrupt_is_one_line(lumenfarm, monkeypatch) -> None:
    def interrupt(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "synthesize", interrupt)
    ended = lumenfarm("synth all-reduce-rd --gpus 8 --message 1MiB --json")
    assert ended.code == 130
    assert ended.err.startswith("lumenfarm: interrupted")
    assert ended.err.count("\n") == 1
    assert ended.json["error"]["kind"] == "interrupted"


@pytest.mark.parametrize(
    ("where_to", "code", "lines"),
    [("| true", 0, 0), ("> /dev/full", 3, 1), ("--json > /dev/full", 3, 1), (">&-", 0, 0)],
)
def test_an_output_that_takes_nothing_is_no_traceback(where_to: str, code: int, lines: int) -> None:
    command = f"{sys.executable} -m lumenfarm.cli.main collectives {where_to}"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)  # noqa: S607
    assert ended.returncode == code
    assert ended.stderr.count("\n") == lines


@pytest.mark.parametrize("workers", [0, 2])
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(tmp_path, capsys, workers: int) -> None:
    """As a terminal does it: the interrupt goes to the whole process group."""
    cache = tmp_path / "cache"
    words = [*LONG.split(), "--cache", str(cache)]
    program = [sys.executable, "-m", "lumenfarm.cli.main", *words, "--workers", str(workers)]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        wait_for_entries(cache, 3)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["error"]["kind"] == "interrupted"
    assert [line for line in err.splitlines() if "workers busy" not in line] == [
        "lumenfarm: interrupted; the same command goes on from what is in the cache"
    ]
    assert not left_in_session(process.pid)
    kept = len(entries(cache))
    assert run([*words, "--workers", "0", "--quiet", "--gap", "0.99"]) == 0
    assert json.loads(capsys.readouterr().out)["work"]["from_cache"] == kept


def entries(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file() and not path.name.startswith(".")]


def wait_for_entries(cache: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(entries(cache)) < count and time.monotonic() < deadline:
        time.sleep(0.02)


def left_in_session(leader: int) -> list[str]:
    """Processes of the session that the interrupted one led; they have a moment to end."""
    for _ in range(50):
        listed = subprocess.run(["ps", "-eo", "sess=,args="], capture_output=True, text=True, check=True)  # noqa: S607
        left = [line for line in listed.stdout.splitlines() if line.split()[0] == str(leader)]
        if not left:
            break
        time.sleep(0.1)
    return left
