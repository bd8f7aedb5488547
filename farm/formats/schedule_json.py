"""``lumenfarm.schedule/1``: the schedule file, in and out, and its published JSON Schema.

Steps count from 1, GPUs from 0; units stand in the key names. ``communication_ns``, ``reconfigurations``, ``gap``
and ``contract.digest`` repeat what the rest of the file says; a file in which they disagree is refused. Everything
else is data, for ``verify`` to check.

A topology of many arcs whose symmetry is known has ``orbits`` in place of ``arcs``: one arc of each orbit, and the
place (from 0) of the group's generators in ``groups``. Generators are permutations g, where g[u] is the image of GPU u;
the circuits are all images of the given arcs under all products of generators. Only the identity among these may leave
a GPU where it is, so that every arc has as many images as the group has elements.

The schema file beside this module is made by

    python -c "from lumenfarm.formats.schedule_json import json_schema; print(json_schema(), end='')" \
        > farm/formats/schedule-1.schema.json
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from lumenfarm.errors import InputError
from lumenfarm.formats.document import (
    MAX_GPUS,
    Arc,
    Dims,
    Document,
    FastList,
    Gpu,
    Gpus,
    ShortDict,
    pair_matrix,
    require_schema,
    validate,
)
from lumenfarm.formats.reading import json_text, number
from lumenfarm.formats.topologies import arcs_record, topology_from_arcs
from lumenfarm.model import ArcOrbits, Fabric, Latency, Origin, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Provenance, Schedule, Segment, StepTiming
from lumenfarm.symmetry import Symmetry
from lumenfarm.units import MAX_BYTES

__all__ = ["LONGEST_ARC_LIST", "MOST_ARCS", "SCHEMA", "dump_schedule", "json_schema", "read_schedule"]

SCHEMA = "lumenfarm.schedule/1"

# Up to so many arcs a topology is written in full, for readers that know no groups.
LONGEST_ARC_LIST = 1024
# A short file must not stand for more arcs than fit into memory.
MOST_ARCS = 2**25

_GroupKey = tuple[bytes, ...]

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
# Of a group that acts freely on n GPUs, log2(n) generators are enough.
_Generators = Annotated[list[FastList[Gpu]], Field(min_length=1, max_length=64, fail_fast=True)]


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


class OrbitsEntry(Document):
    """One arc of each orbit as [source, destination, multiplicity], and the place of the group, from 0."""

    group: Annotated[int, Field(ge=0)]
    arcs: FastList[Arc]


_FORMS = ("arcs", "orbits")


def _describe_forms(schema: dict[str, Any]) -> None:
    """Exactly one of the forms is required, and it is not null."""
    schema["oneOf"] = [{"required": [form]} for form in _FORMS]
    for form in _FORMS:
        schema["properties"][form] = schema["properties"][form]["anyOf"][0]


class TopologyEntry(Document):
    """Circuits as [source, destination, multiplicity], all or one of each orbit.

    Identifiers count from 1; the initial topology has 0.
    """

    model_config = ConfigDict(json_schema_extra=_describe_forms)

    id: int
    label: str
    arcs: FastList[Arc] | None = None
    orbits: OrbitsEntry | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        forms = [getattr(self, form) for form in _FORMS if form in self.model_fields_set]
        if len(forms) != 1 or forms[0] is None:
            raise PydanticCustomError("form", "Input should be an object with either arcs or orbits")
        return self


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
    groups: FastList[_Generators]
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
            that do not fit, groups that do not act freely, orbits of more than MOST_ARCS arcs in all, or a derived
            value that contradicts the rest. The field names the place in the file.
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
    initial = schedule.initial
    groups = _groups_used([*schedule.topologies, *([] if initial is None else [initial])])
    place = {key: index for index, key in enumerate(groups)}
    return json_text(
        {
            "schema": SCHEMA,
            "collective": _collective_record(schedule),
            "fabric": _fabric_record(schedule.fabric),
            "groups": [[generator.tolist() for generator in group.generators] for group in groups.values()],
            "topologies": [_topology_record(1 + index, top, place) for index, top in enumerate(schedule.topologies)],
            "segments": [_segment_record(segment) for segment in schedule.segments],
            "steps": [_plain(asdict(timing)) for timing in schedule.steps],
            "initial": None if initial is None else _topology_record(0, initial, place),
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
    _check_arcs(file)
    groups = [Symmetry.free(collective.n, perms, field=f"groups[{place}]") for place, perms in enumerate(file.groups)]
    return Schedule(
        collective_name=collective.name,
        n=collective.n,
        dims=tuple(collective.dims),
        message_bytes=collective.message_bytes,
        origin=None if generator is None else Origin(generator.name, generator.parameters),
        step_digests=tuple(collective.step_digests),
        fabric=_fabric(file.fabric),
        topologies=_topologies(file, groups),
        segments=_segments(file),
        steps=tuple(StepTiming(entry.theta, entry.hops, entry.time_ns) for entry in file.steps),
        initial=None if file.initial is None else _topology(file.initial, 0, "initial", collective.n, groups),
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


def _check_arcs(file: ScheduleFile) -> None:
    entries = [*file.topologies, *([] if file.initial is None else [file.initial])]
    count = file.collective.n * sum(len(entry.orbits.arcs) for entry in entries if entry.orbits is not None)
    if count > MOST_ARCS:
        raise InputError("topologies", f"up to {count}", f"orbits of at most {MOST_ARCS} arcs in all")


def _topologies(file: ScheduleFile, groups: Sequence[Symmetry]) -> tuple[Topology, ...]:
    return tuple(
        _topology(entry, position + 1, f"topologies[{position}]", file.collective.n, groups)
        for position, entry in enumerate(file.topologies)
    )


def _topology(entry: TopologyEntry, identifier: int, place: str, n: int, groups: Sequence[Symmetry]) -> Topology:
    if entry.id != identifier:
        raise InputError(f"{place}.id", entry.id, f"{identifier}")
    if entry.orbits is None:
        return topology_from_arcs(n, entry.arcs or [], entry.label, place)
    if entry.orbits.group >= len(groups):
        raise InputError(f"{place}.orbits.group", entry.orbits.group, f"the place of one of {len(groups)} groups")
    arcs = pair_matrix(n, entry.orbits.arcs, f"{place}.orbits.arcs")
    return Topology(ArcOrbits(groups[entry.orbits.group], arcs), entry.label)


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


def _groups_used(topologies: Sequence[Topology]) -> dict[_GroupKey, Symmetry]:
    """The groups of those topologies that are written by orbits, by their generators."""
    compact = filter(None, map(_compact, topologies))
    return {_group_key(orbits.symmetry): orbits.symmetry for orbits in compact}


def _compact(topology: Topology) -> ArcOrbits | None:
    """The orbits that are written instead of all arcs, if they are known and there are many arcs."""
    orbits = topology.orbits
    if orbits is None or not orbits.symmetry.generators or orbits.size <= LONGEST_ARC_LIST:
        return None
    return orbits


def _group_key(group: Symmetry) -> _GroupKey:
    return tuple(generator.tobytes() for generator in group.generators)


def _topology_record(identifier: int, topology: Topology, place: Mapping[_GroupKey, int]) -> dict[str, Any]:
    orbits, head = _compact(topology), {"id": identifier, "label": topology.label}
    if orbits is None:
        return head | {"arcs": arcs_record(topology.circuits)}
    return head | {"orbits": {"group": place[_group_key(orbits.symmetry)], "arcs": arcs_record(orbits.arcs)}}


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
