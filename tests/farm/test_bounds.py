"""Interval bounds beside the best of all topologies, by enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import generate
from lumenfarm.bounds import hop_volume_bound, interval_bound, node_bound, shift_bounds_ns
from lumenfarm.groups import quotients, recognised
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step, Topology
from lumenfarm.port_bound import port_bound
from lumenfarm.problem import Workload
from lumenfarm.tasks.concurrent_flow import theta_row


def all_topologies(n, degree):
    """Every union of ``degree`` perfect matchings without fixed points, and of maximal partial ones."""
    matchings = [p for p in itertools.product(range(n), repeat=n) if len(set(p)) == n]
    partial = {tuple((u, v) for u, v in enumerate(p) if u != v) for p in matchings}
    maximal = [m for m in partial if not any(set(m) < set(other) for other in partial)]
    for chosen in itertools.combinations_with_replacement(maximal, degree):
        arcs = [(u, v, 1) for matching in chosen for u, v in matching]
        yield Topology.from_arcs(n, arcs)


def best_by_enumeration(problem, n, degree):
    best = np.inf
    for topology in all_topologies(n, degree):
        theta = np.array(theta_row(topology, problem.patterns, (n,)).theta)
        if (theta > 0).all():
            best = min(best, float((np.array(problem.weights) / theta).sum()))
    return best


def interval_of(n, degree, demands, link=800.0, delta=0.0):
    steps = tuple(Step(demand) for demand in demands)
    fabric = Fabric(degree, link, 0.0, delta, 0.0)
    return Workload.of(Collective("test", steps, (n,)), fabric).interval(0, len(steps))


@st.composite
def demands(draw, n=4):
    pairs = list(itertools.permutations(range(n), 2))
    steps = draw(st.integers(1, 3))
    values = st.lists(st.sampled_from([0, 0, 0, 1, 3, 8]), min_size=len(pairs), max_size=len(pairs)).filter(any)
    sources, destinations = zip(*pairs, strict=True)
    return [PairMatrix(n, sources, destinations, draw(values)) for _ in range(steps)]


@given(demands(), st.sampled_from([1, 2]))
@settings(max_examples=25)
def test_never_above_the_best_topology(steps, degree):
    problem = interval_of(4, degree, steps)
    bound = interval_bound(problem)
    assert bound.value <= best_by_enumeration(problem, 4, degree) * (1 + 1e-9)


@given(
    st.just(4),
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1.0, 2.0, 8.0])), min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=20)
def test_port_bound_is_never_above_the_best_topology(n, shifts, together):
    """Shifts one a step, or all in one step: every GPU has the same partners up to names."""
    matrices = [PairMatrix.shift(n, offset % n or 1, amount) for offset, amount in shifts]
    if together:
        matrices = [PairMatrix.from_dense(sum(matrix.dense() for matrix in matrices))]
    problem = interval_of(n, 2, matrices)
    assert port_bound(problem) <= best_by_enumeration(problem, n, 2) * (1 + 1e-9)


def types_of(matrices, n, most):
    group = recognised(matrices, (n,))
    return list(quotients(group, most))


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1.0, 2.0, 8.0])), min_size=1, max_size=3), st.booleans())
@settings(max_examples=20)
def test_typed_port_bound_is_never_above_the_best_topology(shifts, exchange):
    """Shifts or exchanges on 4 GPUs, whose groups have quotients of 2 and 4 types."""
    ranks = np.arange(4)
    matrices = [
        PairMatrix.from_permutation(ranks ^ offset if exchange else (ranks + offset) % 4, amount)
        for offset, amount in shifts
    ]
    problem = interval_of(4, 2, matrices)
    best = best_by_enumeration(problem, 4, 2)
    found = types_of(matrices, 4, 4)
    assert {len(quotient.product) for quotient in found} == {1, 2, 4}
    for quotient in found:
        assert port_bound(problem, quotient) <= best * (1 + 1e-9)


@pytest.mark.parametrize("name", ["all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange"])
@pytest.mark.parametrize("delta_ns", [0.0, 1e3, 1e6])
def test_more_types_never_weaken_the_port_bound(name, delta_ns):
    steps = generate(name, gpus=16, message_bytes=2**20, ports=2)
    workload = Workload.of(steps, Fabric(2, 800.0, 0.0, delta_ns, 0.0))
    found = types_of([pattern.multiplicities for pattern in workload.patterns], 16, 8)
    for problem in workload.intervals.problems:
        plain = port_bound(problem)
        for quotient in found:
            assert port_bound(problem, quotient) >= plain * (1 - 1e-7)


# Least sums of w_i/theta_i over all 74,534,040 topologies of 8 GPUs with two ports, from benchmarks/exact_small.py.
EXACT = [
    ("all-reduce-swing", (0, 2), (1, 1), 3.6),
    ("all-reduce-swing", (1, 3), (1, 1), 10 / 3),
    ("all-reduce-swing", (0, 3), (1, 1, 1), 5.6),
    ("all-reduce-swing", (0, 3), (1, 0.5, 0.25), 3.1),
    ("all-reduce-rd", (0, 3), (1, 1, 1), 17 / 3),
    ("all-reduce-rd", (0, 3), (1, 0.5, 0.5), 11 / 3),
]


@pytest.mark.parametrize(("name", "interval", "weights", "exact"), EXACT)
def test_typed_port_bound_is_below_the_exact_optimum_of_8_gpus(name, interval, weights, exact):
    steps = generate(name, gpus=8, message_bytes=2**20, ports=2).steps[slice(*interval)]
    demands = [
        step.demand.scaled(weight / step.demand.largest_sum) for step, weight in zip(steps, weights, strict=True)
    ]
    problem = interval_of(8, 2, demands)
    for quotient in types_of(demands, 8, 8):
        assert port_bound(problem, quotient) <= exact * (1 + 1e-9)


def test_swing_partners_are_never_an_even_number_of_partner_circuits_away():
    """Equal weights: 2 partners at one hop and 4 at two, 10 in all; parity leaves that to half of the GPUs at most, if
    the others have 4 at two and 2 at three, 14 in all.
    """
    steps = generate("reduce-scatter-swing", gpus=64, message_bytes=2**20, ports=2)
    workload = Workload.of(steps, Fabric(2, 800.0, 0.0, 1e9, 0.0))
    problem = workload.interval(0, len(workload))
    quotient = next(q for q in types_of([p.multiplicities for p in problem.patterns], 64, 2) if q.type_of[1] == 1)
    assert port_bound(problem) == pytest.approx(10, rel=1e-3)
    assert port_bound(problem, quotient) == pytest.approx(12, rel=1e-3)
    assert interval_bound(problem, [quotient]).value == pytest.approx(12, rel=1e-3)


def test_port_bound_of_two_partners():
    """One circuit to each of two partners: half goes straight and half takes two hops, 2T >= 4 - T, for both."""
    problem = interval_of(8, 2, [PairMatrix.shift(8, offset, 1.0) for offset in (1, 2)])
    assert port_bound(problem) == pytest.approx(2 * 4 / 3, rel=1e-6)
    assert hop_volume_bound(problem).value == pytest.approx(2.0)
    assert interval_bound(problem).proof == "port-volume"


def test_port_bound_of_one_partner_is_the_full_rate():
    assert port_bound(interval_of(8, 2, [PairMatrix.shift(8, 3, 1.0)])) == pytest.approx(1.0, rel=1e-6)


def test_port_bound_says_nothing_about_unlike_gpus():
    assert port_bound(interval_of(4, 2, [PairMatrix(4, [0, 1], [1, 2], 1.0)])) == 0.0


@given(
    st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=6, max_size=6),
    st.permutations(range(8)),
)
@settings(max_examples=20)
def test_port_bound_does_not_know_names(weights, permutation):
    plain = [PairMatrix.shift(8, 1 + index, weight) for index, weight in enumerate(weights[:3])]
    renamed = [matrix.relabelled(np.array(permutation)) for matrix in plain]
    assert port_bound(interval_of(8, 2, renamed)) == pytest.approx(port_bound(interval_of(8, 2, plain)), rel=1e-6)


def test_port_bound_holds_for_good_topologies_of_64_gpus():
    """Circulants of two displacements, against the bound of all six recursive doubling steps."""
    demands = [PairMatrix.shift(64, 1 << i, 2.0**-i) for i in range(6)]
    problem = interval_of(64, 2, demands)
    bound = port_bound(problem)
    assert bound > interval_of(64, 2, demands).weights[0] * 1.5
    for a, b in ((1, 2), (1, 8), (2, 16), (1, 63), (4, 32)):
        theta = np.array(theta_row(Topology.circulant(64, {a: 1, b: 1}), problem.patterns, (64,)).theta)
        with np.errstate(divide="ignore"):
            assert bound <= (np.array(problem.weights) / theta).sum()


def test_recursive_doubling_on_one_port():
    """Weights 1, 1/2, 1/4 and three partners at 1, 2 and 3 hops: 1 + 2/2 + 3/4."""
    problem = interval_of(8, 1, [PairMatrix.shift(8, 1 << i, 8.0 / 2**i) for i in range(3)])
    assert hop_volume_bound(problem).value == pytest.approx(2.75)
    assert node_bound(problem).value == pytest.approx(1.75)
    assert interval_bound(problem).proof == "hop-volume"


def test_hops_of_many_partners():
    """All pairs of 8 GPUs with 2 ports: 2 partners at 1 hop, 4 at 2, the last at 3."""
    problem = interval_of(8, 2, [PairMatrix.from_dense(np.ones((8, 8)) - np.eye(8))])
    assert hop_volume_bound(problem).value == pytest.approx((2 * 1 + 4 * 2 + 3) / 7)


def test_one_busy_receiver_counts_from_its_side():
    """Everyone sends to GPU 0: at degree 1 the k-th sender is k hops away, though each sends to one only."""
    n = 6
    problem = interval_of(n, 1, [PairMatrix(n, range(1, n), [0] * (n - 1), 1.0)])
    assert hop_volume_bound(problem).value == pytest.approx(sum(range(1, n)) / (n - 1) / n)
    assert interval_bound(problem).value == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(1, 7), st.sampled_from([1.0, 2.0, 8.0])), min_size=1, max_size=7))
def test_all_shift_bounds_at_once_equal_one_by_one(shifts):
    steps = tuple(Step(PairMatrix.shift(8, offset, amount * 1e4)) for offset, amount in shifts)
    workload = Workload.of(Collective("shifts", steps, (8,)), Fabric(1, 800.0, 0.0, 300.0, 0.0))
    at_once = shift_bounds_ns(workload.weights_ns, workload.pattern_of_step)
    for first, stop in itertools.combinations(range(len(steps) + 1), 2):
        problem = workload.interval(first, stop)
        one = problem.scale_ns * hop_volume_bound(problem).value
        assert at_once[first, stop] == pytest.approx(one)
    assert np.isinf(at_once[np.tri(*at_once.shape, dtype=bool)]).all()
