"""The schedule file."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

from lumenfarm.errors import InputError
from lumenfarm.formats.schedule_json import dump_schedule, json_schema, read_schedule
from lumenfarm.schedule import Schedule

KEYS = {
    "": "schema collective fabric topologies segments steps initial cost_ns communication_ns reconfigurations"
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
    assert {tuple(keys.split()) for keys in KEYS.values()} <= sections


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
    change(document)
    with pytest.raises(InputError) as caught:
        read_schedule(document)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


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
