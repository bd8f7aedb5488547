"""Time of one theta by each rung of the ladder, beside scipy on the same program and on one built by loops.

Run as ``python benchmarks/theta_rungs.py``. Everything is CPU time of one thread, so that a busy machine counts less.
Networks have two ports a GPU: the bidirectional ring, a circulant with one long offset, the (directed) torus. Demands
are the steps of Swing and of recursive doubling on the ring or torus, before the turn.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

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
COLLECTIVES = ("all-reduce-swing", "all-reduce-rd")
SIZES = (16, 64, 256)
# Above this many GPUs rung 3 is only tried once a network, and no program is built by loops.
FEW_GPUS = 64
SIMPLEX_LIMIT_S = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and the distinct steps of a collective on it."""

    network: str
    collective: str
    topology: Topology
    patterns: tuple[Pattern, ...]
    dims: tuple[int, ...]

    @property
    def middle(self) -> Pattern:
        """The pattern of the middle step before the turn."""
        return self.patterns[len(self.patterns) // 2]


@dataclass(frozen=True, slots=True)
class Rungs:
    """One theta by each rung: seconds of the search for symmetry and of rungs 1 to 3, NaN where not tried."""

    seconds: tuple[float, float, float, float]
    decided: bool
    difference: float


def cases(n: int) -> Iterator[Case]:
    """Every network with every collective, for a square number of GPUs."""
    side = math.isqrt(n)
    networks = (
        (Topology.circulant(n, {1: 1, -1: 1}), (n,)),
        (Topology.circulant(n, {1: 1, 1 - side: 1}), (n,)),
        (torus((side, side), DEGREE), (side, side)),
    )
    for topology, dims in networks:
        for collective in COLLECTIVES:
            steps = generate(collective, dims=dims, message_bytes=2**20, ports=DEGREE).steps
            patterns = tuple(dict.fromkeys(step.pattern(DEGREE) for step in steps))
            yield Case(topology.label, collective.removeprefix("all-reduce-"), topology, patterns, dims)


def cpu(action: Callable[[], T], repetitions: int = 1) -> Timed[T]:
    """Median CPU time."""
    return timed(action, repetitions=repetitions, clock=time.process_time)


def rungs(case: Case, pattern: Pattern, repetitions: int) -> Rungs:
    """Each rung on its own; rung 3 once, and only for few GPUs.

    The search for symmetry is apart, since patterns share most of it; rung 2 uses what rung 1 knows of the network.
    """
    matrix = pattern.multiplicities
    symmetry = cpu(lambda: Symmetry.shared([case.topology.circuits, matrix], case.dims), repetitions)
    sandwich = cpu(lambda: bounds(OrbitNetwork(case.topology, symmetry.value), pattern), repetitions)
    network = OrbitNetwork(case.topology, symmetry.value)
    orbit = cpu(lambda: max_concurrent_flow(network.program(network.demand(matrix))), repetitions)
    plain = Timed(math.nan, math.nan)
    if case.topology.n <= FEW_GPUS:
        plain = cpu(lambda: max_concurrent_flow(plain_program(case.topology, pattern)))
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


def plain_program(topology: Topology, pattern: Pattern) -> FlowProgram:
    """Rung 3: the program without symmetry."""
    network = OrbitNetwork(topology, Symmetry(topology.n))
    return network.program(network.demand(pattern.multiplicities))


def rungs_table(n: int, repetitions: int) -> str:
    """Medians over the patterns of each case."""
    rows = []
    for case in cases(n):
        found = [rungs(case, pattern, repetitions) for pattern in case.patterns]
        symmetry, sandwich, orbit, plain = map(median, zip(*(one.seconds for one in found), strict=True))
        decided = f"{sum(one.decided for one in found)}/{len(found)}"
        times = (milliseconds(symmetry), milliseconds(sandwich), decided, milliseconds(orbit), milliseconds(plain))
        difference = number(max(one.difference for one in found), ".0e")
        ratios = (number(orbit / sandwich, ".1f"), number(plain / orbit, ".0f"))
        rows.append((case.network, case.collective, *times, *ratios, difference))
    times_of = ("symmetry ms", "rung 1 ms", "decides", "rung 2 ms", "rung 3 ms")
    return table(("<network", "<collective", *times_of, "2/1", "3/2", "difference of 2 and 3"), rows)


def programs_table(n: int) -> str:
    """Recursive doubling's middle step on each network: the ladder, and the plain program by scipy."""
    rows = []
    for case in cases(n):
        if case.collective != "rd":
            continue
        theta = cpu(lambda case=case: theta_row(case.topology, [case.middle], case.dims).theta[0], 5)
        program = plain_program(case.topology, case.middle)
        simplex, interior = (by_scipy(from_arrays(program), method) for method in ("highs-ds", "highs-ipm"))
        loops = by_scipy(from_loops(case.topology, case.middle), "highs")
        program = plain_program(case.topology, case.middle)
    return table((), rows)


def from_arrays(program: FlowProgram) -> dict[str, object]:
    """Our program in the words of `scipy.optimize.linprog`."""
