"""Orbits beside a plain closure of the group; recognition by demands alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.matrix import PairMatrix
from lumenfarm.symmetry import Symmetry, candidate_generators, is_automorphism


def closure(n, generators):
    """All elements of the generated group, as tuples, by repeated composition."""
    elements = {tuple(range(n))}
    while True:
        more = {tuple(g[list(e)]) for e in elements for g in generators} | elements
        if more == elements:
            return elements
        elements = more


def swing(n, step):
    distance = (1 - (-2) ** (step + 1)) // 3
    ranks = np.arange(n)
    return PairMatrix(n, ranks, np.where(ranks % 2 == 0, ranks + distance, ranks - distance) % n, 1.0)


@pytest.mark.parametrize(
    ("matrices", "dims", "order"),
    [
        pytest.param([PairMatrix.shift(8, 3, 1.0)], (8,), 8, id="one shift: at least the rotations"),
        pytest.param([swing(8, t) for t in range(3)], (8,), 8, id="Swing: dihedral"),
        pytest.param([PairMatrix(8, range(8), [u ^ m for u in range(8)], 1.0) for m in (1, 2, 4)], (8,), 8, id="XOR"),
    ],
)
def test_recognised_group_is_transitive(matrices, dims, order):
    group = Symmetry.shared(matrices, dims)
    assert len(closure(8, group.generators)) >= order
    assert len(set(group.gpu_orbits().tolist())) == 1


@given(st.integers(0, 255), st.sampled_from([4, 6, 8]))
def test_orbits_equal_those_of_the_closure(mask, n):
    pool = candidate_generators((n,))
    generators = tuple(g for bit, g in enumerate(pool[:8]) if mask >> bit & 1)
    group = Symmetry(n, generators)
    elements = closure(n, generators)
    orbits = group.gpu_orbits()
    for u in range(n):
        assert {e[u] for e in elements} == set(np.flatnonzero(orbits == orbits[u]).tolist())


def test_pair_orbits_equal_those_of_the_closure():
    matrix = PairMatrix.from_dense(np.ones((6, 6)) - np.eye(6))
    group = Symmetry(6, ((np.arange(6) + 2) % 6, (1 - np.arange(6)) % 6))
    orbits = group.pair_orbits(matrix)
    pairs = list(zip(matrix.sources.tolist(), matrix.destinations.tolist(), strict=True))
    elements = closure(6, group.generators)
    for index, (u, v) in enumerate(pairs):
        images = {(e[u], e[v]) for e in elements}
        assert {pairs[other] for other in np.flatnonzero(orbits == orbits[index])} == images


@given(st.permutations(range(6)), st.lists(st.integers(0, 3), min_size=30, max_size=30).filter(any))
def test_is_automorphism_equals_dense_comparison(permutation, values):
    dense = np.zeros((6, 6))
    dense[~np.eye(6, dtype=bool)] = values
    p = np.array(permutation)
    assert is_automorphism(PairMatrix.from_dense(dense), p) == np.array_equal(dense[np.ix_(p, p)], dense)


def test_values_count_not_only_places():
    matrix = PairMatrix(4, [0, 1, 2, 3], [1, 2, 3, 0], [1.0, 1.0, 1.0, 2.0])
    assert not is_automorphism(matrix, np.array([1, 2, 3, 0]))


def test_irregular_demand_has_only_the_trivial_group():
    matrix = PairMatrix(5, [0, 1, 3], [1, 3, 4], [1.0, 2.0, 5.0])
    group = Symmetry.shared([matrix], (5,))
    assert group.gpu_orbits().tolist() == [0, 1, 2, 3, 4]
    assert group.pair_orbits(matrix).tolist() == [0, 1, 2]


def test_torus_has_its_translations():
    from lumenfarm.families import torus

    group = Symmetry.shared([torus((4, 3), 4).circuits], (4, 3))
    assert len(set(group.gpu_orbits().tolist())) == 1
