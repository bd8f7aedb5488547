"""Recurrences on cases small enough to be worked out by hand or by plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.matrix import Floats
from lumenfarm.recurrence import (
    Constant,
    Matrix,
    PerPort,
    best,
    envelope,
    interval_costs,
    partition,
    pinned_costs,
    recurrence_envelope,
    sequence,
)
from lumenfarm.schedule import EnvelopePiece

INF = math.inf

# The example of model section 5, microseconds: rows are topologies A to D, columns are steps.
SIX_STEPS = np.array(
    [
        [14, 14, 20, 20, 14, 14],
        [10, 10, 12, 12, 22, 22],
        [22, 22, 12, 12, 10, 10],
        [22, 22, 10, 10, 22, 22],
    ],
    dtype=np.float64,
)


@pytest.mark.parametrize(("tau", "cost", "topologies"), [(1, 62, "BBDDCC"), (10, 74, "BBBBCC"), (30, 88, "BBBBBB")])
def test_the_six_step_table(tau: float, cost: float, topologies: str) -> None:
    found = sequence(SIX_STEPS, Constant(tau))
    assert found.cost_ns == cost
    assert "".join("ABCD"[candidate] for candidate in found.candidates) == topologies


def test_the_break_points_of_the_six_step_table_are_exact() -> None:
    assert recurrence_envelope(SIX_STEPS) == (
        EnvelopePiece(0.0, 4.0, 2, 60.0),
        EnvelopePiece(4.0, 24.0, 1, 64.0),
        EnvelopePiece(24.0, None, 0, 88.0),
    )


def test_the_curve_of_the_six_step_table() -> None:
    costs, choice = interval_costs(SIX_STEPS)
    curve = partition(costs)
    assert curve.communication_ns == (88.0, 64.0, 60.0)
    assert curve.boundaries(2) == ((0, 2), (2, 4), (4, 6))
    assert [int(choice[interval]) for interval in curve.boundaries(2)] == [1, 3, 2]


def test_moving_off_an_initial_candidate_is_charged() -> None:
    assert recurrence_envelope(SIX_STEPS, initial=0)[-1] == EnvelopePiece(24.0, None, 0, 96.0)
    assert sequence(SIX_STEPS, Constant(30), initial=0).candidates == (0,) * 6
    assert sequence(SIX_STEPS, Constant(3), initial=0).cost_ns == 60 + 3 * 3


def test_interval_costs_are_sums_and_never_nan() -> None:
    times = np.array([[1.0, INF, 4.0], [2.0, 3.0, INF], [INF, 3.0, INF]])
    costs, choice = interval_costs(times)
    assert costs.tolist() == [[INF, 1, 5, INF], [INF, INF, 3, INF], [INF, INF, INF, 4]]
    assert choice.tolist() == [[-1, 0, 1, -1], [-1, -1, 1, -1], [-1, -1, -1, 0]]


def test_the_first_interval_may_stay_on_the_initial_topology() -> None:
    costs, _ = interval_costs(np.array([[5.0, 1.0, 1.0], [9.0, 9.0, 1.0]]))
    curve = partition(costs, pinned_ns=pinned_costs(np.array([2.0, 7.0, INF])))
    assert curve.communication_ns == (INF, 4.0)
    assert curve.boundaries(1) == ((0, 1), (1, 3))
    assert curve.stays_on_initial(1)


def test_the_first_interval_may_leave_the_initial_topology_at_once() -> None:
    costs, _ = interval_costs(np.array([[1.0, 1.0]]))
    curve = partition(costs, pinned_ns=pinned_costs(np.array([2.0, 2.0])))
    assert curve.communication_ns == (4.0, 2.0)
    assert curve.boundaries(0) == ((0, 2),)
    assert curve.stays_on_initial(0)
    assert curve.boundaries(1) == ((0, 2),)
    assert not curve.stays_on_initial(1)


def test_a_reconfiguration_for_every_step_can_leave_an_initial_topology_too() -> None:
    costs, choice = interval_costs(np.where(np.eye(3, dtype=bool), 1.0, INF))
    curve = partition(costs, pinned_ns=np.array([0.0, INF, INF, INF]))
    assert curve.communication_ns == (INF, INF, INF, 3.0)
    assert [int(choice[interval]) for interval in curve.boundaries(3)] == [0, 1, 2]


def test_without_an_initial_topology_nothing_stays_on_it() -> None:
    assert not partition(np.array([[INF, 1.0]])).stays_on_initial(0)


def test_rounding_buys_no_reconfiguration() -> None:
    times = np.array([[0.1, 0.2, 0.3, 0.7, 0.1, 1e-3] * 5])
    curve = partition(interval_costs(times)[0])
    assert best(curve, 0.0) == 0
    assert len(envelope(curve)) == 1


def test_equal_partitions_stop_their_intervals_early() -> None:
    curve = partition(interval_costs(SIX_STEPS)[0])
    assert curve.boundaries(1) == ((0, 2), (2, 6))


def test_lines_through_one_point_give_two_pieces() -> None:
    curve = partition(np.array([[INF, 2, 12, 28], [INF, INF, 2, 18], [INF, INF, INF, 8.0]]))
    assert curve.communication_ns == (28.0, 20.0, 12.0)
    assert envelope(curve) == (EnvelopePiece(0.0, 8.0, 2, 12.0), EnvelopePiece(8.0, None, 0, 28.0))
    assert best(curve, 8.0) == 0


def test_a_thousand_steps() -> None:
    generator = np.random.default_rng(1)
    times = generator.integers(1, 1000, (50, 1023)).astype(np.float64)
    curve = partition(interval_costs(times)[0])
    assert curve.communication_ns[-1] == times.min(axis=0).sum()
    for alpha_r_ns in (0.0, 50.0, 1e4):
        k = best(curve, alpha_r_ns)
        expected = sequence(times, Constant(alpha_r_ns)).cost_ns
        assert curve.communication_ns[k] + k * alpha_r_ns == expected


def test_equal_sequences_stay_and_then_take_the_lowest_index() -> None:
    times = np.array([[1.0, 3.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 3.0]])
    assert sequence(times, Constant(0.0)).candidates == (0, 1, 1)
    assert sequence(times, Matrix(np.zeros((3, 3)))).candidates == (0, 1, 1)


def test_a_hidden_move_is_free_but_no_more_than_free() -> None:
    times = np.array([[1.0, 5.0, 5.0], [5.0, 1.0, 5.0], [5.0, 5.0, 1.0]])
    assert sequence(times, Constant(3.0), windows_ns=(10.0, 1.0)).cost_ns == 3 + 2
    assert sequence(times, Constant(3.0), windows_ns=(10.0, 1.0), initial=1).cost_ns == 3 + 3 + 2


def test_a_move_that_changes_no_port_is_free() -> None:
    times = np.array([[1.0, 5.0], [5.0, 1.0]])
    changed = np.array([[0, 0], [2, 0]])
    assert sequence(times, PerPort(10.0, 1.0, changed)).cost_ns == 2.0
    assert sequence(times[::-1], PerPort(1.0, 0.5, changed)).cost_ns == 2 + 1 + 2 * 0.5


def test_an_impossible_move_is_not_made() -> None:
    times = np.array([[1.0, INF], [INF, 1.0]])
    assert sequence(times, Constant(3.0)).cost_ns == 5.0
    with pytest.raises(UnreachableError):
        sequence(times, Matrix(np.array([[0.0, INF], [1.0, 0.0]])))


def test_nothing_is_best_when_nothing_is_possible() -> None:
    curve = partition(np.full((3, 4), INF))
    assert set(curve.communication_ns) == {INF}
    with pytest.raises(UnreachableError):
        best(curve, 1.0)
    with pytest.raises(UnreachableError):
        envelope(curve)


@pytest.mark.parametrize("k", [-1, 1, 7])
def test_no_boundaries_where_the_curve_has_no_entry(k: int) -> None:
    with pytest.raises(InputError, match="reconfigurations"):
        partition(np.array([[INF, 1.0]])).boundaries(k)


@pytest.mark.parametrize(
    "times", [np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3), np.array([[-1.0]]), np.array([[math.nan]])]
)
def test_unusable_times_are_refused(times: Floats) -> None:
    with pytest.raises(InputError, match="times"):
        interval_costs(times)
    with pytest.raises(InputError, match="times"):
        sequence(times, Constant(1.0))


@pytest.mark.parametrize("costs", [np.zeros((0, 1)), np.zeros((2, 2)), np.full((1, 2), math.nan), np.full((1, 2), -1)])
def test_unusable_costs_are_refused(costs: Floats) -> None:
    with pytest.raises(InputError, match="costs"):
        partition(costs)


def test_the_cost_of_an_empty_interval_is_not_read() -> None:
    assert partition(np.array([[math.nan, 1.0, 3.0], [-5.0, 0.0, 1.0]])).communication_ns == (3.0, 2.0)


def test_pinned_costs_need_one_entry_a_stop() -> None:
    with pytest.raises(InputError, match="pinned"):
        partition(np.array([[INF, 1.0]]), pinned_ns=np.zeros(1))


@pytest.mark.parametrize("alpha_r_ns", [-1.0, math.nan, INF])
def test_an_unusable_delay_is_refused(alpha_r_ns: float) -> None:
    with pytest.raises(InputError, match="reconfig-delay"):
        best(partition(np.array([[INF, 1.0]])), alpha_r_ns)


@pytest.mark.parametrize("tau", [np.zeros(4), np.zeros((3, 3)), np.full((4, 4), -1.0), np.full((4, 4), math.nan)])
def test_an_unusable_tau_is_refused(tau: Floats) -> None:
    with pytest.raises(InputError, match="tau"):
        sequence(SIX_STEPS, Matrix(tau))


@pytest.mark.parametrize("windows", [(1.0,) * 6, (-1.0,) * 5, (INF,) * 5])
def test_unusable_windows_are_refused(windows: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="windows"):
        sequence(SIX_STEPS, Constant(1.0), windows_ns=windows)


@pytest.mark.parametrize("initial", [-1, 4])
def test_an_initial_that_is_no_candidate_is_refused(initial: int) -> None:
    with pytest.raises(InputError, match="initial"):
        sequence(SIX_STEPS, Constant(1.0), initial=initial)
    with pytest.raises(InputError, match="initial"):
        recurrence_envelope(SIX_STEPS, initial=initial)
