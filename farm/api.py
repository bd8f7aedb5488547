"""The composition root: the one place that names concrete executors and stores.

`synthesize` and its friends are what the command line calls and what scripts import from `lumenfarm`.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lumenfarm import closed_form, collectives, families, formats
from lumenfarm.cache.opening import open_cache
from lumenfarm.cache.results import ResultCache, warn_by_log
from lumenfarm.cayley import Space
from lumenfarm.driver import Limits, Listener, Work, run
from lumenfarm.errors import InputError, unknown_word
from lumenfarm.groups import Group, recognised, subgroup_ladder
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Topology
from lumenfarm.plan import Baselines, IntervalBounds, Plan
from lumenfarm.planner import Planner, SpaceProof, Standing
from lumenfarm.ports import Executor
from lumenfarm.problem import Workload
from lumenfarm.schedule import Provenance, Schedule
from lumenfarm.synthesis import Method, SegmentSummary, Synthesis
from lumenfarm.units import finite
from lumenfarm.versions import versions

if TYPE_CHECKING:
    from lumenfarm.verify import VerifyReport

__all__ = [
    "default_workers",
    "load_candidates",
    "ray_test",
    "self_test",
    "synthesize",
    "synthesize_shifts",
    "verify_schedule",
]

_FILE_PREFIX = "file:"
# Each is a process of some hundred megabytes, and all are started at once.
_WORKERS_A_CPU = 4
_NO_WORK = Work()
_Candidate: TypeAlias = str | Topology

# Each rung of the ladder of subgroups has twice the classes of GPUs, and linear programs twice as large.
_MOST_CLASSES = 4
# Microseconds of one CPU, about.
_EFFORT = 1e8
# GPUs times patterns.
_MANY_PROGRAMS = 1024
_ASKED_FOR, _NAMED = "asked for", "candidates are named"


def synthesize(
    collective: Collective,
    fabric: Fabric,
    *,
    method: str = Method.AUTO.value,
    candidates: Sequence[_Candidate] | None = None,
    initial: Topology | None = None,
    gap: float | None = None,
    time_limit_s: float | None = None,
    cache: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    listen: Listener | None = None,
    warn: Callable[[str], None] = warn_by_log,
) -> Synthesis:
    """The best switching schedule found for a collective on a fabric, with a certified lower bound.

    Args:
        collective: from `lumenfarm.generate`, `lumenfarm.load_collective`, or built by hand.
        fabric: what the GPUs are joined by.
        method: ``auto``, ``closed-form``, ``candidates`` or ``symmetric``.
        candidates: names from `lumenfarm.families.FAMILIES`, ``file:PATH`` for topologies in a file, or topologies;
            whoever names some gets the best of exactly these. None: the default families.
        initial: topology in place before the first step; moving off it is paid for. None: the first one is free.
        gap: stop as soon as (cost - bound)/cost is not above this.
        time_limit_s: stop after this many seconds with the best schedule so far, and go on until then as long as there
            is something to look at; None stops where the search has done its share.
        cache: where results are kept: a folder, ``none``, or None for the user's cache folder.
        workers: processes that solve; 0 solves in this process, None takes one a CPU.
        address: of a running Ray cluster; None starts workers on this machine when something has to be solved.
        listen: told now and then how far the search is.
        warn: told once if the cache cannot be used.

    Raises:
        InputError: a value that does not fit; a closed form asked for where there is none, or with candidates.
        UnreachableError: no candidate connects every pair of some step.
        EnvironmentFailure: workers cannot be started, or fail again and again.
    """
    start = time.perf_counter()
    wanted, limits = _method(method), _limits(gap, time_limit_s)
    store = open_cache(cache, warn=warn)
    make_executor = _executor_maker(store, workers, address)
    workload = Workload.of(collective, fabric)
    choice = _choose(wanted, workload, candidates, initial)
    proofs: tuple[SpaceProof, ...] = ()
    if choice.method is Method.CLOSED_FORM:
        plan, work = _closed_form_plan(workload, initial), _NO_WORK
    else:
        names = _default_families(workload, choice.method) if candidates is None else candidates
        topologies = load_candidates(names, workload)
        effort = _EFFORT if time_limit_s is None else math.inf
        planner = Planner(
            workload,
            topologies,
            spaces=choice.spaces(fabric.degree),
            initial=initial,
            effort=effort,
            group=choice.group,
        )
        work = run(planner, store, make_executor, limits=limits, clock=time.monotonic, listen=listen or _ignore)
        plan, proofs = planner.plan(), planner.proofs()
    schedule = plan.schedule(_provenance(choice.method, limits))
    return _synthesis(schedule, plan.baselines, work, choice, proofs, limits, time.perf_counter() - start)


def synthesize_shifts(
    steps: Sequence[collectives.ShiftStep], n: int, fabric: Fabric, *, gap: float | None = None
) -> Synthesis:
    """The closed form for shifts on one port, without building a demand or a topology: n = 2**20 in milliseconds.

    Args:
        steps: from `lumenfarm.collectives.shift_steps`.
        n: number of GPUs.
        fabric: with one port.
        gap: up to which the answer counts as optimal.

    Raises:
        InputError: more than one port, or a step that is no shift.
    """
    start = time.perf_counter()
    limits = _limits(gap, None)
    solution = closed_form.solve([step.offset for step in steps], [step.bytes_per_gpu for step in steps], n, fabric)
    communication = sum(segment.cost_ns for segment in solution.segments)
    return Synthesis(
        cost_ns=solution.cost_ns,
        communication_ns=communication,
        reconfigurations=solution.reconfigurations,
        lower_bound_ns=solution.lower_bound_ns,
        segments=tuple(
            SegmentSummary(part.first, part.stop, _circulant_label(part.generator), part.cost_ns)
            for part in solution.segments
        ),
        envelope=solution.envelope,
        baselines=Baselines(solution.static_ns, solution.every_step_ns),
        work=_NO_WORK,
        wall_s=time.perf_counter() - start,
        method=Method.CLOSED_FORM,
        reason="shifts on one port",
        gap_wanted=limits.gap,
        schedule=None,
    )


def verify_schedule(schedule: Schedule, collective: Collective | None = None) -> VerifyReport:
    """An independent check of a schedule against its collective, see `lumenfarm.verify`.

    Args:
        schedule: what to check.
        collective: what it is for; None generates it again, if the schedule says from what.

    Raises:
        InputError: no collective given, and the schedule's came from a file.
    """
    if collective is None:
        if schedule.origin is None or schedule.message_bytes is None:
            raise InputError("collective", None, f"the file of {schedule.collective_name!r}, which no generator made")
        collective = collectives.regenerate(schedule.origin, dims=schedule.dims, message_bytes=schedule.message_bytes)
    from lumenfarm.verify import verify

    return verify(schedule, collective)


def self_test() -> dict[str, float]:
    """What each solver of this installation finds for a small problem; `EnvironmentFailure` if that is wrong."""
    from lumenfarm.tasks.self_test import solvers_answer

    return solvers_answer()


def ray_test(address: str | None = None) -> str:
    """One task through Ray and back, described; `EnvironmentFailure` if Ray does not answer."""
    from lumenfarm.tasks.self_test import ray_answers

    return ray_answers(address)


def default_workers() -> int:
    """One worker for every CPU this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_candidates(names: Sequence[_Candidate], workload: Workload) -> tuple[Topology, ...]:
    """The topologies behind family names, ``file:PATH`` and topologies, each once, in order.

    Raises:
        InputError: an unknown family, or a file that cannot be read.
    """
    found: dict[Topology, None] = {}
    for name in names:
        if isinstance(name, Topology):
            found[name] = None
        elif name.startswith(_FILE_PREFIX):
            found |= dict.fromkeys(formats.load_topologies(name.removeprefix(_FILE_PREFIX)))
        else:
            found |= dict.fromkeys(families.candidates([name], workload))
    return tuple(found)


def _method(name: str) -> Method:
    try:
        return Method(name)
    except ValueError:
        raise unknown_word("method", name, [method.value for method in Method]) from None


@dataclass(frozen=True, slots=True)
class _Choice:
    """The method to use, why, and a group that leaves all steps as they are, if one is known."""

    method: Method
    reason: str
    group: Group | None = None

    def spaces(self, degree: int) -> tuple[Space, ...]:
        """What the method searches: the group's topologies and those of its subgroups, larger groups first."""
        if self.method is not Method.SYMMETRIC or self.group is None:
            return ()
        return tuple(Space(one, degree) for one in subgroup_ladder(self.group, _MOST_CLASSES))


def _choose(
    method: Method, workload: Workload, candidates: Sequence[_Candidate] | None, initial: Topology | None
) -> _Choice:
    """The first method that fits, or the one asked for; symmetry is looked for only if that may matter."""
    obstacle = _NAMED if candidates is not None else _no_closed_form(workload, initial)
    if obstacle is None and method in (Method.AUTO, Method.CLOSED_FORM):
        return _Choice(Method.CLOSED_FORM, _reason(method, "every step is a shift, on one port"))
    if method is Method.CLOSED_FORM:
        raise InputError("method", method.value, f"auto or candidates, since {obstacle}")
    symmetry_matters = obstacle is not None or method is Method.SYMMETRIC
    group = recognised(_multiplicities(workload), workload.collective.dims) if symmetry_matters else None
    if method is Method.CANDIDATES:
        return _Choice(method, _ASKED_FOR, group)
    if method is Method.AUTO and candidates is not None:
        return _Choice(Method.CANDIDATES, _NAMED, group)
    if group is not None:
        return _Choice(Method.SYMMETRIC, _reason(method, "a group leaves all steps as they are"), group)
    obstacle = "no group takes every GPU to every other and leaves all steps as they are"
    if method is Method.SYMMETRIC:
        raise InputError("method", method.value, f"auto or candidates, since {obstacle}")
    return _Choice(Method.CANDIDATES, obstacle)


def _multiplicities(workload: Workload) -> list[PairMatrix]:
    return [pattern.multiplicities for pattern in workload.patterns]


def _reason(method: Method, found: str) -> str:
    return found if method is Method.AUTO else _ASKED_FOR


def _default_families(workload: Workload, method: Method) -> Sequence[str]:
    """All families; before a search of a large job only what costs next to nothing, since spaces hold the rest."""
    large = workload.collective.n * len(workload.patterns) > _MANY_PROGRAMS
    searched = method is Method.SYMMETRIC and large
    return ("matchings",) if searched else families.DEFAULT_FAMILIES


def _no_closed_form(workload: Workload, initial: Topology | None) -> str | None:
    """Why arithmetic does not do, None if it does."""
    if workload.fabric.degree != 1:
        return "the fabric has more than one port"
    if any(pattern.multiplicities.shift_offset() is None for pattern in workload.patterns):
        return "some step is no shift by all GPUs"
    if initial is not None and initial.circuits.shift_offset() is None:
        return "the initial topology is no circulant"
    return None


def _closed_form_plan(workload: Workload, initial: Topology | None) -> Plan:
    """The plan over the circulants that the closed form uses, their theta by arithmetic."""
    n = workload.collective.n
    steps = workload.collective.steps
    offsets = [step.demand.shift_offset() or 0 for step in steps]
    start = None if initial is None else initial.circuits.shift_offset()
    solution = closed_form.solve(offsets, workload.chunk_bytes.tolist(), n, workload.fabric, initial=start)
    generators = solution.generators if start is None else tuple(dict.fromkeys([*solution.generators, start]))
    distances = np.array([pattern.multiplicities.shift_offset() for pattern in workload.patterns])
    hops = closed_form.hops(distances, np.array(generators)[:, None], n)
    return Plan(
        workload,
        tuple(Topology.circulant(n, {generator: 1}) for generator in generators),
        1.0 / hops,
        hops,
        None if start is None else generators.index(start),
        IntervalBounds.of(workload),
    )


def _executor_maker(store: ResultCache, workers: int | None, address: str | None) -> Callable[[], Executor]:
    count = default_workers() if workers is None else workers
    if count < 0:
        raise InputError("workers", count, "a number that is not negative; 0 solves in this process")
    if count == 0 and address is not None:
        raise InputError("workers", count, "at least 1 beside an address")
    most = _WORKERS_A_CPU * default_workers()
    if count > most and address is None:
        raise InputError("workers", count, f"at most {most} on this machine, {_WORKERS_A_CPU} for each CPU")

    def make() -> Executor:
        if count == 0:
            from lumenfarm.tasks.local_pool import LocalExecutor

            return LocalExecutor(store)
        from lumenfarm.tasks.ray_pool import RayExecutor

        return RayExecutor(store.url, workers=count, address=address)

    return make


def _limits(gap: float | None, time_limit_s: float | None) -> Limits:
    if gap is not None and not 0 <= gap < 1:
        raise InputError("gap", gap, "a fraction from 0 up to 1, such as 0.05")
    if time_limit_s is not None:
        finite(time_limit_s, field="time-limit", strict=True)
    return Limits(gap, time_limit_s)


def _provenance(method: Method, limits: Limits) -> Provenance:
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Provenance(versions(), method.value, {"gap": limits.gap, "time_limit_s": limits.time_limit_s}, created)


def _synthesis(
    schedule: Schedule,
    baselines: Baselines,
    work: Work,
    choice: _Choice,
    proofs: tuple[SpaceProof, ...],
    limits: Limits,
    wall_s: float,
) -> Synthesis:
    return Synthesis(
        cost_ns=schedule.cost_ns,
        communication_ns=schedule.communication_ns,
        reconfigurations=schedule.reconfigurations,
        lower_bound_ns=schedule.lower_bound_ns,
        segments=tuple(
            SegmentSummary(part.first, part.stop, schedule.topologies[part.topology].label, part.cost_ns)
            for part in schedule.segments
        ),
        envelope=schedule.envelope,
        baselines=baselines,
        work=work,
        wall_s=wall_s,
        method=choice.method,
        reason=choice.reason,
        gap_wanted=limits.gap,
        schedule=schedule,
        proofs=proofs,
    )


def _circulant_label(generator: int) -> str:
    return f"circulant{{{generator:+d}}}"


def _ignore(standing: Standing, busy: int) -> None:
    """Nobody listens."""
