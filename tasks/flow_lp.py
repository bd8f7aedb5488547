"""The maximum concurrent flow as a linear program in HiGHS, built from arrays."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from scipy.sparse import coo_array, csc_array

from lumenfarm.errors import EnvironmentFailure
from lumenfarm.matrix import Floats, Ints

__all__ = ["FlowProgram", "FlowSolution", "max_concurrent_flow"]


# Above this, interior point with crossover is up to thirty times faster than simplex; below, slower (docs/findings.md).
_MANY_COLUMNS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class FlowProgram:
    """max theta such that every source ships theta times its demand within the capacities of groups of arcs.

    Variables are f(r, e) >= 0, the flow of source r on arc e, and theta. For every source r and GPU v != source:
    inflow - outflow = theta*demand(r, v). For every group of arcs: sum of weight(r, e)*f(r, e) <= capacity.

    Attributes:
        n: number of GPUs.
        sources: GPU of each source, shape (sources,).
        demand: what each source sends to each GPU, shape (sources, n).
        tails, heads: ends of each arc, shape (arcs,).
        group: group of each arc, numbered from 0, shape (arcs,).
        weight: how much of a group's capacity one unit of flow takes, shape (sources, arcs).
        capacity: of each group, shape (groups,).
    """

    n: int
    sources: Ints
    demand: Floats
    tails: Ints
    heads: Ints
    group: Ints
    weight: Floats
    capacity: Floats

    def matrix(self) -> csc_array:
        """Constraint matrix: a conservation row for each (source, GPU), then a row for each group of arcs."""
        sources, arcs = self.weight.shape
        flow = np.arange(sources * arcs)
        source = flow // arcs
        theta = np.full(self.demand.size, sources * arcs)
        arc_rows = np.tile(self.group, sources) + self.demand.size
        entries = [
            (source * self.n + np.tile(self.heads, sources), flow, np.ones(len(flow))),
            (source * self.n + np.tile(self.tails, sources), flow, -np.ones(len(flow))),
            (np.arange(self.demand.size), theta, -self.demand.ravel()),
            (arc_rows, flow, self.weight.ravel()),
        ]
        rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        shape = (self.demand.size + len(self.capacity), sources * arcs + 1)
        return coo_array((values, (rows, columns)), shape=shape).tocsc()

    def row_bounds(self) -> tuple[Floats, Floats]:
        """Lower and upper side of every row; the rows of a source's own GPU are free."""
        own = np.arange(len(self.sources)) * self.n + self.sources
        lower, upper = np.zeros(self.demand.size), np.zeros(self.demand.size)
        lower[own], upper[own] = -np.inf, np.inf
        below = np.full(len(self.capacity), -np.inf)
        return np.concatenate([lower, below]), np.concatenate([upper, self.capacity])


@dataclass(frozen=True, slots=True, eq=False)
class FlowSolution:
    """An optimal flow's value, and what proves that there is no larger one.

    Attributes:
        theta: to about 1e-7 relative.
        potentials: pi_r(v) of each source r and GPU v, from the duals of the conservation rows, 0 at the source itself,
            shape (sources, n).
    """

    theta: float
    potentials: Floats


def max_concurrent_flow(program: FlowProgram) -> FlowSolution:
    """The optimum of a program.

    Raises:
        EnvironmentFailure: HiGHS ends without an optimum; its reason is in the message.
    """
    model = _model(program)
    solver = _SilentHighs()
    method = "ipm" if model.num_col_ > _MANY_COLUMNS else "simplex"
    for option, value in (("threads", 1), ("primal_feasibility_tolerance", 1e-9), ("solver", method)):
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise EnvironmentFailure(f"HiGHS refuses {option} = {value!r}", where="highs")
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise EnvironmentFailure(f"HiGHS ended without an optimum: {solver.modelStatusToString(status)}", where="highs")
    duals = -np.array(solver.getSolution().row_dual[: program.demand.size]).reshape(program.demand.shape)
    potentials = duals - duals[np.arange(len(duals)), program.sources][:, None]
    return FlowSolution(float(solver.getInfo().objective_function_value), potentials)


class _SilentHighs(highspy.Highs):  # type: ignore[misc]
    """HiGHS that never writes to stdout; the plain class prints a banner when its callbacks are enabled."""

    def enableCallbacks(self) -> None:  # noqa: N802 - HiGHS's own name
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


def _model(program: FlowProgram) -> highspy.HighsLp:
    matrix = program.matrix()
    rows, columns = matrix.shape
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows, columns
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = np.concatenate([np.zeros(columns - 1), [1.0]])
    model.col_lower_, model.col_upper_ = np.zeros(columns), np.full(columns, np.inf)
    model.row_lower_, model.row_upper_ = program.row_bounds()
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.num_row_, model.a_matrix_.num_col_ = rows, columns
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_ = matrix.indices
    model.a_matrix_.value_ = matrix.data
    return model
