"""Mixtures of path systems beside the linear program, on graphs without any symmetry and on rings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.tasks.flow_lp import FlowProgram, max_concurrent_flow
from lumenfarm.tasks.path_systems import max_concurrent_flows


def some_programs(rng, groups):
    """One to four programs on a random graph: any GPUs may send, everything counts differently from group to group."""
    n = int(rng.integers(2, 12))
    tails, steps = rng.integers(0, n, 4 * n), rng.integers(1, n, 4 * n)
    tails, heads = np.unique((tails, (tails + steps) % n), axis=1)
    kept = rng.permutation(len(tails))[: rng.integers(1, len(tails) + 1)]
    tails, heads = tails[kept], heads[kept]
    group = np.unique(rng.integers(0, groups, len(tails)), return_inverse=True)[1]
    capacity = rng.choice([1.0, 2.0, 3.5], group.max() + 1)
    links = np.eye(n)
    links[tails, heads] = 1.0
    paths = np.linalg.matrix_power(links, n) > 0
    programs = []
    for _ in range(rng.integers(1, 5)):
        demand = np.where(paths, rng.choice([0, 0, 0, 1, 2.5, 1 / 3, 5], (n, n)), 0.0)
        np.fill_diagonal(demand, 0.0)
        sources = rng.permutation(np.flatnonzero(demand.any(axis=1)))
        weight = rng.choice([1, 2, 0.25], (len(sources), 1)) * rng.choice([1, 1 / 3], len(capacity))
        if len(sources):
            programs.append(FlowProgram(n, sources, demand[sources], tails, heads, group, weight[:, group], capacity))
    return programs


def proved(program, potentials):
    """The bound on theta by potentials: the capacity at the lengths they need, over the demand at the potentials."""
    needed = (potentials[:, program.heads] - potentials[:, program.tails]) / program.weight
    lengths = np.zeros(len(program.capacity))
    np.maximum.at(lengths, program.group, np.maximum(needed, 0.0).max(axis=0))
    return float(lengths @ program.capacity / (program.demand * potentials).sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
@settings(max_examples=300)
def test_equals_the_linear_program_and_is_proved_by_potentials(seed, groups):
    programs = some_programs(np.random.default_rng(seed), groups)
    for program, flow in zip(programs, max_concurrent_flows(programs), strict=True):
        assert flow.theta == pytest.approx(max_concurrent_flow(program).theta, rel=1e-9)
        assert flow.potentials.shape == program.demand.shape
        assert not flow.potentials[np.arange(len(program.sources)), program.sources].any()
        assert proved(program, flow.potentials) == pytest.approx(flow.theta, rel=1e-9)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_programs_together_are_as_programs_alone(seed):
    programs = some_programs(np.random.default_rng(seed), 4)
    together = max_concurrent_flows(programs)
    alone = [flow for program in programs for flow in max_concurrent_flows([program])]
    assert [flow.theta for flow in together] == pytest.approx([flow.theta for flow in alone], rel=1e-9)


def test_many_groups_are_left_to_the_linear_program():
    n = 12
    tails = np.arange(n)
    demand = np.zeros((1, n))
    demand[0, -1] = 2.0
    ring = FlowProgram(n, tails[:1], demand, tails, (tails + 1) % n, tails, np.ones((1, n)), np.ones(n))
    assert max_concurrent_flows([ring])[0].theta == pytest.approx(0.5)
    assert max_concurrent_flows([]) == []


@pytest.mark.parametrize("n", [5, 9, 64, 255])
def test_ring_of_two_directions_balances_them(n):
    """Of a demand of 1 to v both ways take a share, so that k*v clockwise load and (1-k)*(n-v) the other are equal."""
    ranks = np.arange(n)
    tails, heads = np.tile(ranks, 2), np.concatenate(((ranks + 1) % n, (ranks - 1) % n))
    programs = []
    for v in range(1, n):
        demand = np.zeros((1, n))
        demand[0, v] = 1.0
        group = np.repeat([0, 1], n)
        programs.append(FlowProgram(n, ranks[:1], demand, tails, heads, group, np.ones((1, 2 * n)), np.ones(2)))
    theta = [flow.theta for flow in max_concurrent_flows(programs)]
    distance = np.arange(1, n)
    assert theta == pytest.approx(1 / distance + 1 / (n - distance), rel=1e-12)
