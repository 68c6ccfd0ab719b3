"""Grouped convolution: every kernel against numpy, and which convolutions are lowered to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import native, ops
from intaglio.compiler import trace
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.targets.cpu.grouped_conv import grouped_conv, pack_groups

rng = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


CASES: list[dict[str, Any]] = [  # deep: input channels of a group; channels: outputs of all groups
    {"image": (1, 9, 14, 64), "deep": 4, "channels": 64},
    {"image": (2, 5, 11, 32), "deep": 8, "channels": 32},
    {"image": (1, 8, 10, 32), "deep": 2, "channels": 32, "stride": (2, 2)},
    {"image": (1, 7, 9, 16), "deep": 1, "channels": 16},
    {"image": (1, 7, 7, 32), "deep": 16, "channels": 32},
    {"image": (1, 6, 5, 64), "deep": 32, "channels": 64, "stride": (1, 2)},
    {"image": (1, 5, 16, 6), "deep": 3, "channels": 64, "lines": 5, "pad": (2, 1, 2, 1)},
    {"image": (1, 20, 3, 32), "deep": 8, "channels": 32, "stride": (3, 1), "pad": (0, 2, 1, 0)},
    {"image": (3, 1, 1, 16), "deep": 4, "channels": 16, "pad": (4, 3, 2, 3)},
    {"image": (1, 4, 30, 16), "deep": 8, "channels": 16, "lines": 1, "stride": (1, 2)},
    {"image": (0, 8, 8, 16), "deep": 4, "channels": 16},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_grouped_conv(case: dict[str, Any]) -> None:
    channels, lines = case["channels"], case.get("lines", 3)
    attrs = {
        "stride": case.get("stride", (1, 1)),
        "pad": case.get("pad", (lines // 2, 1, lines // 2, 1)),
        "tolerance": 1e-4,
    }
    x, w = floats(*case["image"]), pack_groups(floats(channels, case["deep"], lines, 3))
    bias = floats(channels)
    (y,) = check("cpu.grouped_conv", x, w, **attrs)
    residual = floats(*y.shape)
    check("cpu.grouped_conv", x, w, bias, residual, **attrs)
    check("cpu.grouped_conv", x, w, bias, None, act="clip", act_args=(0.0, 6.0), **attrs)
    check("cpu.grouped_conv", x, w, bias, residual, act="relu", add_last=True, **attrs)
    check("cpu.grouped_conv", x, w, bias, residual, act="hardswish", add_last=True, **attrs)
    check("cpu.grouped_conv", x, w, None, residual, act="hardswish", **attrs)
    check("cpu.grouped_conv", x, w, bias, residual, -bias, act="prelu", **attrs)


WRONG: list[tuple[tuple[int, ...], dict[str, Any], str]] = [
    ((1, 3, 4, 3), {}, r"\[panels, lines"),
    ((1, 3, 4, 5, 16), {}, r"\[panels, lines"),
    ((1, 3, 5, 3, 16), {}, "input channels"),
    ((1, 3, 0, 3, 16), {}, "input channels"),
    ((2, 3, 4, 3, 16), {}, "as many input channels"),
    ((1, 3, 4, 3, 16), {"stride": (1, 3)}, "1 or 2"),
    ((1, 3, 4, 3, 16), {"pad": (0, -1, 0, 0)}, "negative"),
    ((1, 9, 4, 3, 16), {}, "does not fit"),
]


@pytest.mark.parametrize(("weights", "change", "words"), WRONG)
def test_refusals(weights: tuple[int, ...], change: dict[str, Any], words: str) -> None:
    attrs = {
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "act": "none",
        "act_args": (),
        "add_last": False,
    }
    x, good = floats(1, 5, 6, 8), floats(1, 3, 4, 3, 16)
    for kernel in (k for k in native.kernels() if k.op.name == "cpu.grouped_conv"):
        if kernel.needs & ~native.machine():
            continue
        with pytest.raises(RunError, match="as many input"):  # 2 groups of 4 -> 8 channels
            native.run_kernel(kernel, [x, good], attrs)
        native.run_kernel(kernel, [floats(1, 5, 6, 16), good], attrs)
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, [floats(1, 5, 6, 16), floats(*weights)], {**attrs, **change})


def test_the_op_refuses_weights_that_are_not_packed() -> None:
    x = constant(floats(1, 5, 6, 16))
    with pytest.raises(BadInput, match="not packed"):
        grouped_conv(x, constant(floats(1, 3, 5, 3, 16)), stride=(1, 1), pad=(0,) * 4)
    with pytest.raises(BadInput, match="do not fill"):
        grouped_conv(x, constant(floats(2, 3, 4, 3, 16)), stride=(1, 1), pad=(0,) * 4)
    with pytest.raises(BadInput, match="stride"):
        grouped_conv(x, constant(floats(1, 3, 4, 3, 16)), stride=(1, 3), pad=(0,) * 4)


LAYERS = [  # input channels, output channels, groups, kernel, stride; which op computes it
    (32, 32, 8, (3, 3), 1, "cpu.grouped_conv"),
    (32, 32, 4, (3, 3), 2, "cpu.grouped_conv"),
    (64, 64, 2, (3, 3), 1, "cpu.grouped_conv"),
    (64, 64, 2, (3, 3), 2, "cpu.conv"),  # two panels share their input
    (24, 24, 6, (3, 3), 1, "cpu.conv"),
    (32, 32, 8, (5, 5), 1, "cpu.conv"),
]


@pytest.mark.parametrize(("inputs", "outputs", "groups", "kernel", "stride", "op"), LAYERS)
def test_lowering(
    inputs: int, outputs: int, groups: int, kernel: tuple[int, int], stride: int, op: str
) -> None:
    x = Value(Type("f32", (1, inputs, 9, 10)), "x")
    w = constant(floats(outputs, inputs // groups, *kernel))
    y = ops.conv(
        x,
        w,
        constant(floats(outputs)),
        stride=(stride,) * 2,
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        groups=groups,
    )
    graph = Graph([x], [ops.relu(y)], ["y"])
    traced = trace(graph)
    assert op in [s.op for s in traced.plan.steps]
    values = floats(*x.shape)
    want = intaglio.interpret(graph, {"x": values})["y"]
    with intaglio.open(traced.package) as session:
        np.testing.assert_allclose(session.run({"x": values})["y"], want, rtol=1e-4, atol=1e-4)
