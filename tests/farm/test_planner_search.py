"""Rounds over spaces: never worse than candidates, the same whatever the order, and taken over from an equal search."""

import dataclasses
import functools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import collectives, families
from lumenfarm.cayley import Space
from lumenfarm.driver import Limits, run
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.model import Fabric
from lumenfarm.plan import IntervalBounds
from lumenfarm.planner import Planner
from lumenfarm.problem import MetricTask, ThetaTask, Workload
from lumenfarm.schedule import Provenance
from lumenfarm.tasks.local_pool import LocalExecutor
from lumenfarm.tasks.work import solve

PROVENANCE = Provenance({}, "symmetric", {}, "2026-01-01T00:00:00+00:00")


BOUNDS = functools.cache(IntervalBounds.of)


@pytest.fixture(autouse=True, scope="module")
def _bounds_once():
    """They are the same for all planners of a workload."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(IntervalBounds, "of", staticmethod(BOUNDS))
        yield


@functools.cache
def workload(name="all-reduce-swing", gpus=16, alpha_r=4_000.0):
    collective = collectives.generate(name, gpus=gpus, message_bytes=256e3, ports=2)
    return Workload.of(collective, Fabric(2, 800, 500, 500, alpha_r))


def spaces(job, most_classes=2):
    group = recognised([pattern.multiplicities for pattern in job.patterns], job.collective.dims)
    return [Space(one, 2) for one in subgroup_ladder(group, most_classes)]


def new_planner(job, **settings):
    return Planner(job, families.candidates(["matchings", "strides"], job), spaces=spaces(job), **settings)


def answered(planner, shuffle=None):
    """Rounds of task keys, each answered in the given or in a shuffled order."""
    rounds = []
    while tasks := planner.next_round():
        rounds.append([task.key for task in tasks])
        order = list(tasks)
        if shuffle is not None:
            random.Random(shuffle).shuffle(order)
        for task in order:
            planner.feed(task, solve(task))
    return rounds


def facts(planner):
    schedule = planner.plan().schedule(PROVENANCE)
    labels = [topology.label for topology in schedule.topologies]
    return labels, schedule.segments, schedule.steps, schedule.cost_ns, schedule.envelope


class Store(dict[str, Any]):
    def load(self, key):
        return self.get(key)

    def save(self, key, _kind, _request, result):
        self[key] = result


def drive(planner, store):
    return run(
        planner,
        store,
        lambda: LocalExecutor(store),
        limits=Limits(),
        clock=lambda: 0.0,
        listen=lambda *_: None,
    )


@pytest.mark.parametrize("name", ["all-reduce-swing", "all-reduce-rd", "all-reduce-rd-exchange", "all-to-all-direct"])
@pytest.mark.parametrize("alpha_r", [500.0, 40_000.0])
def test_never_worse_than_the_candidates_and_closed(name, alpha_r):
    job = workload(name, 8, alpha_r)
    alone = Planner(job, families.candidates(["matchings", "strides"], job))
    answered(alone)
    searched = new_planner(job)
    answered(searched)
    assert searched.plan().cost_ns <= alone.plan().cost_ns
    assert all(proof.closed for proof in searched.proofs())
    assert searched.proofs()[-1].lower_bound_ns <= searched.plan().cost_ns
    assert searched.lower_bound_ns <= searched.plan().cost_ns


def test_rounds_do_not_depend_on_the_order_of_answers():
    planners = [new_planner(workload()) for _ in range(3)]
    rounds = [answered(planner, shuffle) for planner, shuffle in zip(planners, (None, 1, 2), strict=True)]
    assert rounds[0] == rounds[1] == rounds[2]
    assert facts(planners[0]) == facts(planners[1]) == facts(planners[2])


def test_first_the_candidates_then_the_spaces():
    planner = new_planner(workload())
    first = planner.next_round()
    assert all(isinstance(task, ThetaTask) for task in first)
    assert first == planner.candidates
    for task in first:
        planner.feed(task, solve(task))
    assert all(isinstance(task, MetricTask) for task in planner.next_round())


def test_no_effort_no_search():
    planner = new_planner(workload(), effort=0)
    assert len(answered(planner)) == 1
    assert all(proof.answered == 0 for proof in planner.proofs())
    alone = Planner(workload(), families.candidates(["matchings", "strides"], workload()))
    answered(alone)
    assert planner.plan().cost_ns == alone.plan().cost_ns


@pytest.mark.parametrize("effort", [0, 1, 1e5])
def test_spent_effort_closes_nothing(effort):
    """The optimum of the last space, 19,080 ns, is not known by then."""
    planner = new_planner(workload(), effort=effort)
    answered(planner)
    assert planner.plan().cost_ns > 19_080 * (1 + 1e-6)
    assert not all(proof.closed for proof in planner.proofs())


def test_every_answer_is_counted():
    planner = new_planner(workload(), effort=1e5)
    asked = []
    while tasks := planner.next_round():
        asked += tasks
        for task in tasks:
            planner.feed(task, solve(task))
    counted = sum(proof.answered for proof in planner.proofs())
    assert counted == sum(isinstance(task, MetricTask) for task in asked)


def test_an_equal_search_is_taken_over():
    store = Store()
    cold, warm = new_planner(workload()), new_planner(workload())
    first, second = drive(cold, store), drive(warm, store)
    assert first.solved > 0
    assert second.solved == 0
    assert second.from_cache < first.solved
    assert facts(warm) == facts(cold)
    for mine, theirs in zip(warm.proofs(), cold.proofs(), strict=True):
        assert mine.lower_bound_ns == pytest.approx(theirs.lower_bound_ns)
        assert dataclasses.replace(mine, lower_bound_ns=theirs.lower_bound_ns) == theirs


@pytest.mark.parametrize("names", [[], ["matchings"]])
def test_what_was_found_is_taken_over_where_candidates_do_not_carry_every_step(names):
    job, store = workload("all-to-all-direct", 8), Store()
    cold, warm = (Planner(job, families.candidates(names, job), spaces=spaces(job)) for _ in range(2))
    assert drive(cold, store).solved > 0
    assert drive(warm, store).solved == 0
    assert facts(warm) == facts(cold)


def test_only_ratios_of_times_name_a_search():
    job = workload()
    fabric = job.fabric
    slower = Fabric(2, fabric.link_gbps / 4, 2_000, 2_000, 16_000)
    other = Fabric(2, fabric.link_gbps, 500, 500, 8_000)
    key = new_planner(job).key
    assert new_planner(Workload.of(job.collective, slower)).key == key
    assert new_planner(Workload.of(job.collective, other)).key != key
    assert new_planner(job, effort=10).key != key
    assert new_planner(job, effort=math.inf).key == key
    assert Planner(job, (), spaces=spaces(job)).key != key


def test_what_is_listed_is_part_of_the_name_of_a_search():
    assert new_planner(workload(), most_listed=0).key != new_planner(workload()).key


RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["found", "proofs", "group"]), inner),
    max_leaves=8,
)


FOUND = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(-1, 16), min_size=2, max_size=4) | RECORDS))
FIELDS = ["group", "topologies", "listed", "answered", "lower_bound_ns", "closed"]
PROOFS = st.lists(st.fixed_dictionaries({field: st.just(0) | RECORDS for field in FIELDS}), max_size=2)


@given(
    st.dictionaries(st.sampled_from(["found", "proofs"]), RECORDS)
    | st.fixed_dictionaries({"found": FOUND, "proofs": PROOFS | RECORDS})
)
@settings(max_examples=300)
def test_any_record_is_taken_over_or_refused(record):
    """What is taken over are topologies of the spaces."""
    planner = new_planner(workload())
    try:
        planner.resume(record)
    except ValueError:
        assert planner.searches
        return
    assert not planner.searches
    assert len(planner.proofs()) == len(record["proofs"])
    assert planner.next_round() == planner.candidates
    for task in planner.next_round():
        assert (task.topology.circuits.row_sums == 2).all()
        assert (task.topology.circuits.column_sums == 2).all()


def test_a_bad_summary_in_the_store_is_a_miss():
    store = Store()
    planner = new_planner(workload(gpus=8))
    store[planner.key] = {"found": [[0, [1, 10**9]]], "proofs": []}
    assert drive(planner, store).solved > 0
    assert all(proof.closed for proof in planner.proofs())
    assert store[new_planner(workload(gpus=8)).key]["proofs"]
