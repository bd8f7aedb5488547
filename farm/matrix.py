"""Sparse non-negative matrices over ordered pairs of GPUs: demands, patterns and circuits are all one of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumenfarm.digest import digest
from lumenfarm.errors import InputError
from lumenfarm.units import MAX_BYTES, positive_int

__all__ = ["MAX_GPUS", "Floats", "Ints", "PairMatrix"]

# Pairs must have numbers below 2**63, and a row of n floats must fit into memory.
MAX_GPUS = 2**24

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PairMatrix:
    """An immutable n x n matrix with zero diagonal, stored as its positive entries in row-major order.

    Entries given twice are added, zero entries vanish, so equal matrices have equal arrays and equal digests.

    Args:
        n: number of GPUs, from 2 to MAX_GPUS.
        sources: row of each entry, shape (entries,), 0 <= row < n.
        destinations: column of each entry, shape (entries,), different from its row.
        values: the entries, shape (entries,), finite, not negative, sum at most 2**63-1.
        field: what error messages call the matrix.

    Raises:
        InputError: a rank out of range, an entry on the diagonal, a value that is negative, not finite or too large.
    """

    # The slots of the cached properties live in __dict__; the arrays are read-only.
    n: int
    sources: Ints
    destinations: Ints
    values: Floats

    def __init__(
        self, n: int, sources: ArrayLike, destinations: ArrayLike, values: ArrayLike, *, field: str = "demand"
    ) -> None:
        if positive_int(n, field="gpus", minimum=2) > MAX_GPUS:
            raise InputError("gpus", n, f"at most {MAX_GPUS}")
        rows, columns = _ranks(sources, n, field), _ranks(destinations, n, field)
        entries = _entries(values, len(rows), field)
        _check_entries(rows, columns, entries, field)
        keys, where = np.unique(rows * n + columns, return_inverse=True)
        sums = np.bincount(where, weights=entries, minlength=len(keys)).astype(np.float64)
        if sums.sum() > MAX_BYTES:
            raise InputError(field, float(sums.sum()), "a total below 2**63")
        keys, sums = keys[sums > 0], sums[sums > 0]
        self._set(n, keys // n, keys % n, sums)

    def _set(self, n: int, sources: Ints, destinations: Ints, values: Floats) -> None:
        for array in (sources, destinations, values):
            array.flags.writeable = False
        object.__setattr__(self, "n", n)
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "destinations", destinations)
        object.__setattr__(self, "values", values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot delete {name!r}")

    @classmethod
    def shift(cls, n: int, offset: int, value: float) -> PairMatrix:
        """Every u sends ``value`` to u + offset (mod n); offset must not be a multiple of n."""
        ranks = np.arange(n)
        return cls(n, ranks, (ranks + offset) % n, value)

    @classmethod
    def from_permutation(cls, permutation: Sequence[int] | Ints, value: float) -> PairMatrix:
        """Every u sends ``value`` to permutation[u]; GPUs mapped to themselves are idle."""
        heads = np.asarray(permutation, dtype=np.int64)
        active = np.flatnonzero(heads != np.arange(len(heads)))
        return cls(len(heads), active, heads[active], value)

    @classmethod
    def from_dense(cls, dense: ArrayLike, *, field: str = "demand") -> PairMatrix:
        """The matrix given in full, shape (n, n)."""
        full = np.asarray(dense, dtype=np.float64)
        if full.ndim != 2 or full.shape[0] != full.shape[1]:
            raise InputError(field, full.shape, "a square matrix")
        rows, columns = np.nonzero(full)
        return cls(len(full), rows, columns, full[rows, columns], field=field)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PairMatrix) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PairMatrix(n={self.n}, entries={len(self)})"

    def __reduce__(self) -> tuple[object, ...]:
        return PairMatrix, (self.n, self.sources, self.destinations, self.values)

    def items(self) -> Iterator[tuple[int, int, float]]:
        """(source, destination, value) in row-major order."""
        return zip(self.sources.tolist(), self.destinations.tolist(), self.values.tolist(), strict=True)

    @cached_property
    def digest(self) -> str:
        """Content address: equal for matrices equal to twelve significant digits."""
        return digest("pairs/1", n=self.n, rows=self.sources, columns=self.destinations, values=self.values)

    @cached_property
    def row_sums(self) -> Floats:
        """Sum over destinations, shape (n,)."""
        return _frozen(np.bincount(self.sources, weights=self.values, minlength=self.n).astype(np.float64))

    @cached_property
    def column_sums(self) -> Floats:
        """Sum over sources, shape (n,)."""
        return _frozen(np.bincount(self.destinations, weights=self.values, minlength=self.n).astype(np.float64))

    @property
    def largest_sum(self) -> float:
        """Max over GPUs of what it sends or receives; 0 for the empty matrix."""
        return float(max(self.row_sums.max(), self.column_sums.max()))

    def dense(self) -> Floats:
        """The matrix in full, shape (n, n)."""
        full = np.zeros((self.n, self.n))
        full[self.sources, self.destinations] = self.values
        return full

    def rows(self, ranks: Ints) -> Floats:
        """The rows of some GPUs in full, shape (ranks, n)."""
        place = np.full(self.n, -1)
        place[ranks] = np.arange(len(ranks))
        row = place[self.sources]
        mine = row >= 0
        full = np.zeros((len(ranks), self.n))
        full[row[mine], self.destinations[mine]] = self.values[mine]
        return full

    def scaled(self, factor: float) -> PairMatrix:
        """Every entry times ``factor`` > 0."""
        return PairMatrix(self.n, self.sources, self.destinations, self.values * factor)

    def relabelled(self, permutation: Ints) -> PairMatrix:
        """The same matrix after GPU u is renamed permutation[u].

        Raises:
            InputError: not a permutation of 0..n-1.
        """
        permutation = np.asarray(permutation)
        if not np.array_equal(np.sort(permutation), np.arange(self.n)):
            raise InputError("permutation", permutation.tolist(), f"each rank from 0 to {self.n - 1} once")
        return PairMatrix(self.n, permutation[self.sources], permutation[self.destinations], self.values)

    def shift_offset(self) -> int | None:
        """The o for which every u sends the same amount to u + o (mod n) and nothing else; None if there is none."""
        return self._shift_offset

    @cached_property
    def _shift_offset(self) -> int | None:
        if len(self) != self.n or not np.allclose(self.values, self.values[0], rtol=1e-12, atol=0):
            return None
        offsets = (self.destinations - self.sources) % self.n
        return int(offsets[0]) if (offsets == offsets[0]).all() and len(np.unique(self.sources)) == self.n else None


def _frozen(array: Floats) -> Floats:
    array.flags.writeable = False
    return array


def _entries(values: ArrayLike, count: int, field: str) -> Floats:
    """``values`` as ``count`` numbers; a single number stands for as many."""
    try:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (count,))
    except (TypeError, ValueError) as error:
        raise InputError(field, values, f"one number, or {count} numbers") from error


def _ranks(ranks: ArrayLike, n: int, field: str) -> Ints:
    try:
        array = np.asarray(ranks)
    except ValueError as error:
        raise InputError(field, ranks, "one list of whole ranks") from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(field, array.tolist(), "one list of whole ranks")
    whole = array.astype(np.int64)
    outside = whole[(whole < 0) | (whole >= n)]
    if len(outside):
        raise InputError(field, int(outside[0]), f"ranks 0 to {n - 1}")
    return whole


def _check_entries(rows: Ints, columns: Ints, values: Floats, field: str) -> None:
    if rows.shape != columns.shape:
        raise InputError(field, (len(rows), len(columns)), "as many sources as destinations")
    diagonal = rows[rows == columns]
    if len(diagonal):
        raise InputError(field, [int(diagonal[0])] * 2, "pairs of two different GPUs")
    bad = values[~(np.isfinite(values) & (values >= 0) & (values <= MAX_BYTES))]
    if len(bad):
        raise InputError(field, float(bad[0]), "finite values from 0 to 2**63-1")
