"""All topologies of a degree that a group leaves as they are, and what metric inequalities say about each of them.

Potentials pi_r(v) with pi_r(r) = 0, one set for each class of GPUs, prove theta for every topology at once: with
lengths l(o) = max(0, max over r and arcs (p,q) of orbit o of pi_r(q) - pi_r(p)), any concurrent flow satisfies

    theta * sum_r sum_v k(r,v)*pi_r(v)  <=  sum_o x_o*l(o)

because l makes every v at least pi_r(v) away from r (model sections 6 and 7). The right side is a sum over classes, so
it is evaluated for millions of topologies by table look-ups.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumenfarm.groups import Group
from lumenfarm.matrix import Floats, Ints
from lumenfarm.model import Topology

__all__ = ["Space"]


class Space:
    """The topologies of a group that use all ports of a degree, for one or two classes of GPUs, numbered from 0.

    The representative of each class chooses ``degree`` targets, with repetition; with two classes only those pairs of
    choices count that give every GPU as many receiving ports. A topology with free ports is never better.

    Args:
        group: with one class or two.
        degree: ports of each GPU.
    """

    def __init__(self, group: Group, degree: int) -> None:
        self.group = group
        self.degree = degree

    @staticmethod
    def count(group: Group, degree: int) -> int:
        """How many topologies a space has at most, without listing them."""
        return int(math.comb(group.n + degree - 2, degree) ** len(group.representatives))

    @property
    def size(self) -> int:
        """How many topologies there are."""
        return int(self.members.shape[1])

    @cached_property
    def options(self) -> tuple[Ints, ...]:
        """For each class the sets of targets in lexicographic order, shape (options, degree)."""
        return tuple(self._options_of(representative) for representative in self.group.representatives)

    @cached_property
    def members(self) -> NDArray[np.int32]:
        """The option that each topology takes for each class, in lexicographic order, shape (classes, size)."""
        if len(self.options) == 1:
            return np.arange(len(self.options[0]), dtype=np.int32)[None, :]
        within = [np.count_nonzero(self.group.class_of[option] == 0, axis=1) for option in self.options]
        return np.array(np.nonzero(within[0][:, None] + within[1][None, :] == self.degree), dtype=np.int32)

    def topology(self, number: int) -> Topology:
        """The topology with a number."""
        return self.group.topology([targets.tolist() for targets in self._targets(number)])

    def twin(self, number: int) -> int:
        """The image under the elements of the group above that exchange the classes; for one class the number itself.

        Demands stay as they are under these elements, so theta is the same.
        """
        if self.group.above is None:
            return number
        first, second = self._targets(number)
        images = (self.group.image(1, second), self.group.image(0, first))
        row, column = (self._place[index][tuple(sorted(image.tolist()))] for index, image in enumerate(images))
        return int(np.searchsorted(self._rank, row * len(self.options[1]) + column))

    def lengths(self, potentials: Floats) -> Floats:
        """Length of each orbit of arcs under potentials of shape (classes, n); shape (classes*n,)."""
        steepest = np.zeros((self.group.n, self.group.n))
        for potential in potentials:
            np.maximum(steepest, potential[None, :] - potential[:, None], out=steepest)
        order, starts = self._by_orbit
        lengths: Floats = np.maximum.reduceat(steepest.ravel()[order], starts)
        return lengths

    def totals(self, lengths: Floats, members: NDArray[np.int32]) -> NDArray[np.float32]:
        """sum_o x_o*l(o) of topologies given by the options they take, shape (classes, count); shape (count,)."""
        n = self.group.n
        sums = [lengths[index * n + option].sum(axis=1, dtype=np.float32) for index, option in enumerate(self.options)]
        total: NDArray[np.float32] = sums[0][members[0]]
        for more, taken in zip(sums[1:], members[1:], strict=True):
            total += more[taken]
        return total

    def _targets(self, number: int) -> list[Ints]:
        return [option[taken] for option, taken in zip(self.options, self.members[:, number], strict=True)]

    def _options_of(self, representative: int) -> Ints:
        targets = [v for v in range(self.group.n) if v != representative]
        return np.array(list(itertools.combinations_with_replacement(targets, self.degree)), dtype=np.int64)

    @cached_property
    def _place(self) -> tuple[dict[tuple[int, ...], int], ...]:
        return tuple({tuple(targets): place for place, targets in enumerate(o.tolist())} for o in self.options)

    @cached_property
    def _rank(self) -> Ints:
        first, second = self.members.astype(np.int64)
        rank: Ints = first * len(self.options[1]) + second
        return rank

    @cached_property
    def _by_orbit(self) -> tuple[Ints, Ints]:
        orbit = self.group.arc_orbit.ravel()
        order = np.argsort(orbit, kind="stable")
        return order, np.searchsorted(orbit[order], np.arange(len(self.group.representatives) * self.group.n))
