"""Theta by the ladder beside a program over pairs and paths, on small networks and on shifts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Pattern, Step, Topology
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.concurrent_flow import OrbitNetwork, theta_row


def path_flow(topology: Topology, pattern: Pattern) -> float:
    """Theta as a program with one variable for every simple path of every pair, by scipy."""
    arcs = [(u, v) for u, v, _ in topology.arcs()]
    pairs = list(pattern.multiplicities.items())
    paths = [(index, path) for index, (u, v, _) in enumerate(pairs) for path in simple_paths(arcs, u, v)]
    shipped = np.zeros((len(pairs), len(paths) + 1))
    load = np.zeros((len(arcs), len(paths) + 1))
    for column, (pair, path) in enumerate(paths):
        shipped[pair, column] = 1
        for hop in itertools.pairwise(path):
            load[arcs.index(hop), column] = 1
    shipped[:, -1] = [-k for _, _, k in pairs]
    goal = np.zeros(len(paths) + 1)
    goal[-1] = -1
    capacity = [x for _, _, x in topology.arcs()]
    found = linprog(goal, A_ub=load, b_ub=capacity, A_eq=shipped, b_eq=np.zeros(len(pairs)), bounds=(0, None))
    assert found.status == 0
    return float(-found.fun)


def simple_paths(arcs, source, target, seen=()):
    if source == target:
        return [[target]]
    nexts = [v for u, v in arcs if u == source and v not in seen]
    return [[source, *rest] for v in nexts for rest in simple_paths(arcs, v, target, (*seen, source))]


@st.composite
def networks(draw):
    """A random topology and a random demand on up to five GPUs: irregular, idle GPUs, several partners, fractions."""
    n = draw(st.integers(2, 5))
    pairs = list(itertools.permutations(range(n), 2))
    circuits = draw(st.lists(st.integers(0, 2), min_size=len(pairs), max_size=len(pairs)).filter(any))
    demand = draw(
        st.lists(st.sampled_from([0, 0, 1, 2, 2.5, 1e4 / 3]), min_size=len(pairs), max_size=len(pairs)).filter(any)
    )
    topology = Topology.from_arcs(n, [(u, v, x) for (u, v), x in zip(pairs, circuits, strict=True) if x])
    sources, destinations = zip(*pairs, strict=True)
    step = Step(PairMatrix(n, sources, destinations, demand))
    return topology, step.pattern(max(topology.degree, 1))


@given(networks())
@settings(max_examples=150)
def test_equals_a_program_over_all_paths(network):
    topology, pattern = network
    row = theta_row(topology, [pattern], (topology.n,))
    assert row.theta[0] == pytest.approx(path_flow(topology, pattern), rel=1e-6, abs=1e-9)


@given(networks())
@settings(max_examples=100)
def test_sandwich_holds_theta(network):
    topology, pattern = network
    plain = OrbitNetwork(topology, Symmetry(topology.n))
    demands = np.stack([plain.demand(pattern.multiplicities)])
    theta = path_flow(topology, pattern)
    if np.isinf(plain.hops(demands)[0]):
        assert theta == pytest.approx(0, abs=1e-9)
        return
    assert plain.even_split(demands)[0] <= theta * (1 + 1e-9)
    assert plain.volume_bound(demands)[0] >= theta * (1 - 1e-9)
    assert plain.port_bound(pattern.multiplicities) >= theta * (1 - 1e-9)


def test_ring_hops_of_swing():
    """The static bidirectional ring costs 2, 2, 4, 6, 12, 22 for the six Swing steps of 64 GPUs (model section 10)."""
    ranks = np.arange(64)
    distances = [(1 - (-2) ** (t + 1)) // 3 for t in range(6)]
    partners = [np.where(ranks % 2 == 0, ranks + r, ranks - r) % 64 for r in distances]
    patterns = [Step(PairMatrix(64, ranks, partner, 1.0)).pattern(2) for partner in partners]
    row = theta_row(Topology.circulant(64, {1: 1, -1: 1}), patterns, (64,))
    assert 1 / np.array(row.theta) == pytest.approx([2, 2, 4, 6, 12, 22], rel=1e-9)


def test_shift_on_directed_ring_needs_no_program():
    patterns = [Step(PairMatrix.shift(64, offset, 1.0)).pattern(1) for offset in range(1, 64)]
    row = theta_row(Topology.circulant(64, {1: 1}), patterns, (64,))
    assert row.solves == 0
    assert 1 / np.array(row.theta) == pytest.approx(np.arange(1, 64))
    assert row.hops == tuple(range(1, 64))


@pytest.mark.parametrize("circuits", [1, 2, 3])
@pytest.mark.parametrize("generator", range(1, 6))
def test_shifts_on_a_circulant_equal_a_program_over_all_paths(generator, circuits):
    topology = Topology.circulant(6, {generator: circuits})
    patterns = [Step(PairMatrix.shift(6, offset, 5.0)).pattern(3) for offset in range(1, 6)]
    row = theta_row(topology, [*patterns, Step(PairMatrix(6, [0], [1], 1.0)).pattern(3)], (6,))
    assert row.theta[:5] == pytest.approx([path_flow(topology, pattern) for pattern in patterns], abs=1e-9)
    assert row.solves <= 1


def test_unreachable_pair_gives_zero_and_infinite_hops():
    topology = Topology.circulant(8, {2: 1})
    row = theta_row(topology, [Step(PairMatrix.shift(8, o, 1.0)).pattern(1) for o in (1, 2)], (8,))
    assert row.theta == (0.0, 1.0)
    assert row.hops == (np.inf, 1.0)
