"""Facts printed in the sources: Harvest (arXiv 2602.09188 and its artifact), Swing (NSDI 2024), Bruck (TPDS 1997)."""

import numpy as np
import pytest

from lumenfarm.collectives import generate
from lumenfarm.model import Collective, Fabric
from lumenfarm.problem import Workload

MIB = 2**20


def amounts(collective: Collective) -> list[float]:
    return [step.demand.largest_sum for step in collective.steps]


def offsets(collective: Collective) -> list[int | None]:
    return [step.demand.shift_offset() for step in collective.steps]


def test_cyclic_recursive_doubling_of_64_gpus() -> None:
    collective = generate("all-reduce-rd", gpus=64, message_bytes=MIB)
    halves = [MIB // 2, MIB // 4, MIB // 8, MIB // 16, MIB // 32, MIB // 64]
    assert amounts(collective) == halves + halves[::-1]
    assert offsets(collective) == [1, 2, 4, 8, 16, 32, 32, 16, 8, 4, 2, 1]


@pytest.mark.parametrize("kind", ["rd", "rd-exchange", "halving-doubling", "swing"])
@pytest.mark.parametrize("dims", [(64,), (8, 8), (4, 4, 4)])
def test_turning_back_repeats_the_patterns(kind: str, dims: tuple[int, ...]) -> None:
    fabric = Fabric(degree=2, link_gbps=800, alpha_ns=500, delta_ns=500, reconfig_delay_ns=1000)
    workload = Workload.of(generate(f"all-reduce-{kind}", dims=dims, message_bytes=MIB), fabric)
    assert len(workload) == 12
    assert len(workload.patterns) == 6


def test_pairwise_forms_differ_in_order_only() -> None:
    near = generate("reduce-scatter-rd-exchange", gpus=16, message_bytes=MIB)
    far = generate("reduce-scatter-halving-doubling", gpus=16, message_bytes=MIB)
    for collective, distances in ((near, [1, 2, 4, 8]), (far, [8, 4, 2, 1])):
        for step, distance in zip(collective.steps, distances, strict=True):
            assert (step.demand.destinations == step.demand.sources ^ distance).all()
    assert amounts(near) == amounts(far) == [MIB / 2, MIB / 4, MIB / 8, MIB / 16]


def test_swing_distances_and_chunks_on_two_ports() -> None:
    collective = generate("all-reduce-swing", gpus=64, message_bytes=MIB, ports=2)
    for turn, distance in enumerate([1, -1, 3, -5, 11, -21]):
        demand = collective.steps[turn].demand
        signs = np.where(demand.sources % 2 == 0, 1, -1)
        assert (demand.destinations == (demand.sources + signs * distance) % 64).all()
        assert collective.steps[turn].chunk_bytes(2) == MIB / 2 ** (turn + 2)


def test_swing_on_a_square_torus_alternates_dimensions() -> None:
    collective = generate("reduce-scatter-swing", dims=(4, 4), message_bytes=MIB)
    from_origin = [step.demand.destinations[step.demand.sources == 0].tolist() for step in collective.steps]
    # (1,0), (0,1), (-1,0), (0,-1) in row-major ranks
    assert from_origin == [[4], [1], [12], [3]]


def test_mirrored_swing_uses_every_direction_of_a_torus_at_once() -> None:
    collective = generate("reduce-scatter-swing-mirrored", dims=(4, 4), message_bytes=MIB)
    for step in collective.steps:
        assert step.demand.dense()[0].nonzero()[0].tolist() == [1, 3, 4, 12]
        assert len(set(step.demand.values.tolist())) == 1


@pytest.mark.parametrize(("n", "radix"), [(64, 2), (64, 4), (64, 8), (27, 3), (81, 3)])
def test_bruck_when_n_is_a_power_of_the_radix(n: int, radix: int) -> None:
    exchange = generate("all-to-all-bruck", gpus=n, message_bytes=MIB, radix=radix)
    gather = generate("all-gather-bruck", gpus=n, message_bytes=MIB, radix=radix)
    shifts = [(z, place) for place in (radix**x for x in range(n)) if place < n for z in range(1, radix)]
    assert offsets(exchange) == offsets(gather) == [z * place for z, place in shifts]
    assert [step.demand.values[0] for step in exchange.steps] == [MIB / radix] * len(shifts)
    assert amounts(gather) == pytest.approx([MIB / n * place for _, place in shifts], rel=1e-15)


@pytest.mark.parametrize(("ports", "steps"), [(1, 9), (2, 6), (3, 3), (5, 3)])
def test_bruck_makes_p_shifts_in_a_step(ports: int, steps: int) -> None:
    collective = generate("all-gather-bruck", gpus=64, message_bytes=MIB, radix=4, ports=ports)
    assert len(collective) == steps


@pytest.mark.parametrize(
    ("message", "reconfig_delay_ns", "published_ns"),
    [(4 * MIB, 1e4, 153288.40607756696), (64 * MIB, 1e5, 1672605.2016142234), (256 * MIB, 1e5, 3654413.794134282)],
)
def test_published_swing_schedules_that_rewire_for_every_step(
    message: float, reconfig_delay_ns: float, published_ns: float
) -> None:
    """Harvest artifact, swing, 64 GPUs, 2 ports, 800 Gb/s, alpha = delta = 500 ns, 10 reconfigurations: theta is 1."""
    collective = generate("all-reduce-swing", gpus=64, message_bytes=message)
    cost = 12 * 1000 + 0.01 * collective.chunk_bytes(2).sum() + 10 * reconfig_delay_ns
    assert cost == pytest.approx(published_ns, rel=1e-5)


def test_published_recursive_doubling_on_its_static_ring() -> None:
    """Harvest artifact, halvingDoubling, 64 GPUs, 1 port, 1 MiB, alpha = delta = 500 ns, 0 changes: hops = offset."""
    collective = generate("all-reduce-rd", gpus=64, message_bytes=MIB)
    per_hop = 0.01 * collective.chunk_bytes(1) + 500
    assert 12 * 500 + per_hop @ np.array(offsets(collective), dtype=float) == pytest.approx(
        131914.70139260244, rel=1e-5
    )


def test_published_all_to_all() -> None:
    """Harvest artifact, direct, 64 GPUs, 1 port, 1 KiB, alpha_r = 1 us, 60 changes of 62: two steps take a hop more."""
    collective = generate("all-to-all", gpus=64, message_bytes=1024)
    assert offsets(collective) == list(range(1, 64))
    per_hop = 0.01 * collective.chunk_bytes(1) + 500
    cost = 63 * 500 + per_hop.sum() + 2 * per_hop[0] + 60 * 1000
    assert cost == pytest.approx(124010.40407287324, rel=1e-5)


def test_binary_broadcast_of_seven() -> None:
    collective = generate("broadcast-binary", gpus=7, message_bytes=1, root=3)
    assert [[(u, v) for u, v, _ in step.demand.items()] for step in collective.steps] == [
        [(3, 4), (3, 5)],
        [(4, 0), (4, 6), (5, 1), (5, 2)],
    ]
