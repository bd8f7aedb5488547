"""The ``lumenfarm`` command: which words it knows, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click
import typer

from lumenfarm.cli.cache import cache_app
from lumenfarm.cli.collectives import collectives
from lumenfarm.cli.doctor import doctor
from lumenfarm.cli.export import export
from lumenfarm.cli.plot import plot_app
from lumenfarm.cli.recurrence import recurrence
from lumenfarm.cli.synth import synth
from lumenfarm.cli.verify import verify
from lumenfarm.errors import LumenFarmError

__all__ = ["app", "main"]

_BAD_USAGE = 2
_INTERRUPTED = 130

app = typer.Typer(
    name="lumenfarm",
    help="Certified optical switching schedules for collective communication.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
app.command()(synth)
app.command()(verify)
app.command()(collectives)
app.command()(recurrence)
app.command()(export)
app.add_typer(plot_app, name="plot")
app.add_typer(cache_app, name="cache")
app.command()(doctor)


@app.callback()
def _common(debug: bool = typer.Option(False, "--debug", help="Show tracebacks.")) -> None:
    """Certified optical switching schedules for collective communication."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the answer is no, 2 bad input, 3 the environment failed, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_run(words))


def _run(words: list[str]) -> int:
    if "--debug" in words:
        words = ["--debug", *(word for word in words if word != "--debug")]
    try:
        code = app(words, prog_name="lumenfarm", standalone_mode=False)
    except click.ClickException as error:
        return _fail(words, "usage", _one_line(error.format_message()), None, _BAD_USAGE, error)
    except LumenFarmError as error:
        return _fail(words, error.kind, error.message, error.where, error.exit_code, error)
    except (KeyboardInterrupt, click.Abort) as error:
        message = "interrupted; what was finished is in the cache, the same command goes on from there"
        return _fail(words, "interrupted", message, None, _INTERRUPTED, error)
    return code if isinstance(code, int) else 0


def _fail(words: list[str], kind: str, message: str, where: str | None, code: int, error: BaseException) -> int:
    if "--debug" in words:
        raise error
    print(f"lumenfarm: {_one_line(message)}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": {"kind": kind, "message": message, "where": where}}))
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
