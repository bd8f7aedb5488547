"""One source for each class of GPUs and one capacity for each orbit of circuits, beside the program without symmetry.

Topologies and demands are drawn from the orbits of every kind of group. Demands of a single orbit are shifts, Swing
steps and exchanges (XOR).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.cayley import Space
from lumenfarm.groups import Group, subgroup_ladder
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Pattern
from lumenfarm.symmetry import Symmetry, on_dimension
from lumenfarm.tasks.concurrent_flow import OrbitNetwork, metric_row, theta_row
from lumenfarm.tasks.flow_lp import max_concurrent_flow
from lumenfarm.verify.flow import prove

SMALL = ["cyclic 7", "cyclic 12", "dihedral 6", "dihedral 14", "exchange 8", "exchange 16", "cyclic 3 x cyclic 4"]
SMALL += ["cyclic 3 x dihedral 4", "cyclic 3 x exchange 4", "dihedral 4 x dihedral 4", "dihedral 4 x exchange 2"]
LARGE = ["cyclic 24", "cyclic 32", "dihedral 26", "dihedral 32", "exchange 32", "cyclic 5 x cyclic 5"]
LARGE += ["cyclic 5 x dihedral 6", "cyclic 7 x exchange 4", "dihedral 6 x dihedral 4", "dihedral 8 x exchange 4"]


def generators(kind, size):
    ranks = np.arange(size)
    return {
        "cyclic": [(ranks + 1) % size],
        "dihedral": [(ranks + 2) % size, (1 - ranks) % size],
        "exchange": [ranks ^ 2**bit for bit in range(size.bit_length() - 1)],
    }[kind]


def product(name):
    """The product of groups over the dimensions of a torus, all elements by multiplying until nothing is new."""
    factors = [(kind, int(size)) for kind, size in (factor.split() for factor in name.split(" x "))]
    dims = tuple(size for _, size in factors)
    moves = [
        on_dimension(generator, axis, dims)
        for axis, (kind, size) in enumerate(factors)
        for generator in generators(kind, size)
    ]
    elements = fresh = {tuple(range(np.prod(dims)))}
    while fresh:
        fresh = {tuple(move[list(element)].tolist()) for move in moves for element in fresh} - elements
        elements = elements | fresh
    return Group(name, np.array(sorted(elements), dtype=np.int32), tuple(moves))


def with_subgroups(groups):
    """Each group with two subgroups that leave two classes of GPUs, and one that leaves four."""
    chosen = []
    for ladder in (list(subgroup_ladder(product(group), 4)) for group in groups):
        for classes, count in ((1, 1), (2, 2), (4, 1)):
            chosen += [group for group in ladder if len(group.representatives) == classes][:count]
    return chosen


SMALL_GROUPS, LARGE_GROUPS = with_subgroups(SMALL), with_subgroups(LARGE)


def dims_of(group):
    return tuple(int(factor.split()[1]) for factor in group.name.split(" / ")[0].split(" x "))


def topology_of(group, rng):
    """Random targets for each class; the ends of circuits may be spread unevenly over the classes."""
    degree = rng.choice([1, 2, 3], p=[0.1, 0.5, 0.4])
    others = [[v for v in range(group.n) if v != r] for r in group.representatives.tolist()]
    return group.topology([rng.choice(v, degree).tolist() for v in others])


def pattern_of(group, rng):
    """Random amounts on one to four orbits of pairs."""
    n, classes = group.n, len(group.representatives)
    pairs = np.delete(np.arange(classes * n), np.arange(classes) * n + group.representatives)
    amounts = np.zeros(classes * n)
    chosen = rng.choice(pairs, rng.integers(1, 5))
    amounts[chosen] = rng.choice([1.0, 2.0, 2.5, 1 / 3, 0.01], len(chosen))
    return Pattern(PairMatrix.from_dense(amounts[group.arc_orbit]))


@st.composite
def networks(draw, groups):
    group, seed = draw(st.sampled_from(groups)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    return group, topology_of(group, rng), pattern_of(group, rng)


def theta_by_program(topology, pattern, symmetry):
    network = OrbitNetwork(topology, symmetry)
    return max_concurrent_flow(network.program(network.demand(pattern.multiplicities))).theta


def close_to(theta):
    return pytest.approx(theta, rel=1e-7, abs=1e-9)


def check_orbit_program(group, topology, pattern):
    plain = theta_by_program(topology, pattern, Symmetry(group.n))
    assert theta_by_program(topology, pattern, group.symmetry) == close_to(plain)


@given(networks(SMALL_GROUPS))
@settings(max_examples=400)
def test_orbit_program_equals_plain_program(network):
    check_orbit_program(*network)


@given(networks(LARGE_GROUPS))
@settings(max_examples=60)
def test_orbit_program_equals_plain_program_of_many_gpus(network):
    check_orbit_program(*network)


@given(networks(SMALL_GROUPS), st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_ladder_equals_the_verifier(network, seed):
    """With symmetry looked for in the matrices, and for a demand that may have less of it than the topology."""
    group, topology, _ = network
    rng, ladder = np.random.default_rng(seed), list(subgroup_ladder(group, 4))
    subgroup = ladder[rng.integers(len(ladder))]
    pattern = pattern_of(subgroup, rng)
    proof = prove(topology, pattern.multiplicities)
    assert proof.shipped == close_to(proof.allowed)
    for row in (
        theta_row(topology, [pattern], dims_of(group)),
        metric_row(topology, [pattern], subgroup.symmetry),
    ):
        assert row.theta[0] == pytest.approx(proof.shipped, rel=1e-6, abs=1e-9)
        assert row.hops[0] == proof.hops


def total_length(group, topology, lengths):
    """Sum of x_o*l(o): every orbit of circuits has one that leaves the representative of a class."""
    circuits = topology.circuits
    first = np.flatnonzero(np.isin(circuits.sources, group.representatives))
    index = np.searchsorted(group.representatives, circuits.sources[first])
    return float(circuits.values[first] @ lengths[index * group.n + circuits.destinations[first]])


@given(networks(SMALL_GROUPS), st.integers(0, 2**32 - 1))
@settings(max_examples=200)
def test_potentials_bound_theta_of_the_other_topologies_of_the_group(network, seed):
    """By the inequality in the docstring of `lumenfarm.cayley`; a program's are tight where they come from."""
    group, topology, pattern = network
    other = topology_of(group, np.random.default_rng(seed))
    here, there = (metric_row(each, [pattern], group.symmetry) for each in (topology, other))
    potentials = here.potentials[0]
    shipped = float((pattern.multiplicities.rows(group.representatives) * potentials).sum())
    lengths = Space(group, 1).lengths(potentials)
    assert total_length(group, other, lengths) >= shipped * there.theta[0] * (1 - 1e-6)
    if here.solves:
        assert total_length(group, topology, lengths) == pytest.approx(shipped * here.theta[0], rel=1e-5)


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_topologies_of_one_orbit_need_no_program(name):
    """The only path to v is along one circle, so a circuit carries k(v) times the hops to v, summed over v."""
    group, rng = product(name), np.random.default_rng(0)
    for generator in range(1, group.n):
        circle, copies = circle_of(group, generator), int(rng.integers(1, 4))
        amounts = np.zeros(group.n)
        amounts[rng.choice(circle[1:] if generator % 3 else np.arange(1, group.n), 3)] = rng.random(3)
        pattern = Pattern(PairMatrix.from_dense(amounts[group.arc_orbit]))
        row = metric_row(group.topology([[generator] * copies]), [pattern], group.symmetry)
        theta = 0.0 if np.delete(amounts, circle).any() else copies / (amounts[circle] @ np.arange(len(circle)))
        assert row.theta[0] == pytest.approx(theta, rel=1e-12)
        assert row.solves == 0


def circle_of(group, generator):
    """The GPUs that copies of the circuit from 0 to ``generator`` reach from GPU 0, in order."""
    move = group.table[:, generator][np.argsort(group.table[:, 0])]
    circle = [0]
    while move[circle[-1]] != 0:
        circle.append(int(move[circle[-1]]))
    return circle
