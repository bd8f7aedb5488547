"""From what the user says about the cache to an open one. A new store is one file and one line in `SCHEMES`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import platformdirs

from lumenfarm.cache.blobs import BlobStore
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.results import ResultCache, warn_by_log
from lumenfarm.errors import InputError, unknown_word

__all__ = ["ENVIRONMENT_VARIABLE", "SCHEMES", "open_cache", "open_store"]

ENVIRONMENT_VARIABLE = "LUMENFARM_CACHE"

# Scheme of the URL -> store, given what follows the first colon.
SCHEMES: dict[str, Callable[[str], BlobStore]] = {
    "file": DirectoryStore.from_location,
    "memory": MemoryStore.from_location,
    "none": NullStore.from_location,
}

_ACCEPTED = "a folder, file:///folder, memory: or none"
_OBJECT_STORAGE = frozenset({"s3", "gs", "az"})
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def open_cache(url: str | None = None, *, warn: Callable[[str], None] = warn_by_log) -> ResultCache:
    """The result cache at ``url``; nothing is created before the first result is saved.

    Args:
        url: a folder, a ``file:`` URL, ``memory:`` or ``none``; None takes the environment variable
            LUMENFARM_CACHE, and if that is empty too, the user's cache folder.
        warn: see `ResultCache`.

    Raises:
        InputError: an unknown or unsupported scheme, a location the scheme cannot have, or an empty string.
    """
    chosen = url if url is not None else os.environ.get(ENVIRONMENT_VARIABLE) or _default_folder()
    return ResultCache(open_store(chosen), warn=warn)


def open_store(url: str) -> BlobStore:
    """The store at ``url``, see `open_cache`."""
    if url == "none":
        return NullStore()
    with_scheme = _SCHEME.fullmatch(url)
    if with_scheme is None:
        return _folder(url)
    scheme, location = with_scheme[1].lower(), with_scheme[2]
    if scheme in _OBJECT_STORAGE:
        raise InputError("cache", url, f"{_ACCEPTED}; object storage is not supported yet")
    if scheme not in SCHEMES:
        raise unknown_word("cache", scheme, SCHEMES)
    return SCHEMES[scheme](location)


def _folder(path: str) -> DirectoryStore:
    if not path or "\0" in path:
        raise InputError("cache", path, _ACCEPTED)
    return DirectoryStore(Path(os.path.expanduser(path)))


def _default_folder() -> str:
    return platformdirs.user_cache_dir("lumenfarm")
