"""``lumenfarm doctor``: is everything here that a job needs?"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from lumenfarm import api
from lumenfarm.cache.opening import open_cache
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_table
from lumenfarm.errors import EnvironmentFailure, LumenFarmError
from lumenfarm.units import format_bytes
from lumenfarm.versions import versions

__all__ = ["doctor"]

_FEW_FILES = 1024


def doctor(
    cache: options.Cache = None,
    address: options.Address = None,
    no_ray: Annotated[bool, typer.Option("--no-ray", help="Do not start or reach Ray.")] = False,
    json: options.Json = False,
) -> None:
    """Check solvers, cache, Ray, memory and file limits."""
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: sys.version.split()[0],
        "versions": lambda: ", ".join(f"{name} {version}" for name, version in versions().items()),
        "solvers": _solvers,
        "cache": lambda: _cache(cache),
        "memory": _memory,
        "open files": _open_files,
    }
    if not no_ray:
        checks["ray"] = lambda: _ray(address)
    results = {name: _outcome(check) for name, check in checks.items()}
    if json:
        print_json({name: {"ok": ok, "detail": detail} for name, (ok, detail) in results.items()})
    else:
        print_table(
            ("", "check", "found"),
            [("ok" if ok else "FAILED", name, detail) for name, (ok, detail) in results.items()],
        )
    if not all(ok for ok, _ in results.values()):
        raise typer.Exit(EnvironmentFailure.exit_code)


def _outcome(check: Callable[[], str]) -> tuple[bool, str]:
    try:
        return True, check()
    except (LumenFarmError, ImportError, OSError) as error:
        return False, str(error)


def _solvers() -> str:
    found = api.self_test()
    return ", ".join(f"{name} finds {value:.6g}" for name, value in found.items())


def _cache(url: str | None) -> str:
    store = open_cache(url, warn=options.warn)
    trouble = store.probe()
    if trouble is not None:
        raise EnvironmentFailure(str(trouble), where="cache")
    return f"{store.url}, readable and writable"


def _memory() -> str:
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return f"{format_bytes(pages * page_bytes)}, {api.default_workers()} CPUs"


def _open_files() -> str:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FEW_FILES:
        raise EnvironmentFailure(f"only {soft} open files allowed; Ray wants {_FEW_FILES} (ulimit -n)")
    return f"{soft} allowed"


def _ray(address: str | None) -> str:
    return api.ray_test(address)
