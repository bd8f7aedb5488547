"""Schedules: what holds together, what is counted, and the contract with whoever runs them."""

import dataclasses
import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Latency, Step, Topology
from lumenfarm.schedule import (
    FORWARDING,
    Contract,
    EnvelopePiece,
    Provenance,
    Schedule,
    Segment,
    StepTiming,
    fabric_digest,
)

FABRIC = Fabric(2, 800.0, 500.0, 250.0, 1000.0)
JOB = Collective("job", tuple(Step(PairMatrix.shift(6, offset, 64.0)) for offset in (1, 2, 2, 1)), (6,), 64.0)
RING, SKIP = Topology.circulant(6, {1: 2}), Topology.circulant(6, {2: 2})


def schedule(**changes):
    """Ring for the first step, skips for two, ring again."""
    fields = {
        "collective_name": JOB.name,
        "n": 6,
        "dims": (6,),
        "message_bytes": 64.0,
        "origin": None,
        "step_digests": JOB.step_digests,
        "fabric": FABRIC,
        "topologies": (RING, SKIP),
        "segments": (segment(0, 1, 0), segment(1, 3, 1), segment(3, 4, 0)),
        "steps": (StepTiming(1.0, 1.0, 100.0),) * 4,
        "initial": None,
        "cost_ns": 2400.0,
        "lower_bound_ns": 1800.0,
        "envelope": (EnvelopePiece(0.0, None, 2, 400.0),),
        "contract": Contract.of(JOB, FABRIC),
        "provenance": Provenance({}, "candidates", {}, "2026-01-01T00:00:00+00:00"),
    }
    return Schedule(**(fields | changes))


def segment(first, stop, topology):
    return Segment(first, stop, topology, 100.0 * (stop - first), 90.0, "node")


def test_sums():
    found = schedule()
    assert found.communication_ns == 400.0
    assert found.gap == pytest.approx(0.25)
    assert schedule(lower_bound_ns=2400.0 * (1 + 1e-12)).gap == 0.0


@pytest.mark.parametrize(("initial", "moves"), [(None, 2), (RING, 2), (Topology(RING.circuits, "same"), 2), (SKIP, 3)])
def test_the_move_off_the_initial_topology_is_counted(initial, moves):
    assert schedule(initial=initial).reconfigurations == moves


def test_a_fixed_topology_needs_no_reconfiguration():
    assert schedule(segments=(segment(0, 4, 1),)).reconfigurations == 0
    assert schedule(segments=(segment(0, 4, 1),), initial=SKIP).reconfigurations == 0
    assert schedule(segments=(segment(0, 4, 1),), initial=RING).reconfigurations == 1


def test_the_topology_of_each_step():
    found = schedule()
    assert [found.topology_of_step(step) for step in range(4)] == [RING, SKIP, SKIP, RING]
    for step in (-1, 4):
        with pytest.raises(InputError, match=f"^step: expected a step from 0 to 3, got {step}$"):
            found.topology_of_step(step)


@given(st.lists(st.tuples(st.integers(-1, 5), st.integers(-1, 5)), max_size=4))
def test_segments_have_to_cover_the_steps_once_and_in_order(cuts):
    segments = tuple(segment(first, stop, 0) for first, stop in cuts)
    covered = [step for first, stop in cuts for step in range(first, stop)]
    if covered == [0, 1, 2, 3] and all(first < stop for first, stop in cuts):
        assert schedule(segments=segments).segments == segments
        return
    with pytest.raises(
        InputError, match=r"^segments: expected (a segment that begins|segments that cover all 4 steps)"
    ):
        schedule(segments=segments)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"segments": ()}, "segments: expected segments that cover all 4 steps, got 0"),
        ({"segments": (segment(0, 4, 2),)}, "segments.topology: expected a topology of this schedule, got 2"),
        ({"segments": (segment(0, 4, -1),)}, "segments.topology: expected a topology of this schedule, got -1"),
        ({"step_digests": JOB.step_digests[1:]}, "steps: expected 3 timings, one a step, got 4"),
        ({"topologies": (RING, Topology.circulant(5, {1: 1}))}, "topologies: expected topologies over 6 GPUs, got 5"),
        ({"n": 7, "dims": (7,)}, "topologies: expected topologies over 7 GPUs, got 6"),
        ({"initial": Topology.circulant(5, {1: 1})}, "topologies: expected topologies over 6 GPUs, got 5"),
        ({"dims": (5,)}, "dims: expected sizes whose product is 6, got '5'"),
        ({"steps": ()}, "steps: expected at least one step, got 0"),
    ],
)
def test_bad_input(changes, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        schedule(**changes)


def test_schedules_cannot_change_and_pickle():
    found = schedule(initial=SKIP)
    for part in (found, found.segments[0], found.steps[0], found.envelope[0], found.contract, found.provenance):
        for field in dataclasses.fields(part):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(part, field.name, None)
    again = pickle.loads(pickle.dumps(found))  # noqa: S301 - our own bytes
    for field in dataclasses.fields(Schedule):
        assert getattr(again, field.name) == getattr(found, field.name)


def test_a_contract_names_everything_that_has_to_be_the_same():
    contract = Contract.of(JOB, FABRIC)
    assert (contract.collective, contract.gpus, contract.message_bytes) == (JOB.digest, 6, 64.0)
    assert contract.forwarding == FORWARDING
    assert contract == Contract.of(Collective("another name", JOB.steps, (2, 3), 64.0), FABRIC)
    assert contract.differences(contract) == []


@pytest.mark.parametrize(
    ("collective", "fabric", "fields"),
    [
        (Collective("job", JOB.steps[::-1][1:], (6,), 64.0), FABRIC, ["collective"]),
        (JOB.relabelled(np.array([1, 0, 2, 3, 4, 5])), FABRIC, ["collective"]),
        (Collective("job", JOB.steps, (6,), 65.0), FABRIC, ["message_bytes"]),
        (Collective("job", JOB.steps, (6,)), FABRIC, ["message_bytes"]),
        (JOB, dataclasses.replace(FABRIC, alpha_ns=501.0), ["fabric"]),
        (Collective("job", (Step(PairMatrix.shift(5, 1, 64.0)),), (5,), 64.0), FABRIC, ["collective", "gpus"]),
    ],
)
def test_contracts_that_differ(collective, fabric, fields):
    contract, other = Contract.of(JOB, FABRIC), Contract.of(collective, fabric)
    assert contract.differences(other) == other.differences(contract) == fields
    assert contract.digest != other.digest


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Fabric)])
def test_every_parameter_of_the_fabric_counts(field):
    value = Latency.SHORTEST if field == "latency" else getattr(FABRIC, field) + 1
    assert fabric_digest(dataclasses.replace(FABRIC, **{field: value})) != fabric_digest(FABRIC)
    assert fabric_digest(dataclasses.replace(FABRIC)) == fabric_digest(FABRIC)


def test_whole_numbers_are_as_good_as_others():
    assert fabric_digest(Fabric(2, 800, 500, 250, 1000)) == fabric_digest(FABRIC)
    assert Contract.of(Collective("job", JOB.steps, (6,), 64), FABRIC) == Contract.of(JOB, FABRIC)
    assert Contract.of(Collective("job", JOB.steps, (6,), 64), FABRIC).digest == Contract.of(JOB, FABRIC).digest


def test_the_digest_of_a_fabric_worked_out_by_hand():
    fields = b"s8:alpha_ns" + b"d17:5.00000000000e+02"
    fields += b"s6:degree" + b"i1:2"
    fields += b"s8:delta_ns" + b"d17:2.50000000000e+02"
    fields += b"s7:latency" + b"s10:congestion"
    fields += b"s9:link_gbps" + b"d17:8.00000000000e+02"
    fields += b"s17:reconfig_delay_ns" + b"d17:1.00000000000e+03"
    assert fabric_digest(FABRIC) == hashlib.sha256(b"l2:" + b"s8:fabric/1" + b"m6:" + fields).hexdigest()
