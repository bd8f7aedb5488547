"""Orbits beside a plain closure of the group; recognition by demands alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.symmetry import Symmetry, candidate_generators, is_automorphism, translations


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


@st.composite
def permutation_groups(draw):
    """A few permutations; often of cycles of one length, so that free groups are among the groups they generate."""
    n = draw(st.integers(1, 6))
    names = st.permutations(range(n)).map(np.array)

    def power_of_a_rotation():
        name, length = draw(names), draw(st.sampled_from([m for m in range(1, n + 1) if n % m == 0]))
        ranks = np.arange(n)
        turned = ranks - ranks % length + (ranks + 1) % length
        image = np.empty(n, dtype=np.int64)
        image[name] = name[turned]
        return image

    return n, [power_of_a_rotation() if draw(st.booleans()) else draw(names) for _ in range(draw(st.integers(0, 2)))]


@given(permutation_groups())
def test_a_group_is_free_if_only_the_identity_has_fixed_gpus(case):
    n, generators = case
    elements = closure(n, generators)
    free = all(e == tuple(range(n)) or all(e[u] != u for u in range(n)) for e in elements)
    if not free:
        with pytest.raises(InputError, match=r"^generators: expected permutations of which no product"):
            Symmetry.free(n, generators)
        return
    group = Symmetry.free(n, generators)
    rows = group.images(np.arange(n)).tolist()
    assert rows[0] == list(range(n))
    assert sorted(map(tuple, rows)) == sorted(elements)
    assert group.order == len(elements)


@pytest.mark.parametrize(
    "generators",
    [
        pytest.param(((1 - np.arange(512)) % 512, (3 - np.arange(512)) % 512), id="two reflections"),
        pytest.param(translations((8, 4, 16)).generators, id="a torus"),
        pytest.param(tuple(np.arange(512) ^ (1 << bit) for bit in range(9)), id="XOR"),
    ],
)
def test_images_of_larger_groups_are_a_table(generators):
    group = Symmetry.free(512, generators)
    some = np.array([0, 5, 300])
    images = group.images(some)
    assert images[0].tolist() == some.tolist()
    assert len({tuple(row) for row in images.tolist()}) == len(images) == group.order
    rows = {tuple(row) for row in images.tolist()}
    assert all({tuple(g[list(row)].tolist()) for row in rows} == rows for g in generators)


def test_translations_of_a_torus():
    group = translations((3, 4))
    moves = [[(u // 4 + a) % 3 * 4 + (u + b) % 4 for u in range(12)] for a in range(3) for b in range(4)]
    assert sorted(group.images(np.arange(12)).tolist()) == sorted(moves)
    assert translations((6,)).generators[0].tolist() == [1, 2, 3, 4, 5, 0]


NO_PERMUTATIONS = {
    "too few": [1, 2, 0],
    "twice": [1, 2, 3, 3],
    "too large": [0, 1, 2, 4],
    "negative": [-1, 0, 1, 2],
    "a table": [[1, 2], [3, 0]],
    "not whole": [1.0, 2.0, 3.0, 0.0],
    "text": "1230",
    "huge": [2**70, 1, 2, 3],
}


@pytest.mark.parametrize("ranks", NO_PERMUTATIONS.values(), ids=NO_PERMUTATIONS)
def test_generators_must_be_permutations(ranks):
    with pytest.raises(InputError, match=r"^mine\[1\]: expected each rank from 0 to 3 once, got [^\n]*$") as caught:
        Symmetry.free(4, [[1, 2, 3, 0], ranks], field="mine")
    assert caught.value.field == "mine[1]"
