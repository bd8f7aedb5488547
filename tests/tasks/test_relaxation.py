"""The relaxation on orbits beside the full one, with every source and arc, by linear programs and tangents."""

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from lumenfarm import collectives
from lumenfarm.errors import EnvironmentFailure, InputError
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Fabric, Pattern
from lumenfarm.problem import IntervalProblem, Workload
from lumenfarm.relaxation import safe_value
from lumenfarm.tasks import relaxation
from lumenfarm.tasks.relaxation import relaxed_potentials


def group_of(matrices):
    return recognised(matrices, (matrices[0].n,))


def value(problem):
    group = group_of([pattern.multiplicities for pattern in problem.patterns])
    return safe_value(problem, group, relaxed_potentials(problem, group))


def whole_job(name, gpus, degree, delta_ns):
    job = collectives.generate(name, gpus=gpus, message_bytes=1e6, ports=degree)
    workload = Workload.of(job, Fabric(degree, 800.0, 0.0, delta_ns, 0.0))
    return workload.interval(0, len(workload))


def full_relaxation(problem):
    """min sum w*T over fractional circuits x; columns x, theta, T and the flow of each pattern, source and arc."""
    n, count, weights = problem.patterns[0].n, len(problem.patterns), np.array(problem.weights)
    tails, heads = np.nonzero(~np.eye(n, dtype=bool))
    arcs, others = len(tails), ~np.eye(n, dtype=bool).ravel()
    arrives, leaves, each = np.eye(n)[heads].T, np.eye(n)[tails].T, np.eye(count)
    conservation = np.kron(each, np.kron(np.eye(n), arrives - leaves)[others])
    demand = np.concatenate([pattern.multiplicities.dense().ravel()[others] for pattern in problem.patterns])
    of_pattern = np.kron(each, np.ones((arcs, 1)))
    equations = np.hstack(
        [np.zeros((len(demand), arcs)), -demand[:, None] * of_pattern, np.zeros((len(demand), count)), conservation]
    )
    load = np.kron(each, np.kron(np.ones((1, n)), np.eye(arcs)))
    capacity = np.hstack([-np.kron(np.ones((count, 1)), np.eye(arcs)), np.zeros((len(load), 2 * count)), load])
    ports = np.hstack([np.vstack([arrives, leaves]), np.zeros((2 * n, capacity.shape[1] - arcs))])
    right = np.concatenate([np.zeros(len(load)), np.full(2 * n, float(problem.degree))])
    return by_tangents(weights, np.vstack([capacity, ports]), right, equations, arcs)


def by_tangents(weights, rows, right, equations, first):
    """min sum w*T where theta*T >= 1, theta <= 1, theta in columns from ``first`` on, T behind: bounds 1e-6 apart."""
    count, columns = len(weights), rows.shape[1]
    cost, upper = np.zeros(columns), np.full(columns, np.inf)
    cost[first + count : first + 2 * count], upper[first : first + count] = weights, 1.0
    theta = np.ones(count)
    while True:
        tangent = np.zeros((count, columns))
        tangent[:, first : first + 2 * count] = np.hstack([-np.diag(theta**-2.0), -np.eye(count)])
        rows, right = np.vstack([rows, tangent]), np.concatenate([right, -2 / theta])
        bounds = [(0, limit) for limit in upper]
        found = linprog(cost, rows, right, equations, np.zeros(len(equations)), bounds)
        theta = np.maximum(found.x[first : first + count], 0.01)
        if (reached := (weights / theta).sum()) <= found.fun * (1 + 1e-6):
            return found.fun, reached


GROUPS = [
    group_of([PairMatrix.shift(5, 1, 1.0)]),
    group_of([PairMatrix(6, range(6), [1, 0, 3, 2, 5, 4], 1.0), PairMatrix(6, range(6), [3, 4, 5, 0, 1, 2], 1.0)]),
    group_of([PairMatrix.from_permutation(np.arange(8) ^ bit, 1.0) for bit in (1, 2, 4)]),
]


@st.composite
def problems(draw):
    """Random patterns that a group of 5 to 8 GPUs preserves, with the group."""
    group, degree = draw(st.sampled_from(GROUPS)), draw(st.sampled_from([1, 2]))
    others = group.n - 1
    sizes = st.lists(st.sampled_from([0.0, 0.0, 1.0, 3.0]), min_size=others, max_size=others).filter(any)
    patterns = [pattern_of(group, [0.0, *draw(sizes)], degree) for _ in range(draw(st.integers(1, 3)))]
    weights = draw(st.lists(st.sampled_from([1.0, 0.5, 0.1]), min_size=len(patterns), max_size=len(patterns)))
    return IntervalProblem(tuple(patterns), tuple(weights), degree, 1.0), group


def pattern_of(group, sent_by_first, degree):
    """What GPU 0 sends, and all its images."""
    arcs = [(g[0], g[v], size) for g in group.table for v, size in enumerate(sent_by_first) if size]
    return Pattern(PairMatrix(group.n, *zip(*arcs, strict=True)).scaled(degree / sum(sent_by_first)))


def test_groups_are_of_three_kinds():
    assert [group.name for group in GROUPS] == ["cyclic 5", "dihedral 6", "exchange 8"]


@given(problems())
@settings(max_examples=20)
def test_equals_the_full_relaxation(case):
    problem, group = case
    found = safe_value(problem, group, relaxed_potentials(problem, group))
    lower, upper = full_relaxation(problem)
    assert lower * (1 - 1e-5) <= found <= upper


def test_recursive_doubling_of_8_gpus():
    """2.8112: model section 7."""
    patterns = tuple(Pattern(PairMatrix.shift(8, offset, 1.0)) for offset in (1, 2, 4))
    assert value(IntervalProblem(patterns, (1.0, 0.5, 0.25), 1, 1.0)) == pytest.approx(2.8112, abs=1e-4)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("gpus", [8, 64])
def test_all_shifts_by_hand(gpus, degree):
    """Circuits spread evenly; a share 1/(n-1) of each step goes straight and the rest over two hops: T = 2*(n-1)/n."""
    problem = whole_job("all-to-all", gpus, degree, 0.0)
    assert value(problem) == pytest.approx(2 * (gpus - 1) ** 2 / gpus, rel=1e-6)


@pytest.mark.parametrize("name", ["all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange", "all-to-all-bruck"])
@pytest.mark.parametrize("delta_ns", [0.0, 1e9])
def test_few_arcs_give_what_all_arcs_give(name, delta_ns, monkeypatch):
    problem = whole_job(name, 16, 2, delta_ns)
    few = value(problem)
    solve = relaxation._Program.optimum
    monkeypatch.setattr(
        relaxation._Program,
        "optimum",
        lambda self, arcs: solve(self, np.broadcast_to(~np.eye(16, dtype=bool), arcs.shape)),
    )
    assert few == pytest.approx(value(problem), rel=1e-6)


def test_one_pattern_is_served_at_the_full_rate():
    patterns = (Pattern(PairMatrix.from_dense((np.ones((6, 6)) - np.eye(6)) / 5)),)
    assert value(IntervalProblem(patterns, (1.0,), 1, 1.0)) == pytest.approx(1.0, rel=1e-6)


def test_potentials_in_single_precision_are_as_good():
    problem = whole_job("all-reduce-swing", 32, 2, 100.0)
    group = group_of([pattern.multiplicities for pattern in problem.patterns])
    potentials = relaxed_potentials(problem, group)
    stored = potentials.astype(np.float32)
    assert safe_value(problem, group, stored) == pytest.approx(safe_value(problem, group, potentials), rel=1e-6)


def test_a_solver_without_an_answer_is_a_failure(monkeypatch):
    hasty = clarabel.DefaultSettings()
    hasty.max_iter, hasty.verbose = 2, False
    monkeypatch.setattr(relaxation, "_settings", lambda: hasty)
    with pytest.raises(EnvironmentFailure, match="MaxIterations"):
        value(whole_job("all-reduce-rd", 8, 2, 0.0))


def test_refuses_several_classes():
    problem = whole_job("all-reduce-rd", 8, 2, 0.0)
    _, subgroup, *_ = subgroup_ladder(group_of([pattern.multiplicities for pattern in problem.patterns]), 2)
    with pytest.raises(InputError, match="one class"):
        relaxed_potentials(problem, subgroup)
