"""Harvest's collective pattern files."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.formats.pattern import detect, dump_collective, read_collective
from lumenfarm.formats.reading import Content
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Step

VALID: dict[str, Any] = {
    "schema": "collective_pattern/v1",
    "collective": "two-steps",
    "n": 4,
    "dims": [2, 2],
    "ports": 2,
    "units": "bytes",
    "steps": [
        {"id": 1, "chunksize": 8, "demand": [[0, 1, 8], [0, 1, 8], [2, 3, 0.5]]},
        {"id": 2, "demand": [[3, 0, 7], [1, 2, 0]]},
    ],
}


def content(value: object) -> Content:
    return Content("given.json", json.dumps(value).encode())


def test_reads_steps_in_order_and_merges_rows() -> None:
    collective = read_collective(content(VALID))
    assert (collective.name, collective.n, collective.dims, collective.message_bytes) == ("two-steps", 4, (2, 2), None)
    first, second = collective.steps
    assert list(first.demand.items()) == [(0, 1, 16.0), (2, 3, 0.5)]
    assert list(second.demand.items()) == [(3, 0, 7.0)]
    assert (first.declared_chunk_bytes, second.declared_chunk_bytes) == (8.0, None)


def test_dims_and_ports_may_be_missing() -> None:
    value = {key: item for key, item in VALID.items() if key not in ("dims", "ports")}
    assert read_collective(content(value)).dims == (4,)


def test_writes_merged_rows_as_plain_numbers() -> None:
    text = dump_collective(read_collective(content(VALID)), ports=2)
    expected = copy.deepcopy(VALID)
    expected["steps"][0]["demand"] = [[0, 1, 16], [2, 3, 0.5]]
    expected["steps"][1]["demand"] = [[3, 0, 7]]
    assert json.loads(text) == expected
    assert list(json.loads(text)) == list(VALID)
    assert "16.0" not in text
    assert "ports" not in json.loads(dump_collective(read_collective(content(VALID))))


def test_detects_every_version_and_refuses_others_by_name() -> None:
    assert detect(content(VALID))
    newer = content(VALID | {"schema": "collective_pattern/v2"})
    assert detect(newer)
    with pytest.raises(InputError, match=r"schema: expected 'collective_pattern/v1'.*'collective_pattern/v2'"):
        read_collective(newer)
    assert not detect(content({"schema": "lumenfarm.schedule/1"}))
    assert not detect(content([1]))
    assert not detect(Content("x", b"<algo/>"))


CASES: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("n",), 0, "n"),
    (("n",), 1, "n"),
    (("n",), -4, "n"),
    (("n",), 2**40, "n"),
    (("n",), 4.0, "n"),
    (("n",), "4", "n"),
    (("n",), True, "n"),
    (("n",), None, "n"),
    (("dims",), [2, 3], "dims"),
    (("dims",), [4, 1], "dims[1]"),
    (("dims",), [], "dims"),
    (("ports",), 0, "ports"),
    (("units",), "MB", "units"),
    (("collective",), "", "collective"),
    (("steps",), [], "steps"),
    (("steps", 0, "id"), 0, "steps[0].id"),
    (("steps", 1, "id"), 3, "steps[1].id"),
    (("steps", 0, "chunksize"), 0, "steps[0].chunksize"),
    (("steps", 0, "chunksize"), 17, "steps[0].chunksize"),
    (("steps", 0, "chunksize"), "8", "steps[0].chunksize"),
    (("steps", 1, "demand"), [], "steps[1].demand"),
    (("steps", 1, "demand"), [[0, 1, 0]], "steps[1].demand"),
    (("steps", 0, "demand", 2, 0), 4, "steps[0].demand[2][0]"),
    (("steps", 0, "demand", 2, 1), 2**62, "steps[0].demand[2][1]"),
    (("steps", 0, "demand", 2, 1), 10**400, "steps[0].demand[2][1]"),
    (("steps", 0, "demand", 1, 0), -1, "steps[0].demand[1][0]"),
    (("steps", 0, "demand", 1, 0), 0.0, "steps[0].demand[1][0]"),
    (("steps", 0, "demand", 1, 1), 0, "steps[0].demand[1]"),
    (("steps", 0, "demand", 1), [0, 1], "steps[0].demand[1][2]"),
    (("steps", 0, "demand", 1), [0, 1, 2, 3], "steps[0].demand[1]"),
    (("steps", 0, "demand", 1, 2), -8, "steps[0].demand[1][2]"),
    (("steps", 0, "demand", 1, 2), "8", "steps[0].demand[1][2]"),
    (("steps", 0, "demand", 1, 2), True, "steps[0].demand[1][2]"),
    (("steps", 0, "demand", 1, 2), 2**63, "steps[0].demand[1][2]"),
    (("steps", 0, "demand", 1, 2), 10**400, "steps[0].demand[1][2]"),
    (("steps", 0, "demand"), [[0, 1, 2**62], [1, 2, 2**62], [2, 3, 1]], "steps[0].demand"),
]


@pytest.mark.parametrize(("path", "value", "field"), CASES)
def test_errors_name_the_place(path: tuple[str | int, ...], value: Any, field: str) -> None:
    document: Any = copy.deepcopy(VALID)
    target = document
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    with pytest.raises(InputError) as caught:
        read_collective(content(document))
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_an_overflowing_number_is_refused() -> None:
    text = json.dumps(VALID).replace("0.5", "1e999").encode()
    with pytest.raises(InputError, match=r"steps\[0\].demand\[2\]\[2\]: expected a finite number, got inf"):
        read_collective(Content("given.json", text))


@pytest.mark.parametrize("key", ["schema", "collective", "n", "units", "steps"])
def test_missing_keys_are_named(key: str) -> None:
    with pytest.raises(InputError) as caught:
        read_collective(content({name: item for name, item in VALID.items() if name != key}))
    assert caught.value.field == key


def test_unknown_keys_get_the_nearest_word() -> None:
    document = copy.deepcopy(VALID)
    document["steps"][1]["demnd"] = document["steps"][1].pop("demand")
    with pytest.raises(InputError, match=r"steps\[1\]: expected one of .*did you mean 'demand'\?.*got 'demnd'"):
        read_collective(content(document))


@st.composite
def collectives(draw: st.DrawFn) -> Collective:
    n = draw(st.integers(2, 6))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    sizes = st.floats(1e-3, 1e15) | st.integers(1, 2**50).map(float)
    demands = st.dictionaries(pairs, sizes, min_size=1, max_size=8)
    steps = []
    for demand in draw(st.lists(demands, min_size=1, max_size=4)):
        sources, destinations = zip(*demand, strict=True)
        matrix = PairMatrix(n, sources, destinations, list(demand.values()))
        chunk = draw(st.none() | st.just(float(matrix.values[0])))
        steps.append(Step(matrix, chunk))
    return Collective(draw(st.text(min_size=1).filter(str.isprintable)), tuple(steps), (n,))


@given(collectives())
@settings(deadline=None)
def test_round_trip(collective: Collective) -> None:
    text = dump_collective(collective)
    again = read_collective(Content("given.json", text.encode()))
    assert dump_collective(again) == text
    assert (again.name, again.dims) == (collective.name, collective.dims)
    for ours, theirs in zip(collective.steps, again.steps, strict=True):
        assert list(ours.demand.items()) == list(theirs.demand.items())
        assert ours.declared_chunk_bytes == theirs.declared_chunk_bytes
