"""Lowering of integer ops: the same bits, or a reason why not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.npu.quantized_networks import Net, codes, networks

import intaglio
from intaglio import ops, passes, targets
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.lowering.target import npu_target
from intaglio.ops.registry import evaluate
from intaglio.passes.canonical import CANONICAL
from intaglio.rewrite import rewrite
from intaglio.targets import chip as chips
from intaglio.verify import verify

CHIPS = ("rk3588", "rk3566", "k230", "bm1684x")
TARGETS = {name: targets.find(name, "scalar") for name in chips.names()}
RNG = np.random.default_rng(11)
WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


@settings(max_examples=150, deadline=None)
@given(networks(), st.sampled_from(CHIPS))
def test_units_keep_every_bit(made, chip):
    graph, inputs = made
    want = intaglio.interpret(graph, inputs)
    lowered = graph.copy()
    passes.run(lowered, passes.offload(TARGETS[chip]))
    verify(lowered)
    got = intaglio.interpret(lowered, inputs)
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)


def net(*shape, dtype="i8"):
    x = Value(Type(dtype, shape), "x")
    return Net(RNG, [x]), x


def lowered(y, chip="rk3588"):
    """The ops that `y` is lowered to, in order, and the graph; checks its results."""
    x = next(v for v in Graph([], [y]).values() if v.producer is None and v.data is None)
    graph = Graph([x], [y], ["y"])
    inputs = [codes(RNG, x.dtype, *x.shape)]
    want = evaluate(graph, inputs)[0]
    rules = TARGETS[chip].lower if isinstance(chip, str) else npu_target(chip, "scalar").lower
    rewrite(graph, [*rules, *CANONICAL])
    verify(graph)
    np.testing.assert_array_equal(evaluate(graph, inputs)[0], want)
    return [n.op for n in graph.nodes()], graph


def refusal(y, chip="rk3588"):
    graph = Graph([], [y], ["y"])
    graph.tidy()
    before = {v: list(v.uses) for v in graph.values()}
    target = TARGETS[chip] if isinstance(chip, str) else npu_target(chip, "scalar")
    words = target.why_not(y.producer)
    rewrite(graph, target.lower)
    assert {v: list(v.uses) for v in graph.values()} == before, "a refusal left nodes behind"
    return words


def conv(n, x, many=8, kernel=(3, 3), deep=None, result=None, **window):
    """A qlinear_conv with random weights."""
    deep = deep or x.shape[1] // window.get("groups", 1)
    return ops.qlinear_conv(
        *n.of(x),
        *n.weights(many, deep, kernel),
        *(result or n.result("i8")),
        constant(RNG.integers(-99, 99, many).astype(np.int32)),
        **{**WINDOW, **window},
    )


def test_products():
    n, x = net(1, 8, 6, 6)
    assert lowered(conv(n, x))[0] == ["npu.conv"]
    n, x = net(1, 8, 6, 6)
    assert lowered(conv(n, x, groups=8))[0] == ["npu.depthwise"]
    n, x = net(1, 8, 6, 6)
    assert lowered(conv(n, x, groups=2))[0] == ["npu.conv"], "few channels: one dense product"
    n, x = net(2, 8, 6)
    made, _ = lowered(conv(n, x, kernel=(3,), stride=(2,), pad=(1, 0), dilation=(1,)))
    assert made == ["reshape", "npu.conv", "reshape"]


def test_wide_groups_are_split():
    n, x = net(1, 128, 16, 16)
    made, _ = lowered(conv(n, x, 128, groups=2, pad=(0, 0, 0, 0)))
    assert made.count("npu.conv") == made.count("npu.slice") == 2
    assert made[-1] == "npu.concat"


@pytest.mark.parametrize("result", ["i8", None])
def test_more_channels_than_the_unit_has(result):
    n, x = net(1, 4, 3, 3)
    chip = chips.load("rk3588")
    few = replace(chip.units["conv"], limits={"channels": 5})
    few = replace(chip, units={**chip.units, "conv": few})
    w, scale, zero = n.weights(12, 4, (1, 1))
    end = n.result(result) if result else ()
    y = ops.qlinear_conv(*n.of(x), w, scale, zero, *end, **{**WINDOW, "pad": (0,) * 4})
    made, _ = lowered(y, few)
    assert made == [*["npu.conv"] * 3, "npu.concat" if result else "concat"]


def test_functions_join_the_product_before_them():
    n, x = net(1, 4, 5, 5)
    y = ops.lookup(ops.clip(conv(n, x), lo=-20.0, hi=90.0), constant(codes(RNG, "u8", 256)))
    made, graph = lowered(y)
    assert made == ["npu.conv"]
    node = next(graph.nodes())
    assert (node.attrs["low"], node.attrs["high"], node.attrs["base"]) == (-20, 90, -128)
    n, x = net(1, 4, 5, 5)
    y = ops.lookup_wide(
        conv(n, x, result=n.result("i16")), constant(codes(RNG, "i8", 700)), base=-9
    )
    assert lowered(y)[0] == ["npu.conv"]


def test_a_result_with_two_readers_is_not_merged():
    n, x = net(1, 4, 5, 5)
    y = conv(n, x, 4)
    pair = ops.qlinear_add(*n.of(ops.clip(y, lo=0.0, hi=50.0)), *n.of(y), *n.result())
    assert lowered(pair)[0] == ["npu.conv", "npu.lut", "npu.eltwise"]


def test_linear_layers_of_flattened_maps():
    n, x = net(1, 3, 4, 4)
    made, graph = lowered(n.linear(x))
    assert made == ["npu.conv", "reshape"]
    assert next(graph.nodes()).inputs[1].shape == (5, 3, 4, 4)
    n, x = net(2, 3, 4, 4)
    assert lowered(n.linear(x))[1].outputs[0].shape == (2, 5, 1)


def linear(n, x, many, result="i8"):
    """A matrix product of rows."""
    w = constant(codes(RNG, "i8", x.shape[-1], many))
    of_w = constant(np.full(many, 0.01, np.float32)), constant(np.zeros(many, np.int8))
    return ops.qlinear_matmul(*n.of(x), w, *of_w, *n.result(result))


def test_rows_of_tokens_make_one_feature_map():
    n, x = net(1, 7, 12)
    made = ops.lookup(linear(n, x, 24), constant(codes(RNG, "i8", 256)))
    ops_, graph = lowered(linear(n, made, 5))
    assert [op for op in ops_ if op != "reshape"] == ["transpose", *["npu.conv"] * 2, "transpose"]
    assert next(n for n in graph.nodes() if n.op == "npu.conv").inputs[0].shape == (1, 12, 7, 1)
    n, x = net(7, 12)
    wide = ops.qlinear_conv(
        *n.of(ops.reshape(x, shape=(7, 12, 1))),
        *n.weights(4, 12, (1,)),
        *n.result("i16"),
        stride=(1,),
        pad=(0, 0),
        dilation=(1,),
        groups=1,
    )
    table = constant(codes(RNG, "u8", 500))
    made = ops.lookup_wide(ops.reshape(wide, shape=(1, 7, 4)), table, base=-200)
    assert lowered(made)[0].count("npu.lut") == 0


def test_patch_embeddings():
    n, x = net(1, 3, 32, 48)
    way = {"stride": (16, 16), "pad": (0,) * 4}
    made, graph = lowered(conv(n, x, 8, (16, 16), **way))
    assert made == ["reshape", "transpose", "reshape", "npu.conv"]
    assert graph.outputs[0].producer.inputs[1].shape == (8, 768, 1, 1)


@pytest.mark.parametrize("result", ["i8", None])
def test_products_of_two_activations(result):
    n, x = net(2, 3, 5, 4)
    turned = ops.transpose(x, perm=(0, 1, 3, 2))
    end = n.result(result) if result else ()
    made, graph = lowered(ops.qlinear_matmul(*n.of(x), *n.of(turned), *end))
    assert made.count("npu.matmul") == 1
    assert next(n for n in graph.nodes() if n.op == "npu.matmul").inputs[1].shape == (6, 4, 5, 1)
    words = refusal(ops.qlinear_matmul(*n.of(x), *n.of(ops.part(turned, 0, 1, axis=0))))
    assert "same batch dimensions" in words


def asymmetric(n, x, w, zero, **window):
    of_w = constant(np.float32(0.01)), constant(np.uint8(zero))
    return ops.qlinear_conv(*n.of(x), constant(w), *of_w, *n.result(), **{**WINDOW, **window})


def test_asymmetric_weights():
    n, x = net(1, 4, 4, 4)
    assert lowered(asymmetric(n, x, codes(RNG, "u8", 3, 4, 3, 3), 128))[0] == ["npu.conv"]
    made, _ = lowered(asymmetric(n, x, codes(RNG, "u8", 3, 4, 3, 3), 5))
    assert made == ["npu.concat", "npu.conv"], "nine bits are two times eight"
    made, _ = lowered(asymmetric(n, x, codes(RNG, "u8", 4, 1, 3, 3), 200, groups=4))
    assert made == ["npu.resize", "npu.depthwise"], "every column and every tap twice"
    made, _ = lowered(
        asymmetric(n, x, codes(RNG, "u8", 4, 1, 2, 2), 200, groups=4, dilation=(2, 2))
    )
    assert made == ["npu.conv", "npu.conv"]
    words = refusal(asymmetric(n, x, np.full((3, 4, 3, 3), 255, np.uint8), 0))
    assert "symmetric" in words


def test_means_of_large_maps():
    n, x = net(1, 2, 9, 9)
    y = ops.qlinear_mean(*n.of(x), *n.result(), axes=(2, 3), keepdims=False)
    assert lowered(y)[0] == ["npu.pool", "reshape"]
    chip = chips.load("rk3588")
    pool = replace(chip.units["pool"], limits={"kernel": 8})
    n, x = net(1, 2, 9, 9)
    y = ops.qlinear_mean(*n.of(x), *n.result(), axes=(2, 3), keepdims=True)
    small = replace(chip, units={**chip.units, "pool": pool})
    assert lowered(y, small)[0] == ["npu.depthwise"], "sums of ones are means, too"


def test_moves():
    _, x = net(1, 6, 4, 4, dtype="u8")
    assert lowered(ops.channel_shuffle(x, groups=3))[0] == ["npu.conv"]
    assert lowered(ops.space_to_depth(x, blocksize=2))[0] == ["npu.conv"]
    pad = {"before": (0, 0, 1, 2), "after": (0, 0, 0, 3), "value": 77.0}
    assert lowered(ops.pad(x, **pad))[0] == ["npu.depthwise"]
    both = ops.concat(x, ops.part(x, 1, 3, axis=1), axis=1)
    assert lowered(both)[0] == ["npu.slice", "npu.concat"]
    assert lowered(ops.part(x, 1, 6, axis=1, step=2))[0] == ["npu.conv"]
    half = {"axes": (2, 3), "shape": (8, 8), "scales": (2.0, 2.0)}
    assert lowered(ops.resize(x, **half))[0] == ["npu.resize"]


def test_pools_of_one_axis():
    n, x = net(2, 8, 12)
    window = {"kernel": (4,), "stride": (2,), "pad": (1, 1), "dilation": (1,)}
    around = ["reshape", "npu.pool", "reshape"]
    assert lowered(ops.max_pool(x, **window))[0] == around
    assert lowered(ops.qlinear_avg_pool(*n.of(x), *n.result(), **window))[0] == around


def test_heads_of_a_map_are_slices_of_its_channels():
    for wide, made in (
        (64, ["npu.conv", "npu.slice", "npu.slice", "npu.concat"]),
        (8, ["npu.conv"] * 2),
    ):
        n, x = net(1, 8, 4, 5)
        heads = ops.reshape(conv(n, x, wide), shape=(1, 2, wide // 2, 20))
        value = ops.part(heads, wide // 4, wide // 2, axis=2)
        assert lowered(ops.reshape(value, shape=(1, wide // 2, 4, 5)))[0] == made
    n, x = net(1, 8, 4, 5)
    pixels = ops.part(ops.reshape(conv(n, x), shape=(1, 8, 20)), 0, 7, axis=2)
    assert "npu.slice" not in lowered(pixels)[0]


def test_transposed_convolutions_and_crops_are_copies():
    _, x = net(1, 12, 4, 4)
    for mode, ops_of in (("DCR", []), ("CRD", ["npu.conv"])):
        y = ops.depth_to_space(x, blocksize=2, mode=mode)
        assert lowered(y)[0] == [*ops_of, "npu.depth_to_space"]
        assert lowered(ops.part(y, 1, 7, axis=3))[0] == [*ops_of, "npu.depth_to_space"]
    assert lowered(ops.part(x, 1, 3, axis=2))[0] == ["npu.depth_to_space"]


@pytest.mark.parametrize("act", [ops.relu, lambda v: ops.clip(v, lo=-0.5, hi=1.0)])
def test_clamps_of_float_results_join_the_product(act):
    n, x = net(1, 8, 6, 6)
    w, scale, zero = n.weights(8, 8, (3, 3))
    y = ops.qlinear_conv(*n.of(x), w, scale, zero, **WINDOW)
    assert lowered(act(y))[0] == ["npu.conv"]
    flat = ops.reshape(ops.qlinear_conv(*n.of(x), w, scale, zero, **WINDOW), shape=(1, 288))
    assert lowered(act(flat))[0] == ["npu.conv", "reshape"]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda n, x: conv(n, x, stride=(9, 9)), "stride is 9; conv does at most 7"),
        (lambda n, x: ops.resize(x, axes=(2,), shape=(6,), scales=(1.5,)), "equally often"),
        (
            lambda n, x: ops.resize(x, axes=(2,), shape=(8,), scales=(2.0,), mode="linear"),
            "nearest",
        ),
        (lambda n, x: ops.concat(x, x, axis=2), "joins axis 2"),
        (lambda n, x: ops.part(x, 0, 4, axis=3, step=2), "slices axes [3]"),
        (lambda n, x: ops.pad(x, before=(0,) * 4, after=(0, 0, 1, 1), mode="edge"), "'edge'"),
        (lambda n, x: ops.lookup(x, constant(np.zeros(256, np.float32))), "a table of f32"),
        (lambda n, x: ops.qlinear_mean(*n.of(x), *n.result(), axes=(1,)), "axes (1,)"),
        (
            lambda n, x: ops.max_pool(
                x, kernel=(2, 2), stride=(1, 1), pad=(0,) * 4, dilation=(2, 2)
            ),
            "no dilation",
        ),
        (lambda n, x: ops.relu(ops.dequantize_linear(*n.of(x))), "computes in f32"),
        (lambda n, x: ops.transpose(x, perm=(0, 2, 3, 1)), "no unit of rk3588 does transpose"),
    ],
)
def test_refusals_say_why(build, words):
    n, x = net(1, 4, 4, 4)
    assert words in refusal(build(n, x))


def test_the_reason_of_recurrent_layers_is_not_their_type():
    w = constant(np.zeros((1, 16, 4), np.float32))
    y = ops.lstm(Value(Type("f32", (3, 1, 4)), "x"), w, w, hidden_size=4)[0]
    assert refusal(y) == (
        "no unit of rk3588 keeps a state from step to step: "
        "unroll its steps into products and functions"
    )


def test_a_chip_without_a_unit():
    chip = chips.load("rk3588")
    bare = replace(chip, name="bare", units={"conv": chip.units["conv"]})
    n, x = net(1, 4, 4, 4)
    assert lowered(ops.channel_shuffle(x, groups=2), bare)[0] == ["npu.conv"]
    assert lowered(conv(n, x, 4, groups=4), bare)[0] == ["npu.conv"], "with zeros between"
    assert (
        refusal(ops.max_pool(x, kernel=(2, 2), stride=(1, 1), pad=(0,) * 4, dilation=(1, 1)), bare)
        == "bare has no unit for pool"
    )
    wide = conv(n, x, result=n.result("i16"))
    assert "no lookup tables" in refusal(
        ops.lookup_wide(wide, constant(codes(RNG, "i8", 9)), base=0), bare
    )


def test_the_first_kpu_knows_two_kernels():
    n, x = net(1, 4, 8, 8)
    assert lowered(conv(n, x), "k210")[0] == ["npu.conv"]
    assert "kernel is 2" in refusal(conv(n, x, kernel=(2, 2)), "k210")
    assert "padding 1 on all sides" in refusal(conv(n, x, pad=(0, 0, 0, 0)), "k210")
