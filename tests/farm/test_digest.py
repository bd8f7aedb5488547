"""Canonical bytes beside a normal form of their own, and content addresses worked out by hand."""

import hashlib
import json
import math
import os
import subprocess
import sys
import textwrap
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lumenfarm.digest import canonical_bytes, digest, round_significant

TWELVE = Context(prec=12, rounding=ROUND_HALF_EVEN, Emax=10_000, Emin=-10_000)


def normal(value):
    """A value whose equality is what equal bytes have to mean; floats by decimal arithmetic."""
    match value:
        case None | bool() | str() | bytes():
            return type(value).__name__, value
        case int() | np.integer():
            return "int", int(value)
        case float():
            return "float", rounded(value)
        case np.ndarray():
            kind = "ints" if value.dtype.kind in "iu" else "floats"
            items = map(int, value.ravel()) if kind == "ints" else map(rounded, value.ravel().tolist())
            return kind, value.shape, tuple(items)
        case dict():
            return "map", frozenset((key, normal(item)) for key, item in value.items())
        case _:
            return "list", tuple(map(normal, value))


def rounded(number):
    return str(number) if not math.isfinite(number) else TWELVE.create_decimal(Decimal(number)).normalize() + 0


NUMBERS = st.one_of(
    st.floats(allow_nan=True),
    st.integers(-3, 3).map(float),
    st.sampled_from([1 / 3, 0.1 + 0.2, 0.3, 0.0, -0.0, 1e-300, 1e22]),
)
ARRAYS = st.one_of(
    st.lists(st.integers(-3, 3), max_size=4).map(np.array).map(lambda a: a.astype(np.int64)),
    st.lists(st.integers(0, 3), max_size=4).map(lambda a: np.array(a, dtype=np.uint8)),
    st.lists(NUMBERS, max_size=4).map(lambda a: np.array(a, dtype=np.float64)),
    st.integers(0, 6).map(lambda size: np.arange(6)[:size].reshape(-1, 1)),
    st.just(np.arange(6).reshape(2, 3)),
    st.just(np.arange(6.0).reshape(3, 2)),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 3),
    NUMBERS,
    st.text(max_size=3),
    st.binary(max_size=3),
    ARRAYS,
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
@example([[], []], [[[]]])
@example(["a", "b"], ["ab"])
@example([b"1"], ["1"])
@example([1], [True])
@example(1, 1.0)
@example({"a": 1, "b": 2}, {"b": 2, "a": 1})
@example({"a": {"b": 1}}, {"a": {}, "b": 1})
@example(np.array([1, 2]), [1, 2])
@example(np.array([1, 2]), np.array([1.0, 2.0]))
@example(np.zeros((2, 0)), np.zeros((0, 2)))
@example(np.array([1.0, 2.0, 1.0]), np.array([1.0, 2.0, 2.0]))
def test_bytes_are_equal_exactly_when_values_are(one, other):
    mine, theirs = canonical_bytes(one), canonical_bytes(other)
    assert (mine == theirs) == (normal(one) == normal(other))
    if mine != theirs:
        assert not mine.startswith(theirs)
        assert not theirs.startswith(mine)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-4, 4))
def test_floats_collide_up_to_twelve_digits(number, ulps):
    other = number
    for _ in range(abs(ulps)):
        other = math.nextafter(other, math.copysign(math.inf, ulps))
    if not math.isfinite(other):
        return
    equal = rounded(number) == rounded(other)
    assert (canonical_bytes(number) == canonical_bytes(other)) == equal
    assert (canonical_bytes(np.array([number])) == canonical_bytes(np.array([other]))) == equal
    assert canonical_bytes(number * (1 + 1e-9)) != canonical_bytes(number) or abs(number) < 1e-290


@pytest.mark.parametrize(
    "rounding_noise", [(0.1 + 0.2, 0.3), (1 / 3, 0.333333333333333), (0.0, -0.0), (1e23, 1e23 * (1 + 2e-16))]
)
def test_rounding_noise_changes_nothing(rounding_noise):
    one, other = rounding_noise
    assert canonical_bytes(one) == canonical_bytes(other)
    assert canonical_bytes([np.array([[one]])]) == canonical_bytes([np.array([[other]])])


@given(st.lists(NUMBERS, max_size=6))
def test_layout_in_memory_changes_nothing(numbers):
    array = np.array([numbers, numbers], dtype=np.float64)
    assert canonical_bytes(np.asfortranarray(array)) == canonical_bytes(array)
    assert canonical_bytes(array[::-1]) == canonical_bytes(array)
    assert canonical_bytes(array.astype(">f8")) == canonical_bytes(array)
    whole = np.arange(len(numbers))
    for kind in ("<i4", ">i8", "u2"):
        assert canonical_bytes(whole.astype(kind)) == canonical_bytes(whole)


@pytest.mark.parametrize(
    "value", [{1: 2}, {"a": {3.0: 1}}, {1, 2}, object(), 1j, np.array(["a"]), np.array([True]), [{"a": {1}}]]
)
def test_what_has_no_canonical_bytes(value):
    with pytest.raises(TypeError, match="no canonical bytes for"):
        canonical_bytes(value)


def test_a_digest_worked_out_by_hand():
    body = b"l2:" + b"s3:box" + b"m2:" + b"s5:empty" + b"n" + b"s4:side" + b"d17:2.50000000000e+00"
    assert digest("box", side=2.5, empty=None) == hashlib.sha256(body).hexdigest()


def test_an_array_worked_out_by_hand():
    ints = b"a2:" + b"I16:" + bytes([1, 0, 0, 0, 0, 0, 0, 0]) + bytes([0xFE, *[0xFF] * 7])
    assert canonical_bytes(np.array([1, -2])) == ints
    words = b"l2:" + b"s17:1.00000000000e+00" + b"s17:5.00000000000e-01"
    floats = b"a3:" + words + b"I12:" + bytes([1, 0, 0, 0]) + bytes([0, 0, 0, 0]) + bytes([1, 0, 0, 0])
    assert canonical_bytes(np.array([0.5, 1.0, 0.5])) == floats


@given(st.text(max_size=5), st.text(max_size=5))
def test_kind_and_names_of_fields_count(kind, other):
    assert (digest(kind, a=1) == digest(other, a=1)) == (kind == other)
    assert digest(kind, a=1) != digest(kind, b=1)
    assert digest(kind, a=1, b=2) == digest(kind, b=2, a=1)


def test_digests_do_not_change_with_the_process():
    """Hash seeds decide in which order sets, and once did in which order mappings, are walked."""
    text = """
        import json
        import numpy as np
        from lumenfarm.digest import digest
        fields = {name: [name, len(name) / 3, {name: None}] for name in ("pattern", "weights", "", "ä")}
        print(json.dumps(digest("x", array=np.arange(5) / 7, **fields)))
    """
    found = set()
    for seed in ("0", "1"):
        command = [sys.executable, "-c", textwrap.dedent(text)]
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=60
        )
        found.add(json.loads(done.stdout))
    fields = {name: [name, len(name) / 3, {name: None}] for name in ("ä", "", "weights", "pattern")}
    assert found == {digest("x", array=np.arange(5) / 7, **fields)}


@given(st.lists(st.floats(1e-200, 1e200), min_size=1))
def test_rounding_to_twelve_digits(values):
    for value, found in zip(values, round_significant(np.array(values)).tolist(), strict=True):
        assert found == pytest.approx(float(TWELVE.create_decimal(Decimal(value))), rel=1e-15)


@given(st.integers(1, 10**11), st.integers(-20, 20), st.integers(-3, 3))
def test_rounding_makes_equals_out_of_what_differs_by_noise(digits, exponent, ulps):
    value = digits * 10.0**exponent
    noisy = value
    for _ in range(abs(ulps)):
        noisy = math.nextafter(noisy, math.copysign(math.inf, ulps))
    one, other = round_significant(np.array([value, noisy])).tolist()
    assert one == other
