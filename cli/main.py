"""The ``lumenfarm`` command: which words it knows, and how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence

import typer

from lumenfarm.cli.cache import cache_app
from lumenfarm.cli.collectives import collectives
from lumenfarm.cli.doctor import doctor
from lumenfarm.cli.export import export
from lumenfarm.cli.plot import plot_app
from lumenfarm.cli.recurrence import recurrence
from lumenfarm.cli.synth import synth
from lumenfarm.cli.verify import verify
from lumenfarm.errors import EnvironmentFailure, Interrupted, LumenFarmError
from lumenfarm.versions import versions

__all__ = ["app", "main", "run"]

_DEBUG = "--debug"
# The number of the file that every process knows as its output.
_STDOUT = 1


class _UsageError(LumenFarmError):
    """The words on the command line do not fit together."""

    kind = "usage"
    exit_code = 2


class _Bug(LumenFarmError):
    """Something went wrong that nobody thought of."""

    kind = "internal"


app = typer.Typer(
    name="lumenfarm",
    help="Certified optical switching schedules for collective communication.",
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


def _print_version(asked: bool) -> None:
    if asked:
        print(f"lumenfarm {versions()['lumenfarm']}")
        raise typer.Exit


@app.callback()
def _common(
    debug: bool = typer.Option(False, _DEBUG, help="Show tracebacks."),
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Certified optical switching schedules for collective communication."""


def main() -> None:
    """Run the command line of this process and exit with what `run` returns."""
    code = run(sys.argv[1:])
    try:
        print(end="", flush=True)
    except OSError:
        # Reported by now. Otherwise the interpreter would try once more, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    sys.exit(code)


def run(words: Sequence[str]) -> int:
    """Run one command.

    Args:
        words: what follows ``lumenfarm`` on the command line.

    Returns:
        The exit code: 0 done, 1 the answer is no, 2 bad input, 3 the environment failed, 130 interrupted.
    """
    try:
        _dispatch([word for word in words if word != _DEBUG] or ["--help"])
    except LumenFarmError as error:
        if _DEBUG in words:
            raise
        _report(error, as_json="--json" in words)
        return error.exit_code
    except typer.Exit as error:
        return error.exit_code
    return 0


def _dispatch(words: list[str]) -> None:
    """Run one command; whatever goes wrong becomes a `LumenFarmError`, and an exit code not 0 a `typer.Exit`."""
    try:
        code = app(words, prog_name="lumenfarm", standalone_mode=False)
        print(end="", flush=True)
    except (BrokenPipeError, SystemExit):  # whoever read stdout has left, which Typer turns into a SystemExit
        raise typer.Exit(EnvironmentFailure.exit_code) from None
    except typer.TyperException as error:
        raise _UsageError(error.format_message()) from error
    except (OSError, MemoryError) as error:
        raise EnvironmentFailure(str(error) or "not enough memory") from error
    except LumenFarmError:
        raise
    except Exception as error:  # a bug, too, is one line for the user, and no exit code that means something else
        raise _Bug(f"{type(error).__name__}: {error} (a bug; {_DEBUG} shows where)") from error
    if code == Interrupted.exit_code:
        raise Interrupted("interrupted; the same command goes on from what is in the cache")
    if code:
        raise typer.Exit(code)


def _report(error: LumenFarmError, *, as_json: bool) -> None:
    """One line on stderr, and an object on stdout for who asked for JSON."""
    print(f"lumenfarm: {' '.join(error.message.split())}", file=sys.stderr)
    if not as_json:
        return
    # Where stdout itself is the trouble, all is said already.
    with contextlib.suppress(OSError):
        print(json.dumps({"error": {"kind": error.kind, "message": error.message, "where": error.where}}))


if __name__ == "__main__":
    main()
