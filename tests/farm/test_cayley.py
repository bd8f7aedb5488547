"""The space beside enumeration of all matrices, and metric inequalities beside theta itself."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import collectives
from lumenfarm.cayley import Listing, Space
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.model import Topology
from lumenfarm.symmetry import is_automorphism
from lumenfarm.tasks.concurrent_flow import metric_row, theta_row


def groups(name, gpus, degree, most_classes):
    """The patterns of a collective, and the ladder of groups that preserve them."""
    job = collectives.generate(name, gpus=gpus, message_bytes=1e6, ports=degree)
    patterns = list(dict.fromkeys(step.pattern(degree) for step in job.steps))
    group = recognised([pattern.multiplicities for pattern in patterns], (gpus,))
    return patterns, list(subgroup_ladder(group, most_classes))


def by_enumeration(group, degree):
    """All matrices with row and column sums equal to the degree that every element preserves, shape (count, n, n)."""
    n = group.n
    found = np.zeros((1, n, n), dtype=np.int8)
    for representative in group.representatives.tolist():
        rows = [row for row in itertools.product(range(degree + 1), repeat=n) if sum(row) == degree]
        images = np.zeros((len(rows), n, n), dtype=np.int8)
        for element in group.table:
            images[:, element[representative], element] = rows
        images = images[images[:, np.arange(n), np.arange(n)].sum(axis=1) == 0]
        sums = (found[:, None] + images[None]).reshape(-1, n, n)
        found = sums[(sums.sum(axis=1) <= degree).all(axis=1)]
    return found


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("all-reduce-ring", 4),
        ("all-reduce-ring", 5),
        ("all-gather-bruck", 6),
        ("all-reduce-ring", 7),
        ("all-reduce-rd", 8),
        ("all-reduce-swing", 8),
        ("all-reduce-rd-exchange", 8),
    ],
)
def test_listing_is_all_symmetric_topologies(name, gpus, degree):
    """Every choice is one of the matrices enumerated, each matrix has a choice; with four classes up to two ports."""
    for group in groups(name, gpus, degree, 4 if gpus * degree <= 16 else 2)[1]:
        space, matrices = Space(group, degree), by_enumeration(group, degree)
        listing = Listing(space)
        choices = [listing.choice(number) for number in range(listing.size)]
        rows = matrices[:, group.representatives].reshape(len(matrices), -1)
        targets = np.tile(range(gpus), space.classes)
        matrix_of = {
            tuple(np.repeat(targets, row).tolist()): matrix for row, matrix in zip(rows, matrices, strict=True)
        }
        assert choices == sorted(matrix_of)
        assert len(choices) == len(matrices) <= space.most
        assert space.classes > 1 or len(choices) == space.most
        assert [listing.number(choice) for choice in choices] == list(range(listing.size))
        for choice in choices[:: 1 + listing.size // 500]:
            assert (space.topology(choice).circuits.dense() == matrix_of[choice]).all()


@st.composite
def members(draw, *, names=("all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange"), degrees=3, most_classes=4):
    """A space of 8 GPUs, the patterns of a collective that its group preserves, and a choice out of it."""
    name, degree = draw(st.sampled_from(names)), draw(st.integers(1, degrees))
    patterns, found = groups(name, 8, degree, most_classes)
    space = Space(draw(st.sampled_from(found)), degree)
    return patterns, space, draw(choices(space))


@st.composite
def choices(draw, space):
    """Any choice of a space: ports of receiving classes are dealt out, and each takes a GPU of its class."""
    class_of, ends = space.group.class_of, np.repeat(np.arange(space.classes), space.degree).tolist()
    dealt = zip(space.sources.tolist(), draw(st.permutations(ends)), strict=True)
    allowed = [[v for v in np.flatnonzero(class_of == end).tolist() if v != source] for source, end in dealt]
    return space.choice([draw(st.sampled_from(targets)) for targets in allowed])


@given(members())
@settings(max_examples=100)
def test_a_choice_is_found_again_in_its_topology(member):
    _, space, choice = member
    topology = space.topology(choice)
    assert space.choice_of(topology) == choice
    assert space.choice_of(Topology.from_arcs(8, topology.arcs())) == choice
    assert all(is_automorphism(topology.circuits, row.astype(np.int64)) for row in space.group.table)
    assert (topology.circuits.row_sums == space.degree).all()
    assert (topology.circuits.column_sums == space.degree).all()


@given(members(), st.data())
@settings(max_examples=100)
def test_a_topology_is_in_a_space_if_its_group_preserves_it(member, data):
    """Also one with other ports or other symmetry."""
    _, space, choice = member
    topology = space.topology(choice)
    degree = data.draw(st.sampled_from([1, 2, 3]))
    for group in groups(data.draw(st.sampled_from(["all-reduce-swing", "all-reduce-rd"])), 8, 2, 4)[1]:
        other = Space(group, degree)
        preserved = all(is_automorphism(topology.circuits, row.astype(np.int64)) for row in group.table)
        found = other.choice_of(topology)
        assert (found is not None) == (preserved and degree == space.degree)
        assert found is None or other.topology(found) == topology


def test_no_choice_for_free_ports():
    _, (group, *_) = groups("all-reduce-swing", 8, 2, 1)
    assert Space(group, 2).choice_of(group.topology([[1]])) is None
    assert Space(group, 2).choice_of(Topology.from_arcs(8, [(0, 1, 2), (1, 0, 2)])) is None


@pytest.mark.parametrize(
    ("classes", "choice"),
    [
        (1, ()),
        (1, (1,)),
        (1, (1, 2, 3)),
        (1, (0, 1)),
        (1, (-1, 1)),
        (1, (1, 8)),
        (1, ((1,), (3,))),
        (1, (2**62, 1)),
        (2, (1, 2, 3)),
        (2, (2, 2, 2, 4)),
        (2, (0, 1, 0, 1)),
    ],
)
def test_what_is_no_choice(classes, choice):
    _, (group, *subgroups) = groups("all-reduce-rd", 8, 2, classes)
    space = Space(subgroups[0] if classes == 2 else group, 2)
    with pytest.raises(ValueError, match=r"GPUs|no topology"):
        space.topology(choice)


def total(space, choice, lengths):
    """sum_o x_o*l(o): every port of a representative is a circuit of another orbit, or of the same once more."""
    return lengths[space.first_orbit + np.array(choice)].sum()


def shipped(space, pattern, potential):
    """sum_r sum_v k(r,v)*pi_r(v), pair by pair."""
    k = pattern.multiplicities.dense()
    return sum(k[r] @ potential[index] for index, r in enumerate(space.group.representatives.tolist()))


@given(members(degrees=2))
@settings(max_examples=40)
def test_totals_of_a_listing_are_sums_over_ports(member):
    _, space, choice = member
    listing = Listing(space)
    lengths = np.random.default_rng(0).random(space.classes * 8).astype(np.float32)
    number = listing.number(choice)
    assert listing.totals(lengths, listing.members)[number] == pytest.approx(total(space, choice, lengths), rel=1e-6)


@given(members(), st.data())
@settings(max_examples=60)
def test_any_potentials_bound_theta_of_every_topology(member, data):
    patterns, space, choice = member
    sources = space.group.representatives
    numbers = st.integers(-3_000, 3_000).map(lambda thousandths: thousandths / 1_000)
    potential = np.array(data.draw(st.lists(numbers, min_size=8 * len(sources), max_size=8 * len(sources)))).reshape(
        -1, 8
    )
    potential -= potential[np.arange(len(sources)), sources][:, None]
    lengths = space.lengths(potential)
    row = theta_row(space.topology(choice), patterns, (8,))
    for pattern, theta in zip(patterns, row.theta, strict=True):
        assert theta * shipped(space, pattern, potential) <= total(space, choice, lengths) + 1e-4
        relative = space.relative_lengths(pattern, potential)
        assert (relative is None) == (shipped(space, pattern, potential) <= 0)
        assert relative is None or theta <= total(space, choice, relative) * (1 + 1e-5)


def assert_tight(space, patterns, choice, theta, potentials):
    """What potentials say about the topology that they come from is its theta, unless the ports alone say so."""
    for pattern, flow, potential in zip(patterns, theta, potentials, strict=True):
        relative = space.relative_lengths(pattern, potential)
        bound = 1.0 if relative is None else total(space, choice, relative)
        assert bound == pytest.approx(flow, rel=1e-5, abs=1e-6) or flow == pytest.approx(1.0)


@given(members(names=("all-reduce-swing", "all-reduce-rd", "all-to-all-direct")))
@settings(max_examples=60)
def test_potentials_of_a_solved_topology_are_tight_there(member):
    patterns, space, choice = member
    topology = space.topology(choice)
    row = metric_row(topology, patterns, space.group.symmetry)
    assert row.theta == pytest.approx(theta_row(topology, patterns, (8,)).theta, rel=1e-7)
    assert_tight(space, patterns, choice, row.theta, row.potentials)


@given(st.data())
@settings(max_examples=40)
def test_twins_are_images_with_the_same_theta(data):
    patterns, (_, *found) = groups(data.draw(st.sampled_from(["all-reduce-swing", "all-reduce-rd"])), 8, 2, 2)
    space = Space(data.draw(st.sampled_from(found)), 2)
    listing = Listing(space)
    number = data.draw(st.integers(0, listing.size - 1))
    twin = listing.twin(number)
    assert listing.twin(twin) == number
    topologies = [space.topology(listing.choice(k)) for k in (number, twin)]
    here, there = (metric_row(topology, patterns, space.group.symmetry) for topology in topologies)
    assert here.theta == pytest.approx(there.theta, rel=1e-7)
    exchanging = [e for e in space.group.above.table if space.group.class_of[e[0]] == 1]
    image = topologies[0].circuits.relabelled(exchanging[0].astype(np.int64))
    assert image == topologies[1].circuits
    assert_tight(space, patterns, listing.choice(twin), here.theta, space.group.mirrored(here.potentials))


@pytest.mark.parametrize("classes", [1, 4])
def test_only_two_classes_have_twins(classes):
    for group in groups("all-reduce-swing", 8, 1, 4)[1]:
        listing = Listing(Space(group, 1))
        if listing.space.classes == classes:
            assert all(listing.twin(number) == number for number in range(listing.size))


@given(members(most_classes=2))
@settings(max_examples=60)
def test_inherited_potentials_are_tight_on_every_rung_below(member):
    """The topology is on all rungs below, and what was found out about it with few classes holds there."""
    patterns, space, choice = member
    topology = space.topology(choice)
    row = metric_row(topology, patterns, space.group.symmetry)
    for group in subgroup_ladder(space.group, 4):
        below = Space(group, space.degree)
        inherited = group.inherited(row.potentials, space.group)
        assert_tight(below, patterns, below.choice_of(topology), row.theta, inherited)
