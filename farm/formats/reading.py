"""Files in and out: bounded, strict reading and atomic writing, the same for every format."""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from lumenfarm.errors import EnvironmentFailure, InputError

__all__ = [
    "MAX_FILE_BYTES",
    "Content",
    "Overwrite",
    "check_output",
    "json_text",
    "number",
    "read_content",
    "read_json",
    "write_bytes",
    "write_text",
]

MAX_FILE_BYTES = 256 * 1024**2

# Half of a UTF-16 pair, escaped: only then can a string hold what UTF-8 cannot write.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class Overwrite(enum.Enum):
    """What to do when the path to write exists already."""

    REFUSE = "refuse"
    REPLACE = "replace"


@dataclass(frozen=True, eq=False)
class Content:
    """What is in a file, and its path as the user gave it."""

    path: str
    data: bytes

    @property
    def is_json(self) -> bool:
        """Whether it begins like a JSON object or array; it may still be broken further on."""
        return re.match(rb"\s*[\[{]", self.data) is not None

    @cached_property
    def json(self) -> object:
        """The parsed JSON value.

        Raises:
            InputError: not UTF-8, invalid or truncated JSON, a duplicate key, NaN or Infinity, half of a surrogate
                pair, or nesting beyond the interpreter's limit. The field is the path.
        """
        try:
            value = json.loads(self.data.decode(), object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
            if _SURROGATE.search(self.data):
                json.dumps(value, ensure_ascii=False).encode()
        except RecursionError as error:
            raise InputError(self.path, "nesting too deep", "valid JSON") from error
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise InputError(self.path, error.reason, "JSON in UTF-8") from error
        except ValueError as error:
            raise InputError(self.path, str(error), "valid JSON") from error
        return value


def read_content(path: str | os.PathLike[str]) -> Content:
    """The bytes of a regular file of at most 256 MiB; its size is looked at before anything is read.

    Raises:
        InputError: no such file, not readable, not a regular file, or too large. The field is the path.
    """
    text = os.fspath(path)
    try:
        status = os.stat(path)
        _check_readable(text, status)
        with open(path, "rb") as file:
            data = file.read(status.st_size + 1)
    except OSError as error:
        raise InputError(text, error.strerror, "a readable file") from error
    except ValueError as error:
        raise InputError(text, str(error), "a path") from error
    if len(data) > status.st_size:
        raise InputError(text, "more bytes than a moment ago", "a file that nobody is writing")
    return Content(text, data)


def read_json(path: str | os.PathLike[str]) -> object:
    """The JSON value in a file, read strictly.

    Raises:
        InputError: see `read_content` and `Content.json`.
    """
    return read_content(path).json


def number(value: float) -> int | float:
    """``value`` as JSON writes it shortest: whole numbers without a fraction."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value


def json_text(value: Mapping[str, Any]) -> str:
    """JSON with one line for each innermost object or list, byte-stable, ending in a newline.

    Raises:
        ValueError: a number that is not finite.
    """
    return _render(value, "") + "\n"


def check_output(path: str | os.PathLike[str], *, force: Overwrite) -> None:
    """Refuse a path that `write_bytes` would refuse, so that nothing is written when one of several is bad.

    Raises:
        InputError: the folder does not exist, the path is no regular file, or it exists and may not be replaced.
            The field is ``output``.
    """
    text = os.fspath(path)
    if not os.path.isdir(Path(path).parent):
        raise InputError("output", text, "a path in a folder that exists")
    if not os.path.lexists(path):
        return
    if not os.path.isfile(path):
        raise InputError("output", text, "a path that is not a folder or a device")
    if force is Overwrite.REFUSE:
        raise InputError("output", text, "a path where no file is yet (--force replaces it)")


def write_bytes(path: str | os.PathLike[str], data: bytes, *, force: Overwrite) -> None:
    """Write a whole file or none of it: a temporary name in the same folder, fsync, rename.

    Raises:
        InputError: see `check_output`.
        EnvironmentFailure: the system cannot write there.
    """
    check_output(path, force=force)
    target = os.path.realpath(path)
    temporary = os.path.join(os.path.dirname(target), f".lumenfarm-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        text = os.fspath(path)
        raise EnvironmentFailure(f"cannot write {text}: {error.strerror}", where=text) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def write_text(path: str | os.PathLike[str], text: str, *, force: Overwrite) -> None:
    """`write_bytes` of the text in UTF-8.

    Raises:
        InputError, EnvironmentFailure: see `write_bytes`.
    """
    write_bytes(path, text.encode(), force=force)


def _check_readable(text: str, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError(text, stat.filemode(status.st_mode), "a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise InputError(text, f"{status.st_size} bytes", f"a file of at most {MAX_FILE_BYTES} bytes")


def _unique_keys(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"duplicate key {key!r}")
        values[key] = value
    return values


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"the literal {word}")


def _render(value: Any, indent: str) -> str:
    if not _has_objects(value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = indent + "  "
    if isinstance(value, Mapping):
        lines = [f"{inner}{json.dumps(key, ensure_ascii=False)}: {_render(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [inner + _render(item, inner) for item in value]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def _has_objects(value: Any) -> bool:
    """Whether there is an object inside; lists are of one kind, so that their first item tells."""
    items = list(value.values()) if isinstance(value, Mapping) else value[:1] if isinstance(value, list) else []
    return any(isinstance(item, Mapping) or _has_objects(item) for item in items)
