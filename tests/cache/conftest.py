"""A file system that refuses, which permissions cannot give to a test that runs as root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NoReturn

import pytest


@pytest.fixture
def refusing() -> Callable[[str, int], AbstractContextManager[None]]:
    """``refusing("fsync", errno.ENOSPC)``: inside it the function of module os fails with that error."""
    return _refusing


@contextlib.contextmanager
def _refusing(call: str, code: int) -> Iterator[None]:
    def fail(*_arguments: object, **_options: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, fail)
        yield
