"""``lumenfarm.schedule/1``: the schedule file, in and out, and its published JSON Schema.

Steps count from 1, GPUs from 0; units stand in the key names. ``communication_ns``, ``reconfigurations``, ``gap``
and ``contract.digest`` repeat what the rest of the file says; a file in which they disagree is refused. Everything
else is data, for ``verify`` to check.

The schema file beside this module is made by

    python -c "from lumenfarm.formats.schedule_json import json_schema; print(json_schema(), end='')" \
        > farm/formats/schedule-1.schema.json
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from lumenfarm.errors import InputError
from lumenfarm.formats.document import (
    MAX_GPUS,
    Arc,
    Dims,
    Document,
    FastList,
    Gpus,
    ShortDict,
    require_schema,
    validate,
)
from lumenfarm.formats.reading import json_text, number
from lumenfarm.formats.topologies import arcs_record, topology_from_arcs
from lumenfarm.model import Fabric, Latency, Origin, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Provenance, Schedule, Segment, StepTiming
from lumenfarm.units import MAX_BYTES

__all__ = ["SCHEMA", "dump_schedule", "json_schema", "read_schedule"]

SCHEMA = "lumenfarm.schedule/1"

# What another writer's order of summation may change.
_RELATIVE_NOISE = 1e-9

_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# Far beyond any time or rate, and far enough below the largest float that no sum overflows.
_LARGEST = 1e30
_Amount = Annotated[float, Field(ge=0, le=_LARGEST)]
_Positive = Annotated[float, Field(gt=0, le=_LARGEST)]
_Count = Annotated[int, Field(ge=0)]
_StepNumber = Annotated[int, Field(ge=1)]
_Message = Annotated[float, Field(gt=0, le=MAX_BYTES)] | None


class GeneratorEntry(Document):
    """How the collective can be generated again."""

    name: str
    parameters: ShortDict[int | str]


class CollectiveEntry(Document):
    """What the schedule carries; a step digest is the content address of the step's demand."""

    name: str = Field(min_length=1)
    n: Gpus
    dims: Dims
    message_bytes: _Message
    generator: GeneratorEntry | None
    step_digests: FastList[_Digest] = Field(min_length=1)


class FabricEntry(Document):
    """What the schedule was made for."""

    ports: Annotated[int, Field(ge=1, lt=MAX_GPUS)]
    link_gbps: _Positive
    alpha_ns: _Amount
    delta_ns: _Amount
    reconfig_delay_ns: _Amount
    latency: Literal["congestion", "shortest"]


class TopologyEntry(Document):
    """Circuits as [source, destination, multiplicity]. Identifiers count from 1; the initial topology has 0."""

    id: int
    label: str
    arcs: FastList[Arc]


class SegmentEntry(Document):
    """Steps first_step to last_step, both included, on the topology with that identifier."""

    first_step: _StepNumber
    last_step: _StepNumber
    topology: int
    cost_ns: _Positive
    lower_bound_ns: _Amount
    proof: str


class StepEntry(Document):
    """Concurrent flow of the step on its topology, the hops it is charged for, and its time."""

    theta: _Amount
    hops: _Amount
    time_ns: _Positive


class EnvelopeEntry(Document):
    """Between these reconfiguration delays (null: without end) this number of reconfigurations is best."""

    alpha_r_from_ns: _Amount
    alpha_r_to_ns: _Amount | None
    reconfigurations: _Count
    communication_ns: _Amount


class ContractEntry(Document):
    """What a runtime must share with the schedule; digest is the content address of the other keys."""

    collective: _Digest
    gpus: Gpus
    message_bytes: _Message
    fabric: _Digest
    forwarding: str
    digest: _Digest


class ProvenanceEntry(Document):
    """Where the schedule comes from; created is ISO 8601 in UTC."""

    versions: ShortDict[str]
    method: str
    limits: ShortDict[float | int | str | None]
    created: str


class ScheduleFile(Document):
    """A switching schedule for one collective on one fabric."""

    schema_: Literal["lumenfarm.schedule/1"] = Field(alias="schema")
    collective: CollectiveEntry
    fabric: FabricEntry
    topologies: FastList[TopologyEntry] = Field(min_length=1)
    segments: FastList[SegmentEntry] = Field(min_length=1)
    steps: FastList[StepEntry] = Field(min_length=1)
    initial: TopologyEntry | None
    cost_ns: _Positive
    communication_ns: _Positive
    reconfigurations: _Count
    lower_bound_ns: _Amount
    gap: _Amount
    envelope: FastList[EnvelopeEntry]
    contract: ContractEntry
    provenance: ProvenanceEntry


def read_schedule(value: object) -> Schedule:
    """The schedule in a parsed ``lumenfarm.schedule/1`` document.

    Raises:
        InputError: another major version, an unknown or missing key, a value of the wrong type or range, segments
            that do not fit, or a derived value that contradicts the rest. The field names the place in the file.
    """
    require_schema(value, SCHEMA)
    file = validate(ScheduleFile, value)
    schedule = _schedule(file)
    _check_derived(file, schedule)
    return schedule


def dump_schedule(schedule: Schedule) -> str:
    """The schedule as ``lumenfarm.schedule/1`` text, byte-stable.

    Raises:
        ValueError: a number that is not finite.
    """
    topologies = enumerate(schedule.topologies, start=1)
    initial = schedule.initial
    return json_text(
        {
            "schema": SCHEMA,
            "collective": _collective_record(schedule),
            "fabric": _fabric_record(schedule.fabric),
            "topologies": [_topology_record(identifier, topology) for identifier, topology in topologies],
            "segments": [_segment_record(segment) for segment in schedule.segments],
            "steps": [_plain(asdict(timing)) for timing in schedule.steps],
            "initial": None if initial is None else _topology_record(0, initial),
            "cost_ns": number(schedule.cost_ns),
            "communication_ns": number(schedule.communication_ns),
            "reconfigurations": schedule.reconfigurations,
            "lower_bound_ns": number(schedule.lower_bound_ns),
            "gap": number(schedule.gap),
            "envelope": [_plain(asdict(piece)) for piece in schedule.envelope],
            "contract": _plain(asdict(schedule.contract)) | {"digest": schedule.contract.digest},
            "provenance": _provenance_record(schedule.provenance),
        }
    )


def json_schema() -> str:
    """The JSON Schema of the format, as published in ``schedule-1.schema.json``."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:lumenfarm:schedule:1"}
    return json.dumps(head | ScheduleFile.model_json_schema() | {"title": SCHEMA}, indent=2) + "\n"


def _schedule(file: ScheduleFile) -> Schedule:
    collective = file.collective
    if math.prod(collective.dims) != collective.n:
        raise InputError("collective.dims", collective.dims, f"sizes whose product is {collective.n}")
    generator = collective.generator
    return Schedule(
        collective_name=collective.name,
        n=collective.n,
        dims=tuple(collective.dims),
        message_bytes=collective.message_bytes,
        origin=None if generator is None else Origin(generator.name, generator.parameters),
        step_digests=tuple(collective.step_digests),
        fabric=_fabric(file.fabric),
        topologies=_topologies(file),
        segments=_segments(file),
        steps=tuple(StepTiming(entry.theta, entry.hops, entry.time_ns) for entry in file.steps),
        initial=None if file.initial is None else _topology(collective.n, file.initial, 0, "initial"),
        cost_ns=file.cost_ns,
        lower_bound_ns=file.lower_bound_ns,
        envelope=tuple(EnvelopePiece(**entry.model_dump()) for entry in file.envelope),
        contract=Contract(**file.contract.model_dump(exclude={"digest"})),
        provenance=Provenance(**file.provenance.model_dump()),
    )


def _check_derived(file: ScheduleFile, schedule: Schedule) -> None:
    for name in ("communication_ns", "reconfigurations", "gap"):
        written, derived = getattr(file, name), getattr(schedule, name)
        if not math.isclose(written, derived, rel_tol=_RELATIVE_NOISE, abs_tol=_RELATIVE_NOISE):
            raise InputError(name, written, f"{derived!r}, which follows from the rest of the file")
    if file.contract.digest != schedule.contract.digest:
        raise InputError("contract.digest", file.contract.digest, f"{schedule.contract.digest}, the contract's digest")


def _fabric(entry: FabricEntry) -> Fabric:
    return Fabric(
        degree=entry.ports,
        link_gbps=entry.link_gbps,
        alpha_ns=entry.alpha_ns,
        delta_ns=entry.delta_ns,
        reconfig_delay_ns=entry.reconfig_delay_ns,
        latency=Latency(entry.latency),
    )


def _topologies(file: ScheduleFile) -> tuple[Topology, ...]:
    return tuple(
        _topology(file.collective.n, entry, position + 1, f"topologies[{position}]")
        for position, entry in enumerate(file.topologies)
    )


def _topology(n: int, entry: TopologyEntry, identifier: int, place: str) -> Topology:
    if entry.id != identifier:
        raise InputError(f"{place}.id", entry.id, f"{identifier}")
    return topology_from_arcs(n, entry.arcs, entry.label, place)


def _segments(file: ScheduleFile) -> tuple[Segment, ...]:
    known = range(1, len(file.topologies) + 1)
    for position, entry in enumerate(file.segments):
        if entry.topology not in known:
            raise InputError(f"segments[{position}].topology", entry.topology, f"an identifier from 1 to {known[-1]}")
    return tuple(
        Segment(
            entry.first_step - 1, entry.last_step, entry.topology - 1, entry.cost_ns, entry.lower_bound_ns, entry.proof
        )
        for entry in file.segments
    )


def _collective_record(schedule: Schedule) -> dict[str, Any]:
    origin = schedule.origin
    generator = None if origin is None else {"name": origin.generator, "parameters": dict(origin.parameters)}
    head = {"name": schedule.collective_name, "n": schedule.n, "dims": list(schedule.dims)}
    tail = {"generator": generator, "step_digests": list(schedule.step_digests)}
    return head | _plain({"message_bytes": schedule.message_bytes}) | tail


def _fabric_record(fabric: Fabric) -> dict[str, Any]:
    values = asdict(fabric) | {"latency": fabric.latency.value}
    return {"ports": values.pop("degree")} | _plain(values)


def _topology_record(identifier: int, topology: Topology) -> dict[str, Any]:
    return {"id": identifier, "label": topology.label} | arcs_record(topology)


def _segment_record(segment: Segment) -> dict[str, Any]:
    return {
        "first_step": segment.first + 1,
        "last_step": segment.stop,
        "topology": segment.topology + 1,
        "cost_ns": number(segment.cost_ns),
        "lower_bound_ns": number(segment.lower_bound_ns),
        "proof": segment.proof,
    }


def _provenance_record(provenance: Provenance) -> dict[str, Any]:
    return {
        "versions": dict(provenance.versions),
        "method": provenance.method,
        "limits": dict(provenance.limits),
        "created": provenance.created,
    }


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: number(value) if isinstance(value, float) else value for key, value in values.items()}
