"""What a synthesis job answers, in the words of the command line's contract."""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass
from typing import Any

from lumenfarm.driver import Work
from lumenfarm.plan import Baselines
from lumenfarm.planner import SpaceProof
from lumenfarm.schedule import EnvelopePiece, Schedule
from lumenfarm.versions import versions

__all__ = ["OPTIMALITY_TOLERANCE", "Method", "SegmentSummary", "Synthesis"]

# A gap not above this is called optimal, unless the user asks for another one.
OPTIMALITY_TOLERANCE = 1e-6


class Method(enum.Enum):
    """How a schedule is sought.

    ``AUTO``: the first of the others that fits. ``CLOSED_FORM``: arithmetic, for shift collectives on one port.
    ``CANDIDATES``: the best of families of topologies. ``SYMMETRIC``: after these, whole spaces of topologies that a
    group leaves as they are.
    """

    AUTO = "auto"
    CLOSED_FORM = "closed-form"
    CANDIDATES = "candidates"
    SYMMETRIC = "symmetric"


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """Steps first..stop-1 on the topology with this label, and the sum of their times."""

    first: int
    stop: int
    topology: str
    cost_ns: float


@dataclass(frozen=True, eq=False)
class Synthesis:
    """The answer to one job.

    Attributes:
        proofs: what is proved about the spaces that were searched.
        schedule: the schedule; None where only arithmetic was done, too large to be written out.
        method: what found it, never AUTO.
        reason: why this method.
        gap_wanted: gap up to which the answer counts as optimal, None for OPTIMALITY_TOLERANCE.
    """

    cost_ns: float
    communication_ns: float
    reconfigurations: int
    lower_bound_ns: float
    segments: tuple[SegmentSummary, ...]
    envelope: tuple[EnvelopePiece, ...]
    baselines: Baselines
    work: Work
    wall_s: float
    method: Method
    reason: str
    gap_wanted: float | None
    schedule: Schedule | None
    proofs: tuple[SpaceProof, ...] = ()

    @property
    def gap(self) -> float:
        """(cost - bound)/cost."""
        return max(0.0, (self.cost_ns - self.lower_bound_ns) / self.cost_ns)

    @property
    def complete(self) -> bool:
        """Whether the search ended by itself, not at a limit."""
        return self.work.finished

    @property
    def optimal(self) -> bool:
        """Whether the certified gap is within what was asked for."""
        return self.gap <= (OPTIMALITY_TOLERANCE if self.gap_wanted is None else self.gap_wanted)

    def to_json(self) -> dict[str, Any]:
        """The object that ``synth --json`` prints; steps count from 1, and a baseline that does not exist is null."""
        return {
            "cost_ns": self.cost_ns,
            "communication_ns": self.communication_ns,
            "reconfigurations": self.reconfigurations,
            "lower_bound_ns": self.lower_bound_ns,
            "gap": self.gap,
            "optimal": self.optimal,
            "segments": [
                {
                    "first_step": segment.first + 1,
                    "last_step": segment.stop,
                    "topology": segment.topology,
                    "cost_ns": segment.cost_ns,
                }
                for segment in self.segments
            ],
            "envelope": [asdict(piece) for piece in self.envelope],
            "spaces": [asdict(proof) for proof in self.proofs],
            "baselines": {name: time if math.isfinite(time) else None for name, time in asdict(self.baselines).items()},
            "work": {
                "theta": self.work.theta,
                "misocp": 0,
                "bounds": self.work.bounds,
                "from_cache": self.work.from_cache,
            },
            "wall_s": self.wall_s,
            "method": self.method.value,
            "reason": self.reason,
            "versions": versions(),
        }
