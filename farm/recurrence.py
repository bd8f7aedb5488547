"""The two recurrences, as pure functions: partitions over interval costs, and sequences over a table of candidates.

Both work on numbers alone. The number-of-reconfigurations curve, and with it every reconfiguration delay at which
the best schedule changes, does not depend on that delay (model section 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.matrix import Floats, Ints
from lumenfarm.schedule import EnvelopePiece
from lumenfarm.units import finite

__all__ = [
    "Constant",
    "KCurve",
    "Matrix",
    "PerPort",
    "TopologySequence",
    "Transition",
    "best",
    "cheapest_intervals",
    "cheapest_through",
    "envelope",
    "exposed_ns",
    "interval_costs",
    "partition",
    "pinned_costs",
    "recurrence_envelope",
    "sequence",
]

# Relative. Sums of step times in another order differ by less; such a difference must not buy a reconfiguration.
_ROUNDING = 1e-12

_Cuts: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class KCurve:
    """The cheapest partition for every number of reconfigurations k that can be worth having (model section 4).

    The curve ends at the first k whose cost no larger k undercuts.

    Attributes:
        communication_ns: for k = 0, 1, ...: cost of all steps with exactly k reconfigurations, without their delay;
            infinite where that is impossible.
        cuts: cuts[k - 1][first] is where the interval that begins at ``first`` stops when k reconfigurations are left.
        steps: number of steps, counting the initial topology, if there is one, as a step before the first.
        has_initial: whether there is an initial topology.
    """

    communication_ns: tuple[float, ...]
    cuts: tuple[_Cuts, ...]
    steps: int
    has_initial: bool

    def boundaries(self, k: int) -> tuple[tuple[int, int], ...]:
        """The intervals (first, stop) of the cheapest partition with k reconfigurations, in order.

        Raises:
            InputError: the curve has no finite entry at k.
        """
        marks = self._marks(k)
        if self.has_initial:
            marks = [0, *(mark - 1 for mark in marks[1:])]
        return tuple((first, stop) for first, stop in pairwise(marks) if first < stop)

    def stays_on_initial(self, k: int) -> bool:
        """Whether the first of `boundaries` is on the initial topology and not charged.

        Raises:
            InputError: the curve has no finite entry at k.
        """
        return self.has_initial and self._marks(k)[1] > 1

    def _marks(self, k: int) -> list[int]:
        if not 0 <= k < len(self.communication_ns) or math.isinf(self.communication_ns[k]):
            raise InputError("reconfigurations", k, "a number for which the curve is finite")
        marks = [0]
        for left in range(k, 0, -1):
            marks.append(int(self.cuts[left - 1][marks[-1]]))
        return [*marks, self.steps]


def partition(costs_ns: Floats, *, pinned_ns: Floats | None = None) -> KCurve:
    """The cheapest split of the steps into intervals, for every number of reconfigurations.

    With DP[a][k] the best cost of steps a.. with k reconfigurations,

        DP[a][0] = C(a, s)        DP[a][k] = min over a < b < s of C(a, b) + DP[b][k-1]

    An initial topology is a step before the first one that only it can carry: the first interval then either stays
    on it, or is charged like any change. Among equal partitions the one whose intervals stop earliest is taken.
    O(s^3) time at most, O(s^2) memory.

    Args:
        costs_ns: C, ns, shape (s, s+1): cost of the half-open interval [first, stop), infinite where impossible;
            entries with stop <= first are not read.
        pinned_ns: ns, shape (s+1,): cost of the steps before ``stop`` on the initial topology, see `pinned_costs`;
            None if the first topology is free.

    Raises:
        InputError: another shape, a cost that is negative or not a number.

    Model section 4.
    """
    table = _interval_table(costs_ns, pinned_ns)
    floor = _cheapest_partition(table)
    rest = table[:, -1]
    curve, cuts = [float(rest[0])], []
    while curve[-1] > floor * (1 + _ROUNDING) and len(rest) > 1:
        rest, stops = _one_more(table, rest)
        curve.append(float(rest[0]))
        cuts.append(stops)
    return KCurve(tuple(curve), tuple(cuts), len(table), pinned_ns is not None)


def pinned_costs(times_ns: Floats) -> Floats:
    """Cost of the steps before each stop on one topology, ns, shape (s+1,), from its step times, shape (s,)."""
    return np.concatenate(([0.0], np.cumsum(times_ns)))


def interval_costs(times_ns: Floats) -> tuple[Floats, Ints]:
    """The cheapest candidate of every interval: C(first, stop) = min over g of the sum of t_i(g).

    O(K s^2) time, O(K s + s^2) memory.

    Args:
        times_ns: ns, shape (K, s): time of each step on each candidate, infinite where it cannot be carried.

    Returns:
        Costs, ns, shape (s, s+1), infinite where no candidate can, and for stop <= first; and the index of the
        candidate, same shape, the first of equals, -1 where the cost is infinite.

    Raises:
        InputError: no candidate, no step, a time that is negative or not a number.

    Model sections 3 and 4.
    """
    _check_times(times_ns)
    steps = times_ns.shape[1]
    costs, choice = np.full((steps, steps + 1), np.inf), np.full((steps, steps + 1), -1)
    by_step = np.ascontiguousarray(times_ns.T)
    sums = np.zeros_like(by_step)
    for first in range(steps - 1, -1, -1):
        sums[first:] += by_step[first]
        cheapest = sums[first:].argmin(axis=1)
        costs[first, first + 1 :] = np.take_along_axis(sums[first:], cheapest[:, None], axis=1)[:, 0]
        choice[first, first + 1 :] = np.where(np.isfinite(costs[first, first + 1 :]), cheapest, -1)
    return costs, choice


def cheapest_through(costs_ns: Floats, alpha_r_ns: float) -> Floats:
    """The cheapest schedule that has a given interval as a segment, for every interval.

    before(a) + C(a, b) + after(b), where before and after are the cheapest splits of the steps on either side and the
    changes of topology between all segments are paid. O(s^2).

    Args:
        costs_ns: C, ns, shape (s, s+1), as for `partition`.
        alpha_r_ns: reconfiguration delay, ns.

    Returns:
        Ns, shape (s, s+1), infinite for stop <= first.
    """
    steps = len(costs_ns)
    table = np.where(np.tri(steps, steps + 1, dtype=bool), np.inf, costs_ns)
    before, after = np.zeros(steps + 1), np.zeros(steps + 1)
    for stop in range(1, steps + 1):
        before[stop] = (before[:stop] + table[:stop, stop]).min() + alpha_r_ns
    for first in range(steps - 1, -1, -1):
        after[first] = (table[first, first + 1 :] + after[first + 1 :]).min() + alpha_r_ns
    after[steps] = 0.0
    return before[:steps, None] + table + after[None, :]


def best(curve: KCurve, alpha_r_ns: float) -> int:
    """The k with the least communication + k*alpha_r; of those equal but for rounding, the smallest.

    Args:
        curve: from `partition`.
        alpha_r_ns: reconfiguration delay, ns, not negative.

    Raises:
        InputError: a delay that is negative or not finite.
        UnreachableError: the curve is infinite everywhere.
    """
    finite(alpha_r_ns, field="reconfig-delay")
    totals = np.array(curve.communication_ns) + alpha_r_ns * np.arange(len(curve.communication_ns))
    lowest = float(totals.min())
    if math.isinf(lowest):
        raise UnreachableError("costs", lowest, "a partition into intervals that some topology can carry")
    return _first_at_most(totals, lowest * (1 + _ROUNDING))


def cheapest_intervals(costs_ns: Floats, alpha_r_ns: float) -> tuple[tuple[int, int], ...]:
    """The intervals (first, stop) of the cheapest schedule, in order, see `partition` and `best`."""
    curve = partition(costs_ns)
    return curve.boundaries(best(curve, alpha_r_ns))


def envelope(curve: KCurve) -> tuple[EnvelopePiece, ...]:
    """The best number of reconfigurations at every reconfiguration delay.

    The lower envelope of the lines DP[k] + k*alpha_r over alpha_r >= 0, in the fewest pieces; where more than two
    lines meet, the one with fewest reconfigurations follows. Break-points are intersections of neighbouring lines.

    Raises:
        UnreachableError: the curve is infinite everywhere.

    Model section 4.
    """
    communication = np.array(curve.communication_ns)
    k, start, pieces = best(curve, 0.0), 0.0, []
    while np.isfinite(communication[:k]).any():
        crossings = (communication[:k] - communication[k]) / np.arange(k, 0, -1)
        nearest = float(crossings.min())
        fewer = _first_at_most(crossings, nearest + _ROUNDING * (nearest + float(communication[k])))
        stop = float(crossings[fewer])
        pieces.append(EnvelopePiece(start, stop, k, float(communication[k])))
        k, start = fewer, stop
    return (*pieces, EnvelopePiece(start, None, k, float(communication[k])))


class Transition(Protocol):
    """What moving from one candidate to another costs; staying always costs nothing."""

    @property
    def tau_ns(self) -> float | Floats:
        """Ns: one number for every move, or shape (K, K) from row to column; the diagonal is not read."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Every move costs tau_ns."""

    tau_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A move from h to g costs tau_ns[h, g]; infinite where it is impossible."""

    tau_ns: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PerPort:
    """A move costs base_ns + per_port_ns for each port that changes, and nothing if none does.

    Attributes:
        changed: changed ports, shape (K, K), from row to column.
    """

    base_ns: float
    per_port_ns: float
    changed: Ints

    @property
    def tau_ns(self) -> Floats:
        """Ns, shape (K, K)."""
        return np.where(self.changed > 0, self.base_ns + self.per_port_ns * self.changed, 0.0)


@dataclass(frozen=True, slots=True)
class TopologySequence:
    """A candidate for every step.

    Attributes:
        cost_ns: all steps and all exposed moves.
        candidates: index into the table, one a step.
    """

    cost_ns: float
    candidates: tuple[int, ...]


def exposed_ns(tau_ns: float | Floats, window_ns: float) -> Floats:
    """The part of a reconfiguration that nothing hides: max(0, tau - w), ns (model section 5)."""
    return np.maximum(0.0, np.subtract(tau_ns, window_ns))


def sequence(
    times_ns: Floats, transition: Transition, *, windows_ns: Sequence[float] | None = None, initial: int | None = None
) -> TopologySequence:
    """The cheapest sequence of candidates: steps on their candidates plus the exposed part of every move.

        W_s(g) = t_s(g)        W_i(g) = t_i(g) + min(W_{i+1}(g), min over h of max(0, tau(g,h) - w_i) + W_{i+1}(h))

    Of equal sequences it takes, from the first step on, the one that stays, else that with the lowest index.
    O(s K) if tau is one number, else O(s K^2).

    Args:
        times_ns: ns, shape (K, s): time of each step on each candidate, infinite where it cannot be carried.
        transition: what moves cost.
        windows_ns: w, ns, shape (s-1,): how much of a move after each step but the last is hidden; None for nothing.
        initial: candidate in place before the first step, moving off it is charged and nothing hides it; None if the
            first topology is free.

    Raises:
        InputError: a time or tau that is negative or not a number, a window that is negative or not finite, a shape
            that does not fit, an ``initial`` that is no candidate.
        UnreachableError: every sequence is infinite.

    Model section 5.
    """
    _check_times(times_ns)
    candidates, steps = times_ns.shape
    tau = _checked_tau(transition, candidates)
    windows = _checked_windows(windows_ns, steps)
    if initial is None:
        return _cheapest_sequence(times_ns, tau, windows)
    _check_initial(initial, candidates)
    only_initial = np.where(np.arange(candidates) == initial, 0.0, np.inf)
    found = _cheapest_sequence(np.column_stack((only_initial, times_ns)), tau, (0.0, *windows))
    return TopologySequence(found.cost_ns, found.candidates[1:])


def recurrence_envelope(times_ns: Floats, *, initial: int | None = None) -> tuple[EnvelopePiece, ...]:
    """Every break-point of `sequence` over one tau for all moves: the envelope of the number-of-changes curve.

    Only without windows: what a move exposes then grows linearly with tau.

    Args:
        times_ns: ns, shape (K, s), as for `sequence`.
        initial: as for `sequence`.

    Raises:
        InputError: no candidate, no step, a time that is negative or not a number, an ``initial`` that is no candidate.
        UnreachableError: some step is infinite on every candidate.

    Model sections 4 and 5.
    """
    costs, _ = interval_costs(times_ns)
    if initial is None:
        return envelope(partition(costs))
    _check_initial(initial, len(times_ns))
    return envelope(partition(costs, pinned_ns=pinned_costs(times_ns[initial])))


def _interval_table(costs_ns: Floats, pinned_ns: Floats | None) -> Floats:
    steps = len(costs_ns)
    if steps < 1 or costs_ns.shape != (steps, steps + 1):
        raise InputError("costs", costs_ns.shape, "a table of s rows and s+1 columns")
    table = np.where(np.tri(steps, steps + 1, dtype=bool), np.inf, costs_ns)
    if pinned_ns is not None:
        if pinned_ns.shape != (steps + 1,):
            raise InputError("pinned", pinned_ns.shape, f"{steps + 1} costs, one a stop")
        table = np.vstack((pinned_ns, table))
        table = np.column_stack((np.full(steps + 1, np.inf), table))
    return _not_negative(table, "costs")


def _cheapest_partition(table: Floats) -> float:
    rest = np.zeros(len(table) + 1)
    for first in range(len(table) - 1, -1, -1):
        rest[first] = (table[first, first + 1 :] + rest[first + 1 :]).min()
    return float(rest[0])


def _one_more(table: Floats, rest: Floats) -> tuple[Floats, _Cuts]:
    rows = len(rest) - 1
    totals = table[:rows, 1 : rows + 1] + rest[1:]
    cuts = totals.argmin(axis=1)
    return totals[np.arange(rows), cuts], (cuts + 1).astype(np.int32)


def _first_at_most(values: Floats, limit: float) -> int:
    return int(np.argmax(values <= limit))


def _cheapest_sequence(times_ns: Floats, tau_ns: Floats, windows_ns: Sequence[float]) -> TopologySequence:
    rest = times_ns[:, -1]
    here = np.arange(len(times_ns))
    followers = []
    for step in range(len(windows_ns) - 1, -1, -1):
        moves = exposed_ns(tau_ns, windows_ns[step]) + rest
        stay = rest <= moves.min(axis=-1)
        followers.append(np.where(stay, here, moves.argmin(axis=-1)))
        rest = times_ns[:, step] + np.where(stay, rest, moves.min(axis=-1))
    path = [int(rest.argmin())]
    if math.isinf(rest[path[0]]):
        raise UnreachableError("times", math.inf, "a sequence of candidates that carries every step")
    for follower in reversed(followers):
        path.append(int(follower[path[-1]]))
    return TopologySequence(float(rest[path[0]]), tuple(path))


def _check_times(times_ns: Floats) -> None:
    if times_ns.ndim != 2 or 0 in times_ns.shape:
        raise InputError("times", times_ns.shape, "a table of at least one candidate and one step")
    _not_negative(times_ns, "times")


def _check_initial(initial: int, candidates: int) -> None:
    if not 0 <= initial < candidates:
        raise InputError("initial", initial, f"a candidate from 0 to {candidates - 1}")


def _checked_tau(transition: Transition, candidates: int) -> Floats:
    tau = np.asarray(transition.tau_ns, dtype=np.float64)
    if tau.shape not in ((), (candidates, candidates)):
        raise InputError("tau", tau.shape, f"one number or {candidates} rows and columns")
    return _not_negative(tau, "tau")


def _checked_windows(windows_ns: Sequence[float] | None, steps: int) -> tuple[float, ...]:
    if windows_ns is None:
        return (0.0,) * (steps - 1)
    if len(windows_ns) != steps - 1:
        raise InputError("windows", len(windows_ns), f"{steps - 1} windows, one between any two steps")
    return tuple(finite(window, field="windows") for window in windows_ns)


def _not_negative(values: Floats, field: str) -> Floats:
    bad = values[~(values >= 0)]
    if len(bad):
        raise InputError(field, float(bad[0]), "numbers that are not negative")
    return values
