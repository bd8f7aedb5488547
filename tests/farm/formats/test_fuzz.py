"""Whatever is in a file, reading it gives a valid object or an InputError, and valid objects survive a round trip."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.formats import dump_collective, dump_schedule, dump_topologies
from lumenfarm.formats.pattern import read_collective
from lumenfarm.formats.reading import Content
from lumenfarm.formats.schedule_json import read_schedule
from lumenfarm.formats.topologies import read_topologies
from lumenfarm.model import Collective
from lumenfarm.schedule import Schedule

ODD_NUMBERS = [0, -1, 1, 2, 10**6, 2**31, 2**53, 2**63, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308]
JSON = st.recursive(
    st.none() | st.booleans() | st.sampled_from(ODD_NUMBERS) | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
KINDS = ["collective", "schedule", "orbits", "topologies"]
Load = Callable[[bytes], object]
Dump = Callable[[Any], str]

LOAD: dict[str, Load] = {
    "collective": lambda data: read_collective(Content("given", data)),
    "schedule": lambda data: read_schedule(Content("given", data).json),
    "orbits": lambda data: read_schedule(Content("given", data).json),
    "topologies": lambda data: read_topologies(Content("given", data).json),
}
DUMP: dict[str, Dump] = {
    "collective": dump_collective,
    "schedule": dump_schedule,
    "orbits": dump_schedule,
    "topologies": dump_topologies,
}


@pytest.fixture(scope="module")
def valid(collective: Collective, schedule: Schedule) -> dict[str, str]:
    objects = {"collective": collective, "schedule": schedule, "topologies": schedule.topologies}
    texts = {kind: DUMP[kind](given) for kind, given in objects.items()}
    return texts | {"orbits": by_orbits(texts["schedule"])}


def by_orbits(schedule: str) -> str:
    """The text of a schedule over four GPUs with its topologies given by orbits under rotations."""
    document = json.loads(schedule)
    document["groups"] = [[[2, 3, 0, 1], [1, 2, 3, 0]], [[1, 2, 3, 0]]]
    for index, entry in enumerate([*document["topologies"], document["initial"]]):
        entry["orbits"] = {"group": index % 2, "arcs": [arc for arc in entry.pop("arcs") if arc[0] == 0]}
    return json.dumps(document)


def test_the_document_with_orbits_is_the_schedule(valid: dict[str, str], schedule: Schedule) -> None:
    again = LOAD["orbits"](valid["orbits"].encode())
    assert isinstance(again, Schedule)
    assert (again.topologies, again.initial) == (schedule.topologies, schedule.initial)


def check(kind: str, data: bytes) -> None:
    loaded = attempt(kind, data)
    if isinstance(loaded, InputError):
        assert "\n" not in str(loaded)
    else:
        text = DUMP[kind](loaded)
        assert DUMP[kind](LOAD[kind](text.encode())) == text


def attempt(kind: str, data: bytes) -> object:
    try:
        return LOAD[kind](data)
    except InputError as error:
        return error


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in the document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *places(value[key])]]


@pytest.mark.parametrize("kind", KINDS)
@given(value=JSON)
@settings(deadline=None)
def test_any_json(kind: str, value: object) -> None:
    check(kind, json.dumps(value).encode())


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
def test_valid_documents_with_mutations(kind: str, valid: dict[str, str], data: st.DataObject) -> None:
    document = copy.deepcopy(json.loads(valid[kind]))
    for _ in range(data.draw(st.integers(1, 2))):
        container, key = data.draw(st.sampled_from(places(document)))
        match data.draw(st.sampled_from(["replace", "remove", "add", "repeat"])):
            case "replace":
                container[key] = data.draw(JSON)
            case "remove":
                del container[key]
            case "add" if isinstance(container, dict):
                container[data.draw(st.text())] = data.draw(JSON)
            case _ if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
    check(kind, json.dumps(document).encode())


@pytest.mark.parametrize("kind", KINDS)
@given(position=st.integers(0), byte=st.binary(max_size=3), length=st.integers(0, 3))
@settings(deadline=None)
def test_valid_text_with_damage(kind: str, valid: dict[str, str], position: int, byte: bytes, length: int) -> None:
    data = valid[kind].encode()
    start = position % len(data)
    check(kind, data[:start] + byte + data[start + length :])


@given(data=st.binary())
@settings(deadline=None)
def test_any_bytes(data: bytes) -> None:
    for kind in KINDS:
        check(kind, data)
