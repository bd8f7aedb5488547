"""Groups by their action tables: closed, without fixed points, and preserving what they claim to preserve."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lumenfarm import collectives
from lumenfarm.groups import recognised, subgroup_ladder
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
    return [(rung, patterns) for rung in subgroup_ladder(group, 4)]


def test_tables_are_groups_without_fixed_points(case):
    for group, _ in everything(case):
        elements = {tuple(row) for row in group.table.tolist()}
        assert tuple(range(group.n)) == tuple(group.table[0].tolist())
        assert all(tuple(np.array(a)[list(b)].tolist()) in elements for a in elements for b in elements)
        assert all(a == tuple(range(group.n)) or all(a[u] != u for u in range(group.n)) for a in elements)


def test_every_element_preserves_every_pattern(case):
    for group, patterns in everything(case):
        assert all(is_automorphism(p, row.astype(np.int64)) for p in patterns for row in group.table)


def elements_of(group):
    return frozenset(map(tuple, group.table.tolist()))


def halves_by_enumeration(group):
    """All subgroups of half the order: each holds all squares, hence half of the cosets of what squares generate."""
    elements = elements_of(group)
    squares = {tuple(a[v] for v in a) for a in elements}
    while (more := {tuple(a[v] for v in b) for a in squares for b in squares}) != squares:
        squares = more
    cosets = {frozenset(tuple(a[v] for v in b) for b in squares) for a in elements}
    halves = (frozenset().union(*some) for some in itertools.combinations(cosets, len(cosets) // 2))
    return {half for half in halves if half and all(tuple(a[v] for v in b) in half for a in half for b in half)}


@pytest.mark.parametrize("most_classes", [1, 2, 3, 4, 8])
def test_every_rung_is_a_few_of_the_halves_of_the_rung_above(case, most_classes):
    ladder = list(subgroup_ladder(case[0], most_classes))
    rungs = [list(rung) for _, rung in itertools.groupby(ladder, key=lambda group: len(group.representatives))]
    assert rungs[0] == [case[0]]
    for above, rung in itertools.pairwise(rungs):
        halves = set().union(*map(halves_by_enumeration, above))
        found = set(map(elements_of, rung))
        assert len(found) == len(rung) == min(3, len(halves))
        assert found <= halves
    classes = len(rungs[-1][0].representatives)
    assert 2 * classes > most_classes or not any(map(halves_by_enumeration, rungs[-1]))


def test_subgroups_know_the_group_above_them_and_have_twice_its_classes(case):
    group, *subgroups = subgroup_ladder(case[0], 4)
    assert group.above is None
    assert group.representatives.tolist() == [0]
    for subgroup in subgroups:
        assert elements_of(subgroup) in halves_by_enumeration(subgroup.above)
        classes = len(subgroup.representatives)
        assert classes == 2 * len(subgroup.above.representatives)
        assert np.bincount(subgroup.class_of).tolist() == [group.n // classes] * classes
        assert len(np.unique(subgroup.symmetry.gpu_orbits())) == classes


def test_names_tell_subgroups_apart(case):
    names = [group.name for group in subgroup_ladder(case[0], 4)]
    assert len(set(names)) == len(names)


def test_no_generators_are_left_at_the_end():
    patterns, dims = patterns_of("all-reduce-ring", {"gpus": 4})
    *_, last = subgroup_ladder(recognised(patterns, dims), 4)
    assert last.generators == ()
    assert last.representatives.tolist() == [0, 1, 2, 3]
    assert last.topology([[1], [0], [3], [2]]) == Topology.from_arcs(4, [(0, 1, 1), (1, 0, 1), (2, 3, 1), (3, 2, 1)])


def test_potentials_are_inherited_over_two_rungs_as_over_one_after_the_other(case):
    """pi_r'(g(v)) = pi_r(v) for the only element g of the larger group that takes r to r'."""
    group, *subgroups = subgroup_ladder(case[0], 4)
    potentials = np.random.default_rng(0).random((3, 1, group.n))
    of_gpu = {int(row[0]): row for row in group.table}
    for subgroup in subgroups:
        inherited = subgroup.inherited(potentials, group)
        for index, representative in enumerate(subgroup.representatives.tolist()):
            assert (inherited[:, index, of_gpu[representative]] == potentials[:, 0]).all()
        above = subgroup.above.inherited(potentials, group)
        assert (subgroup.inherited(above, subgroup.above) == inherited).all()
        assert (subgroup.inherited(inherited, subgroup) == inherited).all()


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
        yield from subgroup_ladder(recognised(patterns, dims), 4)


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


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_recognised_however_gpus_are_numbered(case, seed):
    """Steps have one partner for each GPU here, and nothing but the group commutes with all of them."""
    group, patterns = case
    names = np.random.default_rng(seed).permutation(group.n)
    found = recognised([pattern.relabelled(names) for pattern in patterns], (group.n,))
    renamed = np.empty_like(group.table)
    renamed[:, names] = names[group.table]
    assert elements_of(found) == set(map(tuple, renamed.tolist()))
    assert found.representatives.tolist() == [0]
    assert len(found.generators) < 6


@pytest.mark.parametrize(
    "partners",
    [
        [[1, 0, 3, 4, 2]],
        [[1, 2, 3, 4, 5, 0], [1, 0, 3, 2, 5, 4]],
        [[1, 0, 3, 2], [1, 0, 2, 3]],
    ],
)
def test_partners_that_tell_no_group(partners):
    """Not all GPUs reached; partners of partners that depend on the GPU; GPUs without a partner."""
    patterns = [PairMatrix.from_permutation(partner, 1.0) for partner in partners]
    assert recognised(patterns, (len(partners[0]),)) is None


def test_two_partners_of_a_kind_tell_no_group():
    both = PairMatrix.shift(7, 1, 1.0).dense() + PairMatrix.shift(7, 2, 1.0).dense()
    pattern = PairMatrix.from_dense(both)
    assert recognised([pattern], (7,)).name == "cyclic 7"
    assert recognised([pattern.relabelled(np.array([3, 0, 1, 2, 6, 5, 4]))], (7,)) is None


def test_labels_name_the_targets_of_each_class():
    patterns, dims = patterns_of(*CASES["dihedral"])
    group = recognised(patterns, dims)
    assert group.topology([[1, 11]]).label == "cayley{+1,-5}"
    _, subgroup, *_ = subgroup_ladder(group, 2)
    first, second = subgroup.representatives.tolist()
    label = subgroup.topology([[(first + 1) % 16, (first + 2) % 16], [(second + 1) % 16, (second + 14) % 16]]).label
    assert label == "cayley/2{+1,+2 | +1,-2}"
