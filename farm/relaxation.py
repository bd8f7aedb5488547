"""What potentials prove about an interval over all topologies: its continuous relaxation (model sections 7 and 8).

Let a group have one element that takes GPU 0 to each GPU, and let u*v be where the element that takes 0 to u takes v.
Potentials pi_i(v) of a pattern i, 0 at GPU 0, give the arcs (u, u*o), the orbit o, the length
l_i(o) = max_u pi_i(u*o) - pi_i(u). Moved to every other source by the group, they make each v at least pi_i(v) away
from its source in any topology, symmetric or not. So with x_o the circuits on an orbit divided by the number of GPUs,

    theta_i*mu_i <= sum_o x_o*l_i(o)  where  mu_i = sum_v k_i(0,v)*pi_i(v),    sum_o x_o <= d,    theta_i <= 1

and hence, for any potentials,

    sum_i w_i/theta_i >= sum_i min_{0 < t <= 1} (w_i/t + mu_i*t)  -  d * max_o sum_i l_i(o).

The scale of the potentials is part of the proof: at the relaxation's optimum, which `lumenfarm.tasks.relaxation` finds,
both sides are equal, and mu_i = w_i/theta_i^2 wherever theta_i < 1.
"""

from __future__ import annotations

import numpy as np

from lumenfarm.errors import InputError
from lumenfarm.groups import Group
from lumenfarm.matrix import Floats
from lumenfarm.problem import IntervalProblem

__all__ = ["safe_value", "sent_by_first"]

# Far more than what rounding does to sums over some thousand GPUs.
_ROUNDING = 1e-9


def safe_value(problem: IntervalProblem, group: Group, potentials: Floats) -> float:
    """A lower bound on sum_i w_i/theta_i over all topologies of the problem's degree, rounded down.

    Args:
        problem: patterns that the group leaves as they are.
        group: with one class of GPUs.
        potentials: pi_i(v), any numbers, shape (patterns, 1, n); what they are at GPU 0 is taken off.

    Returns:
        The bound of the module's docstring less 1e-9 of its terms; 0 if that is negative or not a number.

    Raises:
        InputError: the group has several classes, or the potentials another shape.
    """
    demand, weights = sent_by_first(problem, group), np.array(problem.weights)
    if potentials.shape != (len(weights), 1, group.n):
        raise InputError("potentials", potentials.shape, f"shape {(len(weights), 1, group.n)}")
    end = np.argsort(group.arc_orbit, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        heights = potentials[:, 0].astype(np.float64) - potentials[:, 0, :1]
        shipped = (demand * heights).sum(axis=1)
        least = np.where(shipped < weights, weights + shipped, 2 * np.sqrt(weights * np.maximum(shipped, 0.0)))
        longest = sum((height[end] - height[:, None]).max(axis=0) for height in heights).max()
        gain, price = least.sum(), problem.degree * longest
        value = float(gain - price - _ROUNDING * (abs(gain) + price))
    return value if value > 0.0 else 0.0


def sent_by_first(problem: IntervalProblem, group: Group) -> Floats:
    """k_i(0, v), what GPU 0, which stands for all, sends in each pattern, shape (patterns, n).

    Raises:
        InputError: the group has several classes of GPUs.
    """
    if len(group.representatives) > 1:
        raise InputError("group", group.name, "a group with one class of GPUs")
    return np.concatenate([pattern.multiplicities.rows(group.representatives) for pattern in problem.patterns])
