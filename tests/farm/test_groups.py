"""Groups by their action tables: closed, without fixed points, and preserving what they claim to preserve."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm import collectives
from lumenfarm.groups import index_two_subgroups, recognised
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Topology
from lumenfarm.symmetry import is_automorphism

CASES = {
    "cyclic": ("all-reduce-rd", {"gpus": 8}),
    "cyclic, odd": ("all-reduce-ring", {"gpus": 9}),
    "dihedral": ("all-reduce-swing", {"gpus": 16}),
    "exchange": ("all-reduce-rd-exchange", {"gpus": 8}),
    "dihedral product": ("all-reduce-swing", {"dims": (8, 4)}),
    "cyclic product": ("all-reduce-rd", {"dims": (4, 2)}),
}


def patterns_of(name, size):
    job = collectives.generate(name, message_bytes=1e6, ports=2, **size)
    return [step.pattern(2).multiplicities for step in job.steps], job.dims


@pytest.fixture(params=CASES, name="case")
def _case(request):
    patterns, dims = patterns_of(*CASES[request.param])
    group = recognised(patterns, dims)
    assert group is not None
    return group, patterns


def everything(case):
    group, patterns = case
    return [(group, patterns), *((subgroup, patterns) for subgroup in index_two_subgroups(group))]


def test_tables_are_groups_without_fixed_points(case):
    for group, _ in everything(case):
        elements = {tuple(row) for row in group.table.tolist()}
        assert tuple(range(group.n)) == tuple(group.table[0].tolist())
        assert all(tuple(np.array(a)[list(b)].tolist()) in elements for a in elements for b in elements)
        assert all(a == tuple(range(group.n)) or all(a[u] != u for u in range(group.n)) for a in elements)


def test_every_element_preserves_every_pattern(case):
    for group, patterns in everything(case):
        assert all(is_automorphism(p, row.astype(np.int64)) for p in patterns for row in group.table)


def test_subgroups_have_two_classes_of_half_the_gpus(case):
    group, _ = case
    assert group.representatives.tolist() == [0]
    for subgroup in index_two_subgroups(group):
        assert np.bincount(subgroup.class_of).tolist() == [group.n // 2] * 2
        assert len(subgroup.table) == group.n // 2
        assert len(np.unique(subgroup.symmetry.gpu_orbits())) == 2


def test_even_groups_have_a_subgroup_of_index_two_and_odd_ones_none():
    for name, size in CASES.values():
        patterns, dims = patterns_of(name, size)
        group = recognised(patterns, dims)
        assert bool(list(index_two_subgroups(group))) == (group.n % 2 == 0)


def test_arc_orbits_are_what_elements_map_into_each_other(case):
    for group, _ in everything(case):
        orbit = group.arc_orbit
        for row in group.table:
            assert (orbit[np.ix_(row, row)] == orbit).all()
        assert len(np.unique(orbit)) == group.n * len(group.representatives)


def test_topologies_are_preserved_and_use_as_many_ports_as_targets(case):
    for group, _ in everything(case):
        for shift in range(1, min(4, group.n - 1)):
            targets = [[(r + shift) % group.n, (r + 1) % group.n] for r in group.representatives.tolist()]
            topology = group.topology(targets)
            assert (topology.circuits.row_sums == 2).all()
            assert all(is_automorphism(topology.circuits, row.astype(np.int64)) for row in group.table)


def groups():
    for name, size in CASES.values():
        patterns, dims = patterns_of(name, size)
        group = recognised(patterns, dims)
        yield from (group, *index_two_subgroups(group))


@given(st.sampled_from(list(groups())), st.data())
def test_topologies_are_all_images_under_the_table(group, data):
    others = {r: st.integers(0, group.n - 1).filter(lambda v, r=r: v != r) for r in group.representatives.tolist()}
    targets = [data.draw(st.lists(other, min_size=1, max_size=4)) for other in others.values()]
    topology = group.topology(targets)
    assert "circuits" not in vars(topology)
    arcs = [(r, target) for r, reached in zip(others, targets, strict=True) for target in reached]
    images = Counter((element[u], element[v]) for u, v in arcs for element in group.table.tolist())
    assert topology.arcs() == [(*arc, count) for arc, count in sorted(images.items())]
    assert topology == Topology.from_orbits(group.n, group.generators, [(u, v, 1) for u, v in arcs])


def test_no_symmetry_is_no_group():
    assert recognised([PairMatrix(5, [0, 1], [1, 3], 1.0)], (5,)) is None
    assert recognised([PairMatrix(6, range(5), range(1, 6), 1.0)], (6,)) is None


def test_values_that_differ_break_the_symmetry():
    shift = PairMatrix(4, range(4), [1, 2, 3, 0], [1.0, 1.0, 1.0, 2.0])
    assert recognised([shift], (4,)) is None


def test_labels_name_the_targets_of_each_class():
    patterns, dims = patterns_of(*CASES["dihedral"])
    group = recognised(patterns, dims)
    assert group.topology([[1, 11]]).label == "cayley{+1,-5}"
    subgroup = next(iter(index_two_subgroups(group)))
    first, second = subgroup.representatives.tolist()
    label = subgroup.topology([[(first + 1) % 16, (first + 2) % 16], [(second + 1) % 16, (second + 14) % 16]]).label
    assert label == "cayley/2{+1,+2 | +1,-2}"
    assert list(itertools.islice(index_two_subgroups(group), 1))
