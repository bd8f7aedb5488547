"""Pair matrices beside dense ones."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.matrix import PairMatrix
from lumenfarm.units import MAX_BYTES

VALUES = st.sampled_from([0.0, 1.0, 2.5, 1e-9, 1 / 3, 1e15])


@st.composite
def entries(draw):
    """n and (source, destination, value) triples, some of them zero, some given twice, in any order."""
    n = draw(st.integers(2, 6))
    rank = st.integers(0, n - 1)
    triples = draw(st.lists(st.tuples(rank, rank, VALUES).filter(lambda t: t[0] != t[1]), max_size=15))
    return n, triples


def made(n, triples):
    sources, destinations, values = zip(*triples, strict=True) if triples else ((), (), ())
    return PairMatrix(n, sources, destinations, values)


def summed(n, triples):
    full = np.zeros((n, n))
    for source, destination, value in triples:
        full[source, destination] += value
    return full


@given(entries())
def test_equals_the_dense_matrix(given_entries):
    n, triples = given_entries
    matrix, full = made(n, triples), summed(n, triples)
    np.testing.assert_allclose(matrix.dense(), full, rtol=1e-15)
    np.testing.assert_allclose(matrix.row_sums, full.sum(axis=1), rtol=1e-14)
    np.testing.assert_allclose(matrix.column_sums, full.sum(axis=0), rtol=1e-14)
    assert matrix.largest_sum == pytest.approx(max(full.sum(axis=0).max(), full.sum(axis=1).max()), rel=1e-14)
    assert len(matrix) == np.count_nonzero(full)
    assert PairMatrix.from_dense(full) == matrix


@given(entries())
def test_entries_are_positive_in_row_major_order_and_each_pair_once(given_entries):
    matrix = made(*given_entries)
    pairs = [(source, destination) for source, destination, _ in matrix.items()]
    assert pairs == sorted(set(pairs))
    assert all(value > 0 for _, _, value in matrix.items())


@given(entries(), st.randoms(use_true_random=False))
def test_order_of_entries_changes_nothing(given_entries, random):
    n, triples = given_entries
    shuffled = random.sample(triples, len(triples))
    assert made(n, shuffled) == made(n, triples)
    assert made(n, shuffled).digest == made(n, triples).digest


@given(entries(), entries())
def test_equality_is_by_content(one, other):
    mine, theirs = made(*one), made(*other)
    same = mine.n == theirs.n and np.allclose(mine.dense(), theirs.dense(), rtol=1e-12, atol=0)
    assert (mine == theirs) == same
    assert not same or hash(mine) == hash(theirs)
    assert mine != mine.dense().tolist()


def test_rounding_noise_makes_no_difference_but_more_does():
    matrix = PairMatrix(3, [0, 1], [1, 2], [0.1 + 0.2, 1.0])
    assert matrix == PairMatrix(3, [0, 1], [1, 2], [0.3, 1.0])
    assert matrix != PairMatrix(3, [0, 1], [1, 2], [0.3 + 1e-10, 1.0])
    assert matrix != PairMatrix(4, [0, 1], [1, 2], [0.3, 1.0])
    assert matrix != PairMatrix(3, [1, 0], [2, 1], [0.3, 1.0])


@given(entries(), st.data())
def test_relabelling_is_a_permutation_of_rows_and_columns(given_entries, data):
    matrix = made(*given_entries)
    permutation = np.array(data.draw(st.permutations(range(matrix.n))))
    relabelled = matrix.relabelled(permutation)
    np.testing.assert_array_equal(relabelled.dense()[np.ix_(permutation, permutation)], matrix.dense())
    assert relabelled.relabelled(np.argsort(permutation)) == matrix
    assert sorted(relabelled.values) == sorted(matrix.values)


@given(entries(), st.sampled_from([0.5, 3.0, 1e-6]))
def test_scaling(given_entries, factor):
    matrix = made(*given_entries)
    np.testing.assert_allclose(matrix.scaled(factor).dense(), matrix.dense() * factor, rtol=1e-15)


@given(st.integers(2, 9), st.integers(-20, 20), VALUES)
def test_shift(n, offset, value):
    if offset % n == 0:
        with pytest.raises(InputError, match="pairs of two different GPUs"):
            PairMatrix.shift(n, offset, value)
        return
    matrix = PairMatrix.shift(n, offset, value)
    expected = np.zeros((n, n))
    for u in range(n):
        expected[u, (u + offset) % n] = value
    np.testing.assert_array_equal(matrix.dense(), expected)
    assert matrix.shift_offset() == (offset % n if value else None)


@given(st.permutations(range(6)))
def test_permutation(permutation):
    matrix = PairMatrix.from_permutation(permutation, 2.0)
    expected = np.zeros((6, 6))
    for u, v in enumerate(permutation):
        expected[u, v] = 2.0 * (u != v)
    np.testing.assert_array_equal(matrix.dense(), expected)
    offsets = {(v - u) % 6 for u, v in enumerate(permutation)}
    assert matrix.shift_offset() == (offsets.pop() if len(offsets) == 1 and offsets != {0} else None)


@pytest.mark.parametrize(
    ("sources", "destinations", "values"),
    [
        pytest.param([0, 1, 2], [1, 2, 3], 1.0, id="one GPU is idle"),
        pytest.param([0, 1, 2, 3], [1, 2, 3, 0], [1.0, 1.0, 1.0, 1.0001], id="amounts differ"),
        pytest.param([0, 1, 2, 3], [1, 2, 3, 1], 1.0, id="offsets differ"),
        pytest.param([0, 0, 1, 2, 3], [1, 2, 2, 3, 0], 1.0, id="one more entry"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_what_is_no_shift(sources, destinations, values):
    assert PairMatrix(4, sources, destinations, values).shift_offset() is None


def test_a_shift_survives_rounding_noise():
    assert PairMatrix(3, [0, 1, 2], [2, 0, 1], [0.1 + 0.2, 0.3, 0.3]).shift_offset() == 2


@given(entries())
def test_pickles_and_prints(given_entries):
    matrix = made(*given_entries)
    again = pickle.loads(pickle.dumps(matrix))  # noqa: S301 - our own bytes
    assert type(again) is PairMatrix
    assert again == matrix
    assert not again.values.flags.writeable
    assert repr(again) == f"PairMatrix(n={matrix.n}, entries={len(matrix)})"


def test_is_immutable():
    values = np.array([1.0, 2.0])
    matrix = PairMatrix(3, [0, 1], [1, 2], values)
    values[0] = 9.0
    assert matrix.values.tolist() == [1.0, 2.0]
    for array in (matrix.sources, matrix.destinations, matrix.values):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2
    for name in ("n", "values", "digest", "anything"):
        with pytest.raises(AttributeError, match="PairMatrix is immutable"):
            setattr(matrix, name, 1)
    matrix.dense()[0, 1] = 7.0
    assert matrix.dense()[0, 1] == 1.0


def test_the_empty_matrix():
    matrix = PairMatrix(3, [], [], [])
    assert (len(matrix), matrix.largest_sum) == (0, 0.0)
    assert matrix == PairMatrix(3, [0], [1], [0.0])


BAD = {
    "no GPUs": (lambda: PairMatrix(0, [], [], []), "gpus: expected a whole number not below 2, got 0"),
    "one GPU": (lambda: PairMatrix(1, [], [], []), "gpus: expected a whole number not below 2, got 1"),
    "half a GPU": (
        lambda: PairMatrix(2.5, [], [], []),  # type: ignore[arg-type]
        "gpus: expected a whole number",
    ),
    "rank too large": (lambda: PairMatrix(3, [0, 3], [1, 0], 1.0), "demand: expected ranks 0 to 2, got 3"),
    "rank below 0": (lambda: PairMatrix(3, [0], [-1], 1.0), "demand: expected ranks 0 to 2, got -1"),
    "huge rank": (lambda: PairMatrix(3, [2**63], [1], 1.0), "demand: expected ranks 0 to 2"),
    "half a rank": (lambda: PairMatrix(3, [0.5], [1], 1.0), "demand: expected one list of whole ranks"),
    "ranks as truth": (lambda: PairMatrix(3, [True], [0], 1.0), "demand: expected one list of whole ranks"),
    "nested ranks": (lambda: PairMatrix(3, [[0]], [[1]], 1.0), "demand: expected one list of whole ranks"),
    "lengths differ": (lambda: PairMatrix(3, [0, 1], [1], 1.0), "demand: expected as many sources as destinations"),
    "to itself": (lambda: PairMatrix(3, [2], [2], 1.0), r"demand: expected pairs of two different GPUs, got \[2, 2\]"),
    "negative": (lambda: PairMatrix(3, [0], [1], -1.0), "demand: expected finite values from 0 to .*, got -1.0"),
    "NaN": (lambda: PairMatrix(3, [0], [1], math.nan), "demand: expected finite values from 0 to .*, got nan"),
    "infinite": (lambda: PairMatrix(3, [0], [1], math.inf), "demand: expected finite values from 0 to .*, got inf"),
    "overflow": (lambda: PairMatrix(3, [0], [1], 2.0**63), "demand: expected finite values from 0 to"),
    "overflow of the sum": (
        lambda: PairMatrix(3, [0, 1], [1, 2], MAX_BYTES),
        r"demand: expected a total below 2\*\*63",
    ),
    "not square": (lambda: PairMatrix.from_dense(np.zeros((2, 3))), r"demand: expected a square matrix, got \(2, 3\)"),
    "not a matrix": (lambda: PairMatrix.from_dense(np.zeros(4)), "demand: expected a square matrix"),
    "dense diagonal": (lambda: PairMatrix.from_dense(np.eye(3)), "demand: expected pairs of two different GPUs"),
    "dense negative": (lambda: PairMatrix.from_dense(np.array([[0, -1.0], [0, 0]])), "demand: expected finite values"),
    "dense NaN": (lambda: PairMatrix.from_dense(np.array([[0, math.nan], [0, 0]])), "demand: expected finite values"),
    "no permutation": (lambda: PairMatrix.from_permutation([1, 2, 3], 1.0), "demand: expected ranks 0 to 2, got 3"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input(make, message):
    with pytest.raises(InputError, match=f"^{message}"):
        make()


def test_errors_name_the_field():
    with pytest.raises(InputError, match=r"^topology: expected ranks 0 to 2, got 5"):
        PairMatrix(3, [5], [0], 1.0, field="topology")


def test_the_largest_total_is_allowed():
    assert PairMatrix(3, [0], [1], MAX_BYTES).largest_sum == MAX_BYTES


@given(entries(), st.data())
def test_some_rows_in_full(given_entries, data):
    matrix = made(*given_entries)
    ranks = np.array(data.draw(st.lists(st.integers(0, matrix.n - 1), unique=True)), dtype=np.int64)
    np.testing.assert_array_equal(matrix.rows(ranks), matrix.dense()[ranks])
