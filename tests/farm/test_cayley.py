"""The space beside enumeration of all matrices, and metric inequalities beside theta itself."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import collectives
from lumenfarm.cayley import Space
from lumenfarm.groups import index_two_subgroups, recognised
from lumenfarm.symmetry import is_automorphism
from lumenfarm.tasks.concurrent_flow import metric_row, theta_row


def workload(name, gpus, degree):
    job = collectives.generate(name, gpus=gpus, message_bytes=1e6, ports=degree)
    patterns = list(dict.fromkeys(step.pattern(degree) for step in job.steps))
    return patterns, recognised([pattern.multiplicities for pattern in patterns], (gpus,))


def groups(name, gpus, degree):
    patterns, group = workload(name, gpus, degree)
    return patterns, [group, *index_two_subgroups(group)]


def by_enumeration(group, degree):
    """All matrices with row and column sums equal to the degree that every element preserves, n <= 6."""
    n = group.n
    rows = [row for row in itertools.product(range(degree + 1), repeat=n) if sum(row) == degree]
    representatives = group.representatives.tolist()
    found = set()
    for chosen in itertools.product(rows, repeat=len(representatives)):
        matrix = np.zeros((n, n), dtype=int)
        for representative, row in zip(representatives, chosen, strict=True):
            for element in group.table:
                matrix[element[representative], element] = row
        if np.trace(matrix) == 0 and (matrix.sum(axis=0) == degree).all():
            found.add(tuple(matrix.ravel().tolist()))
    return found


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize(("name", "gpus"), [("all-reduce-ring", 4), ("all-reduce-ring", 5), ("all-gather-bruck", 6)])
def test_space_is_all_symmetric_topologies(name, gpus, degree):
    for group in groups(name, gpus, degree)[1]:
        space = Space(group, degree)
        topologies = [space.topology(number) for number in range(space.size)]
        dense = {tuple(t.circuits.dense().astype(int).ravel().tolist()) for t in topologies}
        assert dense == by_enumeration(group, degree)
        assert len(topologies) == len(dense) <= Space.count(group, degree)


@given(st.data())
@settings(max_examples=60)
def test_any_potentials_bound_theta_of_every_topology(data):
    name = data.draw(st.sampled_from(["all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange"]))
    patterns, found = groups(name, 8, 2)
    space = Space(data.draw(st.sampled_from(found)), 2)
    sources = space.group.representatives
    numbers = st.floats(-3, 3, allow_subnormal=False)
    potential = np.array(data.draw(st.lists(numbers, min_size=8 * len(sources), max_size=8 * len(sources)))).reshape(
        -1, 8
    )
    potential -= potential[np.arange(len(sources)), sources][:, None]
    totals = space.totals(space.lengths(potential), space.members)
    number = data.draw(st.integers(0, space.size - 1))
    row = theta_row(space.topology(number), patterns, (8,))
    for pattern, theta in zip(patterns, row.theta, strict=True):
        shipped = (pattern.multiplicities.rows(sources) * potential).sum()
        assert theta * shipped <= totals[number] + 1e-4


@given(st.data())
@settings(max_examples=60)
def test_potentials_of_a_solved_topology_are_tight_there(data):
    name = data.draw(st.sampled_from(["all-reduce-swing", "all-reduce-rd", "all-to-all-direct"]))
    patterns, found = groups(name, 8, 2)
    space = Space(data.draw(st.sampled_from(found)), 2)
    number = data.draw(st.integers(0, space.size - 1))
    topology = space.topology(number)
    row = metric_row(topology, patterns, space.group.symmetry)
    assert row.theta == pytest.approx(theta_row(topology, patterns, (8,)).theta, rel=1e-7)
    for pattern, theta, potential in zip(patterns, row.theta, row.potentials, strict=True):
        shipped = (pattern.multiplicities.rows(space.group.representatives) * potential).sum()
        bound = space.totals(space.lengths(potential), space.members[:, [number]])[0] / shipped
        assert bound == pytest.approx(theta, rel=1e-5, abs=1e-6) or theta == pytest.approx(1.0)


def test_every_topology_of_a_space_is_preserved():
    _, found = groups("all-reduce-swing", 8, 2)
    for group in found:
        space = Space(group, 2)
        for number in range(0, space.size, 37):
            circuits = space.topology(number).circuits
            assert all(is_automorphism(circuits, row.astype(np.int64)) for row in group.table)


@given(st.data())
@settings(max_examples=40)
def test_twins_are_images_with_the_same_theta(data):
    patterns, found = groups(data.draw(st.sampled_from(["all-reduce-swing", "all-reduce-rd"])), 8, 2)
    space = Space(data.draw(st.sampled_from(found[1:])), 2)
    number = data.draw(st.integers(0, space.size - 1))
    twin = space.twin(number)
    assert space.twin(twin) == number
    here, there = (metric_row(space.topology(k), patterns, space.group.symmetry) for k in (number, twin))
    assert here.theta == pytest.approx(there.theta, rel=1e-7)
    exchanging = [e for e in space.group.above.table if space.group.class_of[e[0]] == 1]
    image = space.topology(number).circuits.relabelled(exchanging[0].astype(np.int64))
    assert image == space.topology(twin).circuits
    mirrored = space.group.mirrored(here.potentials)
    for pattern, theta, potential in zip(patterns, here.theta, mirrored, strict=True):
        shipped = (pattern.multiplicities.rows(space.group.representatives) * potential).sum()
        bound = space.totals(space.lengths(potential), space.members[:, [twin]])[0] / shipped
        assert bound == pytest.approx(theta, rel=1e-5, abs=1e-6) or theta == pytest.approx(1.0)


def test_inherited_potentials_are_tight_in_the_subgroup():
    patterns, (group, *subgroups) = groups("all-reduce-swing", 8, 2)
    topology = group.topology([[1, 3]])
    row = metric_row(topology, patterns, group.symmetry)
    for subgroup in subgroups:
        space = Space(subgroup, 2)
        number = next(k for k in range(space.size) if space.topology(k) == topology)
        for pattern, theta, potential in zip(patterns, row.theta, subgroup.inherited(row.potentials), strict=True):
            shipped = (pattern.multiplicities.rows(subgroup.representatives) * potential).sum()
            bound = space.totals(space.lengths(potential), space.members[:, [number]])[0] / shipped
            assert bound == pytest.approx(theta, rel=1e-5)
