"""Pictures of a schedule at the width of a paper's column, each with its data as CSV beside it.

matplotlib is imported only when a picture is made, and only its Figure objects are used, so that nothing global
changes and no display is needed.
"""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lumenfarm.errors import InputError
from lumenfarm.formats.reading import Overwrite, check_output, write_bytes, write_text
from lumenfarm.matrix import Floats, Ints
from lumenfarm.schedule import EnvelopePiece, Schedule
from lumenfarm.units import format_time_ns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["plot_envelope", "plot_timeline"]

_WIDTH_IN = 3.3
_MARGIN_IN = 0.2
_DOTS_PER_INCH = 300
_POINTS_PER_INCH = 72.0
_FONT_PT = 7.0
# Any: matplotlib types the names of all its settings, which would have to be repeated here.
_STYLE: Any = {
    "font.size": _FONT_PT,
    "axes.titlesize": _FONT_PT,
    "axes.labelsize": _FONT_PT,
    "xtick.labelsize": _FONT_PT,
    "ytick.labelsize": _FONT_PT,
    "legend.fontsize": _FONT_PT,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.0,
    "hatch.linewidth": 0.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "lumenfarm",
}
# What each file type would otherwise record about the moment and the library.
_METADATA = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

# Okabe and Ito's palette, which colour-blind readers can tell apart; True: dark enough for white text.
_PALETTE = (
    ("#0072B2", True),
    ("#E69F00", False),
    ("#009E73", True),
    ("#CC79A7", False),
    ("#56B4E9", False),
    ("#D55E00", True),
    ("#F0E442", False),
)
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"

_HATCH = "/////"
_PLAIN_BACK = {"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8}
_CURVE_POINTS = 200
_LEGEND_ROWS = len(_PALETTE)
_LABEL_LETTERS = 44


def plot_envelope(schedule: Schedule, path: str | os.PathLike[str], *, force: Overwrite = Overwrite.REFUSE) -> None:
    """Draw the best cost against the reconfiguration delay, both on logarithmic axes.

    Break-points are dots, each piece carries its number of reconfigurations k; beside the envelope stand the schedules
    with the fewest and the most reconfigurations, the schedule's own delay, and a lower bound.

    The bound L of the schedule's delay a0 holds for other delays a too: the optimum never falls with a, so it is at
    least L for a >= a0; it is concave, not negative, and rises by at most s - 1 (s with an initial topology) changes
    times a, so for a < a0 it is at least L*a/a0 and L - changes*(a0 - a) (model section 4).

    Args:
        schedule: with at least one envelope piece.
        path: ends in .png, .svg or .pdf; the data go to the same path with .csv.
        force: whether existing files may be replaced.

    Raises:
        InputError: another suffix, a path that cannot be written, or no envelope.
    """
    if not schedule.envelope:
        raise InputError("envelope", [], "a schedule with at least one piece")
    curves = _Curves.of(schedule)
    _publish(path, force, 2.5, lambda figure: _draw_envelope(figure, schedule, curves), curves.table())


def plot_timeline(schedule: Schedule, path: str | os.PathLike[str], *, force: Overwrite = Overwrite.REFUSE) -> None:
    """Draw the steps as bars to scale, coloured by topology, with the reconfigurations hatched between them.

    A bar carries theta, the step stands below it and the topology above its segment, each where there is room.

    Args:
        schedule: what to draw.
        path: ends in .png, .svg or .pdf; the data go to the same path with .csv.
        force: whether existing files may be replaced.

    Raises:
        InputError: another suffix, or a path that cannot be written.
    """
    bars = _bars(schedule)
    rows = min(len(schedule.topologies), _LEGEND_ROWS + 1) + 1
    height_in = 1.15 + 0.14 * rows
    table = [
        ("kind", "step", "topology", "label", "start_ns", "stop_ns", "theta"),
        *(bar.row(schedule) for bar in bars),
    ]
    _publish(path, force, height_in, lambda figure: _draw_timeline(figure, schedule, bars), table)


@dataclass(frozen=True, slots=True)
class _Curves:
    """The lines of the envelope picture over reconfiguration delays, each of shape (points,), ns."""

    alpha_r_ns: Floats
    cost_ns: Floats
    reconfigurations: Ints
    fewest_ns: Floats
    most_ns: Floats
    bound_ns: Floats

    @classmethod
    def of(cls, schedule: Schedule) -> _Curves:
        """The lines at enough delays, break-points among them."""
        pieces = schedule.envelope
        delays = _delays(schedule)
        where = np.searchsorted(_breaks(schedule), delays, side="right")
        communication = np.array([piece.communication_ns for piece in pieces])[where]
        reconfigurations = np.array([piece.reconfigurations for piece in pieces])[where]
        return cls(
            alpha_r_ns=delays,
            cost_ns=communication + reconfigurations * delays,
            reconfigurations=reconfigurations,
            fewest_ns=_line(pieces[-1], delays),
            most_ns=_line(pieces[0], delays),
            bound_ns=_bound(schedule, delays),
        )

    def table(self) -> list[Sequence[object]]:
        """Head and rows for the CSV file."""
        names = ("alpha_r_ns", "cost_ns", "reconfigurations", "fewest_ns", "most_ns", "lower_bound_ns")
        columns = (self.alpha_r_ns, self.cost_ns, self.reconfigurations, self.fewest_ns, self.most_ns, self.bound_ns)
        return [names, *zip(*(column.tolist() for column in columns), strict=True)]


def _breaks(schedule: Schedule) -> list[float]:
    return [piece.alpha_r_from_ns for piece in schedule.envelope[1:]]


def _delays(schedule: Schedule) -> Floats:
    """Delays from a decade before to a decade after everything that happens."""
    marks = [delay for delay in (*_breaks(schedule), schedule.fabric.reconfig_delay_ns) if delay > 0] or [1e3]
    spread = np.geomspace(min(marks) / 10, max(marks) * 10, _CURVE_POINTS)
    return np.unique(np.concatenate([spread, marks]))


def _line(piece: EnvelopePiece, delays: Floats) -> Floats:
    cost_ns: Floats = piece.communication_ns + piece.reconfigurations * delays
    return cost_ns


def _bound(schedule: Schedule, delays: Floats) -> Floats:
    own, bound = schedule.fabric.reconfig_delay_ns, schedule.lower_bound_ns
    changes = len(schedule.steps) - int(schedule.initial is None)
    shortfall = np.maximum(own - delays, 0.0)
    scaled = bound * np.minimum(delays / own, 1.0) if own > 0 else bound
    return np.maximum(scaled, bound - changes * shortfall)


def _draw_envelope(figure: Figure, schedule: Schedule, curves: _Curves) -> None:
    axes = figure.add_subplot()
    delays, pieces, own_ns = curves.alpha_r_ns, schedule.envelope, schedule.fabric.reconfig_delay_ns
    axes.plot(delays, curves.fewest_ns, color=_ORANGE, linestyle="--", label=_always(pieces[-1]))
    if len(pieces) > 1:
        axes.plot(delays, curves.most_ns, color=_GREEN, linestyle="-.", label=_always(pieces[0]))
    axes.plot(delays, curves.bound_ns, color="0.35", linestyle=":", label="lower bound")
    axes.plot(delays, curves.cost_ns, color=_BLUE, linewidth=1.6, label="best k at each delay")
    _mark_pieces(axes, schedule, curves)
    label = f"this schedule, {format_time_ns(own_ns)}"
    axes.plot(max(own_ns, delays[0]), schedule.cost_ns, "D", color=_RED, markersize=4, label=label)
    axes.set(xscale="log", yscale="log", xlim=(delays[0], delays[-1]), ylim=_limits(curves, schedule))
    axes.set(xlabel=r"reconfiguration delay $\alpha_r$", ylabel="completion time")
    _format_axes(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, columnspacing=1.2)


def _always(piece: EnvelopePiece) -> str:
    return "static (k = 0)" if piece.reconfigurations == 0 else f"always k = {piece.reconfigurations}"


def _limits(curves: _Curves, schedule: Schedule) -> tuple[float, float]:
    """Room for the envelope and the bound at the schedule's own delay; the other lines may leave the picture."""
    low = min(curves.cost_ns.min(), schedule.lower_bound_ns or np.inf)
    return float(low) * 0.75, float(max(curves.cost_ns.max(), schedule.cost_ns)) * 1.5


def _mark_pieces(axes: Axes, schedule: Schedule, curves: _Curves) -> None:
    delays = curves.alpha_r_ns
    breaks = _breaks(schedule)
    axes.plot(breaks, np.interp(breaks, delays, curves.cost_ns), "o", color=_BLUE, markersize=3.5, linestyle="none")
    edges = np.log(np.clip([0.0, *breaks, np.inf], delays[0], delays[-1]))
    roomy = np.diff(edges) > 0.06 * (edges[-1] - edges[0])
    middles = np.exp((edges[:-1] + edges[1:]) / 2)
    heights = np.interp(middles, delays, curves.cost_ns)
    for index in np.flatnonzero(roomy).tolist():
        text = f"k={schedule.envelope[index].reconfigurations}"
        place = (middles[index], heights[index])
        axes.annotate(text, place, xytext=(2, -4), textcoords="offset points", va="top", color=_BLUE, bbox=_PLAIN_BACK)


def _format_axes(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(MaxNLocator(5) if high < 8 * low else LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_locator(LogLocator(numticks=7))
    _format_times(axes.xaxis)
    _format_times(axes.yaxis)
    axes.grid(color="0.9", linewidth=0.4)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A step on its topology, or (step None) the reconfiguration towards that topology."""

    start_ns: float
    stop_ns: float
    topology: int
    step: int | None = None
    theta: float | None = None

    @property
    def width_ns(self) -> float:
        return self.stop_ns - self.start_ns

    def row(self, schedule: Schedule) -> tuple[object, ...]:
        kind, step = ("reconfiguration", None) if self.step is None else ("step", self.step + 1)
        label = schedule.topologies[self.topology].label
        return kind, step, self.topology + 1, label, self.start_ns, self.stop_ns, self.theta


def _bars(schedule: Schedule) -> list[_Bar]:
    bars: list[_Bar] = []
    now, current = 0.0, schedule.initial
    for segment in schedule.segments:
        topology = schedule.topologies[segment.topology]
        if current is not None and topology != current:
            bars.append(_Bar(now, now + schedule.fabric.reconfig_delay_ns, segment.topology))
            now = bars[-1].stop_ns
        for step in range(segment.first, segment.stop):
            timing = schedule.steps[step]
            bars.append(_Bar(now, now + timing.time_ns, segment.topology, step, timing.theta))
            now = bars[-1].stop_ns
        current = topology
    return bars


def _draw_timeline(figure: Figure, schedule: Schedule, bars: Sequence[_Bar]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = figure.add_subplot()
    total_ns = bars[-1].stop_ns
    points_per_ns = (_WIDTH_IN - _MARGIN_IN) * _POINTS_PER_INCH / total_ns
    for bar in bars:
        _draw_bar(axes, bar, bar.width_ns * points_per_ns)
    for (is_step, topology), group in itertools.groupby(bars, lambda bar: (bar.step is not None, bar.topology)):
        run = list(group)
        start_ns, stop_ns = run[0].start_ns, run[-1].stop_ns
        if is_step and (stop_ns - start_ns) * points_per_ns > 1.4 * _FONT_PT:
            axes.text((start_ns + stop_ns) / 2, 1.06, f"T{topology + 1}", ha="center", va="bottom")
    _timeline_legend(figure, schedule)
    axes.set(xlim=(0, total_ns), ylim=(-0.65, 1.5), yticks=[])
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.set_xlabel(r"time (in each bar: $\theta$; below it: the step)")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _format_times(axes.xaxis)


def _draw_bar(axes: Axes, bar: _Bar, width_pt: float) -> None:
    line_pt = min(0.5, width_pt / 8)
    if bar.step is None:
        axes.barh(0.5, bar.width_ns, 1, bar.start_ns, color="white", edgecolor="0.3", hatch=_HATCH, linewidth=line_pt)
        return
    colour, dark = _colour(bar.topology)
    axes.barh(0.5, bar.width_ns, 1, bar.start_ns, color=colour, edgecolor="white", linewidth=line_pt)
    middle_ns = (bar.start_ns + bar.stop_ns) / 2
    if width_pt > 1.2 * _FONT_PT:
        theta, turn = f"{bar.theta:.2g}", 0 if width_pt > 2.6 * _FONT_PT else 90
        axes.text(middle_ns, 0.5, theta, ha="center", va="center", rotation=turn, color="white" if dark else "black")
        axes.text(middle_ns, -0.06, str(bar.step + 1), ha="center", va="top")


def _timeline_legend(figure: Figure, schedule: Schedule) -> None:
    from matplotlib.patches import Patch

    labels = [_shortened(f"T{index}: {topology.label}") for index, topology in enumerate(schedule.topologies, start=1)]
    handles = [Patch(facecolor=_colour(index)[0], label=label) for index, label in enumerate(labels[:_LEGEND_ROWS])]
    if len(labels) > _LEGEND_ROWS:
        handles.append(Patch(visible=False, label=f"and {len(labels) - _LEGEND_ROWS} more"))
    if schedule.reconfigurations:
        delay = format_time_ns(schedule.fabric.reconfig_delay_ns)
        handles.append(Patch(facecolor="white", edgecolor="0.3", hatch=_HATCH, label=f"reconfiguration, {delay}"))
    legend = figure.legend(handles=handles, loc="outside lower left", frameon=False, handlelength=1.5)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _colour(topology: int) -> tuple[str, bool]:
    return _PALETTE[topology % len(_PALETTE)]


def _shortened(label: str) -> str:
    return label if len(label) <= _LABEL_LETTERS else label[: _LABEL_LETTERS - 3] + "..."


def _format_times(axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda time_ns, _: format_time_ns(time_ns) if time_ns else "0"))


def _publish(
    path: str | os.PathLike[str],
    force: Overwrite,
    height_in: float,
    draw: Callable[[Figure], None],
    table: Iterable[Sequence[object]],
) -> None:
    """Write the picture and its data; nothing if either path is refused."""
    picture = Path(path)
    suffix = picture.suffix.lower()
    if suffix not in _METADATA:
        raise InputError("output", os.fspath(path), f"a name that ends in {', '.join(_METADATA)}")
    data = picture.with_suffix(".csv")
    for target in (picture, data):
        check_output(target, force=force)
    image = _render(suffix, height_in, draw)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table)
    write_bytes(picture, image, force=force)
    write_text(data, text.getvalue(), force=force)


def _render(suffix: str, height_in: float, draw: Callable[[Figure], None]) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    image = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        figure.savefig(image, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=_METADATA[suffix])
    return image.getvalue()
