"""A small schedule that uses every part of the format: three steps, two topologies, one of them used twice."""

from __future__ import annotations

import pytest

from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Latency, Origin, Step, Topology
from lumenfarm.schedule import Contract, EnvelopePiece, Provenance, Schedule, Segment, StepTiming


@pytest.fixture(scope="session")
def collective() -> Collective:
    steps = tuple(Step(PairMatrix.shift(4, offset, 1024.0)) for offset in (1, 2, 1))
    origin = Origin("all-reduce-rd", {"ports": 2, "variant": "cyclic"})
    return Collective("all-reduce-rd", steps, (2, 2), 2048.0, origin)


@pytest.fixture(scope="session")
def schedule(collective: Collective) -> Schedule:
    # 10.24 ns to send 1024 bytes at 800 Gb/s, 100 ns a step, 20 ns a hop, 50 ns a reconfiguration; the move off the
    # initial topology is paid too: 3 * (100 + 20 + 10.24) + 3 * 50.
    fabric = Fabric(2, 800.0, 100.0, 20.0, 50.0, Latency.SHORTEST)
    step_ns = 130.24
    return Schedule(
        collective_name=collective.name,
        n=4,
        dims=collective.dims,
        message_bytes=collective.message_bytes,
        origin=collective.origin,
        step_digests=collective.step_digests,
        fabric=fabric,
        topologies=(Topology.circulant(4, {1: 1}), Topology.circulant(4, {2: 2})),
        segments=(
            Segment(0, 1, 0, step_ns, 130.0, "node"),
            Segment(1, 2, 1, step_ns, 130.0, "node"),
            Segment(2, 3, 0, step_ns, 125.5, "hop-volume"),
        ),
        steps=(StepTiming(1.0, 1.0, step_ns),) * 3,
        initial=Topology.circulant(4, {-1: 1}),
        cost_ns=540.72,
        lower_bound_ns=500.0,
        envelope=(EnvelopePiece(0.0, 75.5, 3, 390.72), EnvelopePiece(75.5, None, 0, 617.22)),
        contract=Contract.of(collective, fabric),
        provenance=Provenance(
            {"lumenfarm": "0.1.0"}, "auto", {"gap": None, "time-limit": 60.0}, "2026-01-02T03:04:05Z"
        ),
    )
