"""Arithmetic instead of search: shift collectives on one port (model section 11), and the small formulas of section 12.

With one port, the shift u -> u + o on the circulant u -> u + g takes one path of h hops for every GPU, and every
circuit carries exactly h of them: theta = 1/h, so congestion and hop distance are the same number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from lumenfarm.bounds import shift_bounds_ns
from lumenfarm.errors import InputError
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Fabric
from lumenfarm.recurrence import KCurve, best, envelope, exposed_ns, interval_costs, partition, pinned_costs
from lumenfarm.schedule import EnvelopePiece
from lumenfarm.units import finite, positive_int

__all__ = [
    "CirculantSegment",
    "ClosedForm",
    "balanced_cuts",
    "buffer_bytes",
    "hops",
    "pays",
    "rho",
    "segment_ns",
    "solve",
    "volume_over_ring",
]


@dataclass(frozen=True, slots=True)
class CirculantSegment:
    """Steps first..stop-1 (from 0) on the circulant u -> u + generator.

    Attributes:
        hops: hops of each of these steps, which is also its congestion factor.
        cost_ns: sum of the step times, without reconfiguration.
    """

    first: int
    stop: int
    generator: int
    hops: tuple[int, ...]
    cost_ns: float


@dataclass(frozen=True, slots=True, eq=False)
class ClosedForm:
    """The best circulants for a sequence of shifts on one port.

    Attributes:
        curve: the cheapest partition for every number of reconfigurations.
        envelope: the best number of reconfigurations at every reconfiguration delay.
        reconfigurations: the best number at the fabric's delay.
        segments: its intervals, in order.
        generators: those that some number of reconfigurations uses, ascending.
        cost_ns: communication plus all reconfigurations.
        lower_bound_ns: no sequence of one-port topologies is faster, circulant or not.
        static_ns: the best circulant for all steps, and the move to it if it is charged.
        every_step_ns: each step on its own circulant, every change charged.
    """

    curve: KCurve
    envelope: tuple[EnvelopePiece, ...]
    reconfigurations: int
    segments: tuple[CirculantSegment, ...]
    generators: tuple[int, ...]
    cost_ns: float
    lower_bound_ns: float
    static_ns: float
    every_step_ns: float


def hops(offset: ArrayLike, generator: ArrayLike, n: int) -> Floats:
    """Hops of the shift by ``offset`` on the circulant u -> u + ``generator``.

    With c = gcd(g, n) the least h >= 0 with h*g = o (mod n) is (o/c) * (g/c)^-1 mod n/c if c divides o, and none
    exists otherwise.

    Args:
        offset: o, whole numbers of any shape.
        generator: g, whole numbers of a shape that broadcasts with that of ``offset``.
        n: number of GPUs, at most 2^31.

    Returns:
        Hops, infinite where the shift is unreachable; the broadcast shape.

    >>> hops([1, 2, 4], 2, 9).tolist()
    [5.0, 1.0, 2.0]
    """
    distance, stride = np.asarray(offset) % n, np.asarray(generator) % n
    common = np.gcd(stride, n)
    period = n // common
    inverse = np.asarray(_inverses(stride // common, period), dtype=np.int64)
    return np.where(distance % common == 0, distance // common * inverse % period, np.inf)


def solve(
    offsets: Sequence[int],
    bytes_per_gpu: Sequence[float],
    n: int,
    fabric: Fabric,
    *,
    initial: int | None = None,
) -> ClosedForm:
    """The best sequence of circulants for shifts on one port; exact over all circulants.

        t_i(g) = alpha + (beta*m_i + delta) * hops_i(g),  for either latency

    If n and all offsets are powers of two this is arithmetic on a table of at most log2(n) circulants, so n = 2^20
    takes milliseconds; otherwise all n-1 circulants are tried, in O(n*s) memory.

    Args:
        offsets: of each step, u -> u + offset (mod n), whole, not a multiple of n.
        bytes_per_gpu: m_i, bytes that each GPU sends in each step, positive.
        n: number of GPUs, at least 2.
        fabric: with one port.
        initial: generator of the circulant in place before the first step, moving off it is charged; None if the
            first is free.

    Raises:
        InputError: more than one port, no steps, not as many sizes as offsets, an offset or ``initial`` that is a
            multiple of n, a size that is not positive and finite.

    Model sections 4 and 11; Bridge (arXiv 2605.12766).
    """
    shifts = _checked(offsets, bytes_per_gpu, n, fabric)
    alpha_r_ns = fabric.reconfig_delay_ns
    generators = shifts.generators()
    costs, choice = interval_costs(shifts.times_ns(generators[:, None]))
    start = None if initial is None else _shift(initial, n, "initial")
    pinned = None if start is None else pinned_costs(shifts.times_ns(start))
    curve = partition(costs, pinned_ns=pinned)
    k = best(curve, alpha_r_ns)
    chosen = [_chosen(curve, count, generators, choice, start) for count in _finite_counts(curve)]
    cost_ns = _cost_ns(curve, k, alpha_r_ns)
    bound_curve = partition(shifts.bounds_ns(), pinned_ns=pinned)
    return ClosedForm(
        curve=curve,
        envelope=envelope(curve),
        reconfigurations=k,
        segments=tuple(map(shifts.segment, curve.boundaries(k), _chosen(curve, k, generators, choice, start))),
        generators=tuple(sorted(set().union(*chosen))),
        cost_ns=cost_ns,
        lower_bound_ns=min(cost_ns, _cost_ns(bound_curve, best(bound_curve, alpha_r_ns), alpha_r_ns)),
        static_ns=min(curve.communication_ns[0], float(costs[0, -1]) + (0.0 if start is None else alpha_r_ns)),
        every_step_ns=shifts.every_step_ns(start, alpha_r_ns),
    )


def segment_ns(length: int, *, alpha_ns: float, hop_ns: float) -> float:
    """Cost of ``length`` Bruck All-to-All steps on the circulant of the first: r*alpha + c*(2^r - 1).

    Args:
        length: r, number of steps, at least 1.
        alpha_ns: startup of each step, ns.
        hop_ns: c, ns a hop: delta + beta*m/2 for m bytes per GPU.

    Raises:
        InputError: a length that is not a whole number above 0.

    Model section 11; Bridge (arXiv 2605.12766).
    """
    return positive_int(length, field="length") * alpha_ns + hop_ns * float(2**length - 1)


def balanced_cuts(steps: int, reconfigurations: int) -> tuple[int, ...]:
    """The best first steps (from 0) of all segments but the first, for Bruck All-to-All.

    2^r - 1 is convex in the length r, so lengths differ by at most one; shorter segments come first.

    >>> balanced_cuts(6, 2)
    (2, 4)

    Raises:
        InputError: no steps, or not 0 <= reconfigurations < steps.

    Model section 11; Bridge (arXiv 2605.12766).
    """
    positive_int(steps, field="steps")
    if not 0 <= reconfigurations < steps:
        raise InputError("reconfigurations", reconfigurations, f"a number from 0 to {steps - 1}")
    length, longer = divmod(steps, reconfigurations + 1)
    first_longer = reconfigurations + 1 - longer
    return tuple(index * length + max(0, index - first_longer) for index in range(1, reconfigurations + 1))


def volume_over_ring(n: int, reconfigurations: int) -> float:
    """Least bytes on a circuit in Bruck's Reduce-Scatter, over the (n-1)/n of a ring's.

    Step k, the shift by 2^k, sends the share 2^-(k+1) of a GPU's data and loads every circuit once per hop.

    Args:
        n: number of GPUs, a power of two, at least 2.
        reconfigurations: from 0 to log2(n) - 1.

    Raises:
        InputError: another n or number of reconfigurations.

    Model section 11.
    """
    if not _is_power_of_two(np.array(positive_int(n, field="gpus", minimum=2))):
        raise InputError("gpus", n, "a power of two")
    offsets = 2 ** np.arange(n.bit_length() - 1)
    costs, _ = interval_costs(hops(offsets, offsets[:, None], n) / (2 * offsets))
    volumes = partition(costs).communication_ns
    if not 0 <= reconfigurations < len(volumes):
        raise InputError("reconfigurations", reconfigurations, f"a number from 0 to {len(volumes) - 1}")
    return volumes[reconfigurations] * n / (n - 1)


def rho(fabric: Fabric, message_bytes: float) -> float:
    """Reconfiguration delay in units of one ideal transfer: alpha_r*c/D on one port (model section 12).

    Raises:
        InputError: a message that is not positive and finite.
    """
    transfer_ns = fabric.ns_per_byte * finite(message_bytes, field="message", strict=True)
    return fabric.reconfig_delay_ns / transfer_ns


def buffer_bytes(fabric: Fabric) -> float:
    """What a port that keeps sending during a reconfiguration must hold back: c*alpha_r (model section 12)."""
    return fabric.reconfig_delay_ns / fabric.ns_per_byte


def pays(saved_ns: float, reconfig_delay_ns: float, *, window_ns: float = 0.0) -> bool:
    """Whether one reconfiguration saves more time later than the part of it that is exposed (model section 12).

    Args:
        saved_ns: time that later steps save, ns.
        reconfig_delay_ns: alpha_r, ns.
        window_ns: how much of it other work hides, ns.
    """
    return bool(saved_ns > exposed_ns(reconfig_delay_ns, window_ns))


def _finite_counts(curve: KCurve) -> list[int]:
    return np.flatnonzero(np.isfinite(curve.communication_ns)).tolist()


def _chosen(curve: KCurve, k: int, generators: Ints, choice: Ints, start: int | None) -> list[int]:
    """The generator of each interval of the cheapest partition with k reconfigurations."""
    chosen = [int(generators[choice[interval]]) for interval in curve.boundaries(k)]
    if start is not None and curve.stays_on_initial(k):
        chosen[0] = start
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Shifts:
    offsets: Ints
    weights_ns: Floats
    alpha_ns: float
    n: int

    def generators(self) -> Ints:
        """Generators of which one is best for every interval, ascending.

        If n and all offsets are powers of two, that is the smallest offset 2^l of the interval. For a generator
        2^a*q with q odd, the shift by 2^i is reachable iff a <= i, and then takes 2^(i-a)*q^-1 mod n/2^a hops with
        q^-1 odd: a non-zero multiple of 2^(i-a), which the generator 2^a attains. The larger a the better, and
        a = l is the largest that reaches every step.

        For other n the rule is false. With n = 9, offsets 1, 2, 4 and weights 1, 2, 4 the generator 1 costs
        1 + 4 + 16 = 21, but the generator 2 costs 5 + 2 + 8 = 15.
        """
        if _is_power_of_two(np.append(self.offsets, self.n)):
            return np.unique(self.offsets)
        return np.arange(1, self.n)

    def times_ns(self, generator: ArrayLike) -> Floats:
        """Time of every step on each generator."""
        return self.alpha_ns + self.weights_ns * hops(self.offsets, generator, self.n)

    def bounds_ns(self) -> Floats:
        """Lower bounds on the time of every interval over all one-port topologies, ns, shape (s, s+1)."""
        steps = len(self.offsets)
        _, which = np.unique(self.offsets, return_inverse=True)
        counts = np.arange(steps + 1) - np.arange(steps)[:, None]
        return shift_bounds_ns(self.weights_ns, which) + np.where(counts > 0, counts, 0) * self.alpha_ns

    def every_step_ns(self, start: int | None, alpha_r_ns: float) -> float:
        """Every step in one hop, every change of offset charged."""
        places = self.offsets if start is None else np.append(start, self.offsets)
        changes = int(np.count_nonzero(np.diff(places)))
        return float((self.alpha_ns + self.weights_ns).sum()) + changes * alpha_r_ns

    def segment(self, interval: tuple[int, int], generator: int) -> CirculantSegment:
        """An interval on a circulant that reaches all of its steps."""
        steps = slice(*interval)
        counts = hops(self.offsets, generator, self.n)[steps].astype(int)
        cost_ns = float(self.times_ns(generator)[steps].sum())
        return CirculantSegment(*interval, generator, tuple(counts.tolist()), cost_ns)


def _cost_ns(curve: KCurve, k: int, alpha_r_ns: float) -> float:
    return curve.communication_ns[k] + k * alpha_r_ns


def _checked(offsets: Sequence[int], bytes_per_gpu: Sequence[float], n: int, fabric: Fabric) -> _Shifts:
    positive_int(n, field="gpus", minimum=2)
    if fabric.degree != 1:
        raise InputError("ports", fabric.degree, "1 port, which the closed form needs")
    if not len(offsets) or len(offsets) != len(bytes_per_gpu):
        raise InputError("steps", (len(offsets), len(bytes_per_gpu)), "as many sizes as offsets, at least one")
    distances = np.array([_shift(offset, n, "offsets") for offset in offsets])
    sizes = np.array([finite(size, field="bytes", strict=True) for size in bytes_per_gpu])
    return _Shifts(distances, fabric.ns_per_byte * sizes + fabric.delta_ns, fabric.alpha_ns, n)


def _shift(offset: int, n: int, field: str) -> int:
    if offset % n == 0:
        raise InputError(field, offset, f"a whole number that is not a multiple of {n}")
    return offset % n


def _is_power_of_two(values: Ints) -> bool:
    return bool((values & (values - 1) == 0).all())


def _inverse(unit: int, period: int) -> int:
    return pow(unit, -1, period)


_inverses = np.frompyfunc(_inverse, 2, 1)
