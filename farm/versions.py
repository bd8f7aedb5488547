"""Versions of LumenFarm and of the libraries whose numbers end up in results."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

__all__ = ["solver_versions", "versions"]

_PACKAGES = {"lumenfarm": "lumenfarm", "scip": "pyscipopt", "highs": "highspy", "clarabel": "clarabel", "ray": "ray"}


@cache
def versions() -> dict[str, str]:
    """Version by name: lumenfarm, scip, highs, clarabel, ray; ``missing`` when a package is not installed."""
    return {name: _version(package) for name, package in _PACKAGES.items()}


def solver_versions() -> dict[str, str]:
    """The part of `versions` that belongs into a cache key of a theta computation."""
    return {"highs": versions()["highs"]}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"
