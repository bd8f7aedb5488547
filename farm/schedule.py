"""A finished answer: which topology carries which steps, what that costs, and how far from the best it can be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from lumenfarm.digest import digest
from lumenfarm.errors import InputError
from lumenfarm.model import Collective, Fabric, Origin, Topology

__all__ = ["FORWARDING", "Contract", "EnvelopePiece", "Provenance", "Schedule", "Segment", "StepTiming"]

# GPUs pass on traffic of others without storing it (model section 1).
FORWARDING = "cut-through"


@dataclass(frozen=True, slots=True)
class StepTiming:
    """One step on its topology: theta, the hops its delay is charged for, and its time in ns."""

    theta: float
    hops: float
    time_ns: float


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps first..stop-1 (from 0, half-open) on one topology.

    Attributes:
        topology: index into the schedule's topologies.
        cost_ns: sum of the step times, without reconfiguration.
        lower_bound_ns: no topology of this degree serves these steps faster.
        proof: how the bound was found, such as ``node`` or ``hop-volume``.
    """

    first: int
    stop: int
    topology: int
    cost_ns: float
    lower_bound_ns: float
    proof: str


@dataclass(frozen=True, slots=True)
class EnvelopePiece:
    """For reconfiguration delays in [alpha_r_from_ns, alpha_r_to_ns] the best number of reconfigurations is fixed.

    ``alpha_r_to_ns`` is None for the last piece. The cost there is communication_ns + reconfigurations*alpha_r.
    """

    alpha_r_from_ns: float
    alpha_r_to_ns: float | None
    reconfigurations: int
    communication_ns: float


@dataclass(frozen=True, slots=True)
class Contract:
    """What a runtime must have in common with the schedule before it may use it.

    Attributes:
        collective: digest of the ordered demands; changes with any step, byte or rank order.
        gpus: number of GPUs.
        message_bytes: bytes each GPU holds, None if the collective's file does not say.
        fabric: digest of every parameter of the fabric.
        forwarding: what GPUs must be able to do for each other.
    """

    collective: str
    gpus: int
    message_bytes: float | None
    fabric: str
    forwarding: str

    @classmethod
    def of(cls, collective: Collective, fabric: Fabric) -> Contract:
        """The contract for running ``collective`` on ``fabric``."""
        return cls(collective.digest, collective.n, collective.message_bytes, fabric_digest(fabric), FORWARDING)

    @property
    def digest(self) -> str:
        """One content address for all of it."""
        return digest("contract/1", **asdict(self))

    def differences(self, other: Contract) -> list[str]:
        """Names of the fields that differ."""
        mine, theirs = asdict(self), asdict(other)
        return [name for name in mine if mine[name] != theirs[name]]


def fabric_digest(fabric: Fabric) -> str:
    """Content address of every parameter of the fabric."""
    return digest("fabric/1", **(asdict(fabric) | {"latency": fabric.latency.value}))


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a schedule comes from: library versions, method, limits asked for, time of making (ISO 8601, UTC)."""

    versions: Mapping[str, str]
    method: str
    limits: Mapping[str, float | int | str | None]
    created: str


@dataclass(frozen=True, eq=False)
class Schedule:
    """A switching schedule for one collective on one fabric.

    Attributes:
        collective_name, n, dims, message_bytes, origin: the collective, see `Collective`.
        step_digests: content address of each step's demand.
        fabric: what it was made for.
        topologies: each distinct topology once.
        segments: in order, covering all steps; neighbours use different topologies.
        steps: one timing a step.
        initial: topology in place before the first step; None if the first topology is free.
        cost_ns: communication plus all reconfigurations.
        lower_bound_ns: no sequence of degree-d topologies is faster.
        envelope: best schedules at every reconfiguration delay, see `EnvelopePiece`.

    Whether the numbers are true, and the topologies within the degree, is for `lumenfarm.verify` to say.

    Raises:
        InputError: no steps, segments that do not cover the steps once in order, or name a topology that is not there;
            a topology over another number of GPUs; dims whose product is not n.
    """

    collective_name: str
    n: int
    dims: tuple[int, ...]
    message_bytes: float | None
    origin: Origin | None
    step_digests: tuple[str, ...]
    fabric: Fabric
    topologies: tuple[Topology, ...]
    segments: tuple[Segment, ...]
    steps: tuple[StepTiming, ...]
    initial: Topology | None
    cost_ns: float
    lower_bound_ns: float
    envelope: tuple[EnvelopePiece, ...]
    contract: Contract
    provenance: Provenance

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("steps", 0, "at least one step")
        if math.prod(self.dims) != self.n:
            raise InputError("dims", "x".join(map(str, self.dims)), f"sizes whose product is {self.n}")
        _check_cover(self.segments, len(self.steps))
        if len(self.step_digests) != len(self.steps):
            raise InputError("steps", len(self.steps), f"{len(self.step_digests)} timings, one a step")
        for segment in self.segments:
            if not 0 <= segment.topology < len(self.topologies):
                raise InputError("segments.topology", segment.topology, "a topology of this schedule")
        for topology in (*self.topologies, *([] if self.initial is None else [self.initial])):
            if topology.n != self.n:
                raise InputError("topologies", topology.n, f"topologies over {self.n} GPUs")

    @property
    def reconfigurations(self) -> int:
        """Changes of topology that are paid for, the move off the initial topology included."""
        first = self.topologies[self.segments[0].topology]
        moved = self.initial is not None and self.initial != first
        return len(self.segments) - 1 + int(moved)

    @property
    def communication_ns(self) -> float:
        """Sum of the step times."""
        return sum(segment.cost_ns for segment in self.segments)

    @property
    def gap(self) -> float:
        """(cost - bound)/cost: the largest part of the cost that any schedule could save."""
        return max(0.0, 1.0 - self.lower_bound_ns / self.cost_ns) if self.cost_ns > 0 else 0.0

    def topology_of_step(self, step: int) -> Topology:
        """The topology that carries a step (from 0)."""
        for segment in self.segments:
            if segment.first <= step < segment.stop:
                return self.topologies[segment.topology]
        raise InputError("step", step, f"a step from 0 to {len(self.steps) - 1}")


def _check_cover(segments: Sequence[Segment], steps: int) -> None:
    position = 0
    for segment in segments:
        if segment.first != position or segment.stop <= segment.first:
            raise InputError(
                "segments", (segment.first + 1, segment.stop), f"a segment that begins at step {position + 1}"
            )
        position = segment.stop
    if position != steps:
        raise InputError("segments", position, f"segments that cover all {steps} steps")
