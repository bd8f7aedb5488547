"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from lumenfarm import collectives, families, formats
from lumenfarm.errors import InputError, nearest, unknown_word
from lumenfarm.formats.reading import Overwrite
from lumenfarm.model import Collective, Fabric, Latency, Topology
from lumenfarm.units import finite, parse_bytes, parse_rate_gbps, parse_time_ns, positive_int

__all__ = [
    "FREE",
    "Address",
    "Alpha",
    "Cache",
    "Delta",
    "Dims",
    "Force",
    "Format",
    "Gap",
    "Gpus",
    "Json",
    "Link",
    "Message",
    "Output",
    "Ports",
    "Radix",
    "ReconfigDelay",
    "Root",
    "Size",
    "Source",
    "TimeLimit",
    "Workers",
    "fabric_of",
    "initial_of",
    "overwrite",
    "show_help",
    "warn",
    "whole",
]


# What --initial calls no topology at all.
FREE = "free"
_RING = "ring"


def whole(field: str, *, minimum: int) -> Callable[[str | int], int]:
    """A parser of whole numbers not below ``minimum``."""

    def parse(text: str | int) -> int:
        if re.fullmatch(r"[-+]?[0-9]{1,18}", str(text)) is None:
            raise InputError(field, text, f"a whole number not below {minimum}")
        return positive_int(int(text), field=field, minimum=minimum)

    return parse


def _gap(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("gap", text, "a fraction such as 0.05") from None


def _time_limit_s(text: str | float) -> float:
    return finite(parse_time_ns(text, field="time-limit") / 1e9, field="time-limit", strict=True)


Source = Annotated[str, typer.Argument(metavar="COLLECTIVE", help="A name from `lumenfarm collectives`, or a file.")]
Gpus = Annotated[
    int | None, typer.Option("--gpus", metavar="N", parser=whole("gpus", minimum=2), help="Number of GPUs.")
]
Dims = Annotated[str | None, typer.Option("--dims", metavar="AxB", help="Sizes of a torus, such as 8x8.")]
Ports = Annotated[
    int, typer.Option("--ports", metavar="D", parser=whole("ports", minimum=1), help="Optical ports of each GPU.")
]
Message = Annotated[str | None, typer.Option("--message", metavar="SIZE", help="Bytes each GPU holds, such as 16MiB.")]
Radix = Annotated[
    int | None,
    typer.Option("--radix", metavar="R", parser=whole("radix", minimum=2), help="Base of Bruck's digits."),
]
Root = Annotated[
    int | None, typer.Option("--root", metavar="RANK", parser=whole("root", minimum=0), help="Root of a broadcast.")
]
Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help="Format of the collective's file.")]
Link = Annotated[str, typer.Option("--link", metavar="RATE", help="Rate of one port.")]
Alpha = Annotated[str, typer.Option("--alpha", metavar="T", help="Startup time of a step.")]
Delta = Annotated[str, typer.Option("--delta", metavar="T", help="Delay of one hop.")]
ReconfigDelay = Annotated[str, typer.Option("--reconfig-delay", metavar="T", help="Price of changing the topology.")]
Gap = Annotated[float | None, typer.Option("--gap", metavar="G", parser=_gap, help="Stop at this certified gap.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="T",
        parser=_time_limit_s,
        help="Search on until this time is up, such as 30s, then stop.",
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        "--cache",
        metavar="URL",
        help="Folder of the result cache, or none. [default: $LUMENFARM_CACHE, else of the user]",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        parser=whole("workers", minimum=0),
        help="Processes that solve; 0: this one. [default: CPUs]",
    ),
]
Address = Annotated[str | None, typer.Option("--address", metavar="RAY", help="A running Ray cluster.")]
Output = Annotated[str | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, slots=True)
class Size:
    """What the options say about a generated collective; all but the ports is forbidden beside a file."""

    gpus: int | None
    dims: str | None
    message: str | None
    ports: int
    radix: int | None
    root: int | None

    def collective(self, source: str, *, format_name: str | None) -> Collective:
        """The collective that a name and these options, or a file, describe.

        Raises:
            InputError: an unknown name, an unusable file, or options that do not go with it.
        """
        if format_name is not None and format_name not in formats.COLLECTIVE_READERS:
            raise unknown_word("format", format_name, formats.COLLECTIVE_READERS)
        if format_name is None and not _is_file(source):
            return collectives.generate(
                source,
                gpus=self.gpus,
                dims=_dims_of(self.dims),
                message_bytes=self._message_bytes(),
                ports=self.ports,
                radix=self.radix,
                root=self.root,
            )
        self.refuse("beside a file")
        return formats.load_collective(source, format=format_name)

    def refuse(self, reason: str) -> None:
        """Let none of these options pass, whose reason not to be there is given.

        Raises:
            InputError: one is there; all but the ports, which always have a value.
        """
        for field, value in asdict(self).items():
            if field != "ports" and value is not None:
                raise InputError(field, value, f"no --{field} {reason}")

    def shift_steps(self, source: str) -> tuple[collectives.ShiftStep, ...] | None:
        """The steps as shifts, without building demands; None if this is no generated shift collective on a ring."""
        if _is_file(source) or self.gpus is None or self.dims is not None or self.root is not None:
            return None
        return collectives.shift_steps(
            source, gpus=self.gpus, message_bytes=self._message_bytes(), ports=self.ports, radix=self.radix
        )

    def _message_bytes(self) -> float:
        if self.message is None:
            raise InputError("message", None, "a size such as 16MiB; generated collectives need one")
        return parse_bytes(self.message, field="message")


def fabric_of(*, ports: int, link: str, alpha: str, delta: str, reconfig_delay: str, latency: str) -> Fabric:
    """The fabric the options describe.

    Raises:
        InputError: a value without sense.
    """
    kinds = {kind.value: kind for kind in Latency}
    if latency not in kinds:
        raise unknown_word("latency", latency, kinds)
    return Fabric(
        degree=ports,
        link_gbps=parse_rate_gbps(link, field="link"),
        alpha_ns=parse_time_ns(alpha, field="alpha"),
        delta_ns=parse_time_ns(delta, field="delta"),
        reconfig_delay_ns=parse_time_ns(reconfig_delay, field="reconfig-delay"),
        latency=kinds[latency],
    )


def initial_of(text: str, *, dims: tuple[int, ...], degree: int) -> Topology | None:
    """The topology of --initial: free, ring (the collective's base ring or torus), or the only one in a file.

    Raises:
        InputError: another word, or a file that does not hold exactly one topology.
    """
    if text == FREE:
        return None
    if text == _RING:
        return families.torus(dims, degree)
    if not os.path.exists(text):
        close = nearest(text, (FREE, _RING))
        hint = f" (did you mean {close!r}?)" if close else ""
        raise InputError("initial", text, f"free, ring, or a file that exists{hint}")
    found = formats.load_topologies(text)
    if len(found) != 1:
        raise InputError("initial", f"{len(found)} topologies", "free, ring, or a file with exactly one topology")
    return found[0]


def overwrite(force: bool) -> Overwrite:
    """What --force means."""
    return Overwrite.REPLACE if force else Overwrite.REFUSE


def show_help(context: typer.Context) -> None:
    """What a group of commands does when none of them is named."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def warn(message: str) -> None:
    """A warning on stderr."""
    print(f"warning: {message}", file=sys.stderr)


def _is_file(source: str) -> bool:
    return source not in collectives.GENERATORS and (os.sep in source or "." in source or os.path.exists(source))


def _dims_of(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise InputError("dims", text, "sizes such as 8x8")
    return tuple(map(int, parts))
