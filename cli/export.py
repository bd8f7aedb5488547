"""``lumenfarm export``: a schedule in other formats."""

from __future__ import annotations

from typing import Annotated

import typer

from lumenfarm import formats
from lumenfarm.cli import options
from lumenfarm.errors import unknown_word
from lumenfarm.formats.reading import write_text

__all__ = ["export"]

_NAMES = ", ".join(formats.EXPORTERS)


def export(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="A lumenfarm.schedule/1 file.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"{_NAMES}.")],
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Write a schedule in another format, to a file or to stdout."""
    if to not in formats.EXPORTERS:
        raise unknown_word("to", to, formats.EXPORTERS)
    text = formats.EXPORTERS[to](formats.load_schedule(schedule))
    if output is None:
        print(text, end="")
    else:
        write_text(output, text, force=options.overwrite(force))
