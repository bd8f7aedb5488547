"""``recurrence``: the six-step example (model section 5) by every kind of tau, and tables that are refused."""

from __future__ import annotations

import itertools

import pytest

STEPS_US = {
    "A": (14, 14, 20, 20, 14, 14),
    "B": (10, 10, 12, 12, 22, 22),
    "C": (22, 22, 12, 12, 10, 10),
    "D": (22, 22, 10, 10, 22, 22),
}
HEADER = "topology," + ",".join(f"step {i}" for i in range(1, 7))


@pytest.fixture
def table(tmp_path):
    rows = [f"{name}," + ",".join(f"{time}us" for time in times) for name, times in STEPS_US.items()]
    (tmp_path / "table.csv").write_text("\n".join([HEADER, *rows]))
    return "table.csv"


def write_square(path, entry) -> None:
    rows = [f"{one}," + ",".join(str(entry(one, other)) for other in STEPS_US) for one in STEPS_US]
    path.write_text("\n".join([",".join(["from", *STEPS_US]), *rows]))


def cost_us(sequence: list[str], tau) -> float:
    steps = sum(STEPS_US[name][step] for step, name in enumerate(sequence))
    changes = enumerate(itertools.pairwise(sequence))
    return steps + sum(float(tau(step, one, other)) for step, (one, other) in changes if one != other)


def cheapest_us(tau) -> float:
    return min(cost_us(list(names), tau) for names in itertools.product(STEPS_US, repeat=6))


@pytest.mark.parametrize(("tau", "cost"), [(1, 62), (10, 74), (30, 88)])
def test_the_worked_example(lumenfarm, table, tau: int, cost: int) -> None:
    found = lumenfarm(f"recurrence {table} --tau {tau}us --json").json
    assert found["cost_ns"] == cost * 1000
    assert cost_us(found["sequence"], lambda *_: tau) == cost
    breaks = [(piece["tau_from_ns"], piece["tau_to_ns"], piece["changes"]) for piece in found["envelope"]]
    assert breaks == [(0, 4000, 2), (4000, 24_000, 1), (24_000, None, 0)]
    assert [piece["steps_ns"] for piece in found["envelope"]] == [60_000, 64_000, 88_000]


def test_the_table_for_people(lumenfarm, table) -> None:
    out = lumenfarm(f"recurrence {table} --tau 1us").out
    for said in ("62 us", "B B D D C C", "4 us", "24 us"):
        assert said in out


def test_a_matrix_of_taus(lumenfarm, table, tmp_path) -> None:
    def tau(one: str, other: str) -> int:
        return 0 if one == other else 2 + 3 * (ord(other) - ord("A")) + (9 if one == "B" else 0)

    write_square(tmp_path / "tau.csv", lambda one, other: f"{tau(one, other)}us")
    found = lumenfarm(f"recurrence {table} --tau-matrix tau.csv --json").json
    assert found["cost_ns"] == pytest.approx(1000 * cheapest_us(lambda _, one, other: tau(one, other)))
    assert found["envelope"] == []


def test_a_price_per_changed_port(lumenfarm, table, tmp_path) -> None:
    def ports(one: str, other: str) -> int:
        return abs(ord(one) - ord(other)) * 4

    write_square(tmp_path / "ports.csv", ports)
    found = lumenfarm(f"recurrence {table} --tau 2us --changed-ports ports.csv --tau-per-port 500ns --json").json
    assert found["cost_ns"] == pytest.approx(1000 * cheapest_us(lambda _, one, other: 2 + ports(one, other) / 2))


def test_windows_hide_a_part(lumenfarm, table) -> None:
    windows = (3, 0, 20, 5, 1)
    words = ",".join(f"{window}us" for window in windows)
    found = lumenfarm(f"recurrence {table} --tau 12us --windows {words} --json").json
    assert found["cost_ns"] == pytest.approx(1000 * cheapest_us(lambda step, *_: max(0, 12 - windows[step])))


def test_initial(lumenfarm, table) -> None:
    found = lumenfarm(f"recurrence {table} --tau 30us --initial A --json").json
    staying, moving = 96_000, 88_000 + 30_000
    assert found["cost_ns"] == min(staying, moving)
    assert found["sequence"] == ["A"] * 6


@pytest.mark.parametrize(
    ("options", "field", "value", "expectation"),
    [
        ("", "tau", "", "a time such as 10us"),
        ("--tau fast", "tau", "fast", "a time such as"),
        ("--tau -1us", "tau", "-1us", "not negative"),
        ("--tau 1us --initial E", "initial", "E", "one of A, B, C, D"),
        ("--tau 1us --windows 1us,2us", "windows", "2", "5"),
        ("--tau 1us --windows 1us,2us,3us,4us,x", "windows", "x", "a time such as"),
        ("--tau 1us --tau-matrix table.csv", "tau-matrix", "table.csv", "no --tau"),
        ("--tau-matrix table.csv", "table.csv", "(4, 6)", "A, B, C, D, in this order"),
        ("--tau 1us --changed-ports table.csv", "tau-per-port", "", "a time, with --changed-ports"),
    ],
)
def test_bad_options(lumenfarm, table, options: str, field: str, value: str, expectation: str) -> None:
    ended = lumenfarm(f"recurrence {table} {options}")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    for said in (field, value, expectation):
        assert said in ended.err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (f"{HEADER}\nA,1,2,3,4,5", "table.csv row 2"),
        (f"{HEADER}\nA,1,2,3,4,5,nan", "table.csv row 2 column 7"),
        (f"{HEADER}\nA,1,2,3,4,5,-6", "table.csv row 2 column 7"),
        (f"{HEADER}\nA,1,2,3,4,5,6\nA,1,2,3,4,5,6", "table.csv"),
        (HEADER, "table.csv"),
        ("", "table.csv"),
        (f"{HEADER}\nA,inf,2,3,4,5,6", "times"),
    ],
)
def test_bad_tables(lumenfarm, tmp_path, text: str, place: str) -> None:
    (tmp_path / "table.csv").write_text(text)
    ended = lumenfarm("recurrence table.csv --tau 1us")
    assert (ended.code, ended.out) == (2, "")
    assert place in ended.err
    assert ended.err.count("\n") == 1
