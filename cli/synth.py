"""``lumenfarm synth``: one schedule."""

from __future__ import annotations

from typing import Annotated

import typer

from lumenfarm import api, families
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_synthesis
from lumenfarm.cli.progress import progress
from lumenfarm.formats import dump_schedule
from lumenfarm.formats.reading import check_output, write_text
from lumenfarm.model import Collective, Fabric
from lumenfarm.synthesis import Method
from lumenfarm.units import format_bytes, format_time_ns, parse_time_ns

__all__ = ["synth"]

_METHODS = ", ".join(method.value for method in Method)
_FAMILIES = ", ".join(families.FAMILIES)
_DEFAULT_FAMILIES = ",".join(families.DEFAULT_FAMILIES)


def synth(
    collective: options.Source,
    gpus: options.Gpus = None,
    dims: options.Dims = None,
    ports: options.Ports = 1,
    message: options.Message = None,
    link: options.Link = "800Gbps",
    alpha: options.Alpha = "500ns",
    delta: options.Delta = "500ns",
    reconfig_delay: options.ReconfigDelay = "10us",
    radix: options.Radix = None,
    root: options.Root = None,
    file_format: options.Format = None,
    latency: Annotated[str, typer.Option(help="What hops are charged for: congestion or shortest.")] = "congestion",
    initial: Annotated[str, typer.Option(help="Topology before the first step: free, ring, or a file.")] = "free",
    method: Annotated[str, typer.Option(help=f"{_METHODS}.")] = "auto",
    candidates: Annotated[str, typer.Option(metavar="LIST", help=f"{_FAMILIES}, file:PATH.")] = _DEFAULT_FAMILIES,
    gap: Annotated[float | None, typer.Option(help="Stop once the certified gap is not above this.")] = None,
    time_limit: Annotated[str | None, typer.Option(metavar="T", help="Stop after this time.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if the gap is missed or time runs out.")] = False,
    cache: options.Cache = None,
    workers: Annotated[int | None, typer.Option(help="Processes that solve; 0: this one. [default: CPUs]")] = None,
    address: Annotated[str | None, typer.Option(metavar="RAY", help="A running Ray cluster.")] = None,
    output: options.Output = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no table.")] = False,
) -> None:
    """Find a switching schedule for a collective, and prove how good it is."""
    fabric = options.fabric_of(
        ports=ports, link=link, alpha=alpha, delta=delta, reconfig_delay=reconfig_delay, latency=latency
    )
    size = options.Size(gpus=gpus, dims=dims, message=message, ports=ports, radix=radix, root=root)
    if output is not None:
        check_output(output, force=options.overwrite(force))
    seconds = None if time_limit is None else parse_time_ns(time_limit, field="time-limit") / 1e9
    shifts = size.shift_steps(collective) if method == Method.CLOSED_FORM.value and output is None else None
    if shifts is not None and gpus is not None and initial == "free":
        synthesis = api.synthesize_shifts(shifts, gpus, fabric, gap=gap)
        name = f"{collective}, {gpus} GPUs, {message}"
    else:
        job = size.collective(collective, format_name=file_format)
        with progress(quiet=quiet or json) as listen:
            synthesis = api.synthesize(
                job,
                fabric,
                method=method,
                candidates=candidates.split(","),
                initial=options.initial_of(initial, dims=job.dims, degree=ports),
                gap=gap,
                time_limit_s=seconds,
                cache=cache,
                workers=workers,
                address=address,
                listen=listen,
                warn=options.warn,
            )
        name = _name(job)
    if synthesis.schedule is not None and output is not None:
        write_text(output, dump_schedule(synthesis.schedule), force=options.overwrite(force))
    if json:
        print_json(synthesis.to_json())
    elif not quiet:
        print_synthesis(synthesis, f"{name}, {_fabric(fabric)}", written=output)
    if strict and (synthesis.work.left_out or (gap is not None and not synthesis.optimal)):
        raise typer.Exit(1)


def _name(collective: Collective) -> str:
    size = "" if collective.message_bytes is None else f", {format_bytes(collective.message_bytes)}"
    shape = f" as {'x'.join(map(str, collective.dims))}" if len(collective.dims) > 1 else ""
    return f"{collective.name}, {collective.n} GPUs{shape}{size}"


def _fabric(fabric: Fabric) -> str:
    ports = f"{fabric.degree} port{'s' * (fabric.degree != 1)} of {fabric.link_gbps:g} Gb/s"
    times = f"alpha {format_time_ns(fabric.alpha_ns)}, delta {format_time_ns(fabric.delta_ns)}"
    return f"{ports}, {times}, reconfiguration {format_time_ns(fabric.reconfig_delay_ns)}"
