"""The Ray executor on real workers: one cluster for most tests, a process of its own for starting and ending."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from pathlib import Path

import pytest
import ray

from lumenfarm import families
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.opening import open_cache
from lumenfarm.cache.results import ResultCache
from lumenfarm.driver import Limits, Work, run
from lumenfarm.errors import EnvironmentFailure, InputError, UnreachableError
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step
from lumenfarm.planner import Planner
from lumenfarm.problem import ThetaTask, Workload
from lumenfarm.tasks.local_pool import LocalExecutor
from lumenfarm.tasks.ray_pool import RayExecutor

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def cluster():
    """A session that is open already, with two workers; its address."""
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.fixture
def executor(cluster, tmp_path):  # noqa: ARG001 - has to be there
    """Two workers that save into a folder."""
    executor = RayExecutor(open_cache(str(tmp_path / "cache")).url, workers=2)
    yield executor
    executor.close()


def new_planner():
    rounds = [PairMatrix.shift(8, 1 << i, 4096.0 / 2**i) for i in range(3)]
    collective = Collective("all-reduce", tuple(map(Step, [*rounds, *rounds[::-1]])), (8,), 8192.0)
    workload = Workload.of(collective, Fabric(2, 100.0, 30.0, 200.0, 700.0))
    return Planner(workload, families.candidates(families.DEFAULT_FAMILIES, workload))


def in_batches(tasks, size=3):
    return [tasks[first : first + size] for first in range(0, len(tasks), size)]


def task_that(act):
    """A task whose solution is that ``act`` is called by a worker."""

    class Acting(ThetaTask):
        def __init__(self):
            """It has nothing but the act."""

        @property
        def topology(self):
            act()

    return Acting()


def raising(error):
    def act():
        raise error

    return act


def eventually(condition):
    """Whether ``condition`` comes true before the patience is over."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_workers_find_what_this_process_finds(executor, tmp_path):
    tasks = new_planner().candidates
    batches = in_batches(tasks)
    done = sorted(executor.run(batches), key=lambda each: batches.index(each.tasks))
    local = list(LocalExecutor(ResultCache(MemoryStore())).run(batches))
    assert [each.tasks for each in done] == [each.tasks for each in local]
    assert [list(each.outcomes) for each in done] == [list(each.outcomes) for each in local]
    # Nobody but the workers has seen the folder so far.
    assert all(each.saved for each in done)
    cache = open_cache(str(tmp_path / "cache"))
    assert [task.read(cache.load(task.key)) for task in tasks] == [row for each in local for row in each.outcomes]


def test_batches_are_drawn_in_a_bounded_window(executor):
    drawn = 0

    def batches():
        nonlocal drawn
        for batch in in_batches(new_planner().candidates, 1):
            drawn += 1
            yield batch

    for finished, _ in enumerate(executor.run(batches()), start=1):
        assert drawn < finished + 2 * executor.workers
        assert executor.busy <= executor.workers
    assert drawn == finished == len(new_planner().candidates)
    assert executor.busy == 0


def test_tasks_that_there_was_no_time_for_come_back(executor):
    class Slow(ThetaTask):
        def describe(self):
            time.sleep(2.5)
            return {}

    first, *others = new_planner().candidates[:3]
    batches = [[Slow(first.topology, first.patterns, first.dims), *others]]

    class Batches:
        def __iter__(self):
            return self

        def __next__(self):
            if not batches:
                raise StopIteration
            return batches.pop()

    done = []
    for each in executor.run(Batches()):
        done.append([task.key for task in each.tasks])
        assert len(each.outcomes) == len(each.tasks)
        if each.left:
            batches.append(each.left)
    assert done == [[first.key], [task.key for task in others]]


def test_nothing_to_do(executor):
    assert list(executor.run([])) == []


@pytest.mark.parametrize(
    "error",
    [
        InputError("gpus", 3, "more"),
        UnreachableError("candidates", "ring", "a path"),
        EnvironmentFailure("HiGHS ended", where="highs"),
    ],
    ids=lambda error: error.kind,
)
def test_an_error_on_purpose_arrives_as_itself(executor, error):
    with pytest.raises(type(error)) as caught:
        list(executor.run([[task_that(raising(error))]]))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


def test_another_error_is_a_failure_in_one_line(executor):
    with pytest.raises(EnvironmentFailure) as caught:
        list(executor.run([[task_that(raising(ArithmeticError("first\nsecond")))]]))
    assert str(caught.value) == "a worker failed: ArithmeticError: first"


def test_a_batch_whose_worker_dies_is_done_again(executor, tmp_path):
    mark, task = tmp_path / "died", new_planner().candidates[0]

    class Mortal(ThetaTask):
        def describe(self):
            if not mark.exists():
                mark.touch()
                os._exit(1)
            return {}

    (done,) = executor.run([[Mortal(task.topology, task.patterns, task.dims)]])
    assert mark.exists()
    assert done.saved


def test_a_batch_whose_worker_dies_every_time_is_a_failure_in_one_line(executor):
    with pytest.raises(EnvironmentFailure, match=r"^Ray lost a batch: WorkerCrashedError: .+$") as caught:
        list(executor.run([[task_that(lambda: os._exit(1))]]))
    assert "\n" not in str(caught.value)


def test_close_gives_up_what_is_not_finished(executor, tmp_path):
    def note_and_sleep():
        (tmp_path / str(os.getpid())).touch()
        time.sleep(600)

    batches = [[new_planner().candidates[0]], *([task_that(note_and_sleep)] for _ in range(5))]
    next(executor.run(batches))
    assert eventually(lambda: any(path.name.isdecimal() for path in tmp_path.iterdir()))
    executor.close()
    sleepers = [path.name for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert eventually(lambda: not any(Path("/proc", pid).exists() for pid in sleepers))
    assert executor.busy == 0
    assert ray.is_initialized()


def drive(planner, store):
    return run(
        planner,
        store,
        lambda: RayExecutor(store.url, workers=2),
        limits=Limits(),
        clock=time.monotonic,
        listen=lambda *_: None,
    )


@pytest.mark.usefixtures("cluster")
def test_results_reach_a_store_that_only_this_process_sees():
    store, planner = ResultCache(MemoryStore()), new_planner()
    assert drive(planner, store).solved == len(planner.candidates)
    assert sorted(store.store.names()) == sorted(task.key for task in planner.candidates)
    assert drive(new_planner(), store).solved == 0


@pytest.mark.usefixtures("cluster")
def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path):
    (tmp_path / "file").touch()
    warnings = []
    store, planner = open_cache(str(tmp_path / "file" / "cache"), warn=warnings.append), new_planner()
    assert drive(planner, store).solved == len(planner.candidates)
    assert planner.carried
    assert len(warnings) == 1
    assert "cannot be written" in warnings[0]


@pytest.mark.usefixtures("cluster")
def test_other_versions_are_refused_and_the_session_stays(monkeypatch):
    monkeypatch.setattr("lumenfarm.tasks.ray_pool.versions", lambda: {"highs": "0.0.1"})
    with pytest.raises(EnvironmentFailure, match=r"^the cluster runs other versions: highs 0\.0\.1 here, .+ there$"):
        RayExecutor("none", workers=2)
    assert ray.is_initialized()


def test_an_address_beside_an_open_session_is_refused_and_the_session_stays(cluster):
    with pytest.raises(EnvironmentFailure, match="connected to a Ray cluster already, not looking at elsewhere:1"):
        RayExecutor("none", workers=2, address="elsewhere:1")
    assert ray.get_runtime_context().gcs_address == cluster


ADDRESSES = {
    "127.0.0.1:1": "ConnectionRefusedError",
    "[::1]:1": "Error",
    "127.0.0.1:99999999999999999999": "OverflowError",
    "nonsense": "ValueError: Invalid address format",
    "ray://127.0.0.1:1": "Error",
    "other://127.0.0.1:1": "RuntimeError: Module: other does not exist.",
}


def test_an_address_without_a_cluster_is_a_failure_in_one_line():
    """Not in this process, which may have a session open."""
    text = """
        import sys
        from lumenfarm.errors import EnvironmentFailure
        from lumenfarm.tasks.ray_pool import RayExecutor

        for address in sys.argv[1:]:
            try:
                RayExecutor("none", workers=2, address=address)
            except EnvironmentFailure as error:
                print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(text), *ADDRESSES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stderr == ""
    for line, (address, reason) in zip(done.stdout.splitlines(), ADDRESSES.items(), strict=True):
        assert line.startswith(f"Ray cannot be reached at {address}: ")
        assert reason in line


@pytest.mark.parametrize("wanted", [None, "7"])
def test_ray_tries_to_join_a_cluster_only_as_often_as_wanted(monkeypatch, wanted):
    """By default Ray tries twenty times, and one attempt at something that listens but is no cluster takes 40 s."""
    name, seen = "RAY_gcs_server_port_wait_time_s", []

    def join(address, **_):
        seen.append((address, os.environ[name]))
        raise ConnectionError

    monkeypatch.delenv(name, raising=False)
    if wanted is not None:
        monkeypatch.setenv(name, wanted)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", join)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(EnvironmentFailure, match=r"^Ray cannot be reached at auto: ConnectionError: $"):
        RayExecutor("none", workers=1, address="auto")
    assert seen == [("auto", wanted or "1")]
    assert os.environ.get(name) == wanted


@pytest.mark.parametrize(("interrupts", "events"), [(1, ["started", "ended"]), (2, ["ended"])])
def test_an_interrupt_waits_until_ray_has_started(monkeypatch, interrupts, events):
    def start(*_, **__):
        for _ in range(interrupts):
            signal.raise_signal(signal.SIGINT)
        seen.append("started")

    seen, handler = [], signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray, "shutdown", lambda: seen.append("ended"))
    with pytest.raises(KeyboardInterrupt):
        RayExecutor("none", workers=1)
    assert seen == events
    assert signal.getsignal(signal.SIGINT) is handler


# What a user's folder may hold. Ray puts it on the path of every worker.
USERS_FILES = ("tasks.py", "cache.py", "cli.py", "farm.py", "tests.py")
JOB = """
    import sys
    import cache, cli, farm, tasks
    import lumenfarm

    collective = lumenfarm.generate("all-to-all", gpus=int(sys.argv[1]), message_bytes=2**20)
    fabric = lumenfarm.Fabric(2, link_gbps=800, alpha_ns=500, delta_ns=500, reconfig_delay_ns=10_000)

    def synthesize(**options):
        return lumenfarm.synthesize(collective, fabric, method="candidates", cache=sys.argv[2], **options).work
"""


@pytest.fixture
def script(tmp_path):
    """Run a script after JOB in a folder with the user's files; and look for processes that it leaves behind."""
    for name in USERS_FILES:
        (tmp_path / name).write_text("WHOSE = 'the user'\n")
    running = []

    def start(text, *arguments):
        (tmp_path / "job.py").write_text(textwrap.dedent(JOB) + textwrap.dedent(text))
        running.append(Script(tmp_path, arguments))
        return running[0]

    yield start
    for each in running:
        each.end()


class Script:
    """A script in a session of its own, whose descendants are known by a mark in their environment."""

    def __init__(self, folder, arguments):
        mark = f"LUMENFARM_TEST_MARK={uuid.uuid4()}"
        self.mark = mark.encode()
        name, _, value = mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "job.py", *arguments],
            cwd=folder,
            env=os.environ | {name: value},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def alone(self):
        """Whether no process is left but, perhaps, the script itself."""
        marked = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.mark in path.read_bytes():
                    marked.add(int(path.parent.name))
            except OSError:
                continue
        return marked <= {self.process.pid}

    def end(self):
        self.process.kill()
        self.process.communicate()
        assert eventually(self.alone)


def test_a_job_is_silent_and_leaves_no_process_behind(script):
    """Even if a worker dies on the way; and a second executor works in the session that the first one opened."""
    job = script(
        """
        import os, pathlib
        from lumenfarm.problem import ThetaTask
        from lumenfarm.tasks.ray_pool import RayExecutor

        class Mortal(ThetaTask):
            def describe(self):
                if not os.path.exists("died"):
                    pathlib.Path("died").touch()
                    os._exit(1)
                return {}

        executor = RayExecutor("none", workers=2)
        assert len(list(executor.run([[Mortal(lumenfarm.Topology.circulant(4, {1: 1}), [], (4,))]]))) == 1
        work = synthesize(workers=2)
        executor.close()
        print(work.solved, flush=True)
        input()
        print(synthesize(workers=2))
        """,
        "8",
        "store",
    )
    solved = int(job.process.stdout.readline())
    assert solved > 0
    assert eventually(job.alone)
    out, err = job.process.communicate("\n", timeout=PATIENCE_S)
    assert out == f"{Work(from_cache=solved)}\n"
    assert err == ""
    assert job.process.returncode == 0


def test_an_interrupted_job_is_silent_and_keeps_what_is_found_and_leaves_no_process_behind(script, tmp_path):
    job = script(
        """
        try:
            synthesize(workers=2)
        except KeyboardInterrupt:
            print("stopped")
        """,
        "24",
        "store",
    )
    store = open_cache(str(tmp_path / "store")).store
    assert eventually(lambda: any(store.names()))
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.process.communicate(timeout=PATIENCE_S) == ("stopped\n", "")
    assert eventually(job.alone)
    assert any(store.names())


def test_a_job_joins_a_cluster_and_leaves_it_running(cluster, executor, script, tmp_path):
    job = script("print(synthesize(address=sys.argv[3]).solved)", "8", "store", cluster)
    out, err = job.process.communicate(timeout=PATIENCE_S)
    assert int(out) == len(list(open_cache(str(tmp_path / "store")).store.names()))
    assert err == ""
    assert len(list(executor.run([new_planner().candidates]))) == 1
