"""The planner beside enumeration of all topology sequences; any order of answers gives the same plan."""

import itertools
import random

import numpy as np
import pytest

from lumenfarm import families
from lumenfarm.errors import InputError, UnreachableError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Latency, Step, Topology
from lumenfarm.planner import Planner
from lumenfarm.problem import Workload
from lumenfarm.schedule import Provenance
from lumenfarm.tasks.work import solve

PROVENANCE = Provenance({}, "candidates", {}, "2026-01-01T00:00:00+00:00")


def job(latency=Latency.CONGESTION, alpha_r=700.0):
    rounds = [PairMatrix.shift(8, 1 << i, 4096.0 / 2**i) for i in range(3)]
    collective = Collective("all-reduce", tuple(map(Step, [*rounds, *rounds[::-1]])), (8,), 8192.0)
    return Workload.of(collective, Fabric(2, 100.0, 30.0, 200.0, alpha_r, latency))


def few(workload):
    return families.candidates(["published"], workload)[:5]


def answered(planner, order=None):
    tasks = list(planner.next_round())
    if order is not None:
        random.Random(order).shuffle(tasks)
    for task in tasks:
        planner.feed(task, solve(task))
    return planner


def by_enumeration(workload, topologies, initial=None):
    """The cheapest of all sequences of topologies, each step costed from the formula of model section 2."""
    fabric = workload.fabric
    time = np.full((len(topologies), len(workload)), np.inf)
    for g, topology in enumerate(topologies):
        for i, step in enumerate(workload.collective.steps):
            row = solve(Planner(workload, [topology]).candidates[0])
            theta = row.theta[workload.pattern_of_step[i]]
            if theta == 0:
                continue
            hops = 1 / theta if fabric.latency is Latency.CONGESTION else row.hops[workload.pattern_of_step[i]]
            size = step.demand.largest_sum / fabric.degree
            time[g, i] = fabric.alpha_ns + size * 8 / fabric.link_gbps / theta + fabric.delta_ns * hops
    costs = {}
    for sequence in itertools.product(range(len(topologies)), repeat=len(workload)):
        moves = sum(a != b for a, b in itertools.pairwise(sequence))
        moves += initial is not None and sequence[0] != initial
        costs[sequence] = sum(time[g, i] for i, g in enumerate(sequence)) + moves * fabric.reconfig_delay_ns
    return min(costs.values())


@pytest.mark.parametrize("latency", Latency)
@pytest.mark.parametrize("alpha_r", [0.0, 100.0, 700.0, 1e5])
def test_equals_enumeration(latency, alpha_r):
    workload = job(latency, alpha_r)
    topologies = few(workload)[:4]
    plan = answered(Planner(workload, topologies)).plan()
    assert plan.cost_ns == pytest.approx(by_enumeration(workload, topologies), rel=1e-9)


@pytest.mark.parametrize("alpha_r", [100.0, 700.0, 1e5])
def test_equals_enumeration_with_an_initial_topology(alpha_r):
    workload = job(alpha_r=alpha_r)
    topologies = few(workload)[:4]
    plan = answered(Planner(workload, topologies, initial=topologies[2])).plan()
    assert plan.cost_ns == pytest.approx(by_enumeration(workload, topologies, initial=2), rel=1e-9)
    schedule = plan.schedule(PROVENANCE)
    assert schedule.cost_ns == pytest.approx(schedule.communication_ns + schedule.reconfigurations * alpha_r)


def test_any_order_of_answers_gives_the_same_schedule():
    workload = job()
    topologies = families.candidates(families.DEFAULT_FAMILIES, workload)
    plans = [answered(Planner(workload, topologies), order).plan() for order in range(4)]
    labels = [[t.label for t in plan.schedule(PROVENANCE).topologies] for plan in plans]
    assert all(label == labels[0] for label in labels)
    assert len({plan.cost_ns for plan in plans}) == 1


def test_plans_only_get_better_and_stay_above_the_bound():
    workload = job()
    planner = Planner(workload, families.candidates(families.DEFAULT_FAMILIES, workload))
    costs = []
    for task in planner.next_round():
        planner.feed(task, solve(task))
        costs.append(planner.standing().cost_ns)
    assert costs == sorted(costs, reverse=True)
    assert planner.lower_bound_ns <= costs[-1]


def test_baselines():
    workload = job()
    planner = answered(Planner(workload, few(workload)))
    plan = planner.plan()
    assert plan.baselines.static_ns == pytest.approx(plan.times_ns.sum(axis=1).min())
    assert plan.cost_ns <= min(plan.baselines.static_ns, plan.baselines.every_step_ns) * (1 + 1e-12)


def test_unreachable_pair_is_named_before_anything_is_asked():
    planner = Planner(job(), [Topology.circulant(8, {2: 1})])
    with pytest.raises(UnreachableError, match=r"every pair of step 1, got 'circulant\{\+2\}: no path 0 -> 1'"):
        planner.next_round()


def test_no_plan_before_there_are_answers():
    planner = Planner(job(), few(job()))
    planner.next_round()
    with pytest.raises(UnreachableError, match="some are still missing"):
        planner.plan()


def test_refuses_what_does_not_fit():
    workload = job()
    with pytest.raises(InputError, match="at most 2 ports a GPU, got 3"):
        Planner(workload, [Topology.circulant(8, {1: 3})])
    with pytest.raises(InputError, match="8 GPUs, got 4"):
        Planner(workload, [Topology.circulant(4, {1: 1})])
    with pytest.raises(InputError, match="at least one candidate"):
        Planner(workload, [])


def test_feeding_twice_changes_nothing():
    workload = job()
    planner = answered(Planner(workload, few(workload)))
    before = planner.standing()
    task = planner.candidates[0]
    planner.feed(task, solve(task))
    assert planner.standing() == before
