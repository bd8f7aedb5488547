"""Pictures: the data beside them is right, and any schedule can be drawn."""

from __future__ import annotations

import csv
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.errors import InputError
from lumenfarm.formats import dump_schedule
from lumenfarm.formats.reading import Overwrite
from lumenfarm.matrix import PairMatrix
from lumenfarm.model import Collective, Fabric, Step, Topology
from lumenfarm.plots import plot_envelope, plot_timeline
from lumenfarm.schedule import Contract, EnvelopePiece, Provenance, Schedule, Segment, StepTiming

Plot = Callable[..., None]
PLOTS: list[Plot] = [plot_envelope, plot_timeline]
MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def pieces_of(curve: dict[int, float]) -> tuple[EnvelopePiece, ...]:
    """The envelope of communication_ns by number of reconfigurations; every k must be on it, most first."""
    ks = list(curve)
    breaks = [(curve[fewer] - curve[more]) / (more - fewer) for more, fewer in itertools.pairwise(ks)]
    edges = zip([0.0, *breaks], [*breaks, None], ks, strict=True)
    return tuple(EnvelopePiece(low, high, k, curve[k]) for low, high, k in edges)


def made_schedule(
    *,
    times_ns: Sequence[float] = (4e4, 3e4, 2e4, 6e3, 7e3, 3e3, 3e3, 7e3, 6e3, 2e4, 3e4, 4e4),
    cuts: Sequence[int] = (3, 5, 7, 9),
    labels: Sequence[str] = ("circulant{+1,-1}", "circulant{+3,-5}", "circulant{+11,-21}"),
    reconfig_delay_ns: float = 1e4,
    initial: Topology | None = None,
    curve: dict[int, float] | None = None,
) -> Schedule:
    """Steps of the given times; a segment begins at each cut; topologies there and back again."""
    steps = len(times_ns)
    collective = Collective("made-up", (Step(PairMatrix.shift(64, 1, 1e6)),) * steps, (64,), 1.6e7)
    fabric = Fabric(2, 800.0, 500.0, 500.0, reconfig_delay_ns)
    topologies = tuple(Topology(Topology.circulant(64, {i: 1}).circuits, s) for i, s in enumerate(labels, start=1))
    edges = [0, *cuts, steps]
    turn = 2 * len(topologies) - 2 or 1
    segments = []
    for index, (first, stop) in enumerate(itertools.pairwise(edges)):
        place = min(index % turn, turn - index % turn)
        segments.append(Segment(first, stop, place, sum(times_ns[first:stop]), 1.0, "node"))
    changes = len(cuts) + int(initial is not None)
    cost_ns = sum(times_ns) + changes * reconfig_delay_ns
    return Schedule(
        collective_name=collective.name,
        n=64,
        dims=(64,),
        message_bytes=collective.message_bytes,
        origin=None,
        step_digests=collective.step_digests,
        fabric=fabric,
        topologies=topologies,
        segments=tuple(segments),
        steps=tuple(StepTiming(0.75, 4 / 3, time_ns) for time_ns in times_ns),
        initial=initial,
        cost_ns=cost_ns,
        lower_bound_ns=0.9 * cost_ns,
        envelope=pieces_of(curve or {10: 1.8e5, 4: 2.12e5, 2: 2.5e5, 1: 3e5, 0: 4.2e5}),
        contract=Contract.of(collective, fabric),
        provenance=Provenance({}, "auto", {}, "2026-01-02T03:04Z"),
    )


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", MAGIC)
@pytest.mark.parametrize("plot", PLOTS)
def test_writes_the_picture_and_its_data(tmp_path: Path, plot: Plot, suffix: str) -> None:
    target = tmp_path / f"picture{suffix}"
    plot(made_schedule(), target)
    assert target.read_bytes().startswith(MAGIC[suffix])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["picture.csv", target.name])


@pytest.mark.parametrize("plot", PLOTS)
def test_pictures_fit_a_column_and_do_not_change(tmp_path: Path, plot: Plot) -> None:
    plot(made_schedule(), tmp_path / "a.svg")
    plot(made_schedule(), tmp_path / "b.svg")
    text = (tmp_path / "a.svg").read_text()
    width = re.search(r'<svg [^>]*\bwidth="([\d.]+)pt"', text)
    assert width
    assert float(width[1]) == pytest.approx(3.3 * 72)
    assert text == (tmp_path / "b.svg").read_text()


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("name", ["picture.jpg", "picture", "picture.csv"])
def test_other_suffixes_are_refused(tmp_path: Path, plot: Plot, name: str) -> None:
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        plot(made_schedule(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("existing", ["picture.png", "picture.csv"])
def test_existing_files_need_force(tmp_path: Path, plot: Plot, existing: str) -> None:
    (tmp_path / existing).write_text("old")
    with pytest.raises(InputError, match="--force"):
        plot(made_schedule(), tmp_path / "picture.png")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
    plot(made_schedule(), tmp_path / "picture.png", force=Overwrite.REPLACE)
    assert (tmp_path / "picture.png").read_bytes().startswith(MAGIC[".png"])


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize(
    "schedule",
    [
        made_schedule(times_ns=[1e5], cuts=[], labels=["a"], curve={0: 1e5}),
        made_schedule(reconfig_delay_ns=0.0),
        made_schedule(reconfig_delay_ns=1e9),
        made_schedule(initial=Topology.circulant(64, {7: 1})),
        made_schedule(times_ns=[1e3] * 126, cuts=range(1, 126), labels=[f"shift {i}" for i in range(1, 64)]),
        made_schedule(labels=["$x_{", "\\frac", "a" * 500]),
        made_schedule(curve={40 - k: 1e5 + 20.0 * k**2 for k in range(41)}),
    ],
    ids=["one-step", "free", "slow", "initial", "many", "odd-labels", "long-envelope"],
)
def test_any_schedule_can_be_drawn(tmp_path: Path, plot: Plot, schedule: Schedule) -> None:
    plot(schedule, tmp_path / "picture.png")
    assert rows_of(tmp_path / "picture.csv")


def test_timeline_adds_up(tmp_path: Path) -> None:
    schedule = made_schedule(initial=Topology.circulant(64, {7: 1}))
    plot_timeline(schedule, tmp_path / "picture.svg")
    rows = rows_of(tmp_path / "picture.csv")
    kinds = "r sss r ss r ss r ss r sss".replace(" ", "")
    assert "".join(row["kind"][0] for row in rows) == kinds
    assert [row["topology"] for row in rows if row["kind"] == "reconfiguration"] == ["1", "2", "3", "2", "1"]
    steps = [row for row in rows if row["kind"] == "step"]
    assert [int(row["step"]) for row in steps] == list(range(1, 13))
    assert {row["theta"] for row in steps} == {"0.75"}
    starts, stops = ([float(row[name]) for row in rows] for name in ("start_ns", "stop_ns"))
    assert starts == [0.0, *stops[:-1]]
    assert stops[-1] == pytest.approx(schedule.cost_ns)


def test_an_initial_topology_that_stays_is_free(tmp_path: Path) -> None:
    first = made_schedule().topologies[0]
    plot_timeline(made_schedule(initial=first), tmp_path / "picture.svg")
    assert rows_of(tmp_path / "picture.csv")[0]["kind"] == "step"


def test_a_schedule_without_envelope_is_refused(tmp_path: Path) -> None:
    schedule = made_schedule()
    object.__setattr__(schedule, "envelope", ())
    with pytest.raises(InputError, match="envelope"):
        plot_envelope(schedule, tmp_path / "picture.svg")


def test_envelope_is_the_lower_envelope(tmp_path: Path) -> None:
    curve = {10: 1.8e5, 4: 2.12e5, 2: 2.5e5, 1: 3e5, 0: 4.2e5}
    plot_envelope(made_schedule(curve=curve), tmp_path / "picture.svg")
    rows = rows_of(tmp_path / "picture.csv")
    for row in rows:
        delay_ns = float(row["alpha_r_ns"])
        costs = {k: communication_ns + k * delay_ns for k, communication_ns in curve.items()}
        assert float(row["cost_ns"]) == pytest.approx(min(costs.values()))
        assert costs[int(row["reconfigurations"])] == pytest.approx(min(costs.values()))
        assert (float(row["fewest_ns"]), float(row["most_ns"])) == pytest.approx((costs[0], costs[10]))
    delays = [float(row["alpha_r_ns"]) for row in rows]
    assert {3.2e4 / 6, 1.9e4, 5e4, 1.2e5, 1e4} <= set(delays)
    assert delays[0] < 600
    assert delays[-1] > 1e6


@st.composite
def convex_curves(draw: st.DrawFn) -> dict[int, float]:
    """Communication by k for k = s-1 .. 0, rising ever faster as k falls, so that every k is on the envelope."""
    steps = draw(st.integers(1, 8))
    rises = sorted(draw(st.lists(st.integers(1, 10**6), min_size=steps - 1, max_size=steps - 1, unique=True)))
    base = draw(st.integers(1, 10**6))
    return {steps - 1 - i: float(base + sum(rises[:i])) for i in range(steps)}


@settings(max_examples=15)
@given(curve=convex_curves(), own_ns=st.sampled_from([0.0, 1.0, 1e3, 1e5, 1e7]))
def test_the_bound_drawn_is_never_above_the_optimum(
    tmp_path_factory: pytest.TempPathFactory, curve: dict[int, float], own_ns: float
) -> None:
    """With the best possible bound at the schedule's own delay."""
    schedule = made_schedule(
        times_ns=[curve[0] / len(curve)] * len(curve), cuts=[], labels=["a"], curve=curve, reconfig_delay_ns=own_ns
    )
    optimum_ns = min(communication_ns + k * own_ns for k, communication_ns in curve.items())
    object.__setattr__(schedule, "lower_bound_ns", optimum_ns)
    target = tmp_path_factory.mktemp("bound") / "picture.svg"
    plot_envelope(schedule, target)
    rows = rows_of(target.with_suffix(".csv"))
    names = ("lower_bound_ns", "cost_ns", "alpha_r_ns")
    bound, cost, delays = (np.array([float(row[name]) for row in rows]) for name in names)
    assert (bound <= cost * (1 + 1e-12)).all()
    assert bound[delays >= own_ns] == pytest.approx(optimum_ns)


# Looking a setting up can make matplotlib choose a backend; dict.items does not.
LATE_IMPORT = """
import sys
from lumenfarm.formats import load_schedule
from lumenfarm.plots import plot_timeline
schedule = load_schedule(sys.argv[1])
assert "matplotlib" not in sys.modules
import matplotlib
before = dict(dict.items(matplotlib.rcParams))
plot_timeline(schedule, sys.argv[2])
assert "matplotlib.pyplot" not in sys.modules
assert before == dict(dict.items(matplotlib.rcParams))
"""


def test_matplotlib_is_imported_late_and_without_pyplot(tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    file.write_text(dump_schedule(made_schedule()))
    subprocess.run([sys.executable, "-c", LATE_IMPORT, file, file.with_suffix(".png")], check=True)
