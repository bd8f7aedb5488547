"""The command line run in this process, in a folder and with a cache of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lumenfarm.cli import progress
from lumenfarm.cli.main import run


@dataclass(frozen=True)
class Ended:
    """How a command ended: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cache_folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def lumenfarm(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Ended]:
    """``lumenfarm("synth ...")``; relative paths are below tmp_path. No progress, however slow the machine."""
    monkeypatch.setattr(progress, "_LINE_EVERY_S", math.inf)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LUMENFARM_CACHE", str(cache_folder))

    def command(line: str) -> Ended:
        capsys.readouterr()
        code = run(line.split())
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return command
