"""``lumenfarm synth``: one schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from lumenfarm import api, families
from lumenfarm.cli import options
from lumenfarm.cli.output import print_json, print_synthesis
from lumenfarm.cli.progress import progress
from lumenfarm.driver import Listener
from lumenfarm.errors import EnvironmentFailure
from lumenfarm.formats import dump_schedule
from lumenfarm.formats.reading import Overwrite, check_output, write_text
from lumenfarm.model import Collective, Fabric
from lumenfarm.synthesis import Method, Synthesis
from lumenfarm.units import format_bytes, format_time_ns

__all__ = ["synth"]

_METHODS = ", ".join(method.value for method in Method)
_FAMILIES = f"{', '.join(families.FAMILIES)}, file:PATH; with commas. [default: {','.join(families.DEFAULT_FAMILIES)}]"

_Latency = Annotated[str, typer.Option(metavar="NAME", help="What hops are charged for: congestion or shortest.")]
_Initial = Annotated[str, typer.Option(metavar="WHICH", help="Topology before the first step: free, ring, or a file.")]
_Method = Annotated[str, typer.Option(metavar="NAME", help=f"{_METHODS}.")]
_Candidates = Annotated[str | None, typer.Option(metavar="LIST", help=_FAMILIES)]
_Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 if the gap is missed or time runs out.")]
_Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no table.")]

# Beyond this many GPUs a closed form gets no demands and no topologies, unless they are to be written out.
_LARGEST_BUILT = 4096


@dataclass(frozen=True, slots=True)
class _Search:
    """How to search, as the options say it."""

    method: str
    candidates: str | None
    initial: str
    gap: float | None
    time_limit_s: float | None
    cache: str | None
    workers: int | None
    address: str | None

    @property
    def allows_arithmetic(self) -> bool:
        """Whether nothing is asked for that a closed form does not have."""
        methods = (Method.AUTO.value, Method.CLOSED_FORM.value)
        return self.method in methods and self.candidates is None and self.initial == options.FREE

    def run(self, job: Collective, fabric: Fabric, listen: Listener | None) -> Synthesis:
        """The best schedule found."""
        return api.synthesize(
            job,
            fabric,
            method=self.method,
            candidates=None if self.candidates is None else self.candidates.split(","),
            initial=options.initial_of(self.initial, dims=job.dims, degree=fabric.degree),
            gap=self.gap,
            time_limit_s=self.time_limit_s,
            cache=self.cache,
            workers=self.workers,
            address=self.address,
            listen=listen,
            warn=options.warn,
        )


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
    latency: _Latency = "congestion",
    initial: _Initial = options.FREE,
    method: _Method = Method.AUTO.value,
    candidates: _Candidates = None,
    gap: options.Gap = None,
    time_limit: options.TimeLimit = None,
    strict: _Strict = False,
    cache: options.Cache = None,
    workers: options.Workers = None,
    address: options.Address = None,
    output: options.Output = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: _Quiet = False,
) -> None:
    """Find a switching schedule, and prove how good it is."""
    fabric = options.fabric_of(
        ports=ports, link=link, alpha=alpha, delta=delta, reconfig_delay=reconfig_delay, latency=latency
    )
    size = options.Size(gpus=gpus, dims=dims, message=message, ports=ports, radix=radix, root=root)
    search = _Search(method, candidates, initial, gap, time_limit, cache, workers, address)
    if output is not None:
        check_output(output, force=options.overwrite(force))
    unwritten = output is None and file_format is None and search.allows_arithmetic
    shifts = size.shift_steps(collective) if unwritten and gpus is not None and gpus > _LARGEST_BUILT else None
    if gpus is not None and shifts is not None:
        synthesis = api.synthesize_shifts(shifts, gpus, fabric, gap=gap)
        name = f"{collective}, {gpus} GPUs, {message}"
    else:
        job = size.collective(collective, format_name=file_format)
        with progress(quiet=quiet) as listen:
            synthesis = search.run(job, fabric, listen)
        name = _name(job)
        if output is not None:
            _write(synthesis, job, output, options.overwrite(force))
    if json:
        print_json(synthesis.to_json())
    elif not quiet:
        print_synthesis(synthesis, f"{name}, {_fabric(fabric)}", written=output)
    if strict and not (synthesis.complete if gap is None else synthesis.optimal):
        raise typer.Exit(1)


def _write(synthesis: Synthesis, job: Collective, output: str, overwrite: Overwrite) -> None:
    """Write the schedule if the independent check accepts it."""
    if synthesis.schedule is None:
        return
    failures = api.verify_schedule(synthesis.schedule, job).failures
    if failures:
        raise EnvironmentFailure(
            f"a solver failed: the schedule found does not pass verification ({failures[0].detail}); nothing written",
            where=failures[0].check,
        )
    write_text(output, dump_schedule(synthesis.schedule), force=overwrite)


def _name(collective: Collective) -> str:
    size = "" if collective.message_bytes is None else f", {format_bytes(collective.message_bytes)}"
    shape = f" as {'x'.join(map(str, collective.dims))}" if len(collective.dims) > 1 else ""
    return f"{collective.name}, {collective.n} GPUs{shape}{size}"


def _fabric(fabric: Fabric) -> str:
    ports = f"{fabric.degree} port{'s' * (fabric.degree != 1)} of {fabric.link_gbps:g} Gb/s"
    times = f"alpha {format_time_ns(fabric.alpha_ns)}, delta {format_time_ns(fabric.delta_ns)}"
    return f"{ports}, {times}, reconfiguration {format_time_ns(fabric.reconfig_delay_ns)}"
