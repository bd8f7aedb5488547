"""Every recurrence against the enumeration of all that it chooses from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.errors import UnreachableError
from lumenfarm.matrix import Floats
from lumenfarm.recurrence import (
    Constant,
    Matrix,
    PerPort,
    Transition,
    best,
    envelope,
    interval_costs,
    partition,
    pinned_costs,
    recurrence_envelope,
    sequence,
)
from lumenfarm.schedule import EnvelopePiece

Moves = list[list[float]]
Recurrence = tuple[Floats, tuple[Transition, Moves], list[float] | None, int | None]

whole = st.integers(0, 40).map(float)
whole_or_infinite = st.one_of(whole, whole, whole, st.just(math.inf))
real = st.floats(0.01, 1e6)


def tables(
    numbers: st.SearchStrategy[float], rows: st.SearchStrategy[int], columns: st.SearchStrategy[int]
) -> st.SearchStrategy[Floats]:
    def of_shape(shape: tuple[int, int]) -> st.SearchStrategy[Floats]:
        row = st.lists(numbers, min_size=shape[1], max_size=shape[1])
        return st.lists(row, min_size=shape[0], max_size=shape[0]).map(np.array)

    return st.tuples(rows, columns).flatmap(of_shape)


@st.composite
def interval_tables(draw: st.DrawFn, numbers: st.SearchStrategy[float]) -> tuple[Floats, Floats | None]:
    steps = draw(st.integers(1, 7))
    costs = draw(tables(numbers, st.just(steps), st.just(steps + 1)))
    stays = st.lists(numbers, min_size=steps, max_size=steps).map(lambda stay: np.array([0.0, *stay]))
    return costs, draw(st.none() | stays)


def all_partitions(costs: Floats, pinned: Floats | None) -> Iterator[tuple[int, float]]:
    """(charged reconfigurations, cost) of every way to cut the steps, the initial topology kept or left."""
    steps = len(costs)
    for size in range(steps):
        for cuts in combinations(range(1, steps), size):
            intervals = list(pairwise((0, *cuts, steps)))
            free = sum(costs[first, stop] for first, stop in intervals)
            if pinned is None:
                yield size, free
            else:
                yield size + 1, free
                yield size, pinned[intervals[0][1]] + sum(costs[first, stop] for first, stop in intervals[1:])


def brute_curve(costs: Floats, pinned: Floats | None) -> list[float]:
    curve = [math.inf] * (len(costs) + 1)
    for k, cost in all_partitions(costs, pinned):
        curve[k] = min(curve[k], cost)
    return curve


@given(interval_tables(whole_or_infinite))
def test_the_curve_is_the_best_of_all_partitions(table: tuple[Floats, Floats | None]) -> None:
    costs, pinned = table
    expected = brute_curve(costs, pinned)
    curve = partition(costs, pinned_ns=pinned)
    reached = len(curve.communication_ns)
    assert list(curve.communication_ns) == expected[:reached]
    assert min(expected) == curve.communication_ns[-1]


@given(interval_tables(whole_or_infinite))
def test_the_boundaries_cost_what_the_curve_says(table: tuple[Floats, Floats | None]) -> None:
    costs, pinned = table
    curve = partition(costs, pinned_ns=pinned)
    for k, cost in enumerate(curve.communication_ns):
        if math.isfinite(cost):
            intervals = curve.boundaries(k)
            stays = curve.stays_on_initial(k)
            assert [first for first, _ in intervals] == [0, *(stop for _, stop in intervals[:-1])]
            assert intervals[-1][1] == len(costs)
            assert len(intervals) - 1 + (pinned is not None and not stays) == k
            parts = [costs[interval] for interval in intervals]
            if pinned is not None and stays:
                parts[0] = pinned[intervals[0][1]]
            assert sum(parts) == cost


@given(interval_tables(st.one_of(real, real, st.just(math.inf))), st.integers(0, 2**32 - 1))
def test_the_envelope_is_the_best_partition_at_two_hundred_delays(
    table: tuple[Floats, Floats | None], seed: int
) -> None:
    costs, pinned = table
    expected = np.array(brute_curve(costs, pinned))
    curve = partition(costs, pinned_ns=pinned)
    if np.isinf(expected).all():
        with pytest.raises(UnreachableError):
            envelope(curve)
        return
    pieces = envelope(curve)
    check_pieces(pieces)
    for alpha_r_ns in np.random.default_rng(seed).exponential(3e5, 200):
        lowest = (expected + alpha_r_ns * np.arange(len(expected))).min()
        k = best(curve, float(alpha_r_ns))
        assert curve.communication_ns[k] + k * alpha_r_ns == pytest.approx(lowest, rel=1e-9)
        assert at(pieces, alpha_r_ns) == pytest.approx(lowest, rel=1e-9)


def check_pieces(pieces: Sequence[EnvelopePiece]) -> None:
    assert pieces[0].alpha_r_from_ns == 0.0
    assert pieces[-1].alpha_r_to_ns is None
    for left, right in pairwise(pieces):
        assert left.alpha_r_to_ns == right.alpha_r_from_ns
        assert left.alpha_r_from_ns < right.alpha_r_from_ns
        assert left.reconfigurations > right.reconfigurations


def at(pieces: Sequence[EnvelopePiece], alpha_r_ns: float) -> float:
    (piece,) = [piece for piece in pieces if piece.alpha_r_from_ns <= alpha_r_ns < (piece.alpha_r_to_ns or math.inf)]
    return piece.communication_ns + piece.reconfigurations * alpha_r_ns


@given(tables(whole_or_infinite, st.integers(1, 4), st.integers(1, 6)))
def test_interval_costs_are_the_least_sums(times: Floats) -> None:
    costs, choice = interval_costs(times)
    for first, stop in product(range(times.shape[1]), range(times.shape[1] + 1)):
        sums = [sum(row[first:stop]) if first < stop else math.inf for row in times.tolist()]
        assert costs[first, stop] == min(sums)
        assert choice[first, stop] == (sums.index(min(sums)) if min(sums) < math.inf else -1)


@st.composite
def transitions(draw: st.DrawFn, candidates: int) -> tuple[Transition, Moves]:
    """A transition, and what each move costs worked out on its own."""
    square = tables(whole, st.just(candidates), st.just(candidates))
    match draw(st.sampled_from(["constant", "per port", "matrix"])):
        case "constant":
            tau = draw(whole)
            return Constant(tau), [[tau] * candidates] * candidates
        case "per port":
            base, each = draw(whole), draw(whole)
            changed = draw(square).astype(np.int64)
            costs = [[base + each * ports if ports else 0.0 for ports in row] for row in changed.tolist()]
            return PerPort(base, each, changed), costs
        case _:
            moves = draw(tables(whole_or_infinite, st.just(candidates), st.just(candidates)))
            return Matrix(moves), moves.tolist()


@st.composite
def recurrences(draw: st.DrawFn) -> Recurrence:
    times = draw(tables(whole_or_infinite, st.integers(1, 4), st.integers(1, 5)))
    candidates, steps = times.shape
    windows = draw(st.none() | st.lists(whole, min_size=steps - 1, max_size=steps - 1))
    initial = draw(st.none() | st.integers(0, candidates - 1))
    return times, draw(transitions(candidates)), windows, initial


def price(
    path: Sequence[int],
    times: Floats,
    moves: Moves,
    windows: list[float] | None,
    initial: int | None,
) -> float:
    cost = float(sum(times[candidate, step] for step, candidate in enumerate(path)))
    if initial is not None and path[0] != initial:
        cost += moves[initial][path[0]]
    for boundary, (old, new) in enumerate(pairwise(path)):
        hidden = windows[boundary] if windows is not None else 0.0
        if old != new:
            cost += max(0.0, moves[old][new] - hidden)
    return cost


@given(recurrences())
@settings(max_examples=200)
def test_the_sequence_is_the_best_of_all_sequences(recurrence: Recurrence) -> None:
    times, (transition, moves), windows, initial = recurrence
    paths = product(range(times.shape[0]), repeat=times.shape[1])
    lowest = min(price(path, times, moves, windows, initial) for path in paths)
    if math.isinf(lowest):
        with pytest.raises(UnreachableError):
            sequence(times, transition, windows_ns=windows, initial=initial)
        return
    found = sequence(times, transition, windows_ns=windows, initial=initial)
    assert found.cost_ns == lowest
    assert price(found.candidates, times, moves, windows, initial) == lowest


@given(tables(whole, st.integers(1, 4), st.integers(1, 5)), st.booleans(), st.lists(real, min_size=10, max_size=10))
def test_the_envelope_of_a_table_is_its_recurrence_at_every_tau(
    times: Floats, starts_on_first: bool, taus: list[float]
) -> None:
    initial = 0 if starts_on_first else None
    pieces = recurrence_envelope(times, initial=initial)
    check_pieces(pieces)
    paths = list(product(range(times.shape[0]), repeat=times.shape[1]))
    for tau in [0.0, *(tau / 1e4 for tau in taus)]:
        moves = [[tau] * len(times)] * len(times)
        lowest = min(price(path, times, moves, None, initial) for path in paths)
        assert at(pieces, tau) == pytest.approx(lowest, rel=1e-12)
        assert sequence(times, Constant(tau), initial=initial).cost_ns == pytest.approx(lowest, rel=1e-12)


@given(tables(whole_or_infinite, st.integers(1, 4), st.integers(1, 6)), st.randoms())
def test_the_order_of_the_candidates_changes_no_cost(times: Floats, random: Random) -> None:
    order = list(range(len(times)))
    random.shuffle(order)
    here, there = (partition(interval_costs(table)[0]) for table in (times, times[order]))
    assert here.communication_ns == there.communication_ns


def test_pinned_costs_begin_with_nothing() -> None:
    assert pinned_costs(np.array([1.0, 2.0])).tolist() == [0.0, 1.0, 3.0]
