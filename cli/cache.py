"""``lumenfarm cache``: what is in the result cache."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

import typer

from lumenfarm.cache.maintenance import stats as cache_stats
from lumenfarm.cache.opening import open_cache
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_table
from lumenfarm.units import format_bytes

__all__ = ["cache_app"]

cache_app = typer.Typer(help="Look after the result cache.", callback=options.show_help, invoke_without_command=True)


@cache_app.command()
def stats(cache: options.Cache = None, json: options.Json = False) -> None:
    """Count the entries."""
    found = cache_stats(open_cache(cache, warn=options.warn))
    if json:
        moments = {
            name: moment and moment.isoformat() for name, moment in (("oldest", found.oldest), ("newest", found.newest))
        }
        print_json(asdict(found) | moments)
        return
    rows = [
        ("folder", found.url),
        ("entries", f"{found.entries} ({format_bytes(found.bytes)})"),
        *((f"  {kind}", str(count)) for kind, count in found.by_kind.items()),
        *((f"  made by {made}", str(count)) for made, count in found.by_versions.items()),
        ("damaged", str(found.damaged)),
        ("set aside", str(found.quarantined)),
        ("from", _moment(found.oldest) or "-"),
        ("to", _moment(found.newest) or "-"),
    ]
    print_table(("cache", ""), rows)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
