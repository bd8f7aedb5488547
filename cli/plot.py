"""``lumenfarm plot``: pictures of a schedule."""

from __future__ import annotations

from typing import Annotated

import typer

from lumenfarm import formats, plots
from lumenfarm.cli import options

__all__ = ["plot_app"]

plot_app = typer.Typer(
    help="Draw a schedule as PNG, SVG or PDF, data as CSV beside it.",
    callback=options.show_help,
    invoke_without_command=True,
)

_Schedule = Annotated[str, typer.Argument(metavar="SCHEDULE", help="A lumenfarm.schedule/1 file.")]
_Picture = Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="A .png, .svg or .pdf file.")]


@plot_app.command()
def envelope(schedule: _Schedule, output: _Picture, force: options.Force = False) -> None:
    """Cost against the reconfiguration delay, with every break-point."""
    plots.plot_envelope(formats.load_schedule(schedule), output, force=options.overwrite(force))


@plot_app.command()
def timeline(schedule: _Schedule, output: _Picture, force: options.Force = False) -> None:
    """The steps to scale, coloured by topology."""
    plots.plot_timeline(formats.load_schedule(schedule), output, force=options.overwrite(force))
