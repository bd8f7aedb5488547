"""``lumenfarm collectives``: what can be generated, and its files."""

from __future__ import annotations

from typing import Annotated

import typer

from lumenfarm import collectives as generators
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_table
from lumenfarm.errors import InputError, unknown_word
from lumenfarm.formats import dump_collective
from lumenfarm.formats.reading import write_text
from lumenfarm.units import format_bytes

__all__ = ["collectives"]


def collectives(
    name: Annotated[str | None, typer.Argument(help="Which to generate; all are listed without it.")] = None,
    gpus: options.Gpus = None,
    dims: options.Dims = None,
    ports: options.Ports = 1,
    message: options.Message = None,
    radix: options.Radix = None,
    root: options.Root = None,
    output: options.Output = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """List the collectives, or generate one.

    Its steps are shown in a table, and with -o its file is written.
    """
    size = options.Size(gpus=gpus, dims=dims, message=message, ports=ports, radix=radix, root=root)
    if name is None:
        size.refuse("without the name of a collective")
        if output is not None:
            raise InputError("output", output, "no --output without the name of a collective")
        _list(json=json)
        return
    if name not in generators.GENERATORS:
        raise unknown_word("collective", name, generators.GENERATORS)
    job = size.collective(name, format_name=None)
    if output is not None:
        write_text(output, dump_collective(job, ports=ports), force=options.overwrite(force))
    chunks = job.chunk_bytes(ports).tolist()
    if json:
        rounds = [{"pairs": len(step.demand), "chunk_bytes": m} for step, m in zip(job.steps, chunks, strict=True)]
        print_json({"name": job.name, "gpus": job.n, "dims": list(job.dims), "steps": rounds})
        return
    rows = [
        (str(index), str(len(step.demand)), format_bytes(float(step.demand.values.sum())), format_bytes(chunk))
        for index, (step, chunk) in enumerate(zip(job.steps, chunks, strict=True), start=1)
    ]
    print(f"{job.name}, {job.n} GPUs")
    print_table((">step", ">pairs", ">bytes in all", ">bytes a port"), rows)


def _list(*, json: bool) -> None:
    known = generators.GENERATORS.values()
    if json:
        print_json({g.name: {"summary": g.summary, "parameters": list(g.parameters)} for g in known})
        return
    print_table(("name", "summary", "parameters"), [(g.name, g.summary, ", ".join(g.parameters)) for g in known])
