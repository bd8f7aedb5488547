"""What every family promises, and what each is meant to contain."""

import itertools

import numpy as np
import pytest

from lumenfarm.errors import InputError
from lumenfarm.families import FAMILIES, candidates, torus
from lumenfarm.families.matching import iterated_assignment
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step, Topology
from lumenfarm.problem import Workload


def workload(degree, dims=(8,), demands=None):
    n = int(np.prod(dims))
    demands = demands or [PairMatrix.shift(n, 1 << i, 64.0 / 2**i) for i in range(3)]
    return Workload.of(Collective("test", tuple(map(Step, demands)), dims), Fabric(degree, 800, 500, 500, 1e4))


def irregular():
    rng = np.random.default_rng(7)
    dense = rng.integers(0, 3, (9, 9)) * rng.random((9, 9))
    np.fill_diagonal(dense, 0)
    return [PairMatrix.from_dense(dense), PairMatrix(9, [0, 1], [5, 6], [3.0, 1.0])]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("degree", [1, 2, 3, 9])
@pytest.mark.parametrize("case", ["ring", "torus", "irregular"])
def test_every_family_keeps_the_degree_and_repeats_itself(family, degree, case):
    job = {
        "ring": lambda: workload(degree),
        "torus": lambda: workload(degree, (4, 2)),
        "irregular": lambda: workload(degree, (9,), irregular()),
    }[case]()
    built = candidates([family], job)
    assert all(topology.n == job.collective.n and topology.degree <= degree for topology in built)
    assert len(set(built)) == len(built)
    assert [t.digest for t in candidates([family], job)] == [t.digest for t in built]


def test_published_is_strides_then_matchings_of_the_ring():
    built = candidates(["published"], workload(2))
    strides = [Topology.circulant(8, {j: 1, -j: 1}) for j in range(1, 8)]
    matchings = [Topology.circulant(8, {1 << i: 2}) for i in range(3)]
    assert list(built) == list(dict.fromkeys([*strides, *matchings]))


def test_torus_spreads_ports_over_directions():
    graph = torus((3, 4), 4).to_networkx()
    assert all(degree == 4 for _, degree in graph.out_degree())
    assert set(graph.successors(0)) == {4, 8, 1, 3}
    assert torus((8,), 3) == Topology.circulant(8, {1: 2, -1: 1})
    assert torus((8,), 1, 3) == Topology.circulant(8, {3: 1})


def test_one_assignment_is_the_best_matching():
    rng = np.random.default_rng(3)
    weight = rng.random((5, 5))
    np.fill_diagonal(weight, 0)
    best = max(
        sum(weight[u, v] for u, v in enumerate(p))
        for p in itertools.permutations(range(5))
        if all(u != v for u, v in enumerate(p))
    )
    assert (iterated_assignment(weight, 1) * weight).sum() == pytest.approx(best)


def test_assignment_prefers_a_new_pair_to_a_second_circuit():
    demand = np.zeros((3, 3))
    demand[0, 1], demand[0, 2] = 3.0, 2.0
    circuits = iterated_assignment(demand, 2)
    assert circuits[0, 1] == 1
    assert circuits[0, 2] == 1


def test_unknown_family_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'matchings'"):
        candidates(["matching"], workload(1))
