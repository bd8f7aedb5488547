"""Closed forms against circulants walked step by step, exhaustive searches and published numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations, pairwise, permutations, product

import numpy as np
import pytest

from lumenfarm.closed_form import (
    balanced_cuts,
    buffer_bytes,
    hops,
    pays,
    rho,
    segment_ns,
    solve,
    volume_over_ring,
)
from lumenfarm.errors import InputError
from lumenfarm.matrix import Floats
from lumenfarm.model import Fabric, Latency

# Time is then bytes times hops.
UNIT = Fabric(degree=1, link_gbps=8.0, alpha_ns=0.0, delta_ns=0.0, reconfig_delay_ns=0.0)


def fabric(
    *, alpha_ns: float = 500.0, delta_ns: float = 500.0, reconfig_delay_ns: float = 1e4, degree: int = 1
) -> Fabric:
    return Fabric(degree, 800.0, alpha_ns, delta_ns, reconfig_delay_ns)


def walk(offset: int, generator: int, n: int) -> float:
    place, taken = 0, 0
    while place != offset % n:
        place, taken = (place + generator) % n, taken + 1
        if taken > n:
            return math.inf
    return taken


@cache
def walked_table(n: int) -> Floats:
    """Hops of every offset (column) on every circulant (row g - 1), by walking all circulants at once."""
    generators = np.arange(1, n)
    table = np.full((n - 1, n), np.inf)
    for taken in range(n - 1, 0, -1):
        table[np.arange(n - 1), taken * generators % n] = taken
    table[:, 0] = 0
    return table


def cheapest(
    offsets: Sequence[int], sizes: Sequence[float], n: int, fabric: Fabric, *, initial: int | None = None
) -> float:
    """The DP over all circulants at the fabric's delay."""
    hop_table = walked_table(n)[:, np.asarray(offsets) % n]
    times = fabric.alpha_ns + (fabric.ns_per_byte * np.asarray(sizes) + fabric.delta_ns) * hop_table
    return forward(times, fabric.reconfig_delay_ns, None if initial is None else times[initial - 1])


def forward(times: Floats, alpha_r_ns: float, initial_times: Floats | None) -> float:
    """The partition DP at one delay, forwards and without a curve."""
    reached = [0.0 if initial_times is None else alpha_r_ns]
    for stop in range(1, times.shape[1] + 1):
        options = [
            reached[first] + float(times[:, first:stop].sum(axis=1).min()) + (alpha_r_ns if first else 0.0)
            for first in range(stop)
        ]
        if initial_times is not None:
            options.append(float(initial_times[:stop].sum()))
        reached.append(min(options))
    return reached[-1]


def rd_all_reduce(n: int) -> tuple[list[int], list[float]]:
    """Shifts 1, 2, 4, ... with shares 1/2, 1/4, ... of the data, then mirrored (model section 10)."""
    offsets = [2**k for k in range(n.bit_length() - 1)]
    sizes = [1 / (2 * offset) for offset in offsets]
    return offsets + offsets[::-1], sizes + sizes[::-1]


def bruck(n: int) -> list[tuple[list[int], list[float]]]:
    """All-to-All, Reduce-Scatter and AllGather by ceil(log2 n) shifts, shares of the data."""
    offsets = [2**k for k in range((n - 1).bit_length())]
    return [
        (offsets, [1 / 2] * len(offsets)),
        (offsets, [1 / (2 * offset) for offset in offsets]),
        (offsets, [min(offset, n - offset) / n for offset in offsets]),
    ]


def test_hops_are_those_of_a_walk() -> None:
    for n in range(2, 17):
        generators = np.arange(1, n)[:, None]
        expected = [[walk(offset, generator, n) for offset in range(-n, n)] for generator in range(1, n)]
        assert hops(np.arange(-n, n), generators, n).tolist() == expected
        assert hops(np.arange(-n, n), generators - n, n).tolist() == expected


def test_the_walk_of_all_circulants_at_once_is_the_walk() -> None:
    for n in (8, 9, 12):
        assert walked_table(n).tolist() == [[walk(o, g, n) for o in range(n)] for g in range(1, n)]


@pytest.mark.parametrize("initial", [None, 1, 3])
@pytest.mark.parametrize("n", [4, 5, 6, 8, 9, 12])
def test_equals_all_partitions_on_all_circulants(n: int, initial: int | None) -> None:
    random = np.random.default_rng(n)
    for _ in range(4):
        steps = int(random.integers(1, 5))
        offsets = random.integers(1, n, steps).tolist()
        if n in (4, 8):
            offsets = (2 ** random.integers(0, n.bit_length() - 1, steps)).tolist()
        sizes = random.integers(1, 1000, steps).astype(float).tolist()
        here = fabric(alpha_ns=3.0, delta_ns=2.0, reconfig_delay_ns=float(random.integers(0, 60)))
        lowest = math.inf
        for path in product(range(1, n), repeat=steps):
            cost = sum(
                here.alpha_ns + (here.ns_per_byte * size + here.delta_ns) * walk(offset, generator, n)
                for offset, size, generator in zip(offsets, sizes, path, strict=True)
            )
            moves = [old != new for old, new in pairwise(path if initial is None else (initial, *path))]
            lowest = min(lowest, cost + here.reconfig_delay_ns * sum(moves))
        found = solve(offsets, sizes, n, here, initial=initial)
        assert found.cost_ns == pytest.approx(lowest, rel=1e-12)


@pytest.mark.parametrize("n", [8, 12, 16, 21, 32, 64, 100, 128, 256, 512])
def test_equals_the_dp_over_all_circulants(n: int) -> None:
    random = np.random.default_rng(n)
    instances = bruck(n) + ([rd_all_reduce(n)] if n & (n - 1) == 0 else [])
    for trial in range(20):
        offsets, shares = instances[trial % len(instances)]
        message_bytes = 2.0 ** random.uniform(8, 30)
        alpha_ns, delta_ns, reconfig_delay_ns = (10.0 ** random.uniform(0, 5, 3)).tolist()
        here = fabric(alpha_ns=alpha_ns, delta_ns=delta_ns, reconfig_delay_ns=100 * reconfig_delay_ns)
        initial = [None, 1, 3, n // 2][trial % 4 if trial >= 10 else 0]
        sizes = [share * message_bytes for share in shares]
        found = solve(offsets, sizes, n, here, initial=initial)
        assert found.cost_ns == pytest.approx(cheapest(offsets, sizes, n, here, initial=initial), rel=1e-12)


def test_the_segments_are_the_cost() -> None:
    here = fabric()
    for n, initial in product((64, 100), (None, 1)):
        offsets, shares = bruck(n)[1]
        sizes = [share * 2**20 for share in shares]
        found = solve(offsets, sizes, n, here, initial=initial)
        counts = [count for segment in found.segments for count in segment.hops]
        walked = [
            walk(offset, segment.generator, n)
            for segment in found.segments
            for offset in offsets[segment.first : segment.stop]
        ]
        assert counts == walked
        for segment in found.segments:
            steps = range(segment.first, segment.stop)
            times = [500 + (0.01 * sizes[step] + 500) * walk(offsets[step], segment.generator, n) for step in steps]
            assert segment.cost_ns == pytest.approx(sum(times), rel=1e-12)
        spent = sum(segment.cost_ns for segment in found.segments)
        assert found.cost_ns == pytest.approx(spent + found.reconfigurations * 1e4, rel=1e-12)
        assert found.curve.boundaries(found.reconfigurations) == tuple((s.first, s.stop) for s in found.segments)


def test_a_usable_initial_circulant_is_kept_and_a_useless_one_left() -> None:
    offsets, sizes = [1, 2, 4], [1e5, 1e5, 1e5]
    kept = solve(offsets, sizes, 8, fabric(reconfig_delay_ns=1e9), initial=-5)
    assert [(segment.generator, segment.hops) for segment in kept.segments] == [(3, (3, 6, 4))]
    assert kept.reconfigurations == 0
    left = solve(offsets, sizes, 8, fabric(reconfig_delay_ns=1e9), initial=2)
    assert [segment.generator for segment in left.segments] == [1]
    assert left.reconfigurations == 1


def test_the_smallest_offset_is_not_always_best() -> None:
    found = solve([1, 2, 4], [1.0, 2.0, 4.0], 9, UNIT)
    assert found.curve.communication_ns[0] == 15.0
    assert 1 * walk(1, 1, 9) + 2 * walk(2, 1, 9) + 4 * walk(4, 1, 9) == 21


@pytest.mark.parametrize("latency", list(Latency))
def test_both_latencies_agree(latency: Latency) -> None:
    offsets, sizes = rd_all_reduce(64)
    here = Fabric(1, 800.0, 500.0, 500.0, 1e4, latency)
    assert solve(offsets, sizes, 64, here).cost_ns == solve(offsets, sizes, 64, fabric()).cost_ns


def test_the_envelope_holds_at_every_delay() -> None:
    offsets, shares = rd_all_reduce(64)
    sizes = [share * 2**20 for share in shares]
    for piece in solve(offsets, sizes, 64, fabric()).envelope:
        delay_ns = piece.alpha_r_from_ns + 1.0
        cost_ns = piece.communication_ns + piece.reconfigurations * delay_ns
        assert cost_ns == pytest.approx(cheapest(offsets, sizes, 64, fabric(reconfig_delay_ns=delay_ns)), rel=1e-12)


def on_permutation(circuits: Sequence[int], offset: int) -> tuple[float, float]:
    """(congestion factor, largest hop distance) of a shift where every GPU u has one circuit, to circuits[u]."""
    n = len(circuits)
    load, farthest = [0] * n, 0
    for source in range(n):
        place, taken = source, 0
        while place != (source + offset) % n:
            load[place] += 1
            place, taken = circuits[place], taken + 1
            if taken > n:
                return math.inf, math.inf
        farthest = max(farthest, taken)
    return max(load), farthest


@pytest.mark.parametrize("latency", list(Latency))
@pytest.mark.parametrize("initial", [None, 1])
@pytest.mark.parametrize("n", [4, 5])
def test_no_one_port_topologies_beat_the_lower_bound(n: int, initial: int | None, latency: Latency) -> None:
    random = np.random.default_rng(n)
    for _ in range(6):
        offsets = random.integers(1, n, 4).tolist()
        sizes = random.integers(1, 100, 4).astype(float)
        here = Fabric(1, 8.0, 3.0, 20.0, float(random.integers(0, 200)), latency)

        def times_on(circuits: Sequence[int], offsets: list[int] = offsets, sizes: Floats = sizes) -> Floats:
            congestion, distance = np.array([on_permutation(circuits, offset) for offset in offsets]).T
            hop_count = congestion if latency is Latency.CONGESTION else distance
            times: Floats = 3.0 + sizes * congestion + 20.0 * hop_count
            return times

        times = np.array([times_on(circuits) for circuits in permutations(range(n))])
        initial_times = None if initial is None else times_on([(u + initial) % n for u in range(n)])
        lowest = forward(times, here.reconfig_delay_ns, initial_times)
        found = solve(offsets, sizes.tolist(), n, here, initial=initial)
        assert found.lower_bound_ns <= lowest * (1 + 1e-12)
        assert found.cost_ns >= lowest * (1 - 1e-12)


def test_the_lower_bound_gives_the_heaviest_offsets_the_fewest_hops() -> None:
    offsets, sizes = [1, 5, 1, 2, 9, 5], [4.0, 2.0, 3.0, 7.0, 1.0, 6.0]
    dear = fabric(alpha_ns=100.0, delta_ns=0.0, reconfig_delay_ns=1e9)
    expected = 6 * 100 + 0.01 * (1 * 8 + 2 * 7 + 3 * 7 + 4 * 1)
    assert solve(offsets, sizes, 11, dear).lower_bound_ns == pytest.approx(expected, rel=1e-12)
    free = fabric(alpha_ns=100.0, delta_ns=0.0, reconfig_delay_ns=0.0)
    found = solve(offsets, sizes, 11, free)
    assert found.lower_bound_ns == pytest.approx(6 * 100 + 0.01 * 23, rel=1e-12)
    assert found.lower_bound_ns == pytest.approx(found.cost_ns, rel=1e-12)


def test_the_baselines() -> None:
    offsets, sizes = [1, 2, 2, 4], [100.0, 100.0, 100.0, 100.0]
    here = fabric(reconfig_delay_ns=7000.0)
    step, hop = 500.0, 501.0
    free = solve(offsets, sizes, 8, here)
    assert free.static_ns == pytest.approx(4 * step + hop * (1 + 2 + 2 + 4))
    assert free.every_step_ns == pytest.approx(4 * step + hop * 4 + 2 * 7000)
    charged = solve(offsets, sizes, 8, here, initial=3)
    kept = sum(walk(offset, 3, 8) for offset in offsets)
    assert charged.static_ns == pytest.approx(4 * step + min(hop * kept, hop * 9 + 7000))
    assert charged.every_step_ns == pytest.approx(4 * step + hop * 4 + 3 * 7000)
    assert solve(offsets, sizes, 8, here, initial=1).every_step_ns == free.every_step_ns
    assert solve(offsets, sizes, 8, here, initial=2).static_ns == pytest.approx(free.static_ns + 7000)


def test_a_million_gpus() -> None:
    offsets, shares = rd_all_reduce(2**20)
    sizes = [share * 2**30 for share in shares]
    found = solve(offsets, sizes, 2**20, fabric())
    reached = [0.0]
    for stop in range(1, 41):
        options = []
        for first in range(stop):
            base = min(offsets[first:stop])
            interval = zip(offsets[first:stop], sizes[first:stop], strict=True)
            times = [500 + (0.01 * size + 500) * offset / base for offset, size in interval]
            options.append(reached[first] + sum(times) + (1e4 if first else 0.0))
        reached.append(min(options))
    assert found.cost_ns == pytest.approx(reached[-1], rel=1e-12)


# STyGIANet/astra-sim-dev, acad/reconfigurable-topologies: 64 GPUs, one port, 800 Gb/s, alpha = delta = 500 ns.
PUBLISHED_RD = [
    (65536, 1e3, 20720.32359721313, 4),
    (65536, 1e4, 42211.83990248441, 2),
    (1048576, 1e5, 131914.70139260244, 0),
    (16777216, 1e4, 428544.84547998087, 8),
    (16777216, 1e5, 727318.4174574355, 2),
    (268435456, 1e5, 6181713.0564417355, 8),
    (268435456, 1e6, 10077066.165673329, 2),
    (268435456, 1e8, 16175135.217206042, 0),
    (1073741824, 1e6, 28831014.33772912, 6),
]
PUBLISHED_ALL_TO_ALL = [
    (1024, 1e3, 124010.40408287324, 60),
    (65536, 1e5, 653981.5260468083, 1),
    (1048576, 1e4, 453716.82167536503, 16),
    (268435456, 1e6, 31597738.53662953, 12),
]


@pytest.mark.parametrize(("message_bytes", "reconfig_delay_ns", "cost_ns", "reconfigurations"), PUBLISHED_RD)
def test_recursive_doubling_as_published(
    message_bytes: int, reconfig_delay_ns: float, cost_ns: float, reconfigurations: int
) -> None:
    offsets, shares = rd_all_reduce(64)
    sizes = [share * message_bytes for share in shares]
    found = solve(offsets, sizes, 64, fabric(reconfig_delay_ns=reconfig_delay_ns))
    assert found.cost_ns == pytest.approx(cost_ns, rel=1e-5)
    assert found.reconfigurations == reconfigurations


@pytest.mark.parametrize(("message_bytes", "reconfig_delay_ns", "cost_ns", "reconfigurations"), PUBLISHED_ALL_TO_ALL)
def test_all_to_all_as_published(
    message_bytes: int, reconfig_delay_ns: float, cost_ns: float, reconfigurations: int
) -> None:
    found = solve(range(1, 64), [message_bytes / 64] * 63, 64, fabric(reconfig_delay_ns=reconfig_delay_ns))
    assert found.cost_ns == pytest.approx(cost_ns, rel=1e-5)
    assert found.reconfigurations == reconfigurations


def exhaustive_cuts(weights: Sequence[float], reconfigurations: int) -> tuple[float, tuple[int, ...]]:
    """Least weighted hops of shifts 1, 2, 4, ... over all sets of cuts."""
    steps = len(weights)

    def volume(cuts: tuple[int, ...]) -> float:
        pairs = pairwise((0, *cuts, steps))
        return sum(weights[k] * float(2 ** (k - first)) for first, stop in pairs for k in range(first, stop))

    return min((volume(cuts), cuts) for cuts in combinations(range(1, steps), reconfigurations))


ALL_TO_ALL = [1.0] * 6
REDUCE_SCATTER = [2.0 ** -(k + 1) for k in range(6)]
ALL_GATHER = [2.0**k for k in range(6)]


@pytest.mark.parametrize(
    ("weights", "cuts"),
    [
        (ALL_TO_ALL, [(3,), (2, 4)]),
        (REDUCE_SCATTER, [(2,), (1, 3)]),
        (ALL_GATHER, [(4,), (3, 5)]),
    ],
)
def test_bridge_cuts_for_64_gpus(weights: list[float], cuts: list[tuple[int, ...]]) -> None:
    curve = solve([2**k for k in range(6)], weights, 64, UNIT).curve
    for expected in cuts:
        volume, searched = exhaustive_cuts(weights, len(expected))
        assert searched == expected
        assert tuple(first for first, _ in curve.boundaries(len(expected))[1:]) == expected
        assert curve.communication_ns[len(expected)] == volume


def test_one_cut_saves_49_of_63_hop_units() -> None:
    assert exhaustive_cuts(ALL_TO_ALL, 0)[0] == segment_ns(6, alpha_ns=0.0, hop_ns=1.0) == 63
    assert exhaustive_cuts(ALL_TO_ALL, 1)[0] == 2 * segment_ns(3, alpha_ns=0.0, hop_ns=1.0) == 14


@pytest.mark.parametrize("steps", range(1, 10))
def test_balanced_cuts_are_best_for_all_to_all(steps: int) -> None:
    for reconfigurations in range(steps):
        cuts = balanced_cuts(steps, reconfigurations)
        lengths = [stop - first for first, stop in pairwise((0, *cuts, steps))]
        assert sorted(lengths) == lengths
        cost = sum(segment_ns(length, alpha_ns=0.0, hop_ns=1.0) for length in lengths)
        assert cost == exhaustive_cuts([1.0] * steps, reconfigurations)[0]


def test_a_segment_costs_the_sum_of_its_steps() -> None:
    steps = [1.7 + 3.0 * walk(2 ** (2 + k), 4, 256) for k in range(5)]
    assert segment_ns(5, alpha_ns=1.7, hop_ns=3.0) == pytest.approx(sum(steps), rel=1e-14)


@pytest.mark.parametrize(
    ("n", "ratios"), [(64, [3.048, 1.524, 1.206, 1.079, 1.016]), (256, [4.016, 1.757, 1.318, 1.129, 1.051])]
)
def test_reduce_scatter_volume_over_ring(n: int, ratios: list[float]) -> None:
    steps = n.bit_length() - 1
    for reconfigurations, ratio in enumerate(ratios):
        found = volume_over_ring(n, reconfigurations)
        weights = [2.0 ** -(k + 1) for k in range(steps)]
        assert found == pytest.approx(exhaustive_cuts(weights, reconfigurations)[0] / ((n - 1) / n), rel=1e-14)
        assert round(found, 3) == ratio
    assert volume_over_ring(n, steps - 1) == pytest.approx(1.0, rel=1e-14)


def test_small_formulas() -> None:
    assert rho(fabric(), 1e6) == pytest.approx(1.0)
    assert rho(fabric(), 1e8) == pytest.approx(0.01)
    assert buffer_bytes(fabric()) == pytest.approx(1e6)
    assert pays(10.0, 9.0)
    assert not pays(10.0, 10.0)
    assert pays(1.0, 10.0, window_ns=9.5)
    assert not pays(0.0, 10.0, window_ns=20.0)


@pytest.mark.parametrize(
    ("offsets", "sizes", "n", "here", "field"),
    [
        ([1], [1.0], 8, fabric(degree=2), "ports"),
        ([1], [1.0], 1, UNIT, "gpus"),
        ([], [], 8, UNIT, "steps"),
        ([1, 2], [1.0], 8, UNIT, "steps"),
        ([1, 8], [1.0, 1.0], 8, UNIT, "offsets"),
        ([1], [0.0], 8, UNIT, "bytes"),
        ([1], [math.nan], 8, UNIT, "bytes"),
    ],
)
def test_unusable_shifts_are_refused(offsets: list[int], sizes: list[float], n: int, here: Fabric, field: str) -> None:
    with pytest.raises(InputError) as caught:
        solve(offsets, sizes, n, here)
    assert caught.value.field == field


def test_unusable_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="initial"):
        solve([1], [1.0], 8, UNIT, initial=16)
    with pytest.raises(InputError, match="steps"):
        balanced_cuts(0, 0)
    with pytest.raises(InputError, match="reconfigurations"):
        balanced_cuts(3, 3)
    with pytest.raises(InputError, match="gpus"):
        volume_over_ring(12, 0)
    with pytest.raises(InputError, match="reconfigurations"):
        volume_over_ring(8, 3)
    with pytest.raises(InputError, match="length"):
        segment_ns(0, alpha_ns=1.0, hop_ns=1.0)
    with pytest.raises(InputError, match="message"):
        rho(UNIT, 0.0)
