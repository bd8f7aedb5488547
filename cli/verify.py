"""``lumenfarm verify``: an independent check of a schedule."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from lumenfarm import api, formats
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_table

__all__ = ["verify"]


def verify(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A lumenfarm.schedule/1 file.")],
    collective: Annotated[
        str | None, typer.Option(metavar="FILE", help="The collective's file. [default: generated again]")
    ] = None,
    json: options.Json = False,
) -> None:
    """Prove every number of a schedule again.

    From the demands and the circuits alone; exit code 1 if something does not hold.
    """
    claimed = formats.load_schedule(schedule)
    job = None if collective is None else formats.load_collective(collective)
    report = api.verify_schedule(claimed, job)
    if json:
        print_json({"ok": report.ok, "findings": [asdict(finding) for finding in report.findings]})
    else:
        rows = [("ok" if finding.ok else "FAILED", finding.check, finding.detail) for finding in report.findings]
        print_table(("", "check", "what was found"), rows)
        print(f"{schedule}: {'verified' if report.ok else 'REJECTED'}")
    if not report.ok:
        raise typer.Exit(1)
