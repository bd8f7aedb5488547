"""The driver with executors, stores and clocks made up: no Ray, no files, no time that really passes."""

import functools
import heapq
import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm import families
from lumenfarm.driver import Limits, Work, run
from lumenfarm.errors import UnreachableError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step, Topology
from lumenfarm.planner import Planner, Standing
from lumenfarm.ports import BatchDone
from lumenfarm.problem import Workload
from lumenfarm.schedule import Provenance
from lumenfarm.tasks.work import solve

PROVENANCE = Provenance({}, "candidates", {}, "2026-01-01T00:00:00+00:00")
NO_LIMITS = Limits()


@functools.cache
def workload():
    """Recursive doubling over 8 GPUs, there and back."""
    rounds = [PairMatrix.shift(8, 1 << i, 4096.0 / 2**i) for i in range(3)]
    collective = Collective("all-reduce", tuple(map(Step, [*rounds, *rounds[::-1]])), (8,), 8192.0)
    return Workload.of(collective, Fabric(2, 100.0, 30.0, 200.0, 700.0))


@functools.cache
def topologies():
    return families.candidates(families.DEFAULT_FAMILIES, workload())


def new_planner(candidates=None):
    return Planner(workload(), topologies() if candidates is None else candidates)


@functools.cache
def answers():
    return {task.key: solve(task) for task in new_planner().candidates}


def answer_of(task):
    return answers()[task.key]


def every(value):
    return lambda _: value


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Store(dict[str, Any]):
    """Records by key; remembers what was saved."""

    def __init__(self, records=()):
        super().__init__(records)
        self.saved = []

    def load(self, key):
        return self.get(key)

    def save(self, key, kind, request, result):
        self.saved.append((key, kind, request))
        self[key] = result


class Simulation:
    """Workers that take batches in turn; a batch takes the sum of what its tasks take on the simulated clock.

    After ``longest_s`` what is left of a batch is given back.
    """

    def __init__(
        self, clock, duration_s=lambda _: 0.1, *, workers=2, window=4, saved=True, answer=answer_of, longest_s=math.inf
    ):
        self.longest_s = longest_s
        self.clock, self.duration_s, self.saved, self.answer = clock, duration_s, saved, answer
        self.workers, self.window = workers, window
        self.drawn, self.closed, self.busy = [], 0, 0
        self.free = [clock.now] * workers

    def run(self, batches):
        waiting, order, pending = iter(batches), itertools.count(), []
        while self.fill(waiting, pending, order) or pending:
            finish, _, done, left, busy_s = heapq.heappop(pending)
            self.clock.now = max(self.clock.now, finish)
            self.busy = min(len(pending), self.workers)
            yield BatchDone(done, [self.answer(task) for task in done], busy_s, self.saved, left)

    def fill(self, waiting, pending, order):
        for batch in itertools.islice(waiting, self.window - len(pending)):
            self.drawn.append(batch)
            busy_s, done = 0.0, 0
            while done < len(batch) and busy_s < self.longest_s:
                busy_s += self.duration_s(batch[done])
                done += 1
            finish = max(self.clock.now, heapq.heappop(self.free)) + busy_s
            heapq.heappush(self.free, finish)
            heapq.heappush(pending, (finish, next(order), batch[:done], batch[done:], busy_s))

    def close(self):
        self.closed += 1


def drive(planner, executor, *, store=None, limits=NO_LIMITS, clock=None, listen=lambda *_: None):
    """Run with an executor that is there already; with None, none may be made."""

    def make():
        assert executor is not None, "an executor was made"
        return executor

    return run(
        planner,
        Store() if store is None else store,
        make,
        limits=limits,
        clock=clock or (Clock() if executor is None else executor.clock),
        listen=listen,
    )


def facts(planner):
    """All that users see of a schedule."""
    schedule = planner.plan().schedule(PROVENANCE)
    labels = [topology.label for topology in schedule.topologies]
    return labels, schedule.segments, schedule.steps, schedule.cost_ns, schedule.envelope


@functools.cache
def facts_in_order():
    planner = new_planner()
    for task in planner.next_round():
        planner.feed(task, answer_of(task))
    return facts(planner)


def full_store():
    return Store({task.key: answer_of(task).to_record() for task in new_planner().candidates})


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.sampled_from([1, 2, 7, 1000]))
@settings(max_examples=40)
def test_the_same_schedule_whatever_the_completion_order(random, workers, window):
    executor = Simulation(Clock(), lambda _: random.choice([0.0, 0.1, 0.5, 3.0]), workers=workers, window=window)
    planner = new_planner()
    work = drive(planner, executor)
    assert facts(planner) == facts_in_order()
    assert work == Work(theta=sum(answer_of(t).solves for t in planner.candidates), solved=len(topologies()))


@given(st.sets(st.integers(0, 21)))
@settings(max_examples=20)
def test_the_same_schedule_whatever_the_store_knows(known):
    planner = new_planner()
    keys = [task.key for task in planner.candidates]
    store = Store({keys[i]: answers()[keys[i]].to_record() for i in known if i < len(keys)})
    executor = Simulation(Clock())
    work = drive(planner, executor, store=store)
    solved = [task.key for batch in executor.drawn for task in batch]
    assert facts(planner) == facts_in_order()
    assert solved == [key for key in keys if key not in store]
    assert (work.from_cache, work.solved) == (len(store), len(solved))


def test_nothing_is_started_if_everything_is_in_the_store():
    planner = new_planner()
    assert drive(planner, None, store=full_store()) == Work(from_cache=len(topologies()))
    assert facts(planner) == facts_in_order()


def test_the_executor_is_closed_once():
    executor = Simulation(Clock())
    drive(new_planner(), executor)
    assert executor.closed == 1


BAD = {
    "no fields": lambda _: {},
    "too few": lambda record: record | {"theta": record["theta"][1:]},
    "too many hops": lambda record: record | {"hops": [*record["hops"], 1]},
    "above 1": lambda record: record | {"theta": [1.001] * 3},
    "below 0": lambda record: record | {"theta": [-0.5] * 3},
    "NaN": lambda record: record | {"theta": [math.nan] * 3},
    "NaN hops": lambda record: record | {"hops": [math.nan] * 3},
    "text": lambda record: record | {"theta": ["1"] * 3},
    "truth": lambda record: record | {"theta": [True] * 3},
    "not a list": lambda record: record | {"theta": 1.0},
    "no hops at all": lambda record: record | {"hops": [0] * 3},
    "half a hop": lambda record: record | {"hops": [1.5] * 3},
    "more hops than GPUs": lambda record: record | {"hops": [8] * 3},
    "a flow without a path": lambda record: record | {"theta": [0.5] * 3, "hops": [-1] * 3},
    "a path without flow": lambda record: record | {"theta": [0.0] * 3, "hops": [1] * 3},
    "solves as text": lambda record: record | {"solves": "0"},
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD.keys())
def test_a_bad_record_is_a_miss_and_solved_again(spoil):
    planner, store = new_planner(), full_store()
    key = next(task.key for task in planner.candidates if min(answer_of(task).theta) > 0)
    store[key] = spoil(store[key])
    executor = Simulation(Clock(), saved=False)
    work = drive(planner, executor, store=store)
    assert [task.key for batch in executor.drawn for task in batch] == [key]
    assert (work.solved, work.from_cache) == (1, len(topologies()) - 1)
    assert store[key] == answers()[key].to_record()
    assert facts(planner) == facts_in_order()


def test_what_the_executor_saved_is_not_saved_again():
    store = Store()
    drive(new_planner(), Simulation(Clock(), saved=True), store=store)
    assert store.saved == []


def test_what_the_executor_could_not_save_is_saved():
    planner, store = new_planner(), Store()
    drive(planner, Simulation(Clock(), saved=False), store=store)
    assert sorted(store) == sorted(task.key for task in planner.candidates)
    assert len(store.saved) == len(store)
    assert all(kind == "theta-row/1" and request["gpus"] == 8 for _, kind, request in store.saved)
    assert drive(new_planner(), Simulation(Clock()), store=store).from_cache == len(store)


# Only with the third of these is there a path for everybody.
LATE = [Topology.circulant(8, offsets) for offsets in ({2: 1}, {4: 1}, {1: 1, 2: 1}, {1: 1, 4: 1})]


def one_by_one(clock):
    return Simulation(clock, every(10.0), workers=1, window=1, answer=solve)


@pytest.mark.parametrize(("limit_s", "solved"), [(1.0, 3), (25.0, 3), (30.0, 3), (30.5, 4), (1000.0, 4)])
def test_the_time_limit_stops_as_soon_as_there_is_a_plan(limit_s, solved):
    planner = new_planner(LATE)
    work = drive(planner, one_by_one(Clock()), limits=Limits(time_limit_s=limit_s))
    assert (work.solved, work.left_out) == (solved, 4 - solved)
    assert planner.plan().cost_ns < math.inf


def test_candidates_that_carry_nothing_start_nothing():
    with pytest.raises(UnreachableError):
        drive(new_planner(LATE[:2]), None)


def test_time_over_with_a_plan_out_of_the_store_starts_nothing():
    class Running(Clock):
        def __call__(self):
            self.now += 1.0
            return self.now

    store = full_store()
    del store[new_planner().candidates[-1].key]
    work = drive(new_planner(), None, store=store, clock=Running(), limits=Limits(time_limit_s=0.5))
    assert (work.solved, work.left_out) == (0, 1)


def test_the_gap_limit_stops_when_it_is_reached_and_not_before():
    standings = []
    drive(new_planner(), one_by_one(Clock()), listen=lambda standing, _: standings.append(standing))
    gaps = [standing.gap for standing in standings]
    assert gaps[0] == 1.0
    assert gaps == sorted(gaps, reverse=True)
    for gap in {0.0, *gaps[1:]}:
        reached = next((s.done for s in standings if s.gap <= gap), len(topologies()))
        work = drive(new_planner(), one_by_one(Clock()), limits=Limits(gap=gap))
        assert work.solved == reached
        assert work.left_out == len(topologies()) - reached


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["executor", "listener", "planner", "store"])
def test_the_executor_is_closed_whatever_happens(error, place):
    def fail(*_, **__):
        raise error

    executor, planner, store = Simulation(Clock(), saved=False), new_planner(), Store()
    # The first call comes before there is an executor.
    calls = itertools.count()
    listen = (lambda *_: next(calls) and fail()) if place == "listener" else (lambda *_: None)
    if place == "executor":
        executor.answer = fail
    if place == "planner":
        planner.feed = fail
    if place == "store":
        store.save = fail
    with pytest.raises(error):
        drive(planner, executor, store=store, listen=listen)
    assert executor.closed == 1


class NumberedTask:
    def __init__(self, number):
        self.number, self.key = number, str(number)


class CountingPlanner:
    """As many tasks as wanted, in rounds; to say where the search stands can take time."""

    carried = True
    searches = finished = False

    def __init__(self, *rounds, clock=None, standing_s=0.0):
        self.clock, self.standing_s, self.fed, self.looks = clock, standing_s, [], []
        numbers = itertools.count()
        self.rounds = [[NumberedTask(next(numbers)) for _ in range(tasks)] for tasks in rounds]
        self.asked = 0

    def next_round(self):
        assert len(self.fed) == self.asked, "the round before is not answered"
        tasks = self.rounds.pop(0) if self.rounds else ()
        self.asked += len(tasks)
        return tasks

    def feed(self, task, _):
        self.fed.append(task.number)

    def standing(self):
        if self.clock:
            self.clock.now += self.standing_s
            self.looks.append(self.clock.now)
        return Standing(len(self.fed), self.asked, 2.0, 1.0)


class NoWork:
    solves = 0


@given(
    tasks=st.integers(1, 400),
    workers=st.integers(1, 6),
    task_s=st.sampled_from([0.0, 1e-4, 0.01, 0.3, 2.0]),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_batches_are_bounded_and_cover_everything(tasks, workers, task_s, random):
    executor = Simulation(
        Clock(), lambda _: task_s * random.random(), workers=workers, window=2 * workers, answer=every(NoWork)
    )
    planner = CountingPlanner(tasks)
    drive(planner, executor)
    sizes = [len(batch) for batch in executor.drawn]
    assert [task.number for batch in executor.drawn for task in batch] == list(range(tasks))
    assert sorted(planner.fed) == list(range(tasks))
    assert all(size == 1 for size in sizes[: 2 * workers])
    left = tasks
    for size in sizes:
        assert 1 <= size <= math.ceil(left / (2 * workers))
        left -= size


def test_rounds_are_answered_one_after_the_other_by_one_executor():
    executor = Simulation(Clock(), answer=every(NoWork))
    planner = CountingPlanner(5, 1, 9)
    assert drive(planner, executor).solved == 15
    assert sorted(planner.fed) == list(range(15))
    assert executor.closed == 1


def test_a_limit_ends_all_rounds():
    planner = CountingPlanner(5, 1, 9)
    work = drive(planner, Simulation(Clock(), every(1.0), answer=every(NoWork)), limits=Limits(time_limit_s=0.5))
    assert (work.solved, work.left_out) == (1, 4)
    assert len(planner.rounds) == 2


@pytest.mark.parametrize(("task_s", "size"), [(0.001, 1000), (0.01, 100), (0.25, 4), (0.7, 1), (30.0, 1)])
def test_a_batch_takes_about_a_second(task_s, size):
    executor = Simulation(Clock(), every(task_s), workers=2, window=4, answer=every(NoWork))
    drive(CountingPlanner(20_000), executor)
    sizes = [len(batch) for batch in executor.drawn]
    assert max(sizes) == pytest.approx(size, rel=0.01)


def test_batches_follow_tasks_that_become_slower():
    executor = Simulation(
        Clock(), lambda task: 0.001 if task.number < 5000 else 0.5, workers=2, window=4, answer=every(NoWork)
    )
    drive(CountingPlanner(20_000), executor)
    sizes = {batch[0].number: len(batch) for batch in executor.drawn}
    slow = [size for first, size in sizes.items() if first >= 5000]
    assert max(slow[:3]) > 500
    assert max(slow[20:]) <= 2


@given(
    seconds=st.lists(st.sampled_from([0.001, 0.1, 0.9, 5.0]), min_size=1, max_size=60),
    each=st.integers(1, 20),
    workers=st.integers(1, 4),
)
@settings(max_examples=60)
def test_tasks_that_there_was_no_time_for_are_done_later(seconds, each, workers):
    """However wrong the times before let a batch be, none takes long; and the work ends almost evenly."""
    tasks = each * len(seconds)
    executor = Simulation(
        Clock(),
        lambda task: seconds[task.number // each],
        workers=workers,
        window=2 * workers,
        answer=every(NoWork),
        longest_s=2.0,
    )
    planner, heard = CountingPlanner(tasks), []
    drive(planner, executor, listen=lambda *_: heard.append(executor.clock.now))
    assert sorted(planner.fed) == list(range(tasks))
    longest = 2.0 + max(seconds)
    assert all(later - earlier <= 2 * longest for earlier, later in itertools.pairwise(heard))
    assert max(executor.free) <= each * sum(seconds) / workers + 2 * longest


@given(st.integers(1, 300), st.integers(1, 6), st.sampled_from([1e-3, 0.03, 0.2, 0.6, 5.0]))
def test_no_worker_waits_for_the_last_batch_of_another(tasks, workers, task_s):
    """Tasks of equal length are over after ceil(tasks/workers) of them; with fixed batches they would not be."""
    executor = Simulation(Clock(), every(task_s), workers=workers, window=2 * workers, answer=every(NoWork))
    drive(CountingPlanner(tasks), executor)
    assert max(executor.free) == pytest.approx(math.ceil(tasks / workers) * task_s)


@given(
    standing_s=st.sampled_from([0.0, 0.001, 0.2, 5.0]),
    task_s=st.sampled_from([0.001, 0.1, 2.0]),
    tasks=st.integers(1, 200),
)
@settings(max_examples=40)
def test_the_listener_hears_of_progress_and_takes_a_bounded_share_of_the_time(standing_s, task_s, tasks):
    clock, heard = Clock(), []
    planner = CountingPlanner(tasks, clock=clock, standing_s=standing_s)
    executor = Simulation(clock, every(task_s), answer=every(NoWork))
    drive(planner, executor, listen=lambda standing, busy: heard.append((standing.done, busy)))
    done = [count for count, _ in heard]
    assert done == sorted(done)
    assert heard[-1] == (tasks, 0)
    assert all(0 <= busy <= executor.workers for _, busy in heard)
    # The first one works out bounds and is not told of; the last one comes when all is done. Of any two between them
    # the first takes at most a tenth of the time until the second is over.
    assert all(later - earlier >= 10 * standing_s - 1e-9 for earlier, later in itertools.pairwise(planner.looks[1:-1]))


def test_what_bounds_take_the_first_time_does_not_silence_the_listener():
    class DearAtFirst(CountingPlanner):
        def standing(self):
            found = super().standing()
            self.standing_s = 0.0
            return found

    clock, heard = Clock(), []
    planner = DearAtFirst(5, clock=clock, standing_s=50.0)
    executor = Simulation(clock, every(1.0), workers=1, window=1, answer=every(NoWork))
    drive(planner, executor, listen=lambda standing, _: heard.append(standing.done))
    assert heard == [0, 1, 2, 3, 4, 5, 5]
