"""Groups that act on the GPUs without fixed points, and the topologies they leave as they are (model section 7).

A group is its action table, so everything after `recognised` is the same for every group; a new kind of group is one
function that gives generators.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumenfarm.errors import InputError
from lumenfarm.matrix import Floats, Ints, PairMatrix
from lumenfarm.model import ArcOrbits, Topology
from lumenfarm.symmetry import Symmetry, is_automorphism, on_dimension

__all__ = ["Group", "Quotient", "quotients", "recognised", "regular", "subgroup_ladder"]

_Table = NDArray[np.int32]
# A group with many generators has very many subgroups; a few of each size serve.
_FEW_SUBGROUPS = 3


@dataclass(frozen=True, eq=False)
class Group:
    """A group acting on 0..n-1 so that only the identity fixes a GPU.

    Attributes:
        name: how people call it, such as ``cyclic 64``.
        table: table[g, u] is where element g takes GPU u, shape (order, n); row 0 is the identity.
        generators: permutations that generate it, each of shape (n,).
        above: the group that this one is half of, None for the first.
    """

    name: str
    table: _Table
    generators: tuple[Ints, ...]
    above: Group | None = None

    @property
    def n(self) -> int:
        """Number of GPUs."""
        return int(self.table.shape[1])

    @cached_property
    def representatives(self) -> Ints:
        """The least GPU of each class (orbit of GPUs), ascending, shape (classes,)."""
        least = self.table.min(axis=0)
        return np.flatnonzero(least == np.arange(self.n))

    @cached_property
    def class_of(self) -> Ints:
        """Class of each GPU, shape (n,)."""
        classes: Ints = np.searchsorted(self.representatives, self.table.min(axis=0))
        return classes

    @cached_property
    def arc_orbit(self) -> _Table:
        """Number of the orbit of the arc (p, q): class*n + v for the orbit of (representative, v), shape (n, n)."""
        orbit = np.empty((self.n, self.n), dtype=np.int32)
        for index, representative in enumerate(self.representatives):
            orbit[self.table[:, representative][:, None], self.table] = index * self.n + np.arange(self.n)
        return orbit

    @property
    def symmetry(self) -> Symmetry:
        """The same group by its generators."""
        return Symmetry(self.n, self.generators)

    def topology(self, targets: Sequence[Sequence[int]]) -> Topology:
        """One circuit from each class's representative to each of its targets, and all images of these circuits.

        Args:
            targets: for each class the GPUs reached, as many as ports; twice the same means two circuits.
        """
        sources = np.repeat(self.representatives, [len(reached) for reached in targets])
        arcs = PairMatrix(self.n, sources, np.concatenate(targets), 1.0, field="topology")
        return Topology(ArcOrbits(self.symmetry, arcs), self._label(targets))

    def inherited(self, potentials: Floats, source: Group) -> Floats:
        """Potentials for the classes of this group out of those for the fewer classes of a group that contains it.

        If g takes GPU r to r', then pi_r'(g(v)) = pi_r(v).

        Args:
            potentials: shape (..., classes of ``source``, n).
            source: the larger group.

        Returns:
            Shape (..., classes, n).
        """
        moved = np.empty((*potentials.shape[:-2], len(self.representatives), self.n))
        for index, (origin, element) in enumerate(self._origins(source)):
            moved[..., index, element] = potentials[..., origin, :]
        return moved

    def mirrored(self, potentials: Floats) -> Floats:
        """Potentials for the image of a topology under the elements of the group above that exchange two classes.

        Patterns stay as they are under these elements, so the image has the same theta.

        Args:
            potentials: shape (..., 2, n).
        """
        moved = np.empty_like(potentials)
        for index, source in enumerate(self.representatives[::-1]):
            moved[..., index, self._element(source, index)] = potentials[..., 1 - index, :]
        return moved

    def image(self, index: int, targets: Ints) -> Ints:
        """The targets of class ``index`` after an element of the group above exchanged the classes."""
        source, other = self.representatives[index], 1 - index
        return self._element(source, other)[targets].astype(np.int64)

    def _origins(self, source: Group) -> Iterator[tuple[int, _Table]]:
        """For each class, its class in a larger group, and the element between their representatives."""
        for representative in self.representatives:
            origin = int(source.class_of[representative])
            images = source.table[:, source.representatives[origin]]
            yield origin, source.table[np.flatnonzero(images == representative)[0]]

    def _element(self, source: int, index: int) -> _Table:
        """The element of the group above that takes GPU ``source`` to the representative of class ``index``."""
        table = self.table if self.above is None else self.above.table
        return np.asarray(table[np.flatnonzero(table[:, source] == self.representatives[index])[0]])

    def _label(self, targets: Sequence[Sequence[int]]) -> str:
        parts = []
        for representative, reached in zip(self.representatives.tolist(), targets, strict=True):
            offsets = ((target - representative + self.n // 2) % self.n - self.n // 2 for target in reached)
            parts.append(",".join(f"{offset:+d}" for offset in offsets))
        kind = "cayley" if len(parts) == 1 else f"cayley/{len(parts)}"
        return f"{kind}{{{' | '.join(parts)}}}"


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """A map of a group with one class onto a smaller one; circuits then have types that multiply along a path.

    The element that takes GPU u to v is seen from GPU 0, so the type of the pair (u, v) is that of the element's image
    of 0, and type(u, w)*type(w, v) = type(u, v).

    Attributes:
        type_of: type of the pairs (0, v), shape (n,); type_of[0] is the unit.
        product: product[s, t] of two types, shape (types, types).
    """

    type_of: Ints
    product: Ints


def quotients(group: Group, most_types: int) -> Iterator[Quotient]:
    """Quotients of a group with one class by subgroups of its ladder that are normal, few types first."""
    by_image = group.table[np.argsort(group.table[:, 0])]
    for below in subgroup_ladder(group, most_types):
        type_of = below.class_of
        product = type_of[by_image[below.representatives][:, below.representatives]]
        if np.array_equal(type_of[by_image], product[type_of[:, None], type_of]):
            yield Quotient(type_of, product)


def recognised(patterns: Sequence[PairMatrix], dims: Sequence[int]) -> Group | None:
    """A group of order n that preserves every pattern and moves each GPU to each other; None if none is found.

    Tried are cyclic, dihedral and exchange (XOR) groups on the ring of all GPUs, and their products over dimensions. If
    none fits, and each GPU has one partner of each kind, the partners themselves tell the group, however GPUs are
    numbered.
    """
    for name, generators in _candidates(tuple(dims)):
        if all(is_automorphism(pattern, generator) for pattern in patterns for generator in generators):
            table = _closure(math.prod(dims), generators)
            if table is not None:
                return Group(name, table, generators)
    table = _commuting(_partner_maps(patterns))
    return None if table is None else Group(f"partners {math.prod(dims)}", table, _generators(table))


def regular(symmetry: Symmetry) -> Group:
    """The group with one class of GPUs that permutations generate.

    Raises:
        InputError: they generate another group, or one that does not take every GPU to every other.
    """
    table = _closure(symmetry.n, symmetry.generators)
    if table is None:
        raise InputError("generators", len(symmetry.generators), "generators of a group with one class of GPUs")
    return Group(f"order {symmetry.n}", table, symmetry.generators)


def subgroup_ladder(group: Group, most_classes: int) -> Iterator[Group]:
    """The group, then subgroups of half the order, of a quarter, and so on: each rung has twice the classes.

    Each rung holds a few subgroups of those on the rung above, each once.
    """
    rung = [group]
    while rung:
        yield from rung
        below = (half for above in rung if 2 * len(above.representatives) <= most_classes for half in _halves(above))
        rung = _few_distinct(below)


def _few_distinct(groups: Iterator[Group]) -> list[Group]:
    """The first few; an element is known by where it takes GPU 0, hence a group by where GPU 0 can go."""
    distinct: dict[bytes, Group] = {}
    while len(distinct) < _FEW_SUBGROUPS and (group := next(groups, None)) is not None:
        distinct.setdefault(np.sort(group.table[:, 0]).tobytes(), group)
    return list(distinct.values())


def _halves(group: Group) -> Iterator[Group]:
    """Subgroups of half the order: kernels of the maps onto {1, -1}.

    A map is given by the signs of the generators, if these agree over all products.
    """
    count = len(group.generators)
    first = [int(np.flatnonzero(group.table[:, 0] == generator[0])[0]) for generator in group.generators]
    found = 0
    for signs in itertools.product((1, -1), repeat=count):
        sign = _signs(group, first, signs)
        if sign is None or (sign > 0).all():
            continue
        found += 1
        table = group.table[sign > 0]
        yield Group(f"{group.name} / {found}", table, _generators(table), above=group)


def _candidates(dims: tuple[int, ...]) -> Iterator[tuple[str, tuple[Ints, ...]]]:
    n = math.prod(dims)
    for kind, generators_of in _KINDS.items():
        generators = generators_of(n)
        if generators:
            yield f"{kind} {n}", generators
    if len(dims) == 1:
        return
    for kinds in itertools.product(_KINDS, repeat=len(dims)):
        parts = [
            on_dimension(generator, axis, dims)
            for axis, kind in enumerate(kinds)
            for generator in _KINDS[kind](dims[axis])
        ]
        if all(_KINDS[kind](size) for kind, size in zip(kinds, dims, strict=True)):
            yield " x ".join(f"{kind} {size}" for kind, size in zip(kinds, dims, strict=True)), tuple(parts)


def _cyclic(size: int) -> tuple[Ints, ...]:
    return ((np.arange(size) + 1) % size,)


def _dihedral(size: int) -> tuple[Ints, ...]:
    """Rotations by two and the reflection u -> 1-u: regular on an even ring, and what Swing's steps commute with."""
    ranks = np.arange(size)
    return () if size % 2 else ((ranks + 2) % size, (1 - ranks) % size)


def _exchange(size: int) -> tuple[Ints, ...]:
    ranks = np.arange(size)
    return tuple(ranks ^ (1 << bit) for bit in range(size.bit_length() - 1)) if size & (size - 1) == 0 else ()


_KINDS: Mapping[str, Callable[[int], tuple[Ints, ...]]] = {
    "cyclic": _cyclic,
    "dihedral": _dihedral,
    "exchange": _exchange,
}


def _closure(n: int, generators: Sequence[Ints]) -> _Table | None:
    """All elements, if each is known by where it takes GPU 0 and every GPU is reached; otherwise None."""
    element: dict[int, Ints] = {0: np.arange(n)}
    waiting = [0]
    while waiting:
        here = element[waiting.pop()]
        for generator in generators:
            image = generator[here]
            known = element.get(int(image[0]))
            if known is None:
                element[int(image[0])] = image
                waiting.append(int(image[0]))
            elif not np.array_equal(known, image):
                return None
    return np.array(list(element.values()), dtype=np.int32) if len(element) == n else None


def _partner_maps(patterns: Sequence[PairMatrix]) -> list[Ints]:
    """Each GPU's partner for each pattern and amount; nothing if there is another number of them than one each."""
    maps = []
    for pattern in patterns:
        amounts = np.unique(np.round(pattern.values, 9), return_inverse=True)[1]
        for amount in range(amounts.max(initial=-1) + 1):
            mine = amounts == amount
            if not np.array_equal(pattern.sources[mine], np.arange(pattern.n)):
                return []
            if len(np.unique(pattern.destinations[mine])) != pattern.n:
                return []
            maps.append(pattern.destinations[mine])
    return maps


def _commuting(maps: Sequence[Ints]) -> _Table | None:
    """All permutations that commute with some permutations, if each GPU can be taken to each other by one of them.

    If every GPU is reached from GPU 0 by the maps, where GPU 0 goes says where all others go.
    """
    if not maps:
        return None
    n = len(maps[0])
    table = np.full((n, n), -1, dtype=np.int32)
    table[:, 0] = np.arange(n)
    waiting = [0]
    while waiting:
        here = waiting.pop()
        for partner in maps:
            if table[0, partner[here]] < 0:
                table[:, partner[here]] = partner[table[:, here]]
                waiting.append(int(partner[here]))
    commute = (table[0] >= 0).all() and all(np.array_equal(table[:, partner], partner[table]) for partner in maps)
    return table if commute else None


def _signs(group: Group, generators: Sequence[int], signs: Sequence[int]) -> Ints | None:
    """The sign of each element when the generators have the given ones; None if products disagree."""
    position = np.empty(group.n, dtype=np.int64)
    position[group.table[:, 0]] = np.arange(len(group.table))
    sign = np.zeros(len(group.table), dtype=np.int64)
    sign[0] = 1
    products = [position[group.table[index][group.table[:, 0]]] for index in generators]
    while not sign.all():
        for product, factor in zip(products, signs, strict=True):
            reached = sign != 0
            sign[product[reached]] = factor * sign[reached]
    agree = all((sign[product] == factor * sign).all() for product, factor in zip(products, signs, strict=True))
    return sign if agree else None


def _generators(table: _Table) -> tuple[Ints, ...]:
    """Few elements that generate the group of a table: each joins the orbits of those before."""
    chosen: list[Ints] = []
    orbits = np.arange(table.shape[1])
    for element in table[1:].astype(np.int64):
        if (orbits[element] != orbits).any():
            chosen.append(element)
            orbits = Symmetry(table.shape[1], tuple(chosen)).gpu_orbits()
    return tuple(chosen)
