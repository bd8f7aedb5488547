"""Every algorithm is run on symbolic chunks, as its definition says who sends what, and what moved is compared.

Nothing here uses the generators to decide what is sent: the runs are written from the definitions in the literature,
and the bytes they move for each ordered pair in each step must be the generators' demands exactly.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import pytest

from lumenfarm.collectives import generate
from lumenfarm.model import Collective

BLOCK = 48  # bytes of a chunk; whole and divisible by every number of instances used here, so that all sums are exact

Dims: TypeAlias = tuple[int, ...]
Moved: TypeAlias = list[Counter[tuple[int, int]]]  # how many chunks each ordered pair moved, step by step
Halves: TypeAlias = tuple[Moved, Moved]
Table: TypeAlias = list[list[int]]  # for each step, the rank that every rank sends to
Move: TypeAlias = Callable[[int, int], int]
Blocks: TypeAlias = dict[tuple[int, int], int]  # (origin, target) -> rank


# ---- running ----


def run_scatter(n: int, steps: Sequence[Sequence[tuple[int, int, Collection[int]]]]) -> tuple[list[int], Moved]:
    """Run a ReduceScatter; returns (chunk each rank ends with, chunks moved for each pair in each step).

    A step lists (source, destination, chunks). A partial sum is the set of ranks in it, as bits; it leaves its sender.
    """
    partial = [dict.fromkeys(range(n), 1 << rank) for rank in range(n)]
    moved = []
    for step in steps:
        parcels = [(u, v, {chunk: partial[u].pop(chunk) for chunk in chunks}) for u, v, chunks in step]
        for _, v, parcel in parcels:
            for chunk, ranks in parcel.items():
                assert not partial[v][chunk] & ranks, "a contribution is counted twice"
                partial[v][chunk] |= ranks
        moved.append(tally((u, v, len(parcel)) for u, v, parcel in parcels))
    assert all(list(sums.values()) == [2**n - 1] for sums in partial), "every rank ends with one full sum"
    owned = [next(iter(sums)) for sums in partial]
    assert sorted(owned) == list(range(n))
    return owned, moved


def run_gather(
    n: int, owned: Iterable[int], steps: Sequence[Sequence[tuple[int, int, Collection[int] | None]]]
) -> Moved:
    """Run an AllGather from the chunk each rank owns; returns the chunks moved.

    A step lists (source, destination, chunks); None stands for all the source holds when the step begins.
    """
    held = [{chunk} for chunk in owned]
    moved = []
    for step in steps:
        parcels = [(u, v, set(held[u]) if chunks is None else set(chunks)) for u, v, chunks in step]
        assert all(parcel <= held[u] for u, _, parcel in parcels)
        for _, v, parcel in parcels:
            assert not parcel & held[v], "a chunk arrives twice"
            held[v] |= parcel
        moved.append(tally((u, v, len(parcel)) for u, v, parcel in parcels))
    assert all(chunks == set(range(n)) for chunks in held)
    return moved


def run_exchange(n: int, steps: Iterable[Callable[[Blocks], Blocks]]) -> Moved:
    """Run an All-to-All; a step maps blocks (origin, target) to the rank they move to. Returns the blocks moved."""
    place = {(u, v): u for u in range(n) for v in range(n)}
    moved = []
    for step in steps:
        moves = step(place)
        if moves:
            moved.append(tally((place[block], to, 1) for block, to in moves.items()))
        place.update(moves)
    assert all(rank == target for (_, target), rank in place.items())
    return moved


def run_broadcast(n: int, root: int, steps: Sequence[Sequence[tuple[int, int]]]) -> Moved:
    """Run a broadcast; a step lists (source, destination). Returns the messages moved."""
    informed = {root}
    for step in steps:
        assert all(u in informed for u, _ in step)
        newcomers = [v for _, v in step]
        assert len(set(newcomers)) == len(newcomers)
        assert not informed & set(newcomers)
        informed |= set(newcomers)
    assert informed == set(range(n))
    return [tally((u, v, 1) for u, v in step) for step in steps]


def tally(triples: Iterable[tuple[int, int, int]]) -> Counter[tuple[int, int]]:
    moved: Counter[tuple[int, int]] = Counter()
    for u, v, amount in triples:
        moved[u, v] += amount
    return moved


def assert_moves(collective: Collective, moved: Moved) -> None:
    demands = [{(u, v): amount for u, v, amount in step.demand.items()} for step in collective.steps]
    assert demands == [{pair: BLOCK * amount for pair, amount in step.items()} for step in moved]


# ---- the algorithms with a ReduceScatter and an AllGather, by definition ----


def coordinates(rank: int, dims: Dims) -> tuple[int, ...]:
    places: list[int] = []
    for size in reversed(dims):
        rank, place = divmod(rank, size)
        places.insert(0, place)
    return tuple(places)


def turns(dims: Dims, start: int = 0) -> list[tuple[int, int]]:
    """(dimension, its own counter) of each step: rotate over the dimensions, skip those that are exhausted."""
    left = [list(range(size.bit_length() - 1)) for size in dims]
    order: list[tuple[int, int]] = []
    while any(left):
        axis = (start + len(order)) % len(dims)
        while not left[axis]:
            axis = (axis + 1) % len(dims)
        order.append((axis, left[axis].pop(0)))
    return order


def partners(dims: Dims, move: Move, start: int = 0) -> Table:
    """For each step, the rank that every rank sends to; ``move(place, counter)`` acts along the step's dimension."""
    ranks = {places: rank for rank, places in enumerate(product(*map(range, dims)))}
    table = []
    for axis, counter in turns(dims, start):
        reached = []
        for places in ranks:
            target = list(places)
            target[axis] = move(places[axis], counter) % dims[axis]
            reached.append(ranks[tuple(target)])
        table.append(reached)
    return table


def responsibility(table: Table) -> list[list[set[int]]]:
    """For each step, what every rank is still responsible for when it begins: itself, and all it will yet send to."""
    n = len(table[0])
    sets = [[{rank} for rank in range(n)]]
    for step in reversed(table):
        later = sets[0]
        assert all(not later[rank] & later[step[rank]] for rank in range(n))
        sets.insert(0, [later[rank] | later[step[rank]] for rank in range(n)])
    assert all(chunks == set(range(n)) for chunks in sets[0])
    return sets


def run_partners(table: Table) -> Halves:
    """Halve: send a partner what it will be responsible for. Then go back, sending all that is held."""
    n = len(table[0])
    sets = responsibility(table)
    scatter = [[(u, step[u], sets[t + 1][step[u]]) for u in range(n)] for t, step in enumerate(table)]
    owned, scattered = run_scatter(n, scatter)
    assert owned == list(range(n))
    gathered = run_gather(n, owned, [[(u, step[u], None) for u in range(n)] for step in reversed(table)])
    return scattered, gathered


def run_ring(dims: Dims) -> Halves:
    (n,) = dims
    scatter = [[(u, (u + 1) % n, {(u - t) % n}) for u in range(n)] for t in range(n - 1)]
    owned, scattered = run_scatter(n, scatter)
    gather = [[(u, (u + 1) % n, {(owned[u] - t) % n}) for u in range(n)] for t in range(n - 1)]
    return scattered, run_gather(n, owned, gather)


def run_bits(dims: Dims, order: list[tuple[int, int]]) -> Halves:
    """Pairwise halving: partners differ in one bit; each sends the chunks that agree with the partner in it."""
    n = len(list(product(*map(range, dims))))
    bits = [tuple(coordinates(rank, dims)[axis] >> bit & 1 for axis, bit in order) for rank in range(n)]
    steps = []
    for t in range(len(order)):
        step = []
        for u in range(n):
            wanted = (*bits[u][:t], 1 - bits[u][t])
            partner = bits.index((*wanted, *bits[u][t + 1 :]))
            step.append((u, partner, {chunk for chunk in range(n) if bits[chunk][: t + 1] == wanted}))
        steps.append(step)
    owned, scattered = run_scatter(n, steps)
    gathered = run_gather(n, owned, [[(u, v, None) for u, v, _ in step] for step in reversed(steps)])
    return scattered, gathered


def swing(sign: int) -> Move:
    def move(place: int, counter: int) -> int:
        distance: int = sum((-2) ** power for power in range(counter + 1))
        return place + sign * distance if place % 2 == 0 else place - sign * distance

    return move


def run_mirrored(dims: Dims) -> Halves:
    """2D instances, each on its own part of the message."""
    starts = range(len(dims))
    runs = [run_partners(partners(dims, swing(sign), start)) for sign in (1, -1) for start in starts]
    scattered, gathered = zip(*runs, strict=True)
    return together(scattered), together(gathered)


def together(runs: Iterable[Moved]) -> Moved:
    return [sum(step, Counter()) for step in zip(*runs, strict=True)]


RUNS: Mapping[str, Callable[[Dims], Halves]] = {
    "ring": run_ring,
    "rd": lambda dims: run_partners(partners(dims, lambda place, bit: place + 2**bit)),
    "rd-exchange": lambda dims: run_bits(dims, turns(dims)),
    "halving-doubling": lambda dims: run_bits(dims, turns(dims)[::-1]),
    "swing": lambda dims: run_partners(partners(dims, swing(1))),
    "swing-mirrored": run_mirrored,
}
RINGS: list[Dims] = [(n,) for n in (2, 3, 4, 5, 6, 7, 8, 9, 12, 17)]
TORI: list[Dims] = [
    (2,),
    (4,),
    (8,),
    (16,),
    (32,),
    (64,),
    (2, 2),
    (4, 4),
    (8, 2),
    (2, 16),
    (8, 8),
    (2, 4, 8),
    (8, 2, 2),
]
CASES = [("ring", dims) for dims in RINGS] + [(kind, dims) for kind in RUNS if kind != "ring" for dims in TORI]


@pytest.mark.parametrize(("kind", "dims"), CASES)
def test_reduce_scatter_all_gather_and_all_reduce(kind: str, dims: Dims) -> None:
    scattered, gathered = RUNS[kind](dims)
    instances = 2 * len(dims) if kind == "swing-mirrored" else 1
    message = BLOCK * instances * len(list(product(*map(range, dims))))
    assert_moves(generate(f"reduce-scatter-{kind}", dims=dims, message_bytes=message), scattered)
    assert_moves(generate(f"all-gather-{kind}", dims=dims, message_bytes=message), gathered)
    assert_moves(generate(f"all-reduce-{kind}", dims=dims, message_bytes=message), scattered + gathered)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_recursive_halving_keeps_intervals(n: int) -> None:
    """Thakur et al.: the interval a rank is responsible for is cut in halves; it keeps the half it lies in."""
    steps = []
    size = n
    while size > 1:
        half = size // 2
        begin = [rank // size * size for rank in range(n)]
        lower = [rank - first < half for rank, first in enumerate(begin)]
        steps.append(
            [
                (u, u + half, range(begin[u] + half, begin[u] + size))
                if lower[u]
                else (u, u - half, range(begin[u], begin[u] + half))
                for u in range(n)
            ]
        )
        size = half
    _, moved = run_scatter(n, steps)
    assert_moves(generate("reduce-scatter-halving-doubling", gpus=n, message_bytes=BLOCK * n), moved)


# ---- All-to-All ----


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13])
def test_all_to_all_stepwise_and_direct(n: int) -> None:
    def shift(offset: int) -> Callable[[Blocks], Blocks]:
        return lambda _: {(u, (u + offset) % n): (u + offset) % n for u in range(n)}

    moved = run_exchange(n, [shift(offset) for offset in range(1, n)])
    assert_moves(generate("all-to-all", gpus=n, message_bytes=BLOCK * n), moved)

    at_once = run_exchange(n, [lambda _: {(u, v): v for u in range(n) for v in range(n) if u != v}])
    assert_moves(generate("all-to-all-direct", gpus=n, message_bytes=BLOCK * n), at_once)


def bruck_rounds(n: int, radix: int, ports: int) -> list[tuple[int, list[int]]]:
    """(place value, digits) of each step, as if no step could be empty."""
    places = [radix**power for power in range(n) if radix**power < n]
    digits = list(range(1, radix))
    return [(place, digits[first : first + ports]) for place in places for first in range(0, radix - 1, ports)]


BRUCK = list(product([2, 3, 4, 5, 8, 9, 12, 16, 17, 27], [2, 3, 4, 7], [1, 2, 4]))


@pytest.mark.parametrize(("n", "radix", "ports"), BRUCK)
def test_all_to_all_bruck(n: int, radix: int, ports: int) -> None:
    def send(place: int, digits: list[int]) -> Callable[[Blocks], Blocks]:
        def moves(holders: Blocks) -> Blocks:
            chosen = {}
            for (origin, target), holder in holders.items():
                digit = (target - origin) % n // place % radix
                if digit in digits:
                    chosen[origin, target] = (holder + digit * place) % n
            return chosen

        return moves

    moved = run_exchange(n, [send(place, digits) for place, digits in bruck_rounds(n, radix, ports)])
    collective = generate("all-to-all-bruck", gpus=n, message_bytes=BLOCK * n, radix=radix, ports=ports)
    assert_moves(collective, moved)


@pytest.mark.parametrize(("n", "radix", "ports"), BRUCK)
def test_all_gather_bruck(n: int, radix: int, ports: int) -> None:
    """Rank u keeps the list of blocks u, u-1, ..; the shift by z*r^x sends the front of it, as far as it is missing."""
    lists = [[u] for u in range(n)]
    steps = []
    for place, digits in bruck_rounds(n, radix, ports):
        fronts = {digit: min(place, n - digit * place) for digit in digits if digit * place < n}
        sends = [(u, (u + z * place) % n, lists[u][:front]) for z, front in fronts.items() for u in range(n)]
        if sends:
            steps.append(sends)
        for _, v, blocks in sends:
            lists[v] = lists[v] + blocks
    assert all(blocks == [(u - back) % n for back in range(n)] for u, blocks in enumerate(lists))
    moved = run_gather(n, range(n), steps)
    collective = generate("all-gather-bruck", gpus=n, message_bytes=BLOCK * n, radix=radix, ports=ports)
    assert_moves(collective, moved)


# ---- broadcast ----


@pytest.mark.parametrize(("n", "root"), [(n, root) for n in (2, 3, 4, 5, 7, 8, 13, 16) for root in {0, 1, n - 1}])
@pytest.mark.parametrize(
    ("name", "parent", "rounds"),
    [
        # A rank other than the root hears from the rank without its highest bit, in the round of that bit.
        ("broadcast-binomial", lambda v: v - 2 ** (v.bit_length() - 1), lambda v: v.bit_length() - 1),
        # A heap: a level hears from the level above.
        ("broadcast-binary", lambda v: (v - 1) // 2, lambda v: (v + 1).bit_length() - 2),
    ],
)
def test_broadcast(n: int, root: int, name: str, parent: Callable[[int], int], rounds: Callable[[int], int]) -> None:
    steps: list[list[tuple[int, int]]] = [[] for _ in range(max(rounds(v) for v in range(1, n)) + 1)]
    for v in range(1, n):
        steps[rounds(v)].append(((parent(v) + root) % n, (v + root) % n))
    moved = run_broadcast(n, root, steps)
    assert_moves(generate(name, gpus=n, message_bytes=BLOCK, root=root), moved)
