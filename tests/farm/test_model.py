"""The nouns: what they accept, that they cannot change, and that they compare by content."""

import dataclasses
import math
import pickle
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import ArcOrbits, Collective, Fabric, Latency, Origin, Pattern, Step, Topology
from lumenfarm.symmetry import Symmetry

FABRIC = Fabric(2, 800.0, 500.0, 500.0, 10_000.0)
SHIFT = Step(PairMatrix.shift(6, 1, 3.0))
JOB = Collective("job", (SHIFT, Step(PairMatrix.shift(6, 2, 5.0))), (2, 3), 12.0, Origin("ring", {"ports": 1}))


AMOUNTS = st.sampled_from([0.0, 1.0, 2.5, 1 / 3, 1e-6, 1e12])
# Small whole numbers: no quotient of their sums lies where the last ulp decides how twelve digits are rounded.
WHOLE_AMOUNTS = st.integers(0, 5).map(float)


@st.composite
def demands(draw, values=AMOUNTS):
    """Irregular demands: several partners or none, different amounts."""
    n = draw(st.integers(2, 6))
    full = np.array(draw(st.lists(values, min_size=n * n, max_size=n * n))).reshape(n, n)
    np.fill_diagonal(full, 0)
    if not full.any():
        full[0, 1] = 1.0
    return full


def test_a_byte_takes_eight_bits_over_the_rate():
    assert FABRIC.ns_per_byte == pytest.approx(0.01)
    assert Fabric(1, 8.0, 0, 0, 0).ns_per_byte == 1.0
    assert FABRIC.latency is Latency.CONGESTION


BAD_NUMBERS: list[tuple[str, str, list[Any]]] = [
    ("degree", "ports", [0, -1, 1.5, True, "2", None]),
    ("link_gbps", "link", [0, -1, math.nan, math.inf, 10**400, "800", None, True]),
    ("alpha_ns", "alpha", [-1e-9, math.nan, math.inf, "0", None]),
    ("delta_ns", "delta", [-1, math.nan, math.inf]),
    ("reconfig_delay_ns", "reconfig-delay", [-1, math.nan, math.inf, 2**63]),
]


@pytest.mark.parametrize(
    ("field", "name", "bad"),
    [(field, name, value) for field, name, values in BAD_NUMBERS for value in values],
)
def test_fabric_refuses(field, name, bad):
    with pytest.raises(InputError, match=f"^{name}: expected a (whole )?number") as caught:
        dataclasses.replace(FABRIC, **{field: bad})
    assert caught.value.field == name
    assert "\n" not in str(caught.value)


def test_fabric_delays_may_be_zero():
    assert Fabric(1, 1e-3, 0, 0, 0).delta_ns == 0


@given(st.integers(2, 8), st.dictionaries(st.integers(-9, 9), st.integers(1, 3), max_size=3))
def test_circulant(n, offsets):
    topology = Topology.circulant(n, offsets)
    expected = np.zeros((n, n))
    for offset, count in offsets.items():
        for u in range(n):
            if offset % n:
                expected[u, (u + offset) % n] += count
    np.testing.assert_array_equal(topology.circuits.dense(), expected)
    assert topology.degree == sum(count for offset, count in offsets.items() if offset % n)


def test_circulant_is_called_by_its_offsets():
    assert Topology.circulant(8, {1: 1, -3: 2, 8: 1}).label == "circulant{+1,-3x2}"


@given(st.integers(2, 6), st.data())
def test_arcs_given_twice_add_up_and_come_back_in_order(n, data):
    rank = st.integers(0, n - 1)
    arc = st.tuples(rank, rank, st.integers(1, 3)).filter(lambda each: each[0] != each[1])
    arcs = data.draw(st.lists(arc, max_size=10))
    topology = Topology.from_arcs(n, arcs, "mine")
    expected = {}
    for u, v, count in arcs:
        expected[u, v] = expected.get((u, v), 0) + count
    assert topology.arcs() == [(u, v, count) for (u, v), count in sorted(expected.items())]
    out = [sum(count for (u, _), count in expected.items() if u == gpu) for gpu in range(n)]
    into = [sum(count for (_, v), count in expected.items() if v == gpu) for gpu in range(n)]
    assert topology.degree == max(out + into)
    assert (topology.n, topology.label) == (n, "mine")


def turned(arcs):
    """Arcs that rotations of six GPUs by two map into each other."""
    return Topology.from_orbits(6, [[2, 3, 4, 5, 0, 1]], arcs, "turned")


def test_topologies_by_orbits_equal_those_by_arcs():
    topology = turned([(0, 1, 1), (1, 0, 2), (2, 3, 4)])
    written = [(0, 1, 5), (1, 0, 2), (2, 3, 5), (3, 2, 2), (4, 5, 5), (5, 4, 2)]
    same = Topology.from_arcs(6, written, "written")
    assert topology.arcs() == written
    assert topology == same
    assert same == topology
    assert hash(topology) == hash(same)
    assert topology.digest == same.digest
    assert len({topology, same}) == 1
    assert topology != Topology.from_arcs(6, written[1:])
    assert topology.degree == 5
    assert turned([]) == Topology.from_arcs(6, [])


def test_orbits_are_written_out_only_when_circuits_are_asked_for():
    for topology in (turned([(0, 1, 1)]), Topology.circulant(6, {1: 1})):
        assert (topology.n, len(topology.orbits.arcs), topology.orbits.size % 3) == (6, 1, 0)
        assert topology.label in {"turned", "circulant{+1}"}
        assert "circuits" not in vars(topology)
        circuits = topology.circuits
        assert topology.circuits is circuits
        again = pickle.loads(pickle.dumps(topology))  # noqa: S301 - our own bytes
        assert "circuits" not in vars(again)
        assert again == topology
        assert again.label == topology.label
    assert Topology.from_arcs(6, [(0, 1, 1)]).orbits is None


def test_pickles_of_topologies_do_not_grow_with_their_arcs():
    few, many = (Topology.circulant(512, dict.fromkeys(range(1, ports + 1), 1)) for ports in (1, 64))
    assert few.circuits != many.circuits
    assert len(pickle.dumps(many)) < 1.5 * len(pickle.dumps(few))


def test_networkx_graph():
    topology = Topology.from_arcs(4, [(0, 1, 2), (1, 0, 1), (1, 2, 1)], "three arcs")
    graph = topology.to_networkx()
    assert type(graph) is nx.DiGraph
    assert graph.name == "three arcs"
    assert sorted(graph) == [0, 1, 2, 3]
    assert sorted(graph.edges(data="capacity")) == [(0, 1, 2), (1, 0, 1), (1, 2, 1)]
    assert nx.maximum_flow_value(graph, 0, 2) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology(PairMatrix.shift(3, 1, 0.5)), "topology: expected a whole number of circuits on each arc"),
        (lambda: Topology.from_arcs(3, [(0, 0, 1)]), "topology: expected pairs of two different GPUs"),
        (lambda: Topology.from_arcs(3, [(0, 3, 1)]), "topology: expected ranks 0 to 2, got 3"),
        (lambda: Topology.from_arcs(3, [(0, 1, -1)]), "topology: expected finite values"),
        (lambda: Topology.from_arcs(1, []), "gpus: expected a whole number not below 2"),
        (lambda: Topology.from_orbits(1, [], []), "gpus: expected a whole number not below 2"),
        (lambda: turned([(0, 0, 1)]), "topology: expected pairs of two different GPUs"),
        (lambda: turned([(0, 6, 1)]), "topology: expected ranks 0 to 5, got 6"),
        (lambda: turned([(-1, 0, 1)]), "topology: expected ranks 0 to 5, got -1"),
        (lambda: turned([(0, 1, 0)]), "topology: expected a whole number not below 1, got 0"),
        (lambda: turned([(0, 1, 0.5)]), "topology: expected a whole number not below 1, got 0.5"),
        (lambda: turned([(0, 1, 2**62)]), "topology: expected a total below"),
        (lambda: Topology.from_orbits(3, [[1, 0]], []), "generators.0.: expected each rank from 0 to 2 once"),
        (lambda: Topology.from_orbits(3, [[0, 2, 1]], []), "generators: expected permutations of which no product"),
        (lambda: Topology(ArcOrbits(Symmetry(3), PairMatrix(3, [0], [1], 0.5))), "topology: expected a whole number"),
        (lambda: Step(PairMatrix(3, [], [], [])), "demand: expected a step in which at least one GPU sends something"),
        (lambda: Step(PairMatrix(3, [0], [1], 0.0)), "demand: expected a step in which at least one GPU sends"),
        (lambda: Collective("x", (), (6,)), "steps: expected at least one step"),
        (lambda: Collective("x", (SHIFT, Step(PairMatrix.shift(5, 1, 1.0))), (6,)), "steps: expected every step over"),
        (lambda: Collective("x", (SHIFT,), (5,)), "dims: expected sizes whose product is 6, got '5'"),
        (lambda: Collective("x", (SHIFT,), (6, 1)), "dims: expected a whole number not below 2"),
        (lambda: Collective("x", (SHIFT,), (-2, -3)), "dims: expected a whole number not below 2"),
        (lambda: Collective("x", (SHIFT,), ()), "dims: expected sizes whose product is 6"),
        (lambda: Collective("x", (SHIFT,), (6,), 0.0), "message: expected a number above 0"),
        (lambda: Collective("x", (SHIFT,), (6,), math.nan), "message: expected a number above 0"),
        (lambda: Collective("x", (SHIFT,), (6,), 2.0**63), "message: expected a number above 0 and below"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=f"^{message}") as caught:
        make()
    assert "\n" not in str(caught.value)


@given(demands(), st.integers(1, 4))
def test_chunk_is_what_the_busiest_port_carries(full, degree):
    step = Step(PairMatrix.from_dense(full))
    busiest = max(*full.sum(axis=0), *full.sum(axis=1))
    assert step.chunk_bytes(degree) == pytest.approx(busiest / degree)
    multiplicities = step.pattern(degree).multiplicities.dense()
    np.testing.assert_allclose(multiplicities, full * degree / busiest, rtol=1e-11)
    sums = [*multiplicities.sum(axis=0), *multiplicities.sum(axis=1)]
    assert max(sums) == pytest.approx(degree, rel=1e-11)


@given(demands(WHOLE_AMOUNTS), st.sampled_from([0.125, 3.0, 1e6 / 7]))
def test_patterns_have_no_scale(full, factor):
    step = Step(PairMatrix.from_dense(full))
    scaled = Step(PairMatrix.from_dense(full * factor))
    assert step.pattern(2) == scaled.pattern(2)
    assert step.pattern(2).digest == scaled.pattern(2).digest
    assert step.demand != scaled.demand


def test_patterns_differ_by_degree_and_by_demand():
    assert SHIFT.pattern(1) != SHIFT.pattern(2)
    assert SHIFT.pattern(1) != JOB.steps[1].pattern(1)
    assert SHIFT.pattern(1).multiplicities == PairMatrix.shift(6, 1, 1.0)


@given(st.permutations(range(6)))
def test_relabelling_a_collective(permutation):
    permutation = np.array(permutation)
    renamed = JOB.relabelled(permutation)
    for step, other in zip(JOB.steps, renamed.steps, strict=True):
        np.testing.assert_array_equal(other.demand.dense()[np.ix_(permutation, permutation)], step.demand.dense())
    assert renamed.origin is None
    assert (renamed.name, renamed.dims, renamed.message_bytes) == (JOB.name, JOB.dims, JOB.message_bytes)
    rotation = len({(v - u) % 6 for u, v in enumerate(permutation)}) == 1
    assert (renamed.digest == JOB.digest) == all(
        other.demand.shift_offset() == step.demand.shift_offset()
        for step, other in zip(JOB.steps, renamed.steps, strict=True)
    )
    assert not rotation or renamed.digest == JOB.digest


def test_a_collective_is_known_by_its_ordered_demands():
    first, second = JOB.steps
    assert JOB.digest == Collective("other name", JOB.steps, (6,)).digest
    assert JOB.digest != Collective("job", (second, first), (6,)).digest
    assert JOB.digest != Collective("job", (first,), (6,)).digest
    assert JOB.digest != Collective("job", (first, Step(PairMatrix.shift(6, 2, 5.1))), (6,)).digest
    assert JOB.step_digests == (first.demand.digest, second.demand.digest)
    assert (len(JOB), JOB.n) == (2, 6)
    assert JOB.chunk_bytes(2).tolist() == [1.5, 2.5]


def test_the_chunk_of_a_file_costs_nothing():
    step = Step(PairMatrix.shift(6, 1, 3.0), declared_chunk_bytes=99.0)
    assert step.chunk_bytes(1) == 3.0
    assert Collective("job", (step,), (6,)).relabelled(np.arange(6)).steps[0].declared_chunk_bytes == 99.0


@given(demands(WHOLE_AMOUNTS))
def test_topologies_and_patterns_are_equal_by_content(full):
    matrix = PairMatrix.from_dense(full)
    assert Topology(matrix, "a") == Topology(PairMatrix.from_dense(full), "b")
    assert hash(Topology(matrix, "a")) == hash(Topology(matrix, "b"))
    assert Topology(matrix).digest == Topology(matrix, "b").digest
    assert Topology(matrix) != Topology(PairMatrix.from_dense(full + full.T + np.eye(len(full), k=1)))
    assert Pattern(matrix) == Pattern(PairMatrix.from_dense(full))
    assert hash(Pattern(matrix)) == hash(Pattern(PairMatrix.from_dense(full)))
    assert Pattern(matrix) != Topology(matrix)
    assert Topology(matrix) != Pattern(matrix)


@pytest.mark.parametrize(
    "noun", [FABRIC, Topology.from_arcs(4, []), Topology.circulant(4, {1: 1}), SHIFT, SHIFT.pattern(1), JOB, JOB.origin]
)
def test_nouns_cannot_change(noun):
    for field in dataclasses.fields(noun):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(noun, field.name, None)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(noun, field.name)


def test_nouns_pickle():
    fabric, topology, pattern, job = pickle.loads(  # noqa: S301 - our own bytes
        pickle.dumps((FABRIC, Topology.circulant(4, {1: 1}), SHIFT.pattern(2), JOB))
    )
    assert fabric == FABRIC
    assert topology == Topology.circulant(4, {1: 1})
    assert topology.label == "circulant{+1}"
    assert pattern == SHIFT.pattern(2)
    assert job.digest == JOB.digest
    assert (job.name, job.dims, job.message_bytes, job.origin) == (JOB.name, JOB.dims, JOB.message_bytes, JOB.origin)
