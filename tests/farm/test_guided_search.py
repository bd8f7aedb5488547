"""Searches around the best topologies known beside searches of whole spaces, and what they promise on the way."""

import collections
import dataclasses
import functools
import itertools
import math
import random
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import collectives, families
from lumenfarm.cayley import Listing, Space
from lumenfarm.driver import Limits, run
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.guided_search import GuidedSearch, _Neighbourhood, apportioned
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Fabric, Latency, Pattern
from lumenfarm.plan import IntervalBounds
from lumenfarm.planner import Planner
from lumenfarm.problem import IntervalProblem, MetricTask, Workload
from lumenfarm.schedule import Provenance
from lumenfarm.tasks.concurrent_flow import theta_row
from lumenfarm.tasks.local_pool import LocalExecutor
from lumenfarm.tasks.work import solve

# Prices of a reconfiguration beside that of a hop: some pay, few pay, none pays.
DELAYS = [(500, 2_000), (20_000, 30_000), (10, 1e7)]
ANSWERS: dict[str, Any] = {}
PROVENANCE = Provenance({}, "symmetric", {}, "2026-01-01T00:00:00+00:00")


@functools.cache
def job(name, gpus, degree, delta=500, alpha_r=2_000, latency=Latency.CONGESTION):
    collective = collectives.generate(name, gpus=gpus, message_bytes=64e3, ports=degree)
    return Workload.of(collective, Fabric(degree, 800, 500, delta, alpha_r, latency))


def ladder(workload, most_classes):
    group = recognised([pattern.multiplicities for pattern in workload.patterns], workload.collective.dims)
    return [Space(one, workload.fabric.degree) for one in subgroup_ladder(group, most_classes)]


def one_a_rung(spaces):
    return [next(rung) for _, rung in itertools.groupby(spaces, key=lambda space: space.classes)]


def port_bounds_ns(workload):
    """What theta <= 1 says about intervals."""
    return workload.intervals.costs_ns(np.array([sum(problem.weights) for problem in workload.intervals.problems]))


@pytest.fixture(autouse=True, scope="module")
def _cheap_bounds():
    """Better ones take longer than all searches here together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IntervalBounds, "of", lambda workload, _=None: IntervalBounds(port_bounds_ns(workload)))
        yield


def task_of(workload, space, choice):
    return MetricTask(space.topology(choice), workload.patterns, space.group.symmetry, space.classes)


def answer(task):
    """Each task is solved once for all tests."""
    if task.key not in ANSWERS:
        ANSWERS[task.key] = solve(task)
    return ANSWERS[task.key]


def rounds_of(planner, most=10**4):
    """Tasks round by round, answered before the next one, until ``most`` are answered or nothing is left."""
    while planner.done < most and (tasks := planner.next_round()):
        for task in tasks:
            planner.feed(task, answer(task))
        yield tasks


def cost_ns(planner):
    return planner.plan().cost_ns if planner.carried else np.inf


ALL_REDUCES = ["all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange"]
MATCHED = [
    *itertools.product(ALL_REDUCES, [8, 16], [1, 2], [1, 2]),
    *itertools.product(ALL_REDUCES, [8], [1, 2], [4]),
    *itertools.product(ALL_REDUCES, [8], [3], [1, 2]),
    *itertools.product(ALL_REDUCES, [16], [3], [1]),
    *itertools.product(["all-to-all", "all-gather-bruck", "all-to-all-direct"], [8, 12], [1, 2], [1, 2]),
]


@pytest.mark.parametrize(("name", "gpus", "degree", "classes"), MATCHED)
def test_finds_what_the_search_of_whole_spaces_finds(name, gpus, degree, classes):
    for delays in DELAYS:
        workload = job(name, gpus, degree, *delays)
        spaces = one_a_rung(ladder(workload, classes))
        whole, guided = (Planner(workload, (), spaces=spaces, most_listed=most) for most in (2**25, 0))
        collections.deque(rounds_of(whole), maxlen=0)
        assert all(proof.closed for proof in whole.proofs())
        reached = (cost_ns(guided) <= cost_ns(whole) * (1 + 3e-5) for _ in rounds_of(guided, most=2_000))
        assert any(reached), (delays, cost_ns(guided), cost_ns(whole))


class Store(dict[str, bytes]):
    """What the driver needs of a store; records go through bytes, as in a real one."""

    def load(self, key):
        return msgpack.unpackb(self[key]) if key in self else None

    def save(self, key, _kind, _request, result):
        self[key] = msgpack.packb(result)


def drive(planner, store):
    return run(
        planner,
        store,
        lambda: LocalExecutor(store),
        limits=Limits(),
        clock=lambda: 0.0,
        listen=lambda *_: None,
    )


def random_choice(space, rng):
    """The receiving ports of the classes are dealt out, and each goes to any GPU of its class."""
    ends = rng.permutation(np.repeat(np.arange(space.classes), space.degree))
    members = [np.flatnonzero(space.group.class_of == end) for end in ends]
    return space.choice([rng.choice(v[v != source]) for v, source in zip(members, space.sources, strict=True)])


def ports_changed(space, one, other):
    """How many ports of the representatives have to move."""
    parts = np.array([one, other]).reshape(2, space.classes, space.degree).tolist()
    return sum((collections.Counter(a) - collections.Counter(b)).total() for a, b in zip(*parts, strict=True))


def course(workload, space, seed, most):
    """Round by round what a search from a seed asks for, what was known before, how often it had to persist."""
    lowest_ns = port_bounds_ns(workload)
    search = GuidedSearch(workload, space, dict.fromkeys(range(len(workload.intervals.problems)), seed), lowest_ns)
    known, persisted = {}, 0
    values = np.full(len(workload.intervals.problems), np.inf)
    while len(known) < most and persisted < 20:
        search.know(workload.intervals.costs_ns(values))
        asked = search.propose(8)
        yield asked, set(known), persisted
        for choice in asked:
            known[choice] = answer(task_of(workload, space, choice))
            search.feed(choice, known[choice])
            values = np.minimum(values, workload.intervals.values(known[choice].theta))
        assert search.answered == len(known)
        if not asked:
            search.persist()
            persisted += 1


@pytest.mark.parametrize("classes", [1, 2, 4])
@pytest.mark.parametrize(("name", "gpus", "degree"), [("all-reduce-swing", 8, 2), ("all-to-all-direct", 8, 3)])
def test_asks_for_neighbours_of_what_it_knows_until_it_has_to_persist(name, gpus, degree, classes):
    """Two ports away; later also for others to begin with, two pairs of ports away."""
    workload = job(name, gpus, degree)
    space = ladder(workload, classes)[-1]
    assert space.classes == classes
    seed = random_choice(space, np.random.default_rng(1))
    (asked, _, _), *rounds = course(workload, space, seed, most=120)
    assert asked == [seed]
    for asked, known, persisted in rounds:
        assert all(space.choice_of(space.topology(choice)) == choice for choice in asked)
        assert len(set(asked)) == len(asked)
        assert known.isdisjoint(asked)
        nearest = [min(ports_changed(space, choice, other) for other in known) for choice in asked]
        assert max(nearest, default=0) <= (4 if persisted else 2)
    assert persisted


SEVERAL = [("all-reduce-swing", 8, 2), ("all-gather-bruck", 12, 3), ("all-reduce-rd-exchange", 8, 1)]


def neighbourhood(seed):
    """Of a random topology, for a random interval, by what is known about that topology and about a few others."""
    rng = np.random.default_rng(seed)
    workload = job(*SEVERAL[seed % len(SEVERAL)])
    spaces = ladder(workload, 4)
    space = spaces[rng.integers(len(spaces))]
    search = GuidedSearch(workload, space, {}, port_bounds_ns(workload))
    centre, *others = (random_choice(space, rng) for _ in range(rng.integers(1, 6)))
    for choice in (centre, *others):
        search.learn(solve(task_of(workload, space, choice)).potentials)
    index, first = rng.integers(len(workload.intervals.problems)), int(rng.integers(1, 6))
    patterns, weights = workload.intervals.patterns[index], workload.intervals.problems[index].weights
    inequalities = list(search._inequalities)
    here = _Neighbourhood(space, centre, patterns, weights, inequalities[:first], first)
    here.learn(inequalities[first:], len(inequalities))
    return workload, space, centre, [workload.patterns[pattern] for pattern in patterns], here


NEIGHBOURHOODS = st.integers(0, 2**32 - 1).map(neighbourhood)


@given(NEIGHBOURHOODS, st.data())
@settings(max_examples=60)
def test_bounds_of_neighbours_are_true(found, data):
    """Beside theta by the program without symmetry."""
    workload, space, centre, patterns, here = found
    for place in data.draw(st.lists(st.integers(0, len(here._first) - 1), max_size=5)):
        choice = here._choice(place)
        assert ports_changed(space, centre, choice) <= 2
        theta = theta_row(space.topology(choice), patterns, workload.collective.dims).theta
        assert (np.array(theta) <= here._upper[:, place] * (1 + 1e-5) + 1e-6).all()


def test_bounds_of_neighbours_are_not_negative():
    for seed in range(60):
        *_, here = neighbourhood(seed)
        assert here._upper.min() >= 0


@given(NEIGHBOURHOODS)
@settings(max_examples=30)
def test_neighbours_are_all_topologies_two_ports_away(found):
    _, space, centre, _, here = found
    if space.most < 10**5:
        listing = Listing(space)
        choices = map(listing.choice, range(listing.size))
        near = {choice for choice in choices if ports_changed(space, centre, choice) <= 2}
        assert {here._choice(place) for place in range(len(here._first))} == near


@given(NEIGHBOURHOODS, st.integers(1, 40))
@settings(max_examples=30)
def test_all_neighbours_below_a_limit_are_named_the_best_first(found, count):
    *_, here = found
    with np.errstate(divide="ignore"):
        values = here._weights @ (1 / here._upper)
    bound_of = {}
    for place, value in enumerate(values.tolist()):
        choice = here._choice(place)
        bound_of[choice] = min(value, bound_of.get(choice, np.inf))
    limit = float(np.median(values))
    named = []
    while some := here.best(count, limit):
        named += some
    assert set(named) == {choice for choice, value in bound_of.items() if value < limit}
    bounds = [bound_of[choice] for choice in dict.fromkeys(named)]
    assert bounds == sorted(bounds)


def some_effort(workload, space, tasks):
    """Enough for so many tasks of a space with one class."""
    return tasks * task_of(workload, space, apportioned(space, workload.interval(0, 1))).effort


LARGE = [
    ("all-reduce-swing", 32, Latency.CONGESTION),
    ("all-reduce-swing", 32, Latency.SHORTEST),
    ("all-reduce-rd-exchange", 32, Latency.CONGESTION),
    ("all-to-all-direct", 24, Latency.CONGESTION),
]


@functools.cache
def searched_further_and_further(name, gpus, latency):
    """Over candidates, also over the space of the whole group, and over those of its subgroups; and what was asked."""
    workload = job(name, gpus, 3, 500, 40_000, latency)
    spaces = ladder(workload, 4)
    topologies = families.candidates(["matchings", "strides"], workload)
    limits = {"effort": some_effort(workload, spaces[0], 500), "most_listed": 100}
    planners = [Planner(workload, topologies, spaces=some, **limits) for some in ((), spaces[:1], spaces)]
    return planners, [[task.key for tasks in rounds_of(planner) for task in tasks] for planner in planners]


@pytest.mark.parametrize(("name", "gpus", "latency"), LARGE)
def test_subgroups_only_add_to_full_symmetry_and_spaces_to_candidates(name, gpus, latency):
    planners, asked = searched_further_and_further(name, gpus, latency)
    for fewer, more in itertools.pairwise(asked):
        assert more[: len(fewer)] == fewer
        assert len(more) > len(fewer)
    alone, symmetric, ladder = map(cost_ns, planners)
    assert ladder <= symmetric <= alone
    assert not any(proof.closed for proof in planners[2].proofs())


def test_less_symmetry_can_be_better():
    planners, _ = searched_further_and_further(*LARGE[-1])
    alone, symmetric, ladder = map(cost_ns, planners)
    assert ladder < symmetric < alone


def ordered(planner, order):
    """Keys of the tasks of each round, answered in another order."""
    rounds = []
    while tasks := planner.next_round():
        rounds.append([task.key for task in tasks])
        for task in order(list(tasks)):
            planner.feed(task, answer(task))
    return rounds


def shuffled(tasks):
    return random.Random(len(tasks)).sample(tasks, len(tasks))


# Guided on all rungs; the rung of the whole group listed.
MIXED = [{"most_listed": 0}, {"most_listed": 1_000}]


def limited_planner(limits, topologies=()):
    workload = job("all-reduce-swing", 16, 2)
    spaces = ladder(workload, 4)
    return Planner(workload, topologies, spaces=spaces, effort=some_effort(workload, spaces[0], 1_500), **limits)


@pytest.mark.parametrize("limits", MIXED)
def test_rounds_do_not_depend_on_the_order_of_answers(limits):
    planners = [limited_planner(limits) for _ in range(3)]
    rounds = [ordered(planner, order) for planner, order in zip(planners, (iter, reversed, shuffled), strict=True)]
    assert len(rounds[0]) > 5
    assert rounds[0] == rounds[1] == rounds[2]
    assert planners[0].summary() == planners[1].summary() == planners[2].summary()


def test_answers_out_of_a_store_lead_the_same_way():
    """All answers are in the store, what the search found is not."""
    store, cold, warm = Store(), limited_planner(MIXED[0]), limited_planner(MIXED[0])
    first = drive(cold, store)
    del store[cold.key]
    second = drive(warm, store)
    assert (second.solved, second.from_cache) == (0, first.solved)
    assert warm.summary() == cold.summary()
    assert [topology.label for topology in warm.topologies] == [topology.label for topology in cold.topologies]


@pytest.mark.parametrize("limits", MIXED)
def test_finite_effort_is_spent_up_to_the_last_round(limits):
    planner = limited_planner(limits)
    *before, last = rounds_of(planner)
    efforts = [sum(task.effort for task in tasks) for tasks in before]
    assert sum(efforts) < planner._effort
    assert planner.next_round() == ()
    assert len({task.classes for tasks in (*before, last) for task in tasks}) > 1


def test_endless_effort_goes_on_where_finite_effort_ends():
    workload = job("all-reduce-swing", 16, 2)
    spaces = ladder(workload, 2)
    finite, endless = (Planner(workload, (), spaces=spaces, most_listed=0, effort=effort) for effort in (1e18, np.inf))
    first = [[task.key for task in tasks] for tasks in rounds_of(finite)]
    rounds = [[task.key for task in tasks] for tasks in rounds_of(endless, most=finite.done + 200)]
    assert rounds[: len(first)] == first
    assert endless.done > finite.done + 200
    assert len(set(itertools.chain.from_iterable(rounds))) == endless.done
    assert cost_ns(endless) <= cost_ns(finite)


@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", ALL_REDUCES)
def test_endless_effort_ends_when_nothing_is_left(name, classes):
    """Seven topologies, or 25 in each subgroup."""
    workload = job(name, 8, 1)
    spaces = one_a_rung(ladder(workload, classes))
    planner, whole = (Planner(workload, (), spaces=spaces, most_listed=most) for most in (0, 2**25))
    collections.deque(rounds_of(planner), maxlen=0)
    collections.deque(rounds_of(whole), maxlen=0)
    assert planner.next_round() == ()
    assert planner.done <= sum(Listing(space).size for space in spaces)
    assert cost_ns(planner) == pytest.approx(cost_ns(whole))


def test_what_was_found_is_taken_over():
    candidates = families.candidates(["matchings"], job("all-reduce-swing", 16, 2))
    store, cold, warm = Store(), limited_planner(MIXED[1], candidates), limited_planner(MIXED[1], candidates)
    first, second = drive(cold, store), drive(warm, store)
    assert second.solved == 0
    assert 0 < second.from_cache < first.solved / 5
    schedules = [planner.plan().schedule(PROVENANCE) for planner in (cold, warm)]
    assert schedules[0].segments == schedules[1].segments
    assert schedules[0].topologies == schedules[1].topologies
    assert schedules[0].envelope == schedules[1].envelope
    assert warm.proofs() == tuple(
        dataclasses.replace(proof, lower_bound_ns=pytest.approx(proof.lower_bound_ns)) for proof in cold.proofs()
    )


def test_numbers_of_topologies_may_have_more_than_64_bits():
    workload = job("all-reduce-swing", 32, 8)
    spaces = ladder(workload, 4)
    cold, warm = (Planner(workload, (), spaces=spaces, effort=1) for _ in range(2))
    collections.deque(rounds_of(cold), maxlen=0)
    warm.resume(msgpack.unpackb(msgpack.packb(cold.summary())))
    assert [proof.topologies for proof in warm.proofs()] == [math.comb(38, 8) ** space.classes for space in spaces]
    assert warm.proofs()[-1].topologies > 2**64


@pytest.mark.parametrize(
    ("space", "choice"),
    [
        (0, [0, 1]),
        (0, [1, 16]),
        (0, [-1, 1]),
        (0, [1]),
        (0, [1, 2, 3]),
        (0, 5),
        (0, None),
        (0, [[1], [3]]),
        (0, [1e30, 1]),
        (0, [float("nan"), 1]),
        (0, ["a", "b"]),
        (0, [10**30, 1]),
        (1, [2, 2, 2, 4]),
        (7, [1, 3]),
        ("0", [1, 3]),
    ],
)
def test_choices_outside_their_space_are_refused(space, choice):
    planner = limited_planner(MIXED[0])
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        planner.resume({"found": [[0, [1, 3]], [space, choice]], "proofs": []})
    assert planner.searches


@given(st.lists(st.lists(st.integers(0, 30), min_size=5, max_size=5).filter(any), min_size=1, max_size=3), st.data())
def test_ports_are_apportioned_to_the_largest_quotients(amounts, data):
    """D'Hondt: of all demands divided by 1, 2, 3, ..., the largest have a port each."""
    degree = data.draw(st.integers(1, 12))
    weights = [data.draw(st.sampled_from([0.25, 0.5, 1.0])) for _ in amounts]
    ranks = np.arange(6)
    matrices = [PairMatrix.from_dense(np.array([0, *row])[(ranks - ranks[:, None]) % 6]) for row in amounts]
    problem = IntervalProblem(tuple(map(Pattern, matrices)), tuple(weights), degree, 1.0)
    choice = apportioned(Space(recognised(matrices, (6,)), degree), problem)
    traffic = [sum(w * row[v - 1] for w, row in zip(weights, amounts, strict=True)) for v in range(1, 6)]
    quotients = sorted((traffic[v] / k for v in range(5) for k in range(1, degree + 1)), reverse=True)
    taken = (traffic[v - 1] / k for v in range(1, 6) for k in range(1, choice.count(v) + 1))
    assert sorted(taken, reverse=True) == pytest.approx(quotients[:degree])
