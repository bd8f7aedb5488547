"""Candidate topologies, one small function a family; adding one is a function and a line in `FAMILIES`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lumenfarm.errors import unknown_word
from lumenfarm.families.circulant import subrings
from lumenfarm.families.matching import interval_unions, step_matchings
from lumenfarm.families.torus import ring_strides, torus, torus_strides
from lumenfarm.model import Topology
from lumenfarm.problem import Workload

__all__ = ["DEFAULT_FAMILIES", "FAMILIES", "Family", "candidates", "torus"]


@dataclass(frozen=True, slots=True)
class Family:
    """A named way to make candidates; every topology it builds stays within the fabric's degree."""

    name: str
    summary: str
    build: Callable[[Workload], Iterator[Topology]]


def _published(workload: Workload) -> Iterator[Topology]:
    return itertools.chain(torus_strides(workload), step_matchings(workload))


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("published", "Harvest's search space: base torus strides, then each step's matching", _published),
        Family("strides", "base torus with longer and longer circuits", torus_strides),
        Family("rings", "ring of all GPUs with longer and longer circuits", ring_strides),
        Family("matchings", "each step's own circuits", step_matchings),
        Family("unions", "matchings of each interval's demand, with and without the base torus", interval_unions),
        Family("subrings", "circulants on one or two displacements of the demand", subrings),
    )
}

DEFAULT_FAMILIES = ("strides", "matchings", "rings", "subrings", "unions")


def candidates(names: Sequence[str], workload: Workload) -> tuple[Topology, ...]:
    """The topologies of the named families, each once, in the order found.

    Raises:
        InputError: a name is not in `FAMILIES`.
    """
    for name in names:
        if name not in FAMILIES:
            raise unknown_word("candidates", name, FAMILIES)
    built = itertools.chain.from_iterable(FAMILIES[name].build(workload) for name in names)
    return tuple(dict.fromkeys(built))
