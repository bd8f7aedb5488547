"""All topologies of a degree that a group leaves as they are, and what metric inequalities say about each of them.

Potentials pi_r(v) with pi_r(r) = 0, one set for each class of GPUs, prove theta for every topology at once: with
lengths l(o) = max(0, max over r and arcs (p,q) of orbit o of pi_r(q) - pi_r(p)), any concurrent flow satisfies

    theta * sum_r sum_v k(r,v)*pi_r(v)  <=  sum_o x_o*l(o)

because l makes every v at least pi_r(v) away from r (model sections 6 and 7). The right side is a sum over ports, so
it is evaluated for millions of topologies by table look-ups.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lumenfarm.groups import Group
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Pattern, Topology
from lumenfarm.symmetry import is_automorphism

__all__ = ["Choice", "Listing", "Singles", "Space"]

# The targets of all ports of the representatives, class by class, ascending within a class.
Choice: TypeAlias = tuple[int, ...]

Singles: TypeAlias = NDArray[np.float32]

# Less is not told from nothing in single precision.
_LEAST_SHIPPED = 1e-30


@dataclass(frozen=True, eq=False)
class Space:
    """The topologies of a group that use all ports of a degree.

    The representative of each class chooses ``degree`` targets, with repetition; only those choices count that give
    every GPU as many receiving ports. A topology with free ports is never better.

    Attributes:
        group: acts on the GPUs.
        degree: ports of each GPU.
    """

    group: Group
    degree: int

    @property
    def most(self) -> int:
        """How many topologies there are at most, without listing them; the number itself for one class."""
        return int(math.comb(self.group.n + self.degree - 2, self.degree) ** self.classes)

    @property
    def classes(self) -> int:
        """Classes of GPUs."""
        return len(self.group.representatives)

    @cached_property
    def sources(self) -> Ints:
        """The GPU that each port of a choice belongs to, shape (classes*degree,)."""
        return np.repeat(self.group.representatives, self.degree)

    @cached_property
    def first_orbit(self) -> Ints:
        """For each port of a choice the number to be added to a target to get the orbit of the arc."""
        return np.repeat(np.arange(self.classes) * self.group.n, self.degree)

    def choice(self, targets: Sequence[int] | Ints) -> Choice:
        """Targets of all ports, those of a class in any order, put in order."""
        ordered = np.sort(np.asarray(targets, dtype=np.int64).reshape(self.classes, self.degree), axis=1)
        return tuple(ordered.ravel().tolist())

    def topology(self, choice: Choice) -> Topology:
        """The topology of a choice.

        Raises:
            ValueError: another number of targets, targets that are no GPUs or the source itself, or other than
                ``degree`` receiving ports somewhere.
        """
        targets = np.array(choice, dtype=np.int64)
        if targets.shape != self.sources.shape or not ((targets >= 0) & (targets < self.group.n)).all():
            raise ValueError(f"{choice!r} does not name {len(self.sources)} GPUs")
        received = np.bincount(self.group.class_of[targets], minlength=self.classes)
        if (targets == self.sources).any() or (received != self.degree).any():
            raise ValueError(f"{choice!r} is no topology of this space")
        return self.group.topology(targets.reshape(self.classes, self.degree).tolist())

    def choice_of(self, topology: Topology) -> Choice | None:
        """The choice behind a topology, None if it is not in the space."""
        circuits = topology.circuits
        if not (circuits.row_sums == self.degree).all() or not (circuits.column_sums == self.degree).all():
            return None
        if not all(is_automorphism(circuits, generator) for generator in self.group.generators):
            return None
        rows = circuits.rows(self.group.representatives).astype(np.int64)
        return tuple(np.repeat(np.nonzero(rows)[1], rows[rows > 0]).tolist())

    def lengths(self, potentials: Floats) -> Singles:
        """Length of each orbit of arcs under potentials of shape (classes, n), in single precision, (classes*n,)."""
        rises = (potential[None, :] - potential[:, None] for potential in potentials.astype(np.float32))
        steepest = functools.reduce(lambda one, other: np.maximum(one, other, out=one), rises)
        order, starts = self._by_orbit
        lengths = np.maximum.reduceat(steepest.ravel()[order], starts)
        return np.maximum(lengths, 0.0, out=lengths)

    def relative_lengths(self, pattern: Pattern, potentials: Floats) -> Singles | None:
        """l(o) over what potentials ship of a pattern, so that theta <= sum_o x_o*l(o); None if they ship nothing."""
        shipped = float((pattern.multiplicities.rows(self.group.representatives) * potentials).sum())
        return self.lengths(potentials) / shipped if shipped > _LEAST_SHIPPED else None

    @cached_property
    def _by_orbit(self) -> tuple[Ints, Ints]:
        orbit = self.group.arc_orbit.ravel()
        order = np.argsort(orbit, kind="stable")
        return order, np.searchsorted(orbit[order], np.arange(self.classes * self.group.n))


class Listing:
    """All topologies of a space, numbered from 0 in lexicographic order of their choices.

    Args:
        space: small enough for tables of its size.
    """

    def __init__(self, space: Space) -> None:
        self.space = space

    @property
    def size(self) -> int:
        """How many topologies there are."""
        return int(self.members.shape[1])

    @cached_property
    def options(self) -> tuple[Ints, ...]:
        """For each class the sets of targets in lexicographic order, shape (options, degree)."""
        return tuple(self._options_of(representative) for representative in self.space.group.representatives)

    @cached_property
    def members(self) -> NDArray[np.int32]:
        """The option that each topology takes for each class, in lexicographic order, shape (classes, size)."""
        space = self.space
        received = [self._received(option) for option in self.options]
        members, totals = np.zeros((0, 1), dtype=np.int32), np.zeros((1, space.classes), dtype=np.int16)
        for class_received in received:
            sums = totals[:, None, :] + class_received[None, :, :]
            before, option = np.nonzero((sums <= space.degree).all(axis=2))
            members = np.vstack([members[:, before], option.astype(np.int32)])
            totals = sums[before, option]
        return members

    def choice(self, number: int) -> Choice:
        """The choice with a number."""
        return tuple(np.concatenate(self._targets(number)).tolist())

    def number(self, choice: Choice) -> int:
        """The number of a choice of the space."""
        degree = self.space.degree
        parts = [choice[start : start + degree] for start in range(0, len(choice), degree)]
        return self._number([place[part] for place, part in zip(self._place, parts, strict=True)])

    def twin(self, number: int) -> int:
        """With two classes the image under the elements of the group above that exchange them; else the number itself.

        Demands stay as they are under these elements, so theta is the same.
        """
        group = self.space.group
        if self.space.classes != 2:
            return number
        first, second = self._targets(number)
        images = (group.image(1, second), group.image(0, first))
        places = zip(self._place, images, strict=True)
        return self._number([place[tuple(sorted(image.tolist()))] for place, image in places])

    def totals(self, lengths: Singles, members: NDArray[np.int32]) -> Singles:
        """sum_o x_o*l(o) of topologies given by the options they take, shape (classes, count); shape (count,)."""
        parts = lengths.reshape(self.space.classes, self.space.group.n)
        total = np.zeros(members.shape[1], dtype=np.float32)
        for part, ports, taken in zip(parts, self._ports, members, strict=True):
            # Port by port: numpy is slow along short axes.
            sums: Singles = part[ports[0]]
            for targets in ports[1:]:
                sums += part[targets]
            total += sums[taken]
        return total

    def _targets(self, number: int) -> list[Ints]:
        return [option[taken] for option, taken in zip(self.options, self.members[:, number], strict=True)]

    def _options_of(self, representative: int) -> Ints:
        targets = [v for v in range(self.space.group.n) if v != representative]
        return np.array(list(itertools.combinations_with_replacement(targets, self.space.degree)), dtype=np.int64)

    @cached_property
    def _ports(self) -> tuple[NDArray[np.int32], ...]:
        """For each class the target of each port in every option, shape (degree, options)."""
        return tuple(np.ascontiguousarray(option.T.astype(np.int32)) for option in self.options)

    def _received(self, option: Ints) -> NDArray[np.int16]:
        """How many circuits of each option end in each class, shape (options, classes)."""
        reached = self.space.group.class_of[option]
        counts = [np.count_nonzero(reached == index, axis=1) for index in range(self.space.classes)]
        return np.stack(counts, axis=1).astype(np.int16)

    def _number(self, options: Sequence[int]) -> int:
        return int(np.searchsorted(self._rank, np.ravel_multi_index(options, self._shape)))

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.options))

    @cached_property
    def _rank(self) -> Ints:
        rank: Ints = np.ravel_multi_index(tuple(self.members.astype(np.int64)), self._shape)
        return rank

    @cached_property
    def _place(self) -> tuple[dict[tuple[int, ...], int], ...]:
        return tuple({tuple(targets): place for place, targets in enumerate(o.tolist())} for o in self.options)
