"""Small problems with known answers, to see whether the solvers of an installation work."""

from __future__ import annotations

import math
import time

from lumenfarm.errors import EnvironmentFailure
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Pattern, Topology
from lumenfarm.problem import ThetaRow, ThetaTask
from lumenfarm.symmetry import Symmetry
from lumenfarm.tasks.concurrent_flow import OrbitNetwork
from lumenfarm.tasks.flow_lp import max_concurrent_flow

__all__ = ["ray_answers", "solvers_answer"]


def solvers_answer() -> dict[str, float]:
    """What each solver finds, by name.

    Raises:
        EnvironmentFailure: a solver is missing or finds something else than the known answer.
    """
    found = {"highs": _by_highs(), "scip": _by_scip()}
    for name, value in found.items():
        if not math.isclose(value, 0.5, rel_tol=1e-6):
            raise EnvironmentFailure(f"{name} finds {value:.9g} where 0.5 is right", where=name)
    return found


def ray_answers(address: str | None) -> str:
    """One task through Ray and back; how long it took, start included.

    Raises:
        EnvironmentFailure: Ray cannot be started or reached, or the task fails.
    """
    from lumenfarm.tasks.ray_pool import RayExecutor

    start = time.perf_counter()
    executor = RayExecutor("none", workers=1, address=address)
    try:
        (done,) = executor.run([[ThetaTask(_two_hop_ring(), [_shift_by_two()], (4,))]])
    finally:
        executor.close()
    answer = done.outcomes[0]
    if not isinstance(answer, ThetaRow) or not math.isclose(answer.theta[0], 0.5):
        raise EnvironmentFailure(f"a worker finds {answer!r} where theta is 0.5", where="ray")
    return f"{'reached' if address else 'started'}, one task answered, {time.perf_counter() - start:.1f} s in all"


def _two_hop_ring() -> Topology:
    return Topology.circulant(4, {1: 1})


def _shift_by_two() -> Pattern:
    return Pattern(PairMatrix.shift(4, 2, 1.0))


def _by_highs() -> float:
    network = OrbitNetwork(_two_hop_ring(), Symmetry(4))
    return max_concurrent_flow(network.program(network.demand(_shift_by_two().multiplicities))).theta


def _by_scip() -> float:
    """The least x with x*y >= 1 and y <= 2, a second-order cone."""
    try:
        import pyscipopt
    except ImportError as error:
        raise EnvironmentFailure(f"SCIP is missing: {error}", where="scip") from error
    model = pyscipopt.Model()
    model.hideOutput()
    x, y = model.addVar("x", ub=10), model.addVar("y", ub=2)
    model.addCons(x * y >= 1)
    model.setObjective(x)
    model.optimize()
    return float(model.getObjVal())
