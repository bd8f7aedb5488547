"""The nouns: Fabric, Topology, Step, Collective, Pattern. Immutable, validated where they are made."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from lumenfarm.digest import digest, round_significant
from lumenfarm.errors import InputError
from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.symmetry import Symmetry, translations
from lumenfarm.units import MAX_BYTES, finite, positive_int

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["MAX_PORTS", "ArcOrbits", "Collective", "Fabric", "Latency", "Origin", "Pattern", "Step", "Topology"]

MAX_PORTS = 2**20
# A bit a second; slower links make times that no number holds.
_SLOWEST_GBPS = 1e-9


class Latency(enum.Enum):
    """What the hop delay of a step is charged for (Harvest, section 3; model section 2).

    ``CONGESTION``: delta/theta. ``SHORTEST``: delta times the largest hop distance between partners.
    """

    CONGESTION = "congestion"
    SHORTEST = "shortest"


@dataclass(frozen=True, slots=True)
class Fabric:
    """What the GPUs are joined by.

    Attributes:
        degree: optical transmit ports, and receive ports, of each GPU (d >= 1).
        link_gbps: rate of one port in one direction, Gb/s.
        alpha_ns: startup time of each step, ns.
        delta_ns: delay of one hop, ns.
        reconfig_delay_ns: price of one change of topology, ns.
        latency: how hops are counted.

    Raises:
        InputError: a value that is negative or not finite, no ports or more than MAX_PORTS, a link below 1e-9 Gb/s, a
            latency that is no `Latency`.
    """

    degree: int
    link_gbps: float
    alpha_ns: float
    delta_ns: float
    reconfig_delay_ns: float
    latency: Latency = Latency.CONGESTION

    def __post_init__(self) -> None:
        if positive_int(self.degree, field="ports") > MAX_PORTS:
            raise InputError("ports", self.degree, f"at most {MAX_PORTS}")
        if not isinstance(self.latency, Latency):
            raise InputError("latency", self.latency, "Latency.CONGESTION or Latency.SHORTEST")
        object.__setattr__(self, "link_gbps", finite(self.link_gbps, field="link", minimum=_SLOWEST_GBPS))
        object.__setattr__(self, "alpha_ns", finite(self.alpha_ns, field="alpha"))
        object.__setattr__(self, "delta_ns", finite(self.delta_ns, field="delta"))
        object.__setattr__(self, "reconfig_delay_ns", finite(self.reconfig_delay_ns, field="reconfig-delay"))

    @property
    def ns_per_byte(self) -> float:
        """Beta = 1/c, ns a byte on one port."""
        return 8.0 / self.link_gbps


@dataclass(frozen=True, slots=True, eq=False)
class ArcOrbits:
    """Circuits that a group leaves as they are, by one arc of each orbit of arcs (model section 7).

    Attributes:
        symmetry: a group that acts freely, see `Symmetry.free`; every orbit has as many arcs as it has elements.
        arcs: x(u,v) of one arc of each orbit, all its images have the same; given arcs of one orbit add up.

    Raises:
        InputError: a total of circuits that no number holds.
    """

    symmetry: Symmetry = field(repr=False)
    arcs: PairMatrix

    def __post_init__(self) -> None:
        total = float(self.arcs.values.sum()) * self.n
        if total > MAX_BYTES:
            raise InputError("topology", total, "a total below 2**63")

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return self.arcs.n

    @property
    def size(self) -> int:
        """Number of arcs, unless given ones share an orbit."""
        return self.symmetry.order * len(self.arcs)

    def circuits(self) -> PairMatrix:
        """x of all arcs."""
        images = self.symmetry.images(np.concatenate((self.arcs.sources, self.arcs.destinations)))
        tails, heads = np.split(images.T, 2)
        values = np.repeat(self.arcs.values, len(images))
        return PairMatrix(self.n, tails.ravel(), heads.ravel(), values, field="topology")


@dataclass(frozen=True, eq=False)
class Topology:
    """A directed multigraph of optical circuits: x(u,v) parallel circuits from u to v.

    Two topologies are equal when their circuits are, however given; the label is for people.

    Attributes:
        given: x as a matrix of whole numbers, or by orbits of arcs.
        label: how people call it, such as ``circulant{+1,-1}``.

    Raises:
        InputError: a number of circuits that is not whole.
    """

    given: PairMatrix | ArcOrbits
    label: str = "topology"

    def __post_init__(self) -> None:
        values = (self.given.arcs if isinstance(self.given, ArcOrbits) else self.given).values
        fractional = values[values % 1 != 0]
        if len(fractional):
            raise InputError("topology", float(fractional[0]), "a whole number of circuits on each arc")

    def __reduce__(self) -> tuple[object, ...]:
        return Topology, (self.given, self.label)

    @classmethod
    def from_arcs(cls, n: int, arcs: Iterable[tuple[int, int, int]], label: str = "topology") -> Topology:
        """From (u, v, circuits) triples; circuits given twice add up."""
        columns = list(zip(*arcs, strict=True)) or [(), (), ()]
        return cls(PairMatrix(n, *columns, field="topology"), label)

    @classmethod
    def from_orbits(
        cls,
        n: int,
        generators: Sequence[ArrayLike],
        arcs: Iterable[tuple[int, int, int]],
        label: str = "topology",
    ) -> Topology:
        """From (u, v, circuits) of one arc of each orbit under a group that acts freely; arcs of one orbit add up.

        Args:
            n: number of GPUs.
            generators: permutations that generate the group, g[u] is where u goes.
            arcs: number of circuits whole and not below 1.
            label: how people call it.

        Raises:
            InputError: a rank or number of circuits out of range, an arc from a GPU to itself, a generator that is no
                permutation, or a group in which not only the identity leaves a GPU where it is.

        >>> Topology.from_orbits(3, [(1, 2, 0)], [(0, 2, 1)]).arcs()
        [(0, 2, 1), (1, 0, 1), (2, 1, 1)]
        """
        given = cls.from_arcs(n, [(u, v, positive_int(count, field="topology")) for u, v, count in arcs])
        return cls(ArcOrbits(Symmetry.free(n, generators), given.circuits), label)

    @classmethod
    def circulant(cls, n: int, offsets: Mapping[int, int]) -> Topology:
        """Arcs u -> u + o (mod n) with offsets[o] parallel circuits, for each o that is not 0 mod n.

        >>> Topology.circulant(8, {1: 1, -1: 1}).label
        'circulant{+1,-1}'
        """
        kept = [(offset, count) for offset, count in offsets.items() if offset % n]
        names = ",".join(f"{offset:+d}" + (f"x{count}" if count > 1 else "") for offset, count in kept)
        first = cls.from_arcs(n, [(0, offset % n, count) for offset, count in kept]).circuits
        return cls(ArcOrbits(translations((n,)), first), f"circulant{{{names}}}")

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return self.given.n

    @property
    def orbits(self) -> ArcOrbits | None:
        """The orbits of arcs it is given by, None if it is given by its circuits."""
        return self.given if isinstance(self.given, ArcOrbits) else None

    @cached_property
    def circuits(self) -> PairMatrix:
        """x as a matrix; worked out of orbits when first asked for."""
        return self.given.circuits() if isinstance(self.given, ArcOrbits) else self.given

    @property
    def degree(self) -> int:
        """The most ports any GPU uses, in either direction."""
        return int(self.circuits.largest_sum)

    @property
    def digest(self) -> str:
        """Content address of the circuits."""
        return self.circuits.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topology) and self.circuits == other.circuits

    def __hash__(self) -> int:
        return hash(self.circuits)

    def arcs(self) -> list[tuple[int, int, int]]:
        """(u, v, circuits) in row-major order."""
        return [(u, v, int(x)) for u, v, x in self.circuits.items()]

    def to_networkx(self) -> nx.DiGraph:
        """A networkx DiGraph on 0..n-1 whose edges carry the number of circuits as ``capacity``."""
        import networkx as nx

        graph = nx.DiGraph(name=self.label)
        graph.add_nodes_from(range(self.n))
        graph.add_weighted_edges_from(self.arcs(), weight="capacity")
        return graph


@dataclass(frozen=True, eq=False)
class Pattern:
    """A demand with its scale removed: multiplicities k(u,v) = D(u,v)/m (model section 1).

    Made by `Step.pattern`; row and column sums are at most the degree, and one of them equals it. Steps with
    equal patterns share every theta.
    """

    multiplicities: PairMatrix

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return self.multiplicities.n

    @property
    def digest(self) -> str:
        """Content address of the multiplicities."""
        return self.multiplicities.digest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self.multiplicities == other.multiplicities

    def __hash__(self) -> int:
        return hash(self.multiplicities)


@dataclass(frozen=True, eq=False)
class Step:
    """One synchronous round: what every GPU sends to every other, in bytes.

    Attributes:
        demand: D, bytes; any non-negative matrix with zero diagonal and at least one positive entry.
        declared_chunk_bytes: a chunk size found in a file; kept for export, never used for costs.

    Raises:
        InputError: nothing is sent at all.
    """

    demand: PairMatrix
    declared_chunk_bytes: float | None = None

    def __post_init__(self) -> None:
        if not len(self.demand):
            raise InputError("demand", [], "a step in which at least one GPU sends something")

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return self.demand.n

    def chunk_bytes(self, degree: int) -> float:
        """The chunk m = max over GPUs of (bytes sent or received)/d: bytes per port at the busiest GPU."""
        return self.demand.largest_sum / degree

    def pattern(self, degree: int) -> Pattern:
        """k(u,v) = D(u,v)/m for ports d, to twelve significant digits."""
        demand = self.demand
        multiplicities = round_significant(demand.values / demand.largest_sum * degree)
        return Pattern(PairMatrix(demand.n, demand.sources, demand.destinations, multiplicities))


@dataclass(frozen=True, slots=True)
class Origin:
    """How a collective was generated, so that it can be generated again.

    Attributes:
        generator: a name from `lumenfarm.collectives`.
        parameters: its keyword arguments other than the size (gpus, dims, message_bytes).
    """

    generator: str
    parameters: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Collective:
    """A named, ordered, never reordered sequence of steps over the same GPUs.

    Attributes:
        name: the algorithm, as users call it.
        steps: at least one; all over the same n.
        dims: sizes of the dimensions of the base torus, row-major; their product is n. (n,) is a ring.
        message_bytes: bytes each GPU holds, None when a file does not say.
        origin: the generator behind it, None for a collective from a file.

    Raises:
        InputError: no steps, steps over different n, dims whose product is not n.
    """

    name: str
    steps: tuple[Step, ...]
    dims: tuple[int, ...]
    message_bytes: float | None = None
    origin: Origin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "dims", tuple(self.dims))
        if not self.steps:
            raise InputError("steps", 0, "at least one step")
        for step in self.steps:
            if step.n != self.n:
                raise InputError("steps", step.n, f"every step over the same {self.n} GPUs")
        for size in self.dims:
            positive_int(size, field="dims", minimum=2)
        if math.prod(self.dims) != self.n:
            raise InputError("dims", "x".join(map(str, self.dims)), f"sizes whose product is {self.n}")
        if self.message_bytes is not None:
            object.__setattr__(self, "message_bytes", finite(self.message_bytes, field="message", strict=True))

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return self.steps[0].n

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def step_digests(self) -> tuple[str, ...]:
        """Content address of each step's demand, in order; changes with bytes and with rank order."""
        return tuple(step.demand.digest for step in self.steps)

    @cached_property
    def digest(self) -> str:
        """Content address of the whole sequence of demands; independent of names."""
        return digest("collective/1", steps=list(self.step_digests))

    def relabelled(self, permutation: Ints) -> Collective:
        """The same collective after GPU u is renamed permutation[u]; its origin no longer applies."""
        steps = tuple(Step(step.demand.relabelled(permutation), step.declared_chunk_bytes) for step in self.steps)
        return Collective(self.name, steps, self.dims, self.message_bytes)

    def chunk_bytes(self, degree: int) -> Floats:
        """m_i of every step, shape (s,)."""
        return np.array([step.chunk_bytes(degree) for step in self.steps])
