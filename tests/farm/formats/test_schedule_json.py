"""The schedule file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from lumenfarm.errors import InputError
from lumenfarm.formats.schedule_json import LONGEST_ARC_LIST, MOST_ARCS, dump_schedule, json_schema, read_schedule
from lumenfarm.model import Topology
from lumenfarm.schedule import Schedule

KEYS = {
    "": "schema collective fabric groups topologies segments steps initial cost_ns communication_ns reconfigurations"
    " lower_bound_ns gap envelope contract provenance",
    "collective": "name n dims message_bytes generator step_digests",
    "fabric": "ports link_gbps alpha_ns delta_ns reconfig_delay_ns latency",
    "topologies": "id label arcs",
    "segments": "first_step last_step topology cost_ns lower_bound_ns proof",
    "steps": "theta hops time_ns",
    "envelope": "alpha_r_from_ns alpha_r_to_ns reconfigurations communication_ns",
    "contract": "collective gpus message_bytes fabric forwarding digest",
    "provenance": "versions method limits created",
}


@pytest.fixture
def document(schedule: Schedule) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(dump_schedule(schedule))
    return value


@pytest.mark.parametrize("section", KEYS)
def test_has_exactly_the_published_keys(document: dict[str, Any], section: str) -> None:
    found = document[section] if section else document
    for entry in found if isinstance(found, list) else [found]:
        assert list(entry) == KEYS[section].split()


def test_writes_what_the_schedule_says(document: dict[str, Any], schedule: Schedule) -> None:
    assert document["collective"]["generator"] == {
        "name": "all-reduce-rd",
        "parameters": {"ports": 2, "variant": "cyclic"},
    }
    assert document["fabric"] == {
        "ports": 2,
        "link_gbps": 800,
        "alpha_ns": 100,
        "delta_ns": 20,
        "reconfig_delay_ns": 50,
        "latency": "shortest",
    }
    assert document["topologies"][1] == {
        "id": 2,
        "label": "circulant{+2x2}",
        "arcs": [[0, 2, 2], [1, 3, 2], [2, 0, 2], [3, 1, 2]],
    }
    assert document["initial"]["id"] == 0
    assert [(entry["first_step"], entry["last_step"], entry["topology"]) for entry in document["segments"]] == [
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 1),
    ]
    assert document["reconfigurations"] == 3
    assert document["communication_ns"] == pytest.approx(390.72)
    assert document["gap"] == pytest.approx(40.72 / 540.72)
    assert document["contract"]["digest"] == schedule.contract.digest


def test_round_trip(schedule: Schedule) -> None:
    text = dump_schedule(schedule)
    again = read_schedule(json.loads(text))
    assert dump_schedule(again) == text
    for name in schedule.__dataclass_fields__:
        assert getattr(again, name) == getattr(schedule, name), name
    assert [topology.label for topology in again.topologies] == [topology.label for topology in schedule.topologies]


def test_published_schema_is_the_reader_s() -> None:
    published = files("lumenfarm.formats").joinpath("schedule-1.schema.json").read_text(encoding="utf-8")
    assert published == json_schema()


def test_the_schema_lists_the_keys_and_closes_the_objects() -> None:
    schema = json.loads(json_schema())
    assert list(schema["properties"]) == KEYS[""].split() == schema["required"]
    objects = [schema, *schema["$defs"].values()]
    assert all(entry["additionalProperties"] is False for entry in objects)
    sections = {tuple(entry["properties"]) for entry in objects}
    keys = KEYS | {"topologies": "id label arcs orbits"}
    assert {tuple(names.split()) for names in keys.values()} <= sections
    entry = schema["$defs"]["TopologyEntry"]
    assert entry["oneOf"] == [{"required": ["arcs"]}, {"required": ["orbits"]}]
    assert entry["required"] == ["id", "label"]
    assert entry["properties"]["arcs"]["type"] == "array"
    assert entry["properties"]["orbits"] == {"$ref": "#/$defs/OrbitsEntry"}


RANKS = np.arange(1024)
TURNS_BY_TWO_AND_REFLECTION = ((RANKS + 2) % 1024, (1 - RANKS) % 1024)


@pytest.fixture
def large(schedule: Schedule) -> Schedule:
    """1024 GPUs; two Cayley topologies of a dihedral group with 2048 arcs, and a circulant, which has another group."""
    cayley = (
        Topology.from_orbits(1024, TURNS_BY_TWO_AND_REFLECTION, [(0, 1, 1), (0, target, 1)], f"cayley to {target}")
        for target in (3, 1019)
    )
    circulant = Topology.circulant(1024, {1: 1, -1: 1})
    return replace(schedule, n=1024, dims=(1024,), topologies=tuple(cayley), initial=circulant)


@pytest.fixture
def compact(large: Schedule) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(dump_schedule(large))
    return value


def numbers_in(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return sum(map(numbers_in, parts)) + (isinstance(value, (int, float)) and not isinstance(value, bool))


def test_topologies_of_many_arcs_are_written_by_orbits(compact: dict[str, Any], large: Schedule) -> None:
    turns, reflection, rotation = (RANKS + 2) % 1024, (1 - RANKS) % 1024, (RANKS + 1) % 1024
    assert compact["groups"] == [[turns.tolist(), reflection.tolist()], [rotation.tolist()]]
    assert compact["topologies"] == [
        {"id": 1, "label": "cayley to 3", "orbits": {"group": 0, "arcs": [[0, 1, 1], [0, 3, 1]]}},
        {"id": 2, "label": "cayley to 1019", "orbits": {"group": 0, "arcs": [[0, 1, 1], [0, 1019, 1]]}},
    ]
    assert compact["initial"]["orbits"] == {"group": 1, "arcs": [[0, 1, 1], [0, 1023, 1]]}
    by_arcs = tuple(Topology.from_arcs(1024, topology.arcs()) for topology in large.topologies)
    full = json.loads(dump_schedule(replace(large, topologies=by_arcs, initial=None)))
    assert full["groups"] == []
    assert [len(entry["arcs"]) for entry in full["topologies"]] == [2048, 2048]
    assert numbers_in(full["topologies"]) > 500 * numbers_in(compact["topologies"])


def test_each_further_topology_of_a_group_adds_a_few_numbers(large: Schedule) -> None:
    def numbers(targets: range) -> int:
        more = [
            Topology.from_orbits(1024, TURNS_BY_TWO_AND_REFLECTION, [(0, 1, 1), (0, target, 1)]) for target in targets
        ]
        return numbers_in(json.loads(dump_schedule(replace(large, topologies=tuple(more)))))

    assert numbers(range(3, 103)) - numbers(range(3, 53)) == 50 * 8


def test_round_trip_by_orbits(compact: dict[str, Any], large: Schedule) -> None:
    again = read_schedule(compact)
    assert json.loads(dump_schedule(again)) == compact
    assert again.topologies == large.topologies
    assert again.initial == large.initial
    assert [topology.label for topology in again.topologies] == ["cayley to 3", "cayley to 1019"]


def test_reading_does_not_write_orbits_out(large: Schedule) -> None:
    given = replace(large, initial=None)
    again = read_schedule(json.loads(dump_schedule(given)))
    labels = [topology.label for topology in again.topologies]
    assert (again.n, again.cost_ns, labels) == (1024, large.cost_ns, ["cayley to 3", "cayley to 1019"])
    assert [topology.n for topology in again.topologies] == [1024, 1024]
    for topology in (*given.topologies, *again.topologies):
        assert "circuits" not in vars(topology)
    assert again.topologies[0].degree == 2


@pytest.mark.parametrize(("gpus", "form"), [(LONGEST_ARC_LIST // 2, "arcs"), (LONGEST_ARC_LIST // 2 + 1, "orbits")])
def test_few_arcs_are_written_in_full(schedule: Schedule, gpus: int, form: str) -> None:
    topologies = (Topology.circulant(gpus, {1: 1, 2: 1}), Topology.circulant(gpus, {1: 2, 3: 1}))
    document = json.loads(dump_schedule(replace(schedule, n=gpus, dims=(gpus,), topologies=topologies, initial=None)))
    assert [list(entry) for entry in document["topologies"]] == [["id", "label", form]] * 2
    assert len(document["groups"]) == (form == "orbits")


def test_orbits_without_generators_are_arcs(large: Schedule) -> None:
    arcs = [(u, v, 1) for u in range(2) for v in range(2, 1024)]
    topologies = (Topology.from_orbits(1024, [], arcs), large.topologies[1])
    document = json.loads(dump_schedule(replace(large, topologies=topologies)))
    assert len(document["topologies"][0]["arcs"]) == 2044
    assert read_schedule(document).topologies == topologies


Change = Callable[[dict[str, Any]], object]


def set_at(*path: str | int, to: Any) -> Change:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = to

    return change


def remove(*path: str | int) -> Change:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        del document[path[-1]]

    return change


FEW = [[0, 1, 1], [0, 3, 1]]


def refusal(document: dict[str, Any], change: Change, field: str) -> str:
    """What is said of the document after a change: one line that names the place."""
    change(document)
    with pytest.raises(InputError) as caught:
        read_schedule(document)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (remove("groups"), "groups"),
        (set_at("groups", to=[]), "topologies[0].orbits.group"),
        (set_at("groups", 0, to=[]), "groups[0]"),
        (set_at("groups", 0, to=[RANKS.tolist()] * 65), "groups[0]"),
        (set_at("groups", 0, 1, to=[0, 1]), "groups[0][1]"),
        (set_at("groups", 0, 1, 5, to=0), "groups[0][1]"),
        (set_at("groups", 0, 1, 5, to=1024), "groups[0][1]"),
        (set_at("groups", 0, 1, 5, to=-1), "groups[0][1][5]"),
        (set_at("groups", 0, 1, 5, to=5.0), "groups[0][1][5]"),
        (set_at("groups", 0, 1, to=((-RANKS) % 1024).tolist()), "groups[0]"),
        (set_at("groups", 1, 0, to=[1, 0, *range(2, 1024)]), "groups[1]"),
        (set_at("topologies", 1, "orbits", "group", to=2), "topologies[1].orbits.group"),
        (set_at("topologies", 1, "orbits", "group", to=-1), "topologies[1].orbits.group"),
        (remove("topologies", 1, "orbits", "group"), "topologies[1].orbits.group"),
        (set_at("topologies", 1, "orbits", "groups", to=0), "topologies[1].orbits"),
        (set_at("topologies", 1, "orbits", "arcs", 1, 1, to=1024), "topologies[1].orbits.arcs[1][1]"),
        (set_at("topologies", 1, "orbits", "arcs", 1, 1, to=0), "topologies[1].orbits.arcs[1]"),
        (set_at("topologies", 1, "orbits", "arcs", 1, 2, to=0), "topologies[1].orbits.arcs[1][2]"),
        (set_at("topologies", 1, "orbits", "arcs", 1, 2, to=0.5), "topologies[1].orbits.arcs[1][2]"),
        (set_at("topologies", 1, "arcs", to=FEW), "topologies[1]"),
        (set_at("topologies", 1, "arcs", to=None), "topologies[1]"),
        (set_at("topologies", 1, "orbits", to=None), "topologies[1]"),
        (remove("topologies", 1, "orbits"), "topologies[1]"),
        (remove("initial", "orbits"), "initial"),
        (set_at("initial", "orbits", "arcs", to=FEW * (MOST_ARCS // 2048 - 1)), "topologies"),
    ],
)
def test_bad_orbits_are_refused_at_their_place(compact: dict[str, Any], change: Change, field: str) -> None:
    assert len(refusal(compact, change, field)) < 250


def test_arcs_and_orbits_exclude_each_other_in_words(compact: dict[str, Any]) -> None:
    del compact["topologies"][0]["orbits"]
    with pytest.raises(InputError, match=r"^topologies\[0\]: expected an object with either arcs or orbits, got"):
        read_schedule(compact)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (set_at("schema", to="lumenfarm.schedule/2"), "schema"),
        (remove("schema"), "schema"),
        (set_at("extra", to=1), "document"),
        (set_at("fabric", "alpha_us", to=1), "fabric"),
        (remove("fabric", "latency"), "fabric.latency"),
        (set_at("fabric", "latency", to="longest"), "fabric.latency"),
        (set_at("fabric", "ports", to=0), "fabric.ports"),
        (set_at("fabric", "link_gbps", to="800"), "fabric.link_gbps"),
        (set_at("collective", "n", to=5), "collective.dims"),
        (set_at("collective", "step_digests", 0, to="abc"), "collective.step_digests[0]"),
        (set_at("collective", "step_digests", to=["0" * 64]), "steps"),
        (set_at("topologies", 1, "id", to=1), "topologies[1].id"),
        (set_at("topologies", 0, "arcs", 1, 1, to=4), "topologies[0].arcs[1][1]"),
        (set_at("initial", "id", to=1), "initial.id"),
        (set_at("initial", "arcs", 0, 1, to=0), "initial.arcs[0]"),
        (set_at("segments", 0, "topology", to=3), "segments[0].topology"),
        (set_at("segments", 0, "topology", to=0), "segments[0].topology"),
        (set_at("segments", 0, "last_step", to=2), "segments"),
        (set_at("steps", to=[]), "steps"),
        (set_at("cost_ns", to=0), "cost_ns"),
        (set_at("provenance", "limits", to={str(key): [] for key in range(1000)}), "provenance.limits"),
        # What is derived must agree with what it is derived from.
        (set_at("communication_ns", to=390.0), "communication_ns"),
        (set_at("segments", 1, "cost_ns", to=129.0), "communication_ns"),
        (set_at("reconfigurations", to=2), "reconfigurations"),
        (set_at("initial", to=None), "reconfigurations"),
        (set_at("gap", to=0.0), "gap"),
        (set_at("cost_ns", to=540.72 * 0.99), "gap"),
        (set_at("lower_bound_ns", to=540.72), "gap"),
        (set_at("contract", "digest", to="0" * 64), "contract.digest"),
        (set_at("contract", "message_bytes", to=2049), "contract.digest"),
        (set_at("contract", "forwarding", to="store-and-forward"), "contract.digest"),
        (set_at("contract", "collective", to="0" * 64), "contract.digest"),
    ],
)
def test_refuses_and_names_the_place(document: dict[str, Any], change: Change, field: str) -> None:
    refusal(document, change, field)


def test_another_major_version_is_refused_clearly(document: dict[str, Any]) -> None:
    document["schema"] = "lumenfarm.schedule/2"
    with pytest.raises(InputError, match=r"only version known here, got 'lumenfarm\.schedule/2'"):
        read_schedule(document)


@pytest.mark.parametrize(
    "change",
    [
        set_at("steps", 0, "theta", to=0.5),
        set_at("steps", 0, "time_ns", to=1.0),
        set_at("segments", 0, "lower_bound_ns", to=1.0),
        set_at("topologies", 0, "arcs", 0, to=[0, 2, 1]),
        set_at("envelope", 0, "communication_ns", to=1.0),
        set_at("fabric", "alpha_ns", to=101.0),
    ],
)
def test_data_for_verify_are_read_as_they_are(document: dict[str, Any], change: Change) -> None:
    change(document)
    assert json.loads(dump_schedule(read_schedule(document))) == document


def test_whole_numbers_stand_for_floats(document: dict[str, Any]) -> None:
    document["provenance"]["limits"] = {"gap": 0, "note": "x", "time-limit": 1.5}
    schedule = read_schedule(document)
    assert isinstance(schedule.fabric.alpha_ns, float)
    assert isinstance(schedule.message_bytes, float)
    assert schedule.provenance.limits == {"gap": 0, "note": "x", "time-limit": 1.5}
