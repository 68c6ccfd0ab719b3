"""Float layers on f16 units: all on the NPU, close to f32, with equal bits in C and numpy."""

from __future__ import annotations

import numpy as np
import pytest

import intaglio
from intaglio import ops, passes, targets
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant

RNG = np.random.default_rng(5)
WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}


def image(*shape: int, dtype: str = "f32") -> Value:
    return Value(Type(dtype, shape), "x")


def conv(x: Value, many: int, kernel: int = 3, bias: bool = True, **window: object) -> Value:
    groups = int(str(window.get("groups", 1)))
    shape = (many, x.shape[1] // groups, kernel, kernel)
    w = RNG.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape)
    kind = np.float16 if x.dtype == "f16" else np.float32
    b = constant(RNG.normal(0, 1, many).astype(kind)) if bias else None
    pad = {"pad": (kernel // 2,) * 4}
    return ops.conv(x, constant(w.astype(kind)), b, **{**WINDOW, **pad, **window})


def offloaded(graph: Graph, chip: str = "rk3588", precision: str = "f16") -> Graph:
    graph = graph.copy()
    target = targets.find(chip, precision=precision)
    passes.run(graph, [*passes.neutral(target.cost), *passes.offload(target)])
    return graph


def check(y: Value, chip: str = "rk3588", precision: str = "f16", near: float = 0.02) -> list[str]:
    """The ops that stay on the CPU; checks the package against the partitioned graph."""
    x = next(v for v in Graph([], [y]).values() if v.producer is None and v.data is None)
    graph = Graph([x], [y], ["y"])
    feed = {"x": RNG.normal(0, 1, x.shape).astype(np.float16 if x.dtype == "f16" else np.float32)}
    split = offloaded(graph, chip, precision)
    want, exact = intaglio.interpret(split, feed)["y"], intaglio.interpret(graph, feed)["y"]
    np.testing.assert_allclose(want.astype(np.float32), exact.astype(np.float32), near, near)
    made = intaglio.compile(graph, target=chip, precision=precision, npu_code="own")
    with intaglio.open(made) as session:
        got = session.run(feed)["y"]
    assert got.dtype == exact.dtype
    left = [n.op for n in split.nodes() if n.op not in ("npu.program", "reshape", "cast")]
    if set(left) <= {"transpose"}:  # the CPU sums in another order than numpy
        np.testing.assert_array_equal(got, want)
    return left


@pytest.mark.parametrize("chip", ["rk3588", "rk3566", "bm1684x"])
def test_a_float_network(chip):
    x = image(1, 3, 64, 64)
    y = ops.relu(conv(x, 32, stride=(2, 2)))
    y = ops.swish(conv(y, 32, groups=32, bias=False))
    z = conv(y, 32, 1)
    y = ops.clip(ops.add(z, y), lo=0.0, hi=6.0)
    y = ops.concat(
        ops.max_pool(y, kernel=(3, 3), stride=(1, 1), pad=(1,) * 4, dilation=(1, 1)),
        ops.part(y, 8, 24, axis=1),
        axis=1,
    )
    gate = ops.sigmoid(conv(ops.reduce_mean(y, axes=(2, 3), keepdims=True), 48, 1))
    y = conv(ops.mul(y, gate), 64, stride=(2, 2))
    y = ops.avg_pool(
        y, kernel=(2, 2), stride=(2, 2), pad=(0,) * 4, dilation=(1, 1), count_include_pad=False
    )
    flat = ops.reshape(ops.relu(y), shape=(1, 64 * 8 * 8))
    w = RNG.normal(0, 1 / 64, (64 * 8 * 8, 10)).astype(np.float32)
    y = ops.add(ops.matmul(flat, constant(w)), constant(RNG.normal(0, 1, 10).astype(np.float32)))
    assert check(y, chip) == []


def test_functions_join_the_product_before_them():
    x = image(1, 16, 48, 48)
    y = ops.hardswish(ops.add(conv(x, 16), x))
    graph = offloaded(Graph([x], [y], ["y"]))
    body = next(n for n in graph.nodes() if n.op == "npu.program").attrs["body"]
    (node,) = body.nodes()
    assert node.op == "npu.conv"
    assert node.inputs[4] is not None
    assert node.inputs[5].shape == (1985,)
    assert check(y) == []


def test_rows_of_tokens():
    x = image(1, 64, 96)
    w = [constant(RNG.normal(0, 0.03, (96, 96)).astype(np.float32)) for _ in range(3)]
    q, k, v = (ops.matmul(x, m) for m in w)
    y = ops.matmul(ops.matmul(q, ops.transpose(ops.gelu(k), perm=(0, 2, 1))), v)
    assert set(check(y, near=0.05)) <= {"transpose"}


def test_constants_per_channel():
    x = image(1, 24, 64, 64)
    y = conv(x, 24)
    for op in (ops.mul, ops.add, ops.sub):
        y = op(y, constant(RNG.normal(0, 1, (1, 24, 1, 1)).astype(np.float32)))
        y = ops.leaky_relu(y, alpha=0.1)
    y = ops.sub(constant(RNG.normal(0, 1, (24, 1, 1)).astype(np.float32)), y)
    assert check(conv(y, 8)) == []


def test_models_of_f16_need_no_option():
    x = image(1, 16, 48, 48, dtype="f16")
    y = ops.relu(conv(x, 32))
    up = ops.resize(
        y,
        axes=(2, 3),
        shape=(96, 96),
        scales=(2.0, 2.0),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    assert check(conv(up, 16), precision="f32") == []


def test_layers_that_are_rounded_to_f16():
    x = image(1, 16, 64, 64)
    w = RNG.normal(0, 0.1, (32, 16, 3, 3)).astype(np.float16)
    small = ops.cast(ops.cast(x, dtype="f16"), dtype="f32")
    y = ops.conv(small, constant(w.astype(np.float32)), None, **WINDOW)
    assert check(y, precision="f32") == []
    fine = ops.conv(small, constant(w.astype(np.float32) * 1.0001), None, **WINDOW)
    assert check(fine, precision="f32", near=1e-4) == ["conv"]


def test_ops_that_stay_on_the_cpu():
    x = image(1, 16, 64, 64)
    y = ops.exp(ops.clip(conv(x, 16), lo=-2.0, hi=2.0))
    graph = Graph([x], [y], ["y"])
    made = intaglio.compiler.trace(graph, target="rk3588", precision="f16")
    assert made.partition is not None
    words = {r.op: r.why for r in made.partition.on_cpu}
    assert "misses exp by 16 units of f16" in words["exp"]


def test_chips_without_f16_say_so():
    with pytest.raises(BadInput, match="k230 does not multiply f16; its types are int8, int16"):
        targets.find("k230", precision="f16")


def test_f32_ops_are_advised_to_use_f16():
    x = image(1, 16, 64, 64)
    made = intaglio.compiler.trace(Graph([x], [conv(x, 16)], ["y"]), target="rk3588")
    assert made.partition is not None
    assert "compile it in f16" in str(made.partition)


def test_a_window_that_no_core_holds_stays_on_the_cpu():
    x = image(1, 16, 200, 200)
    y = ops.reduce_mean(conv(x, 16, 1), axes=(2, 3), keepdims=True)
    made = intaglio.compiler.trace(Graph([x], [y], ["y"]), target="rk3588", precision="f16")
    assert made.partition is not None
    words = {r.op: r.why for r in made.partition.on_cpu}
    assert "a core of rk3588 has 393216" in words["reduce_mean"]
    assert any(m.kind == "npu" for m in made.partition.modules)
