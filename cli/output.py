"""What commands print: tables for people on stdout, JSON for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lumenfarm.planner import SpaceProof
from lumenfarm.schedule import EnvelopePiece
from lumenfarm.synthesis import OPTIMALITY_TOLERANCE, Synthesis
from lumenfarm.units import format_time_ns

__all__ = ["print_json", "print_synthesis", "print_table"]

# In a file no row is wrapped.
_FILE_WIDTH = 10_000


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json.dumps(value, indent=2, allow_nan=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; columns whose name begins with ``>`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(Text(column.lstrip(">")), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    terminal = Console()
    console = terminal if terminal.is_terminal else Console(width=_FILE_WIDTH)
    with console.capture() as printed:
        console.print(table)
    print(*map(str.rstrip, printed.get().splitlines()), sep="\n")


def print_synthesis(synthesis: Synthesis, headline: str, *, written: str | None) -> None:
    """The human table of a schedule, and where it was written."""
    print(headline)
    print(f"method {synthesis.method.value} ({synthesis.reason})\n")
    print_table(
        ("steps", "topology", ">time"),
        [(_steps(part.first, part.stop), part.topology, format_time_ns(part.cost_ns)) for part in synthesis.segments],
    )
    print()
    print_table(("", ">time", ">against ours"), _summary_rows(synthesis))
    print()
    if synthesis.proofs:
        print_table(
            ("group", ">symmetric topologies", ">looked at", ">no schedule of them below", ""),
            [_proof_row(proof) for proof in synthesis.proofs],
        )
        print()
    print("best schedule at other reconfiguration delays, over the same topologies:")
    print_table(
        (">reconfiguration delay from", ">to", ">reconfigurations", ">communication"),
        [_envelope_row(piece) for piece in synthesis.envelope],
    )
    print()
    print(_work_line(synthesis))
    if written is not None:
        print(f"schedule written to {written}")


def _summary_rows(synthesis: Synthesis) -> list[tuple[str, str, str]]:
    cost, baselines = synthesis.cost_ns, synthesis.baselines
    verdict = "optimal" if synthesis.gap <= OPTIMALITY_TOLERANCE else f"gap {synthesis.gap:.1%}"
    changes = synthesis.reconfigurations
    rows = [
        (f"this schedule, {changes} reconfiguration{'s' * (changes != 1)}", cost),
        (f"lower bound for any schedule ({verdict})", synthesis.lower_bound_ns),
        ("best fixed topology", baselines.static_ns),
        ("best topology for every step", baselines.every_step_ns),
    ]
    return [
        (name, format_time_ns(time), f"{time / cost:.3f}") if math.isfinite(time) else (name, "none", "")
        for name, time in rows
    ]


def _proof_row(proof: SpaceProof) -> tuple[str, str, str, str, str]:
    bound = format_time_ns(proof.lower_bound_ns)
    if not proof.listed:
        verdict = "searched near the best" if proof.answered else "not searched"
        return proof.group, f"up to {proof.topologies:.1e}", f"{proof.answered:,}", bound, verdict
    verdict = "proved" if proof.closed else "search not finished"
    return proof.group, f"{proof.topologies:,}", f"{proof.answered:,}", bound, verdict


def _envelope_row(piece: EnvelopePiece) -> tuple[str, str, str, str]:
    stop = "any" if piece.alpha_r_to_ns is None else format_time_ns(piece.alpha_r_to_ns)
    start = format_time_ns(piece.alpha_r_from_ns)
    return start, stop, str(piece.reconfigurations), format_time_ns(piece.communication_ns)


def _work_line(synthesis: Synthesis) -> str:
    work = synthesis.work
    parts = [
        f"{work.solved} tasks solved ({work.theta} linear programs for theta)",
        f"{work.from_cache} from the cache",
    ]
    if work.left_out:
        parts.append(f"{work.left_out} left out at the limit")
    return f"{', '.join(parts)}, {synthesis.wall_s:.2f} s"


def _steps(first: int, stop: int) -> str:
    return f"{first + 1}" if stop == first + 1 else f"{first + 1}-{stop}"
