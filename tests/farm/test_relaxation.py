"""What potentials prove, beside the best of all topologies by enumeration and values worked out by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import collectives
from lumenfarm.errors import InputError
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Fabric, Pattern, Topology
from lumenfarm.problem import IntervalProblem, Workload
from lumenfarm.relaxation import safe_value
from lumenfarm.tasks.concurrent_flow import theta_row

# GPUs and degree, small enough to list every topology.
SIZES = [(5, 1), (4, 2)]


def all_topologies(n, degree):
    """Every union of ``degree`` matchings without fixed points to which no circuit can be added."""
    partial = {
        tuple((u, v) for u, v in enumerate(p) if u != v)
        for p in itertools.product(range(n), repeat=n)
        if len(set(p)) == n
    }
    maximal = [m for m in partial if not any(set(m) < set(other) for other in partial)]
    return [
        Topology.from_arcs(n, [(u, v, 1) for matching in chosen for u, v in matching])
        for chosen in itertools.combinations_with_replacement(maximal, degree)
    ]


TOPOLOGIES = {size: all_topologies(*size) for size in SIZES}
SHIFT = {n: recognised([PairMatrix.shift(n, 1, 1.0)], (n,)) for n in (4, 5)}
PAIRS = recognised([PairMatrix(4, [0, 1, 2, 3], [1, 0, 3, 2], 1.0)], (4,))


@st.composite
def problems(draw):
    """Random patterns that a group preserves, with the group."""
    n, degree = draw(st.sampled_from(SIZES))
    group = draw(st.sampled_from([SHIFT[4], PAIRS] if n == 4 else [SHIFT[5]]))
    sizes = st.lists(st.sampled_from([0.0, 0.0, 1.0, 3.0]), min_size=n - 1, max_size=n - 1).filter(any)
    patterns = [pattern_of(group, [0.0, *draw(sizes)], degree) for _ in range(draw(st.integers(1, 3)))]
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 0.1]), min_size=len(patterns), max_size=len(patterns)))
    return IntervalProblem(tuple(patterns), tuple(weights), degree, 1.0), group


def pattern_of(group, sent_by_first, degree):
    """What GPU 0 sends, and all its images."""
    arcs = [(g[0], g[v], size) for g in group.table for v, size in enumerate(sent_by_first) if size]
    scale = degree / sum(sent_by_first)
    return Pattern(PairMatrix(group.n, *zip(*arcs, strict=True)).scaled(scale))


def values(problem, n):
    """sum w/theta of every topology that connects all partners."""
    for topology in TOPOLOGIES[n, problem.degree]:
        theta = np.array(theta_row(topology, problem.patterns, (n,)).theta)
        if (theta > 0).all():
            yield float((np.array(problem.weights) / theta).sum())


@given(problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_likely_potentials_are_never_above_the_best_topology(case, seed):
    """Partners far away and others near, of about the right scale, with noise: these make strong bounds."""
    (problem, group), random = case, np.random.default_rng(seed)
    best = min(values(problem, group.n))
    partners = np.array([pattern.multiplicities.dense()[:1] > 0 for pattern in problem.patterns])
    for _ in range(200):
        near, far, noise, scale = random.uniform(size=4) * [1.0, 2.0, 0.3, 2.0 / problem.degree]
        potentials = near + far * partners + noise * random.normal(size=partners.shape)
        potentials[:, :, 0] = 0.0
        assert safe_value(problem, group, scale * potentials) <= best


@given(problems(), st.data())
@settings(max_examples=25)
def test_any_potentials_are_never_above_the_best_topology(case, data):
    problem, group = case
    numbers = st.floats(allow_nan=True, allow_infinity=True)
    count = len(problem.patterns) * group.n
    potentials = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count))).reshape(-1, 1, group.n)
    assert 0.0 <= safe_value(problem, group, potentials) <= min(values(problem, group.n))


def all_shifts(n, degree):
    """Stepwise All-to-All, without startup: n-1 steps of equal weight."""
    job = collectives.generate("all-to-all", gpus=n, message_bytes=1e6, ports=degree)
    return Workload.of(job, Fabric(degree, 800.0, 0.0, 0.0, 0.0)).interval(0, n - 1)


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("n", [5, 8])
def test_all_shifts_by_hand(n, degree):
    """Partners at distance 2, all others at 1: length n for every orbit, and T = 2*(n-1)/n for each of n-1 steps."""
    problem = all_shifts(n, degree)
    partner = [int(np.argmax(pattern.multiplicities.dense()[0])) for pattern in problem.patterns]
    distance = np.ones((n - 1, 1, n))
    distance[:, :, 0] = 0.0
    distance[np.arange(n - 1), 0, partner] = 2.0
    # mu = 2*degree*scale is to be T^2.
    scale = 2 * (n - 1) ** 2 / n**2 / degree
    value = safe_value(problem, SHIFT.get(n) or recognised([PairMatrix.shift(n, 1, 1.0)], (n,)), scale * distance)
    assert value == pytest.approx(2 * (n - 1) ** 2 / n, rel=1e-8)
    assert value < 2 * (n - 1) ** 2 / n


def test_zeros_are_the_node_bound():
    problem = all_shifts(5, 1)
    value = safe_value(problem, SHIFT[5], np.zeros((4, 1, 5)))
    assert value == pytest.approx(4.0, rel=1e-8)
    assert value < 4.0


def test_what_potentials_are_at_the_source_does_not_matter():
    problem, random = all_shifts(5, 1), np.random.default_rng(1)
    potentials = 1.0 + random.uniform(0.0, 0.2, size=(4, 1, 5))
    potentials[:, :, 0] = 0.0
    plain = safe_value(problem, SHIFT[5], potentials)
    assert plain > 0.0
    assert safe_value(problem, SHIFT[5], potentials + 7.0) == pytest.approx(plain, rel=1e-12)


def test_useless_potentials_prove_nothing():
    problem = all_shifts(5, 1)
    assert safe_value(problem, SHIFT[5], np.full((4, 1, 5), np.nan)) == 0.0
    assert safe_value(problem, SHIFT[5], -100.0 * np.arange(20.0).reshape(4, 1, 5)) == 0.0


def test_refuses_several_classes_and_other_shapes():
    problem = all_shifts(8, 1)
    group = recognised([pattern.multiplicities for pattern in problem.patterns], (8,))
    _, subgroup, *_ = subgroup_ladder(group, 2)
    with pytest.raises(InputError, match="one class"):
        safe_value(problem, subgroup, np.zeros((7, 2, 8)))
    with pytest.raises(InputError, match="potentials"):
        safe_value(problem, group, np.zeros((7, 8)))
