"""Interval bounds beside the best of all topologies, by enumeration."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.bounds import hop_volume_bound, interval_bound, node_bound
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step, Topology
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
@settings(max_examples=25, deadline=None)
def test_never_above_the_best_topology(steps, degree):
    problem = interval_of(4, degree, steps)
    bound = interval_bound(problem)
    assert bound.value <= best_by_enumeration(problem, 4, degree) * (1 + 1e-9)


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
