"""CPU time of one theta by each rung of the ladder, beside scipy on the same program and on one built by loops.

Run as ``python benchmarks/theta_rungs.py``. CPU time of one thread, so that a busy machine counts less. The networks
have two ports a GPU: the bidirectional ring, a circulant with one long offset, the torus (one port a direction). The
demands are the steps of Swing and of recursive doubling on this ring or torus.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import numpy as np
from common import Timed, parser, setting, table, timed
from scipy.optimize import linprog
from scipy.sparse import lil_array

from lumenfarm import Pattern, Topology, generate
from lumenfarm.families import torus
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.concurrent_flow import OrbitNetwork, theta_row
from lumenfarm.tasks.flow_lp import FlowProgram, max_concurrent_flow

DEGREE = 2
DOUBLING = "all-reduce-rd"
COLLECTIVES = ("all-reduce-swing", DOUBLING)
SIZES = (16, 64, 256)
# With more GPUs rung 3 takes from seconds to minutes: only scipy tries it, and nobody builds it by loops.
FEW_GPUS = 64
TIME_LIMIT_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and the distinct steps of a collective on it."""

    topology: Topology
    dims: tuple[int, ...]
    collective: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Rungs:
    """One theta: seconds of the search for symmetry and of rungs 1 to 3 (NaN where not tried).

    Attributes:
        decided: rung 1 alone finds theta.
        difference: of rungs 2 and 3, relative.
    """

    seconds: tuple[float, float, float, float]
    decided: bool
    difference: float


def cases(n: int, collectives: Sequence[str]) -> Iterator[Case]:
    """Every network with every collective, for a square number of GPUs."""
    side = math.isqrt(n)
    networks = (
        (Topology.circulant(n, {1: 1, -1: 1}), (n,)),
        (Topology.circulant(n, {1: 1, 1 - side: 1}), (n,)),
        (torus((side, side), DEGREE), (side, side)),
    )
    for topology, dims in networks:
        for collective in collectives:
            steps = generate(collective, dims=dims, message_bytes=2**20, ports=DEGREE).steps
            patterns = tuple(dict.fromkeys(step.pattern(DEGREE) for step in steps))
            yield Case(topology, dims, collective, patterns)


def cpu(action: Callable[[], T], repetitions: int = 1) -> Timed[T]:
    """Median CPU time."""
    return timed(action, repetitions=repetitions, clock=time.process_time)


def rungs(case: Case, pattern: Pattern, repetitions: int) -> Rungs:
    """Each rung on its own; rung 3 once, and only for few GPUs.

    The search for symmetry is apart, since most of it is shared by the patterns of a network.
    """
    matrix, none = pattern.multiplicities, Symmetry(case.topology.n)
    symmetry = cpu(lambda: Symmetry.shared([case.topology.circuits, matrix], case.dims), repetitions)
    sandwich = cpu(lambda: bounds(OrbitNetwork(case.topology, symmetry.value), pattern), repetitions)
    orbit = cpu(lambda: by_rung(case.topology, pattern, symmetry.value), repetitions)
    plain = Timed(math.nan, math.nan)
    if case.topology.n <= FEW_GPUS:
        plain = cpu(lambda: by_rung(case.topology, pattern, none))
    lower, upper = sandwich.value
    return Rungs(
        (symmetry.seconds, sandwich.seconds, orbit.seconds, plain.seconds),
        decided=math.isclose(lower, upper, rel_tol=1e-12),
        difference=abs(orbit.value / plain.value - 1),
    )


def bounds(network: OrbitNetwork, pattern: Pattern) -> tuple[float, float]:
    """Rung 1: even splitting from below, ports and volume from above."""
    demands = np.stack([network.demand(pattern.multiplicities)])
    upper = min(network.port_bound(pattern.multiplicities), float(network.volume_bound(demands)[0]))
    return float(network.even_split(demands)[0]), upper


def by_rung(topology: Topology, pattern: Pattern, symmetry: Symmetry) -> float:
    """theta by rung 2, or with the trivial group by rung 3."""
    return max_concurrent_flow(program(topology, pattern, symmetry)).theta


def program(topology: Topology, pattern: Pattern, symmetry: Symmetry) -> FlowProgram:
    """The linear program of rungs 2 and 3."""
    network = OrbitNetwork(topology, symmetry)
    return network.program(network.demand(pattern.multiplicities))


def rungs_table(n: int, repetitions: int) -> str:
    """Medians over the patterns of each case."""
    rows = []
    for case in cases(n, COLLECTIVES):
        found = [rungs(case, pattern, repetitions) for pattern in case.patterns]
        symmetry, sandwich, orbit, plain = map(median, zip(*(one.seconds for one in found), strict=True))
        decided = f"{sum(one.decided for one in found)}/{len(found)}"
        times = (in_ms(symmetry), in_ms(sandwich), decided, in_ms(orbit), in_ms(plain))
        ratios = (known(f"{orbit / sandwich:.1f}"), known(f"{plain / orbit:.0f}"))
        difference = known(f"{max(one.difference for one in found):.0e}")
        rows.append((case.topology.label, case.collective, *times, *ratios, difference))
    times_of = ("symmetry ms", "rung 1 ms", "decides", "rung 2 ms", "rung 3 ms")
    return table(("<network", "<collective", *times_of, "2/1", "3/2", "2 - 3"), rows)


def programs_table(n: int, repetitions: int) -> str:
    """The ladder and the plain program, solved in four ways, for the middle step of recursive doubling."""
    rows = []
    for case in cases(n, [DOUBLING]):
        ways = by_each(case, case.patterns[len(case.patterns) // 2], repetitions)
        ladder, rung_3, simplex, interior, loops = (way.seconds for way in ways)
        stopped = ">" if math.isnan(ways[2].value) else ""
        times = (in_ms(ladder), in_ms(rung_3), stopped + in_ms(simplex), in_ms(interior), in_ms(loops))
        ratios = (f"{stopped}{simplex / interior:.1f}", known(f"{loops / rung_3:.1f}"), known(f"{loops / ladder:.0f}"))
        values = np.array([way.value for way in ways])
        difference = float(np.nanmax(np.abs(values / values[0] - 1)))
        rows.append((case.topology.label, *times, *ratios, f"{difference:.0e}"))
    times_of = ("ladder ms", "rung 3 ms", "simplex ms", "interior ms", "loops ms")
    return table(("<network", *times_of, "simplex/interior", "loops/rung 3", "loops/ladder", "difference"), rows)


def by_each(case: Case, pattern: Pattern, repetitions: int) -> list[Timed[float]]:
    """theta by the ladder, by rung 3, by scipy's simplex and interior point on its arrays, by scipy on loops."""
    topology, none = case.topology, Symmetry(case.topology.n)
    ways: list[Callable[[], float]] = [
        lambda: theta_row(topology, [pattern], case.dims).theta[0],
        lambda: by_rung(topology, pattern, none),
        lambda: by_scipy(from_arrays(program(topology, pattern, none)), "highs-ds"),
        lambda: by_scipy(from_arrays(program(topology, pattern, none)), "highs-ipm"),
        lambda: by_scipy(from_loops(topology, pattern), "highs"),
    ]
    few = topology.n <= FEW_GPUS
    tried = (True, few, True, True, few)
    return [
        cpu(way, repetitions if few else 1) if wanted else Timed(math.nan, math.nan)
        for way, wanted in zip(ways, tried, strict=True)
    ]


def by_scipy(problem: dict[str, Any], method: str) -> float:
    """theta by `scipy.optimize.linprog`; NaN at the time limit."""
    found = linprog(**problem, method=method, options={"time_limit": TIME_LIMIT_S})
    return -float(found.fun) if found.status == 0 else math.nan


def from_arrays(plain: FlowProgram) -> dict[str, Any]:
    """Our matrix in scipy's words."""
    matrix = plain.matrix().tocsr()
    lower, upper = plain.row_bounds()
    equal, below = np.flatnonzero(lower == upper), np.arange(plain.demand.size, len(upper))
    goal = np.zeros(matrix.shape[1])
    goal[-1] = -1.0
    return {"c": goal, "A_ub": matrix[below], "b_ub": upper[below], "A_eq": matrix[equal], "b_eq": upper[equal]}


def from_loops(topology: Topology, pattern: Pattern) -> dict[str, Any]:
    """The same program as one writes it first: a flow variable for every source and arc, entry by entry."""
    arcs, demands = topology.arcs(), list(pattern.multiplicities.items())
    n = topology.n
    theta = n * len(arcs)
    conservation, capacity = lil_array((n * n, theta + 1)), lil_array((len(arcs), theta + 1))
    for source in range(n):
        for index, (tail, head, _) in enumerate(arcs):
            flow = source * len(arcs) + index
            capacity[index, flow] = 1.0
            if head != source:
                conservation[source * n + head, flow] = 1.0
            if tail != source:
                conservation[source * n + tail, flow] = -1.0
    for source, destination, amount in demands:
        conservation[source * n + destination, theta] = -amount
    circuits = [x for _, _, x in arcs]
    goal = [0.0] * theta + [-1.0]
    return {"c": goal, "A_ub": capacity, "b_ub": circuits, "A_eq": conservation, "b_eq": [0.0] * (n * n)}


def in_ms(seconds: float) -> str:
    """Milliseconds."""
    return known(f"{1e3 * seconds:.2f}" if seconds < 1 else f"{1e3 * seconds:.0f}")


def known(number: str) -> str:
    """A dash for what was not measured."""
    return "-" if number == "nan" else number


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    arguments = parser(__doc__, small=f"{SIZES[0]} GPUs, once")
    arguments.add_argument("--repetitions", type=int, default=5, help="of rungs 1 and 2; the median counts")
    options = arguments.parse_args(argv)
    sizes, repetitions = (SIZES[:1], 1) if options.small else (SIZES, options.repetitions)
    print(setting("highspy", "scipy", "numpy"))
    print(f"CPU time of one theta, median of {repetitions}; medians over the distinct steps of a collective")
    for n in sizes:
        print(f"\n{n} GPUs, the rungs\n{rungs_table(n, repetitions)}", flush=True)
    print(f"\nThe plain program of rung 3 by other means: scipy, stopped after {TIME_LIMIT_S:.0f} s; built by loops")
    for n in sizes:
        print(f"\n{n} GPUs\n{programs_table(n, repetitions)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
