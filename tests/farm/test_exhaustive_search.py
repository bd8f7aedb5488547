"""The search beside costing every topology of the space."""

import itertools
from functools import cache

import numpy as np
import pytest

from lumenfarm import collectives, recurrence
from lumenfarm.cayley import Listing, Space
from lumenfarm.exhaustive_search import ExhaustiveSearch
from lumenfarm.groups import recognised, subgroup_ladder
from lumenfarm.model import Collective, Fabric, Latency, Topology
from lumenfarm.problem import Workload
from lumenfarm.symmetry import is_automorphism
from lumenfarm.tasks.concurrent_flow import metric_row
from lumenfarm.verify.flow import prove


def job(name, gpus, degree, delta, alpha_r, latency=Latency.CONGESTION):
    collective = collectives.generate(name, gpus=gpus, message_bytes=64e3, ports=degree)
    return Workload.of(collective, Fabric(degree, 800, 500, delta, alpha_r, latency))


def spaces_of(workload, most_classes):
    group = recognised([pattern.multiplicities for pattern in workload.patterns], workload.collective.dims)
    return [Space(one, workload.fabric.degree) for one in subgroup_ladder(group, most_classes)]


def space_of(workload, classes):
    return next(space for space in spaces_of(workload, classes) if space.classes == classes)


def choices(space):
    listing = Listing(space)
    return [listing.choice(number) for number in range(listing.size)]


def row_of(workload, space, choice):
    return metric_row(space.topology(choice), workload.patterns, space.group.symmetry)


def interval_costs(workload, rows):
    theta, hops = np.array([row.theta for row in rows]), np.array([row.hops for row in rows])
    return recurrence.interval_costs(workload.times_ns(theta, hops))[0]


def best(workload, rows):
    """Cost of the best schedule over a list of rows; infinite if there is none."""
    communication = np.array(recurrence.partition(interval_costs(workload, rows)).communication_ns)
    return (communication + workload.fabric.reconfig_delay_ns * np.arange(len(communication))).min()


def searched(workload, space, count=3):
    """Rows in the order asked for, and the bound when nothing is left."""
    search = ExhaustiveSearch(workload, space)
    steps = len(workload)
    rows, costs = [], np.full((steps, steps + 1), np.inf)
    while True:
        search.know(costs)
        asked = search.propose(count)
        if not asked:
            return rows, search.lower_bound_ns()
        assert len(set(asked)) == len(asked) <= count
        for choice in asked:
            rows.append(row_of(workload, space, choice))
            search.feed(choice, rows[-1])
        costs = interval_costs(workload, rows)


CASES = [
    ("all-reduce-swing", 8, 1, 1),
    ("all-reduce-swing", 8, 1, 2),
    ("all-reduce-swing", 8, 2, 1),
    ("all-reduce-rd", 8, 2, 1),
    ("all-reduce-rd-exchange", 8, 2, 1),
    ("all-to-all", 5, 2, 1),
    ("all-gather-bruck", 6, 2, 1),
    ("all-gather-bruck", 6, 1, 2),
    ("all-reduce-swing", 8, 1, 4),
    ("all-reduce-rd-exchange", 8, 1, 4),
]


@pytest.mark.parametrize("latency", Latency)
@pytest.mark.parametrize(("delta", "alpha_r"), [(500, 0), (500, 2_000), (20_000, 30_000), (10, 1e7)])
@pytest.mark.parametrize(("name", "gpus", "degree", "classes"), CASES)
def test_closed_search_has_the_best_of_the_space(name, gpus, degree, classes, delta, alpha_r, latency):
    workload = job(name, gpus, degree, delta, alpha_r, latency)
    space = space_of(workload, classes)
    whole = best(workload, [row_of(workload, space, choice) for choice in choices(space)])
    rows, bound = searched(workload, space)
    found = best(workload, rows)
    assert found == pytest.approx(whole, rel=2e-5)
    assert bound <= whole * (1 + 1e-9)


def test_bound_is_the_cost_when_closed_and_hops_follow_congestion():
    workload = job("all-reduce-swing", 16, 2, 500, 3_000)
    rows, bound = searched(workload, space_of(workload, 1))
    assert bound == pytest.approx(best(workload, rows), rel=1e-4)


def test_looks_at_few_topologies():
    workload = job("all-reduce-swing", 16, 2, 500, 3_000)
    space = space_of(workload, 2)
    rows, _ = searched(workload, space, count=8)
    assert len(rows) < Listing(space).size / 10


def test_every_bound_on_the_way_is_below_the_best_of_the_space():
    workload = job("all-reduce-rd", 8, 2, 500, 3_000)
    space = space_of(workload, 1)
    whole = best(workload, [row_of(workload, space, choice) for choice in choices(space)])
    search, rows = ExhaustiveSearch(workload, space), []
    costs = np.full((len(workload), len(workload) + 1), np.inf)
    bounds = []
    while True:
        search.know(costs)
        asked = search.propose(1)
        if not asked:
            break
        rows.append(row_of(workload, space, asked[0]))
        search.feed(asked[0], rows[-1])
        bounds.append(search.lower_bound_ns())
        costs = interval_costs(workload, rows)
    assert bounds == sorted(bounds)
    assert max(bounds) <= whole * (1 + 1e-9)


def congestion_of_all_matchings(partners):
    """1/theta of every one-port topology on 8 GPUs, all permutations without fixed points, by walking its cycles."""
    n = 8
    topologies = np.array([p for p in itertools.permutations(range(n)) if all(u != v for u, v in enumerate(p))])
    place = np.tile(np.arange(n), (len(topologies), 1))
    walks = [place]
    for _ in range(n):
        walks.append(np.take_along_axis(topologies, walks[-1], axis=1))
    found = np.full((len(topologies), len(partners)), np.inf)
    for index, partner in enumerate(partners):
        hops = np.argmax([walk == partner for walk in walks], axis=0)
        load = np.zeros_like(topologies)
        for step, walk in enumerate(walks):
            for source in range(n):
                load[np.arange(len(load)), walk[:, source]] += step < hops[:, source]
        reached = (hops > 0).all(axis=1)
        found[reached, index] = load.max(axis=1)[reached]
    return found


@pytest.mark.parametrize("name", ["reduce-scatter-rd", "reduce-scatter-swing"])
@pytest.mark.parametrize("interval", [(0, 2), (1, 3), (0, 3)])
def test_symmetric_optimum_is_the_optimum_of_8_gpus_with_one_port(name, interval):
    """Both the group and its subgroups of half the size are needed: no single orbit connects Swing's partners."""
    workload = job(name, 8, 1, 0, 0)
    steps = range(*interval)
    demands = [workload.collective.steps[step].demand for step in steps]
    partners = [demand.destinations[np.argsort(demand.sources)] for demand in demands]
    weights = workload.weights_ns[list(steps)]
    exact = (congestion_of_all_matchings(partners) * weights).sum(axis=1).min()
    patterns = workload.pattern_of_step[list(steps)]
    found = []
    for space in spaces_of(workload, 2):
        theta = np.array([row_of(workload, space, choice).theta for choice in choices(space)])[:, patterns]
        with np.errstate(divide="ignore"):
            found.append((weights / theta).sum(axis=1).min())
    assert min(found) == pytest.approx(exact)


@cache
def theta_of_symmetric_topologies(name):
    """Of every step on all topologies of the group and of its subgroups of half the size: 8 GPUs with two ports."""
    workload = job(name, 8, 2, 0, 0)
    rows = [row_of(workload, space, choice) for space in spaces_of(workload, 2) for choice in choices(space)]
    return np.array([row.theta for row in rows])[:, workload.pattern_of_step]


def values(theta, interval):
    """sum_i w_i/theta_i for theta of all steps of halving, shape (..., steps)."""
    steps = np.arange(*interval)
    with np.errstate(divide="ignore"):
        return (0.5 ** (steps - steps[0]) / theta[..., steps]).sum(axis=-1)


@pytest.mark.parametrize(("interval", "best"), [((0, 2), 2), ((1, 3), 2), ((0, 3), 3)])
def test_symmetric_optimum_of_doubling_is_the_optimum_of_8_gpus_with_two_ports(interval, best):
    """SCIP finds the same over all topologies (model section 9, where one port's worth is sent over two)."""
    assert values(theta_of_symmetric_topologies("reduce-scatter-rd"), interval).min() == pytest.approx(best)


@pytest.mark.parametrize(
    ("interval", "targets", "best"),
    [
        ((0, 2), "16 03 03 24 25 47 57 16", 13 / 5),
        ((1, 3), "37 26 15 47 03 16 25 04", 7 / 3),
        ((0, 3), "13 06 04 27 35 46 27 15", 31 / 10),
    ],
)
def test_swing_on_8_gpus_with_two_ports_needs_four_classes(interval, targets, best):
    """The best of all topologies (benchmarks/exact_small.py) are preserved by a reflection."""
    topology = Topology.from_arcs(8, [(u, int(v), 1) for u, pair in enumerate(targets.split()) for v in pair])
    assert any(is_automorphism(topology.circuits, (centre - np.arange(8)) % 8) for centre in (1, 3, 5, 7))
    steps = job("reduce-scatter-swing", 8, 2, 0, 0).collective.steps
    shipped = np.array([prove(topology, step.pattern(2).multiplicities).shipped for step in steps])
    assert values(shipped, interval) == pytest.approx(best)
    assert values(theta_of_symmetric_topologies("reduce-scatter-swing"), interval).min() > 1.1 * best
    assert searched_value(interval, most_classes=4) == pytest.approx(best)


def searched_value(interval, most_classes):
    """The same for the best topology that the search finds in any space."""
    whole = job("reduce-scatter-swing", 8, 2, 0, 1e12)
    steps = whole.collective.steps[slice(*interval)]
    workload = Workload.of(Collective("some steps", steps, (8,)), whole.fabric)
    found = [best(workload, searched(workload, space, 32)[0]) for space in spaces_of(whole, most_classes)]
    return (min(found) - workload.startup_ns(0, len(workload))) / workload.weights_ns.max()
