"""What makes intervals and tasks the same problem (model section 3), and what a step costs (section 2)."""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import problem
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Latency, Step, Topology
from lumenfarm.problem import ThetaRow, ThetaTask, Workload

# 8 Gb/s: one byte takes one ns, so that weights of whole bytes are whole numbers and sums of them are exact.
FABRIC = Fabric(2, 8.0, 5.0, 4.0, 100.0)
GPUS = 5


@st.composite
def demands(draw):
    """Irregular demands of whole bytes, of few enough kinds that equal patterns happen."""
    pairs = st.sampled_from([(0, 1), (1, 0), (0, 4), (2, 3)])
    entries = draw(st.dictionaries(pairs, st.integers(1, 3), min_size=1, max_size=3))
    factor = draw(st.sampled_from([2, 4, 6]))
    return Step(PairMatrix(GPUS, *zip(*entries, strict=True), [factor * amount for amount in entries.values()]))


STEPS = st.lists(demands(), min_size=1, max_size=6)


def workload(steps, fabric=FABRIC):
    return Workload.of(Collective("job", tuple(steps), (GPUS,)), fabric)


def whole(steps, fabric=FABRIC):
    return workload(steps, fabric).interval(0, len(steps))


def shifts(offsets, message_bytes=4096.0, gpus=16):
    return [Step(PairMatrix.shift(gpus, offset, message_bytes / offset)) for offset in offsets]


@given(STEPS)
@settings(max_examples=50)
def test_every_step_has_its_pattern_and_every_pattern_a_step(steps):
    job = workload(steps)
    assert len(job) == len(steps)
    assert [job.patterns[index] for index in job.pattern_of_step] == [step.pattern(2) for step in steps]
    assert len(set(job.patterns)) == len(job.patterns) == len(set(job.pattern_of_step.tolist()))
    digests = [pattern.digest for pattern in job.patterns]
    assert digests == sorted(digests)
    assert job.chunk_bytes.tolist() == [step.chunk_bytes(2) for step in steps]


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_order_inside_an_interval_is_irrelevant(steps, random):
    assert whole(random.sample(steps, len(steps))).key == whole(steps).key


@given(STEPS)
@settings(max_examples=50)
def test_equal_patterns_merge_and_their_weights_add(steps):
    interval = whole(steps)
    expected = {}
    for step in steps:
        weight = step.demand.largest_sum / 2 + 4.0
        expected[step.pattern(2)] = expected.get(step.pattern(2), 0.0) + weight
    assert interval.scale_ns == max(expected.values())
    found = dict(zip(interval.patterns, interval.weights, strict=True))
    assert found == {pattern: weight / interval.scale_ns for pattern, weight in expected.items()}
    assert max(interval.weights) == 1.0


@given(STEPS, st.integers(1, 4))
@settings(max_examples=50)
def test_a_repeated_interval_is_the_same_problem(steps, times):
    assert whole(steps * times).key == whole(steps).key


@given(STEPS, st.sampled_from([0.0, 1.0, 1e6]), st.sampled_from([0.0, 9.0]))
@settings(max_examples=50)
def test_reconfiguration_delay_and_startup_never_enter(steps, reconfig_delay_ns, alpha_ns):
    other = dataclasses.replace(FABRIC, reconfig_delay_ns=reconfig_delay_ns, alpha_ns=alpha_ns)
    assert whole(steps, other) == whole(steps)
    assert whole(steps, other).key == whole(steps).key


@given(STEPS, st.sampled_from([0.125, 3.0, 1000.0]))
@settings(max_examples=50)
def test_only_ratios_of_weights_matter(steps, factor):
    larger = [Step(step.demand.scaled(factor)) for step in steps]
    scaled = whole(larger, dataclasses.replace(FABRIC, delta_ns=4.0 * factor))
    assert scaled.key == whole(steps).key
    assert scaled.scale_ns == pytest.approx(whole(steps).scale_ns * factor)
    slower = dataclasses.replace(FABRIC, link_gbps=8.0 / factor, delta_ns=4.0 * factor)
    assert whole(steps, slower).key == whole(steps).key


def test_other_ratios_and_other_patterns_are_other_problems():
    steps = shifts([1, 2])
    keys = {
        whole_of(steps, FABRIC),
        whole_of(steps, dataclasses.replace(FABRIC, delta_ns=5.0)),
        whole_of(steps, dataclasses.replace(FABRIC, latency=Latency.SHORTEST)),
        whole_of(steps, dataclasses.replace(FABRIC, degree=1)),
        whole_of(steps[:1], FABRIC),
        whole_of(shifts([1, 3]), FABRIC),
        whole_of(shifts([1, 2], gpus=17), FABRIC),
    }
    assert len(keys) == 7


def whole_of(steps, fabric):
    return Workload.of(Collective("job", tuple(steps), (steps[0].n,)), fabric).interval(0, len(steps)).key


@given(st.integers(1, 6), st.data())
@settings(max_examples=50)
def test_an_interval_across_the_turn_of_an_all_reduce_has_half_as_many_patterns(rounds, data):
    """Reduce-scatter with halving amounts, then all-gather with the same steps in reverse."""
    gpus = 2 ** (rounds + 1)
    there = [Step(PairMatrix.shift(gpus, 2**i, 4096.0 / 2**i)) for i in range(rounds)]
    job = Workload.of(Collective("all-reduce", (*there, *there[::-1]), (gpus,)), FABRIC)
    assert len(job.patterns) == rounds
    width = data.draw(st.integers(1, rounds))
    across = job.interval(rounds - width, rounds + width)
    before = job.interval(rounds - width, rounds)
    assert len(across.patterns) == width
    assert across.key == before.key
    assert across.scale_ns == 2 * before.scale_ns
    assert job.interval(rounds, rounds + width).key == before.key


@given(STEPS, st.data())
@settings(max_examples=50)
def test_intervals_are_those_of_their_steps_alone(steps, data):
    first = data.draw(st.integers(0, len(steps) - 1))
    stop = data.draw(st.integers(first + 1, len(steps)))
    interval, alone = workload(steps).interval(first, stop), whole(steps[first:stop])
    assert interval == alone
    assert interval.key == alone.key


def test_weights_of_nothing_are_zero():
    """Hops by shortest paths, and a link so fast that transfers take no time a float can hold."""
    tiny = [Step(PairMatrix.shift(4, 1, 1e-306))]
    fabric = Fabric(1, 9e18, 0.0, 1.0, 0.0, Latency.SHORTEST)
    interval = Workload.of(Collective("job", tuple(tiny), (4,)), fabric).interval(0, 1)
    assert (interval.weights, interval.scale_ns) == ((0.0,), 0.0)


# Three topologies and two patterns; the third topology has no path for the second pattern.
THETA = np.array([[1.0, 0.5], [0.25, 0.8], [0.5, 0.0]])
HOPS = np.array([[1.0, 3.0], [4.0, 2.0], [2.0, math.inf]])


@pytest.mark.parametrize("delta_ns", [0.0, 7.0])
@pytest.mark.parametrize("latency", Latency)
def test_times_against_a_hand_computation(latency, delta_ns):
    steps = shifts([1, 2, 2, 1])
    fabric = Fabric(2, 100.0, 30.0, delta_ns, 0.0, latency)
    job = Workload.of(Collective("job", tuple(steps), (16,)), fabric)
    times = job.times_ns(THETA, HOPS)
    assert times.shape == (3, 4)
    for g in range(3):
        for i, pattern in enumerate(job.pattern_of_step):
            bytes_per_port = 4096.0 / [1, 2, 2, 1][i] / 2
            if THETA[g, pattern] == 0:
                assert times[g, i] == math.inf
                continue
            hops = {Latency.CONGESTION: 1 / THETA[g, pattern], Latency.SHORTEST: HOPS[g, pattern]}[latency]
            expected = 30.0 + bytes_per_port * 0.08 / THETA[g, pattern] + delta_ns * hops
            assert times[g, i] == pytest.approx(expected, rel=1e-14)


@given(STEPS, st.sampled_from(Latency), st.data())
@settings(max_examples=50)
def test_the_interval_problem_is_the_time_of_its_steps(steps, latency, data):
    """Startup and scale*sum of w/theta together are exact for congestion, a bound from below for shortest paths."""
    job = workload(steps, dataclasses.replace(FABRIC, latency=latency))
    interval = job.interval(0, len(steps))

    def bound_ns(theta):
        of_pattern = dict(zip(job.patterns, theta[0], strict=True))
        weighted = sum(w / of_pattern[p] for p, w in zip(interval.patterns, interval.weights, strict=True))
        return job.startup_ns(0, len(steps)) + interval.scale_ns * weighted

    flows = st.lists(st.sampled_from([0.1, 0.5, 1.0]), min_size=len(job.patterns), max_size=len(job.patterns))
    theta = np.array([data.draw(flows)])
    exact_ns = job.times_ns(theta, np.ceil(1 / theta)).sum()
    assert bound_ns(theta) <= exact_ns * (1 + 1e-12)
    if latency is Latency.CONGESTION:
        assert bound_ns(theta) == pytest.approx(exact_ns, rel=1e-12)
    direct = np.ones_like(theta)
    assert bound_ns(direct) == pytest.approx(job.times_ns(direct, direct).sum(), rel=1e-12)


def pairs_of(job):
    return list(itertools.combinations(range(len(job) + 1), 2))


@given(STEPS)
@settings(max_examples=50)
def test_every_interval_has_its_problem_and_every_problem_an_interval(steps):
    job = workload(steps)
    intervals = job.intervals
    assert intervals.index.shape == (len(steps), len(steps) + 1)
    for first, stop in pairs_of(job):
        index = intervals.index[first, stop]
        assert intervals.problems[index].key == job.interval(first, stop).key
        assert intervals.scale_ns[first, stop] == job.interval(first, stop).scale_ns
        assert intervals.startup_ns[first, stop] == job.startup_ns(first, stop)
    first_seen = list(dict.fromkeys(intervals.index[pair] for pair in pairs_of(job)))
    assert first_seen == list(range(len(intervals.problems)))
    assert len({problem.key for problem in intervals.problems}) == len(intervals.problems)
    assert (intervals.index[np.tri(*intervals.index.shape, dtype=bool)] == -1).all()
    for found, patterns in zip(intervals.problems, intervals.patterns, strict=True):
        assert found.patterns == tuple(job.patterns[pattern] for pattern in patterns)


@given(STEPS, st.data())
@settings(max_examples=50)
def test_interval_costs_are_those_of_their_steps(steps, data):
    """Where a pair has no path they are infinite; values of problems and costs of intervals say the same."""
    job = workload(steps)
    flows = st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=len(job.patterns), max_size=len(job.patterns))
    theta = data.draw(flows)
    values = job.intervals.values(theta)
    costs = job.intervals.costs_ns(values)
    times = job.times_ns(np.array([theta]), np.ones((1, len(theta))))[0]
    for first, stop in itertools.product(range(len(job)), range(len(job) + 1)):
        expected = times[first:stop].sum() if first < stop else np.inf
        assert costs[first, stop] == pytest.approx(expected, rel=1e-12)
    assert job.intervals.normalised(costs) == pytest.approx(values, rel=1e-12)


@given(STEPS, st.data())
@settings(max_examples=50)
def test_a_problem_is_worth_the_most_that_one_of_its_intervals_costs(steps, data):
    """Intervals of one problem differ by the hops of their topologies, where these are counted apart."""
    job = workload(steps, dataclasses.replace(FABRIC, latency=Latency.SHORTEST))
    intervals = job.intervals
    costs = {pair: data.draw(st.floats(500.0, 900.0)) for pair in pairs_of(job)}
    given_ns = np.full(intervals.index.shape, np.inf)
    for pair, cost in costs.items():
        given_ns[pair] = cost
    found = intervals.normalised(given_ns)
    for index in range(len(intervals.problems)):
        alike = [pair for pair in costs if intervals.index[pair] == index]
        each = [(costs[pair] - job.startup_ns(*pair)) / job.interval(*pair).scale_ns for pair in alike]
        assert found[index] == pytest.approx(max(each))


RING = Topology.circulant(6, {1: 1})
PATTERNS = [Step(PairMatrix.shift(6, offset, 1.0)).pattern(1) for offset in (1, 2)]


def task():
    """A new one each time: a task remembers its key."""
    return ThetaTask(RING, PATTERNS, (6,))


def test_the_key_of_a_task_says_what_is_solved_and_not_how():
    assert ThetaTask(RING, PATTERNS, (2, 3)).key == task().key
    assert ThetaTask(Topology(RING.circuits, "another name"), tuple(PATTERNS), (6,)).key == task().key
    others = [
        ThetaTask(Topology.circulant(6, {1: 2}), PATTERNS, (6,)),
        ThetaTask(RING, PATTERNS[:1], (6,)),
        ThetaTask(RING, PATTERNS[::-1], (6,)),
        ThetaTask(RING, [step.pattern(2) for step in shifts([1, 2], gpus=6)], (6,)),
    ]
    assert len({task().key, *(other.key for other in others)}) == 5


@pytest.mark.parametrize(("name", "value"), [("solver_versions", lambda: {"highs": "0.0"}), ("THETA_FORMULATION", 999)])
def test_the_key_of_a_task_changes_with_what_solves_it(monkeypatch, name, value):
    before = task().key
    monkeypatch.setattr(problem, name, value)
    assert task().key != before


def test_a_request_can_be_read():
    request = json.loads(json.dumps(task().describe()))
    assert request["gpus"] == 6
    assert request["topology"] == {"label": "circulant{+1}", "digest": RING.digest}
    assert request["patterns"] == [pattern.digest for pattern in PATTERNS]


@given(st.lists(st.sampled_from([(1.0, 1.0), (0.5, 2.0), (0.0, math.inf), (1 / 3, 5.0)]), min_size=2, max_size=2))
@settings(max_examples=50)
def test_a_row_survives_its_record(pairs):
    row = ThetaRow(*zip(*pairs, strict=True), solves=3)
    record = json.loads(json.dumps(row.to_record()))
    assert task().read(record) == row


def bytes_of_text(text):
    return b"s%d:" % len(text) + text.encode()


def bytes_of_ints(*numbers):
    return b"a%d:I%d:" % (len(numbers), 8 * len(numbers)) + b"".join(n.to_bytes(8, "little") for n in numbers)


def test_the_key_of_an_interval_worked_out_by_hand():
    """Two GPUs that swap: one pattern, one weight, by the encoding that the module of digests describes."""
    one = b"s17:1.00000000000e+00"
    fields = [("columns", bytes_of_ints(1, 0)), ("n", b"i1:2"), ("rows", bytes_of_ints(0, 1))]
    fields.append(("values", b"a2:" + b"l1:" + one + b"I8:" + bytes(8)))
    matrix = b"l2:" + bytes_of_text("pairs/1") + b"m4:" + b"".join(bytes_of_text(name) + body for name, body in fields)
    pattern = hashlib.sha256(matrix).hexdigest()
    fields = [("degree", b"i1:1"), ("patterns", b"l1:" + bytes_of_text(pattern)), ("weights", b"l1:d17:" + one[4:])]
    body = b"l2:" + bytes_of_text("interval/1") + b"m3:" + b"".join(bytes_of_text(name) + part for name, part in fields)
    swap = Step(PairMatrix(2, [0, 1], [1, 0], 1000.0))
    interval = Workload.of(Collective("swap", (swap,), (2,)), Fabric(1, 800.0, 1.0, 2.0, 3.0)).interval(0, 1)
    assert interval.patterns[0].digest == pattern
    assert interval.key == hashlib.sha256(body).hexdigest()


KEYS = """
    import json
    from lumenfarm.matrix import PairMatrix
    from lumenfarm.model import Collective, Fabric, Step, Topology
    from lumenfarm.problem import ThetaTask, Workload

    steps = [Step(PairMatrix.shift(6, offset, 700.0 / offset)) for offset in (1, 2, 3, 2, 1)]
    job = Workload.of(Collective("job", tuple(steps), (6,)), Fabric(2, 300.0, 5.0, 4.0, 100.0))
    task = ThetaTask(Topology.circulant(6, {1: 1, -1: 1}), job.patterns, (6,))
    found = [job.collective.digest, task.key, *(job.interval(0, stop).key for stop in range(1, 6))]
    print(json.dumps(found))
"""


def test_keys_do_not_change_with_the_process():
    found = []
    for seed in ("0", "4242"):
        command = [sys.executable, "-c", textwrap.dedent(KEYS)]
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    assert len(set(found[0])) == len(found[0])
