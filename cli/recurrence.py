"""``lumenfarm recurrence``: the best sequence of given candidates, from a table of step times."""

from __future__ import annotations

from typing import Annotated

import typer

from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_table
from lumenfarm.errors import InputError, unknown_word
from lumenfarm.formats.cost_table import CostTable, load_cost_table
from lumenfarm.recurrence import Constant, Matrix, PerPort, Transition, recurrence_envelope, sequence
from lumenfarm.schedule import EnvelopePiece
from lumenfarm.units import format_time_ns, parse_time_ns

__all__ = ["recurrence"]


def recurrence(
    table: Annotated[str, typer.Argument(metavar="TABLE.csv", help="A header, then a candidate a row: name, times.")],
    tau: Annotated[str | None, typer.Option(metavar="T", help="Price of every change.")] = None,
    tau_matrix: Annotated[
        str | None, typer.Option(metavar="FILE.csv", help="Price of each change, from row to column.")
    ] = None,
    changed_ports: Annotated[
        str | None, typer.Option(metavar="FILE.csv", help="Ports that each change moves; needs --tau-per-port.")
    ] = None,
    tau_per_port: Annotated[str | None, typer.Option(metavar="T", help="Price of a moved port.")] = None,
    windows: Annotated[
        str | None, typer.Option(metavar="T,T,...", help="How much of a change after each step is hidden.")
    ] = None,
    initial: Annotated[str | None, typer.Option(metavar="NAME", help="Candidate in place before step 1.")] = None,
    json: options.Json = False,
) -> None:
    """Choose a candidate for every step of a cost table.

    With a constant tau also every value of it at which the choice changes.
    """
    costs = load_cost_table(table)
    transition = _transition(tau, tau_matrix, changed_ports, tau_per_port, costs)
    hidden = None if windows is None else [parse_time_ns(text, field="windows") for text in windows.split(",")]
    start = None if initial is None else _position(initial, costs)
    found = sequence(costs.times_ns, transition, windows_ns=hidden, initial=start)
    names = [costs.names[index] for index in found.candidates]
    constant = isinstance(transition, Constant) and hidden is None
    pieces = recurrence_envelope(costs.times_ns, initial=start) if constant else ()
    if json:
        print_json({"cost_ns": found.cost_ns, "sequence": names, "envelope": [_piece(piece) for piece in pieces]})
        return
    print_table(("", ""), [("cost", format_time_ns(found.cost_ns)), ("sequence", " ".join(names))])
    if pieces:
        print_table((">tau from", ">to", ">changes", ">steps"), [_row(piece) for piece in pieces])


def _piece(piece: EnvelopePiece) -> dict[str, float | int | None]:
    return {
        "tau_from_ns": piece.alpha_r_from_ns,
        "tau_to_ns": piece.alpha_r_to_ns,
        "changes": piece.reconfigurations,
        "steps_ns": piece.communication_ns,
    }


def _row(piece: EnvelopePiece) -> tuple[str, str, str, str]:
    start, stop = format_time_ns(piece.alpha_r_from_ns), piece.alpha_r_to_ns
    to = "any" if stop is None else format_time_ns(stop)
    return start, to, str(piece.reconfigurations), format_time_ns(piece.communication_ns)


def _transition(
    tau: str | None, matrix: str | None, changed: str | None, per_port: str | None, costs: CostTable
) -> Transition:
    base = 0.0 if tau is None else parse_time_ns(tau, field="tau")
    if matrix is not None:
        if tau is not None or changed is not None:
            raise InputError("tau-matrix", matrix, "no --tau and no --changed-ports beside it")
        return Matrix(_square(matrix, costs).times_ns)
    if changed is not None:
        if per_port is None:
            raise InputError("tau-per-port", None, "a time, with --changed-ports")
        ports = _square(changed, costs).times_ns.astype(int)
        return PerPort(base, parse_time_ns(per_port, field="tau-per-port"), ports)
    if tau is None:
        raise InputError("tau", None, "a time such as 10us, or --tau-matrix")
    return Constant(base)


def _square(path: str, costs: CostTable) -> CostTable:
    table = load_cost_table(path)
    if table.names != costs.names or table.times_ns.shape[1] != len(costs.names):
        raise InputError(path, table.times_ns.shape, f"rows and columns {', '.join(costs.names)}, in this order")
    return table


def _position(name: str, costs: CostTable) -> int:
    if name not in costs.names:
        raise unknown_word("initial", name, costs.names)
    return costs.names.index(name)
