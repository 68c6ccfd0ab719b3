"""Placement: the nodes that compute in integers, and the tensors quantised for them."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio import ops, targets
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.placement.place import place
from intaglio.quant.prepare import name_tensors

SAME = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def image(channels: int = 8) -> Value:
    return Value(Type("f32", (1, channels, 8, 8)), "x")


def conv(x: Value, channels: int = 8, seed: int = 0) -> Value:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((channels, x.shape[1], 3, 3)).astype(np.float32)
    return ops.conv(x, constant(w), constant(np.ones(channels, np.float32)), **SAME)


def placed(x: Value, *outputs: Value, chip: targets.Target | None = None, **wanted: str):
    graph = Graph([x], list(outputs), [f"y{i}" for i in range(len(outputs))])
    for name, v in zip(graph.output_names, outputs, strict=True):
        v.name = name
    name_tensors(graph)
    return place(graph, wanted, chip)


def quantized(made) -> set[str]:
    return {v.producer.op if v.producer else v.name for v in made.tensors}


def test_a_clamp_is_fused_into_the_product_before_it():
    x = image()
    y = conv(ops.relu(conv(x)))
    made = placed(x, y)
    assert sorted(n.op for n in made.nodes) == ["conv", "conv", "relu"]
    assert quantized(made) == {"x", "relu"}


def test_a_chain_of_functions_is_rounded_once_however_long_it_is():
    """One table holds hardswish, multiplication and addition, as in PP-LCNet."""
    x = image()
    half, one = (constant(np.float32(c)) for c in (0.5, 1.0))
    y = conv(ops.tanh(ops.add(ops.mul(ops.hardswish(conv(x)), half), one)))
    made = placed(x, y)
    assert len(made.nodes) == 6
    assert quantized(made) == {"x", "conv", "tanh"}


def test_functions_after_a_fused_clamp_start_from_its_bytes():
    x = image()
    made = placed(x, conv(ops.tanh(ops.hardswish(ops.relu(conv(x))))))
    assert quantized(made) == {"x", "relu", "tanh"}


def test_the_last_product_gives_floats():
    x = image()
    y = ops.sigmoid(conv(ops.relu(conv(x))))
    made = placed(x, y)
    assert "sigmoid" not in [n.op for n in made.nodes]
    assert quantized(made) == {"x", "relu"}


def test_a_function_between_products_is_a_table_from_byte_to_byte():
    x = image()
    made = placed(x, conv(ops.swish(conv(x))))
    assert quantized(made) == {"x", "conv", "swish"}


def test_functions_in_a_row_are_one_table():
    x = image()
    made = placed(x, conv(ops.tanh(ops.sigmoid(conv(x)))))
    assert quantized(made) == {"x", "conv", "tanh"}


def test_a_residual_is_added_before_rounding():
    x = image()
    a = ops.relu(conv(x))
    made = placed(x, conv(ops.relu(ops.add(conv(a), a))))
    assert [v.producer.op for v in made.tensors if v.producer] == ["relu", "relu"]


def test_one_of_two_added_products_is_rounded():
    x = image()
    a = ops.relu(conv(x))
    made = placed(x, conv(ops.add(conv(a, seed=1), conv(a, seed=2))))
    assert [v.producer.op for v in made.tensors if v.producer] == ["relu", "conv", "add"]


def test_an_add_with_a_float_operand_stays_in_floats():
    x = image()
    a = ops.softmax(conv(x), axis=1)
    made = placed(x, conv(ops.add(conv(x), a)))
    assert "add" not in [n.op for n in made.nodes]
    assert quantized(made) == {"x", "add"}


def test_a_small_product_between_floats_stays_in_floats():
    x = image(256)
    bins = constant(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    spread = ops.softmax(ops.reshape(conv(x, 64), shape=(1, 16, 4, 64)), axis=1)
    y = ops.conv(spread, bins, None, stride=(1, 1), pad=(0,) * 4, dilation=(1, 1), groups=1)
    made = placed(x, y)
    assert [n.op for n in made.nodes] == ["conv"]
    assert list(made.floats.values()) == ["it is small, and its neighbours are in floats"]


def test_a_layer_can_be_asked_to_stay_in_floats():
    x = image()
    a = conv(x)
    a.name = "first"
    made = placed(x, conv(ops.relu(a)), first="f32")
    assert [n.op for n in made.nodes] == ["conv"]
    assert list(made.floats.values()) == ["f32 was asked for"]


def test_the_bias_of_a_linear_layer_is_fused_into_it():
    x = Value(Type("f32", (1, 4, 8)), "x")
    w = constant(np.ones((8, 8), np.float32))
    a = ops.add(ops.matmul(x, w), constant(np.ones(8, np.float32)))
    made = placed(x, ops.matmul(ops.gelu(a), w))
    assert quantized(made) == {"x", "add", "gelu"}


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_f16_and_f64_are_not_quantised(dtype):
    x = Value(Type(dtype, (1, 8, 8, 8)), "x")
    w = constant(np.ones((8, 8, 3, 3)), dtype=dtype)
    assert not placed(x, ops.conv(x, w, None, **SAME)).nodes


def test_an_npu_computes_the_functions_and_sums_at_the_end():
    chip = targets.find("rk3588")
    x = image()
    first = conv(x)
    made = placed(x, ops.sigmoid(first), chip=chip)
    assert quantized(made) == {"x", "conv", "sigmoid"}
    assert quantized(placed(x, ops.sigmoid(first))) == {"x"}, "a CPU computes them in floats"
    last = ops.relu(ops.add(conv(conv(x), seed=1), conv(x)))
    assert quantized(placed(x, last, chip=chip)) == {"x", "conv", "relu"}
    turned = ops.transpose(ops.sigmoid(conv(x)), perm=(0, 2, 3, 1))
    assert quantized(placed(x, turned, chip=chip)) == {"x", "conv", "sigmoid", "transpose"}


def test_what_other_ops_read_at_the_end_stays_in_floats():
    chip = targets.find("rk3588")
    x = image()
    assert quantized(placed(x, ops.relu(conv(x)), chip=chip)) == {"x"}, "sums of floats are clamped"
    assert quantized(placed(x, ops.softmax(ops.sigmoid(conv(x)), axis=1), chip=chip)) == {"x"}
    assert quantized(placed(x, ops.sigmoid(conv(x)), chip=chip, y0="f32")) == {"x"}


def test_depthwise_transposed_convolutions_are_quantised_for_npus():
    x = image()
    w = constant(np.ones((8, 1, 4, 4), np.float32))
    window = {**SAME, "stride": (2, 2), "output_pad": (0, 0), "groups": 8}
    y = conv(ops.conv_transpose(conv(x), w, None, **window))
    made = placed(x, y, chip=targets.find("bm1684x"))
    assert sorted(n.op for n in made.nodes) == ["conv", "conv", "conv_transpose"]
    assert "conv_transpose" not in {n.op for n in placed(x, y).nodes}, "a CPU computes it in floats"


def test_a_function_of_a_product_is_an_ending_though_a_concat_joins_it():
    """As of heads that join boxes and scores: the concat keeps the scales of its parts."""
    x, chip = image(), targets.find("rk3588")
    boxes, scores = conv(x, seed=1), ops.sigmoid(conv(x, seed=2))
    y = ops.concat(*[ops.reshape(v, shape=(1, 8, 64)) for v in (boxes, scores)], axis=1)
    made = placed(x, y, chip=chip)
    assert quantized(made) == {"x", "conv", "sigmoid"}
    assert "concat" not in {n.op for n in made.nodes}
    parts = [
        ops.slice_(conv(x), start=(0, k, 0, 0), stop=(1, k + 4, 8, 8), step=(1,) * 4)
        for k in (0, 4)
    ]
    y = ops.concat(parts[0], ops.sigmoid(parts[1]), axis=1)
    assert quantized(placed(x, y, chip=chip)) == {"x"}, "the slices would share a scale"
