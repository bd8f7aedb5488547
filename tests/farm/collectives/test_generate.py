import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lumenfarm.collectives import GENERATORS, compose, generate, regenerate, shift_steps
from lumenfarm.errors import InputError
from lumenfarm.matrix import Floats
from lumenfarm.model import Collective, Origin

HALVING = ("rd", "rd-exchange", "halving-doubling", "swing", "swing-mirrored")
TRIOS = ("ring", *HALVING)
HALVING_NAMES = [f"{what}-{kind}" for kind in HALVING for what in ("all-reduce", "reduce-scatter", "all-gather")]
ANY_SIZE_NAMES = [name for name in GENERATORS if name not in HALVING_NAMES]

powers = st.integers(1, 4).map(lambda exponent: 2**exponent)
tori = st.lists(powers, min_size=1, max_size=3).map(tuple).filter(lambda dims: math.prod(dims) <= 128)
rings = st.integers(2, 40).map(lambda n: (n,))
messages = st.floats(1.0, 1e12)


def sizes(name: str) -> st.SearchStrategy[tuple[int, ...]]:
    return tori if name in HALVING_NAMES else rings


def test_registry_has_the_documented_names() -> None:
    assert set(GENERATORS) == {
        *(f"{what}-{kind}" for kind in TRIOS for what in ("all-reduce", "reduce-scatter", "all-gather")),
        *("all-to-all", "all-to-all-direct", "all-to-all-bruck", "all-gather-bruck"),
        *("broadcast-binomial", "broadcast-binary"),
    }


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_describe_themselves(name: str) -> None:
    generator = GENERATORS[name]
    assert generator.name == name
    assert generator.summary
    assert set(generator.parameters) <= {"ports", "radix", "root"}


@pytest.mark.parametrize("name", GENERATORS)
def test_collective_says_what_it_is(name: str) -> None:
    collective = generate(name, gpus=8, message_bytes=4096, ports=2)
    used = {"ports": 2, "radix": 2, "root": 0}
    assert collective.name == name
    assert collective.dims == (8,)
    assert collective.message_bytes == 4096
    assert collective.origin == Origin(name, {field: used[field] for field in GENERATORS[name].parameters})


@pytest.mark.parametrize("name", GENERATORS)
def test_dims_may_stand_for_gpus(name: str) -> None:
    collective = generate(name, gpus=16, dims=(4, 4), message_bytes=4096)
    assert collective.dims == (4, 4)
    assert collective.digest == generate(name, dims=(4, 4), message_bytes=4096).digest


@pytest.mark.parametrize("name", ANY_SIZE_NAMES)
def test_dims_do_not_change_what_follows_the_ranks(name: str) -> None:
    torus = generate(name, dims=(3, 4), message_bytes=4096)
    assert torus.digest == generate(name, gpus=12, message_bytes=4096).digest


@given(data=st.data(), message=messages)
@settings(max_examples=60)
def test_regenerated_from_its_origin(data: st.DataObject, message: float) -> None:
    name = data.draw(st.sampled_from(sorted(GENERATORS)))
    dims = data.draw(sizes(name))
    used = GENERATORS[name].parameters
    collective = generate(
        name,
        dims=dims,
        message_bytes=message,
        ports=data.draw(st.integers(1, 4)),
        radix=data.draw(st.integers(2, 5)) if "radix" in used else None,
        root=data.draw(st.integers(0, math.prod(dims) - 1)) if "root" in used else None,
    )
    assert collective.origin is not None
    again = regenerate(collective.origin, dims=dims, message_bytes=message)
    assert again.digest == collective.digest
    assert again.origin == collective.origin
    assert again.dims == dims


@pytest.mark.parametrize("name", [name for name in GENERATORS if "ports" not in GENERATORS[name].parameters])
def test_ports_change_nothing_where_they_are_no_parameter(name: str) -> None:
    one, three = (generate(name, gpus=8, message_bytes=4096, ports=ports) for ports in (1, 3))
    assert one.digest == three.digest


def test_ports_change_bruck() -> None:
    one, three = (generate("all-to-all-bruck", gpus=16, message_bytes=4096, ports=p, radix=4) for p in (1, 3))
    assert (len(one), len(three)) == (6, 2)


# ---- bytes ----


def sent_and_received(collective: Collective) -> tuple[Floats, Floats]:
    demands = [step.demand for step in collective.steps]
    sent = np.sum([demand.row_sums for demand in demands], axis=0)
    return sent, np.sum([demand.column_sums for demand in demands], axis=0)


@given(data=st.data(), message=messages)
@settings(max_examples=60)
def test_every_half_moves_each_byte_to_each_other_gpu_once(data: st.DataObject, message: float) -> None:
    """A ReduceScatter or AllGather without waste: m(n-1)/n out of and into every GPU; AllReduce twice that."""
    kind = data.draw(st.sampled_from(TRIOS))
    dims = data.draw(sizes(f"all-reduce-{kind}"))
    n = math.prod(dims)
    for what, halves in (("reduce-scatter", 1), ("all-gather", 1), ("all-reduce", 2)):
        for total in sent_and_received(generate(f"{what}-{kind}", dims=dims, message_bytes=message)):
            assert total == pytest.approx([halves * message * (n - 1) / n] * n, rel=1e-12)


@given(n=st.integers(2, 40), radix=st.integers(2, 9), ports=st.integers(1, 5), message=messages)
@settings(max_examples=60)
def test_exchanges_conserve_bytes(n: int, radix: int, ports: int, message: float) -> None:
    needed = [message * (n - 1) / n] * n
    bruck = generate("all-gather-bruck", gpus=n, message_bytes=message, radix=radix, ports=ports)
    for collective in (
        bruck,
        generate("all-to-all", gpus=n, message_bytes=message),
        generate("all-to-all-direct", gpus=n, message_bytes=message),
    ):
        for total in sent_and_received(collective):
            assert total == pytest.approx(needed, rel=1e-12)


@given(n=st.integers(2, 40), radix=st.integers(2, 9), ports=st.integers(1, 5), message=messages)
@settings(max_examples=60)
def test_bruck_sends_a_block_once_for_each_digit_of_its_offset(n: int, radix: int, ports: int, message: float) -> None:
    hops = sum(offset // radix**place % radix > 0 for offset in range(n) for place in range(n.bit_length()))
    collective = generate("all-to-all-bruck", gpus=n, message_bytes=message, radix=radix, ports=ports)
    for total in sent_and_received(collective):
        assert total == pytest.approx([message * hops / n] * n, rel=1e-12)
    assert all(len(step.demand) <= n * ports for step in collective.steps)


@given(n=st.integers(2, 60), data=st.data(), name=st.sampled_from(["broadcast-binomial", "broadcast-binary"]))
@settings(max_examples=40)
def test_broadcast_reaches_everybody_but_the_root_once(n: int, data: st.DataObject, name: str) -> None:
    root = data.draw(st.integers(0, n - 1))
    _, received = sent_and_received(generate(name, gpus=n, message_bytes=512, root=root))
    assert received.tolist() == [0 if rank == root else 512 for rank in range(n)]


@given(data=st.data(), factor=st.sampled_from([2, 4, 1024]))
@settings(max_examples=40)
def test_demands_scale_with_the_message(data: st.DataObject, factor: int) -> None:
    name = data.draw(st.sampled_from(sorted(GENERATORS)))
    dims = data.draw(sizes(name))
    small, large = (generate(name, dims=dims, message_bytes=size) for size in (4096, 4096 * factor))
    assert [step.demand.scaled(factor) for step in small.steps] == [step.demand for step in large.steps]


# ---- halves ----


@given(data=st.data())
@settings(max_examples=60)
def test_all_reduce_is_reduce_scatter_then_its_mirror(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(TRIOS))
    dims = data.draw(sizes(f"all-reduce-{kind}"))
    whole, scatter, gather = (
        generate(f"{what}-{kind}", dims=dims, message_bytes=2**20)
        for what in ("all-reduce", "reduce-scatter", "all-gather")
    )
    assert gather.step_digests == scatter.step_digests[::-1]
    assert whole.step_digests == scatter.step_digests + gather.step_digests
    assert all(step is mirror for step, mirror in zip(whole.steps, reversed(whole.steps), strict=True))
    assert compose("mine", scatter, gather).digest == whole.digest


def test_composed() -> None:
    scatter = generate("reduce-scatter-ring", gpus=8, message_bytes=4096)
    gather = generate("all-gather-rd", gpus=8, message_bytes=4096)
    both = compose("mixed", scatter, gather)
    assert both.name == "mixed"
    assert both.steps == scatter.steps + gather.steps
    assert (both.dims, both.message_bytes, both.origin) == ((8,), 4096, None)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"gpus": 16, "message_bytes": 4096}, "dims"),
        ({"dims": (2, 4), "message_bytes": 4096}, "dims"),
        ({"gpus": 8, "message_bytes": 8192}, "message"),
    ],
)
def test_composition_of_what_does_not_fit(other: dict[str, Any], field: str) -> None:
    scatter = generate("reduce-scatter-ring", gpus=8, message_bytes=4096)
    with pytest.raises(InputError) as caught:
        compose("mixed", scatter, generate("all-gather-ring", **other))
    assert caught.value.field == field


# ---- refusals ----


def refusal(name: str = "all-reduce-ring", **arguments: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        generate(name, **{"message_bytes": 4096, **arguments})
    return caught.value


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("gpus", [-4, 0, 1, True, 2.5, "8"])
def test_too_few_gpus(name: str, gpus: Any) -> None:
    error = refusal(name, gpus=gpus)
    assert (error.field, error.value) == ("gpus", gpus)


@pytest.mark.parametrize("dims", [(), (1, 8), (8, 0), (-2, -4), (2.0, 4)])
def test_bad_dims(dims: Any) -> None:
    assert refusal(dims=dims).field == "dims"


def test_no_size_at_all() -> None:
    assert refusal().field == "gpus"


def test_gpus_that_are_not_the_product_of_dims() -> None:
    error = refusal(gpus=15, dims=(4, 4))
    assert error.field == "gpus"
    assert "16" in error.expected


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("message", [0, -1, math.nan, math.inf, "16MiB", 2**63, 2.0**61])
def test_bad_message(name: str, message: Any) -> None:
    assert refusal(name, gpus=8, message_bytes=message).field == "message"


@pytest.mark.parametrize("name", GENERATORS)
def test_largest_message(name: str) -> None:
    collective = generate(name, gpus=8, message_bytes=2.0**59)
    assert max(step.demand.largest_sum for step in collective.steps) <= 2.0**61


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("ports", [0, -1, True, 1.5])
def test_bad_ports(name: str, ports: Any) -> None:
    assert refusal(name, gpus=8, ports=ports).field == "ports"


@pytest.mark.parametrize("radix", [1, 0, -2, 2.0])
def test_bad_radix(radix: Any) -> None:
    assert refusal("all-to-all-bruck", gpus=8, radix=radix).field == "radix"


@pytest.mark.parametrize("root", [-1, 8, 100, 0.0])
def test_bad_root(root: Any) -> None:
    assert refusal("broadcast-binary", gpus=8, root=root).field == "root"


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name in GENERATORS for field in ("radix", "root") if field not in GENERATORS[name].parameters],
)
def test_parameters_a_generator_does_not_use(name: str, field: str) -> None:
    error = refusal(name, gpus=8, **{field: 2})
    assert error.field == field
    assert name in error.expected


def test_unknown_name() -> None:
    error = refusal("all-reduce-rind", gpus=8)
    assert error.field == "collective"
    assert "did you mean 'all-reduce-ring'" in error.expected


@pytest.mark.parametrize("name", HALVING_NAMES)
@pytest.mark.parametrize(("size", "field", "value"), [({"gpus": 6}, "gpus", 6), ({"dims": (4, 6)}, "dims", "4x6")])
def test_halving_needs_powers_of_two(name: str, size: dict[str, Any], field: str, value: object) -> None:
    error = refusal(name, **size)
    assert (error.field, error.value) == (field, value)
    assert "power of two" in error.expected
    assert "because" in error.expected


@pytest.mark.parametrize("name", ANY_SIZE_NAMES)
@pytest.mark.parametrize("n", [3, 6, 7])
def test_others_take_any_number_of_gpus(name: str, n: int) -> None:
    assert generate(name, gpus=n, message_bytes=4096).n == n


@pytest.mark.parametrize(
    ("origin", "field"),
    [
        (Origin("all-reduce-rang", {}), "collective"),
        (Origin("all-reduce-ring", {"radix": 2}), "origin"),
        (Origin("all-to-all-bruck", {"ports": 1, "radix": "two"}), "radix"),
        (Origin("all-to-all-bruck", {"ports": 0, "radix": 2}), "ports"),
        (Origin("all-to-all-bruck", {"ports": 1, "radix": 1}), "radix"),
    ],
)
def test_origins_that_cannot_be(origin: Origin, field: str) -> None:
    with pytest.raises(InputError) as caught:
        regenerate(origin, dims=(8,), message_bytes=4096)
    assert caught.value.field == field


# ---- shift steps ----

SHIFTING = {
    *(f"{what}-{kind}" for kind in ("ring", "rd") for what in ("all-reduce", "reduce-scatter", "all-gather")),
    *("all-to-all", "all-to-all-bruck", "all-gather-bruck"),
}


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize("name", GENERATORS)
def test_shift_steps_are_the_demands(name: str, n: int) -> None:
    demands = [step.demand for step in generate(name, gpus=n, message_bytes=4096).steps]
    shifts = shift_steps(name, gpus=n, message_bytes=4096)
    assert (shifts is not None) == (name in SHIFTING)
    if shifts is None:
        assert any(demand.shift_offset() is None for demand in demands)
    else:
        assert [shift.offset for shift in shifts] == [demand.shift_offset() for demand in demands]
        assert [[shift.bytes_per_gpu] * n for shift in shifts] == [demand.row_sums.tolist() for demand in demands]


@pytest.mark.parametrize(
    ("radix", "ports", "single"), [(2, 1, True), (2, 4, True), (4, 1, True), (4, 2, False), (4, 3, False)]
)
@pytest.mark.parametrize("name", ["all-to-all-bruck", "all-gather-bruck"])
def test_bruck_is_a_shift_when_one_offset_is_used_at_a_time(name: str, radix: int, ports: int, single: bool) -> None:
    shifts = shift_steps(name, gpus=16, message_bytes=4096, radix=radix, ports=ports)
    assert (shifts is not None) == single


def test_shift_steps_of_a_million_gpus() -> None:
    shifts = shift_steps("all-reduce-rd", gpus=2**20, message_bytes=2.0**20)
    assert shifts is not None
    offsets = [2**turn for turn in range(20)]
    assert [shift.offset for shift in shifts] == offsets + offsets[::-1]
    assert [shift.bytes_per_gpu for shift in shifts[:20]] == [2.0 ** (19 - turn) for turn in range(20)]


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("all-reduce-rb", {"gpus": 8}, "collective"),
        ("all-reduce-rd", {"gpus": 1}, "gpus"),
        ("all-reduce-rd", {"gpus": 6}, "gpus"),
        ("all-reduce-rd", {"gpus": 8, "radix": 2}, "radix"),
        ("all-reduce-rd", {"gpus": 8, "message_bytes": math.nan}, "message"),
        ("all-gather-bruck", {"gpus": 8, "ports": 0}, "ports"),
    ],
)
def test_shift_steps_refuse(name: str, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        shift_steps(name, **{"message_bytes": 4096, **arguments})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("name", "gpus"),
    [("all-reduce-ring", 100_000_000), ("all-reduce-ring", 2**20), ("all-to-all", 2**15), ("all-to-all-direct", 2**14)],
)
def test_sizes_without_a_schedule_are_refused_at_once(name: str, gpus: int) -> None:
    assert refusal(name, gpus=gpus).field == "gpus"
