"""Lowering to the CPU keeps results, leaves no unlowered op, and fuses epilogues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.check import compare

import intaglio
from intaglio import dtypes, ops
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.rewrite import rewrite
from intaglio.targets import cpu
from intaglio.targets.cpu import lower, winograd, winograd_choice
from intaglio.targets.cpu.winograd import winograd_weights

rng = np.random.default_rng(4)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def lowered(build: Callable[..., Value], *shapes: tuple[int, ...], dtype: str = "f32") -> list[str]:
    """Build a graph, lower and fuse it, compare both; returns the ops that are left."""
    inputs = [Value(Type(dtype, s), f"in{i}") for i, s in enumerate(shapes)]
    graph = Graph(inputs, [build(*inputs)], ["out"])
    arrays = {v.name: floats(*v.shape, dtype=dtypes.numpy_of(v.dtype)) for v in inputs}
    want = interpret(graph, arrays)["out"]
    target = cpu.target()
    rewrite(graph, target.lower)
    rewrite(graph, target.fuse)
    compare(interpret(graph, arrays)["out"], want, "lowered", 1e-2 if dtype != "f32" else 1e-4)
    return [n.op for n in graph.nodes()]


def no_heavy(left: list[str]) -> bool:
    return not set(left) & {*lower.HEAVY}


WINDOW = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1)}


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_conv(groups: int, dtype: str) -> None:
    def build(x: Value, w: Value, b: Value) -> Value:
        return ops.relu(ops.conv(x, w, b, groups=groups, **WINDOW))

    left = lowered(build, (2, 8, 5, 6), (8, 8 // groups, 3, 3), (8,), dtype=dtype)
    assert no_heavy(left)
    assert ("cpu.depthwise" if groups == 8 and dtype != "f64" else "cpu.conv") in left


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize("shape", [(16, 3, 1, 1), (38, 5, 3, 2), (2, 1, 4), (64, 7, 1), (4, 0, 2)])
def test_known_weights_are_packed_like_those_of_an_input(shape: tuple[int, ...], dtype: str):
    w = np.arange(np.prod(shape)).reshape(shape).astype(dtypes.numpy_of(dtype))
    for groups in (1, 2):
        known, given = constant(w), Value(Type(dtype, shape), "w")
        made = lower._packed_window(known, groups).data
        nodes = Graph([given], [lower._packed_window(given, groups)], ["packed"])
        np.testing.assert_array_equal(made, interpret(nodes, {"w": w})["packed"])
        by_tap = w.reshape(groups, shape[0] // groups, shape[1], -1) if w.size else None
        for g, m, c, tap in np.ndindex(by_tap.shape) if by_tap is not None else ():
            assert made[g, m // 16, tap * shape[1] + c, m % 16] == by_tap[g, m, c, tap]


def test_depthwise_with_a_multiplier() -> None:
    build = lambda x, w: ops.conv(x, w, groups=4, **WINDOW)  # noqa: E731
    left = lowered(build, (2, 4, 5, 6), (12, 1, 3, 3))
    assert "cpu.depthwise" in left


def test_conv_in_one_and_three_axes() -> None:
    one = {"stride": (2,), "pad": (1, 0), "dilation": (1,)}
    assert no_heavy(lowered(lambda x, w: ops.conv(x, w, **one), (2, 3, 9), (4, 3, 3)))
    three = {"stride": (1,) * 3, "pad": (0,) * 6, "dilation": (1,) * 3}
    shapes = ((1, 3, 4, 5, 6), (4, 3, 2, 3, 2))
    assert no_heavy(lowered(lambda x, w: ops.conv(x, w, **three), *shapes))


def test_conv_transpose() -> None:
    window = {**WINDOW, "stride": (2, 2), "output_pad": (1, 0), "groups": 2}
    left = lowered(
        lambda x, w, b: ops.conv_transpose(x, w, b, **window), (2, 4, 5, 6), (4, 3, 3, 3), (6,)
    )
    assert no_heavy(left)
    assert "cpu.conv_transpose" in left


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_pools(dtype: str) -> None:
    for pool in (ops.max_pool, ops.avg_pool, ops.lp_pool):
        left = lowered(lambda x, p=pool: p(x, kernel=(3, 3), **WINDOW), (2, 3, 6, 7), dtype=dtype)
        assert "cpu.pool" in left


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
def test_matmul(shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    left = lowered(ops.matmul, *shapes, dtype=dtype)
    assert ("matmul" in left) == (dtype == "f64")


def test_packing_transposes_the_operand() -> None:
    left = lowered(lambda a, b: ops.matmul(a, ops.transpose(b, perm=(1, 0))), (3, 4), (5, 4))
    assert "transpose" not in left
    build = lambda a, b: ops.matmul(a, ops.transpose(b, perm=(0, 2, 3, 1)))  # noqa: E731
    assert lowered(build, (2, 3, 6, 4), (2, 5, 3, 4)).count("transpose") == 1


@pytest.mark.parametrize("c", [None, (7,), (1, 7), (1,), (), (5, 7), (5, 1)])
@pytest.mark.parametrize("trans", [(False, False), (True, True)])
def test_gemm(c: tuple[int, ...] | None, trans: tuple[bool, bool]) -> None:
    a, b = (6, 5) if trans[0] else (5, 6), (7, 6) if trans[1] else (6, 7)

    def build(*values: Value) -> Value:
        return ops.gemm(*values, alpha=0.5, beta=2.0, trans_a=trans[0], trans_b=trans[1])

    left = lowered(build, a, b, *([] if c is None else [c]))
    assert no_heavy(left)
    assert ("add" in left) == (c == (5, 1))


def chain(*steps: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    def build(a: Value, b: Value, bias: Value, residual: Value) -> Value:
        y = ops.matmul(a, b)
        for step in steps:
            y = step(y, bias if step is add_bias else residual)
        return y

    return build


def add_bias(y: Value, bias: Value) -> Value:
    return ops.add(y, bias)


def add_residual(y: Value, residual: Value) -> Value:
    return ops.add(residual, y)


def silu(y: Value, _: Value) -> Value:
    return ops.swish(y)


def gelu(y: Value, _: Value) -> Value:
    return ops.gelu(y, approximate="tanh")


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ((add_bias,), 0),
        ((add_bias, add_bias), 1),  # the two vectors are added once
        ((add_bias, silu), 0),
        ((gelu,), 0),
        ((add_residual, silu), 0),
        ((add_bias, add_residual, silu), 0),
        ((silu, add_residual), 0),
        ((silu, add_bias), 1),
        ((silu, silu), 1),
        ((silu, add_residual, silu), 1),
        ((add_residual, add_residual), 1),
    ],
)
def test_epilogues(steps: tuple[Any, ...], left: int) -> None:
    got = lowered(chain(*steps), (3, 4), (4, 5), (5,), (3, 5))
    assert len([n for n in got if not n.startswith("cpu.")]) == left, got


def test_columns_known_only_at_run_time_stay_neutral() -> None:
    a, b = Value(Type("f32", (3, 4)), "a"), Value(Type("f32", (4, 9), dynamic=(1,)), "b")
    graph = Graph([a, b], [ops.matmul(a, b)], ["out"])
    rewrite(graph, lower.LOWER)
    assert [n.op for n in graph.nodes()] == ["matmul"]


@pytest.mark.parametrize("rank", [1, 2])
def test_rows_known_only_at_run_time(rank: int) -> None:
    a = Value(Type("f32", (9, 4), dynamic=(0,)), "a")
    b = Value(Type("f32", (4, 5)[:rank]), "b")
    graph = Graph([a, b], [ops.matmul(a, b)], ["out"])
    rewrite(graph, lower.LOWER)
    assert graph.outputs[0].type.dynamic == (0,)
    assert "matmul" not in {n.op for n in graph.nodes()}


def compiled(level: int, image: tuple[int, ...], channels: int, dtype: str = "f32") -> list[str]:
    """The ops of one 3x3 convolution after compiling at this level, and the numbers compared."""
    x = Value(Type(dtype, image), "x")
    w = floats(channels, image[1], 3, 3) / np.sqrt(9 * image[1])
    kind = dtypes.numpy_of(dtype)
    weights = [constant(w.astype(kind)), constant(floats(channels, dtype=kind))]
    graph = Graph([x], [ops.relu(ops.conv(x, *weights, **WINDOW))], ["y"])
    inputs = {"x": floats(*image, dtype=kind)}
    want = interpret(graph, inputs)["y"]
    made = intaglio.compile(graph, level=level)
    with intaglio.open(made.bytes) as session:
        compare(session.run(inputs)["y"], want, "compiled", 1e-2 if dtype != "f32" else 1e-4)
    return [s.op for s in made.plan.steps]


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_winograd_needs_level_2(level: int) -> None:
    left = compiled(level, (1, 32, 24, 24), 32)
    assert ("cpu.winograd" in left) == (level >= 2)
    assert ("cpu.conv" in left) == (level < 2)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_winograd_of_half_precision(dtype: str) -> None:
    assert "cpu.winograd" in compiled(3, (1, 32, 24, 24), 32, dtype)


def test_winograd_epilogue() -> None:
    def build(x: Value, bias: Value, y: Value) -> Value:
        w = winograd_weights(constant(floats(20, 8, 3, 3)), 4)
        made = winograd.winograd(x, w, tile=4, channels=20, pad=(1, 1, 1, 1))
        return ops.relu(ops.add(ops.add(made, bias), y))

    left = lowered(build, (1, 9, 9, 8), (20,), (1, 9, 9, 20))
    assert not {"add", "relu"} & set(left)
    assert left[-1] == "cpu.winograd"


@pytest.mark.parametrize(
    ("groups", "channels", "shuffled"),
    [(1, 16, False), (1, 4, False), (1, 3, True), (1, 1, True), (8, 16, True), (8, 32, True)],
)
def test_conv_transpose_as_depth_to_space_for_few_channels(
    groups: int, channels: int, shuffled: bool
) -> None:
    x = Value(Type("f32", (1, 8, 6, 6)), "x")
    w = constant(floats(8, channels // groups, 2, 2))
    y = ops.conv_transpose(
        x, w, None, stride=(2, 2), pad=(0,) * 4, output_pad=(0, 0), dilation=(1, 1), groups=groups
    )
    left = [s.op for s in intaglio.compile(Graph([x], [y], ["y"])).plan.steps]
    assert ("cpu.conv_transpose" not in left) == shuffled


@pytest.mark.parametrize(
    ("image", "channels", "tile"),
    [
        ((1, 64, 56, 56), 64, 6),
        ((1, 256, 14, 14), 256, 4),
        ((1, 512, 7, 7), 512, 0),
        ((1, 3, 224, 224), 16, 0),
        ((1, 64, 5, 5), 64, 0),
        ((1, 4, 4, 4), 4, 0),
        ((64, 512, 7, 7), 512, 4),
    ],
)
def test_winograd_tile_choice(image: tuple[int, ...], channels: int, tile: int) -> None:
    assert winograd_choice.choose(image, channels) == tile
