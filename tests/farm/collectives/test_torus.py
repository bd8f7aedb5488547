import pytest

from lumenfarm.collectives.torus import partners, rotation


@pytest.mark.parametrize(
    ("dims", "start", "order"),
    [
        ((8,), 0, [(0, 0), (0, 1), (0, 2)]),
        ((4, 4), 0, [(0, 0), (1, 0), (0, 1), (1, 1)]),
        ((4, 4), 1, [(1, 0), (0, 0), (1, 1), (0, 1)]),
        ((8, 2), 1, [(1, 0), (0, 0), (0, 1), (0, 2)]),
        ((2, 4, 8), 0, [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]),
        ((2, 8, 8), 0, [(0, 0), (1, 0), (2, 0), (1, 1), (1, 2), (2, 1), (2, 2)]),
    ],
)
def test_rotation_by_hand(dims: tuple[int, ...], start: int, order: list[tuple[int, int]]) -> None:
    assert list(rotation(dims, start=start)) == order


def test_partners_move_along_one_dimension_and_wrap() -> None:
    first, second, third = partners((2, 4), lambda place, turn: place + 2**turn)
    assert first.tolist() == [4, 5, 6, 7, 0, 1, 2, 3]
    assert second.tolist() == [1, 2, 3, 0, 5, 6, 7, 4]
    assert third.tolist() == [2, 3, 0, 1, 6, 7, 4, 5]
