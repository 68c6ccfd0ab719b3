"""Export with onnxruntime's contrib operators: each rule in numpy, onnxruntime and re-imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from tests.check import compare
from tests.export.test_onnx_roundtrip import onnxruntime_runs
from tests.passes.cases.build import conv, f32, graph_of, num, scalar

import intaglio
from intaglio import dtypes, ops
from intaglio.export.onnx.contrib import ACTIVATION_OPS, GEMM_ACTIVATIONS
from intaglio.export.onnx.export_rules import CONTRIB
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret
from intaglio.ir import Type, Value, constant
from intaglio.ops.registry import REGISTRY
from intaglio.passes.legalize import legalize

IMAGE, ROWS = f32(1, 3, 6, 6), f32(2, 5, 8)
ATTRS: dict[str, dict[str, float]] = {
    "leaky_relu": {"alpha": 0.2},
    "hard_sigmoid": {"alpha": 0.3, "beta": 0.4},
    "clip": {"lo": 0.0, "hi": 6.0},
}


def act(name: str, v: Value) -> Value:
    made: Value = REGISTRY[name](v, **ATTRS.get(name, {}))
    return made


def skip(x: Value, y: Value, bias: bool = False) -> Value:
    total = ops.add(x, y)
    made: Value = ops.add(total, num(8)) if bias else total
    return made


def norm(v: Value, shift: bool = True) -> Value:
    made: Value = ops.layer_norm(v, num(8), num(8) if shift else None, axis=-1, epsilon=1e-5)
    return made


def real(q: Value, scale: float, zero: int) -> Value:
    made: Value = ops.dequantize_linear(q, scalar(scale), constant(zero, dtype=q.dtype), axis=0)
    return made


def stored(v: Value, scale: float = 0.25, zero: int = 3) -> Value:
    made: Value = ops.quantize_linear(v, scalar(scale), constant(zero, dtype="u8"), dtype="u8")
    return made


def both_ways(x: Value, y: Value) -> list[Value]:
    """The sum is normalised and also goes on, as in a transformer."""
    total = skip(x, y)
    return [norm(total), ops.relu(total)]


T = (0, 2, 1)
BYTES = Type("u8", (1, 4, 3, 3))
Case = tuple[str, Any, list[Type], list[str]]
CASES: list[Case] = [
    *[
        ("activation_into_conv", lambda x, a=a: act(a, conv(x)), [IMAGE], ["FusedConv"])
        for a in ACTIVATION_OPS
    ],
    ("sum_into_conv", lambda x, y: ops.add(y, conv(x)), [IMAGE, f32(1, 6, 6, 6)], ["FusedConv"]),
    (
        "activation_into_fused_conv",
        lambda x, y: ops.relu(ops.add(conv(x, bias=False), y)),
        [IMAGE, f32(1, 6, 6, 6)],
        ["FusedConv"],
    ),
    *[
        (
            "activation_into_gemm",
            lambda x, y, a=a: act(a, ops.gemm(x, y, num(4), trans_b=True)),
            [f32(3, 5), f32(4, 5)],
            ["FusedGemm"],
        )
        for a in GEMM_ACTIVATIONS
    ],
    (
        "transpose_into_matmul",
        lambda x, y: ops.matmul(ops.transpose(x, perm=T), y),
        [f32(2, 4, 3), f32(2, 4, 5)],
        ["FusedMatMul"],
    ),
    (
        "scale_into_fused_matmul",
        lambda x, y: ops.mul(ops.matmul(x, ops.transpose(y, perm=T)), scalar(0.125)),
        [f32(2, 3, 4), f32(2, 5, 4)],
        ["FusedMatMul"],
    ),
    ("swish_as_quick_gelu", lambda x: ops.swish(x, alpha=1.5), [ROWS], ["QuickGelu"]),
    ("bias_into_gelu", lambda x: ops.gelu(ops.add(x, num(8))), [ROWS], ["BiasGelu"]),
    (
        "bias_into_gelu",
        lambda x: ops.gelu(ops.add(x, num(8)), approximate="tanh"),
        [ROWS],
        ["FastGelu"],
    ),
    ("sum_into_norm", lambda x, y: norm(skip(x, y)), [ROWS, ROWS], ["SkipLayerNormalization"]),
    ("norm_of_sum", both_ways, [ROWS, ROWS], ["Relu", "SkipLayerNormalization"]),
    (
        "norm_of_sum",
        lambda x, y: norm(skip(x, y, bias=True)),
        [ROWS, ROWS],
        ["SkipLayerNormalization"],
    ),
    (
        "norm_of_sum_without_shift",
        lambda x, y: norm(skip(x, y), shift=False),
        [ROWS, ROWS],
        ["SkipLayerNormalization"],
    ),
    (
        "norm_of_sum_without_shift",
        lambda x, y: ops.rms_norm(skip(x, y), num(8)),
        [ROWS, ROWS],
        ["SkipSimplifiedLayerNormalization"],
    ),
    (
        "integer_op",
        lambda q, r: stored(ops.add(real(q, 0.5, 4), real(r, 0.25, 9)), 0.5),
        [BYTES] * 2,
        ["QLinearAdd"],
    ),
    (
        "integer_op",
        lambda q, r: stored(ops.mul(real(q, 0.5, 4), real(r, 0.25, 9)), 64.0),
        [BYTES] * 2,
        ["QLinearMul"],
    ),
    (
        "integer_op",
        lambda q, r: stored(ops.concat(real(q, 0.5, 4), real(r, 0.25, 9), axis=1)),
        [BYTES] * 2,
        ["QLinearConcat"],
    ),
    (
        "integer_op",
        lambda q: stored(ops.sigmoid(real(q, 1 / 32, 128)), 1 / 256, 0),
        [BYTES],
        ["QLinearSigmoid"],
    ),
    (
        "integer_op",
        lambda q: stored(ops.reduce_mean(real(q, 0.5, 4), axes=(2, 3))),
        [BYTES],
        ["QLinearGlobalAveragePool"],
    ),
]


def feeds(types: list[Type]) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        f"x{i}": (
            rng.integers(0, 256, t.shape) if t.dtype == "u8" else rng.uniform(-2, 2, t.shape)
        ).astype(dtypes.numpy_of(t.dtype))
        for i, t in enumerate(types)
    }


def close(got: Any, want: Any, what: str) -> None:
    """Bytes may differ by one: onnxruntime rounds differently here."""
    if want.dtype != np.uint8:
        compare(got, want, what, tolerance=1e-4)
    else:
        assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


def test_every_rule_has_a_case():
    assert {r.name for r in CONTRIB} == {name for name, *_ in CASES}


@pytest.mark.parametrize(("name", "build", "types", "said"), CASES)
def test_rule(name: str, build: Any, types: list[Type], said: list[str]):
    graph, arrays = graph_of(build, types), feeds(types)
    want = interpret(graph, arrays)
    made = intaglio.to_onnx(graph, contrib=True)
    onnx.checker.check_model(made)
    assert sorted(n.op_type for n in made.graph.node) == said
    assert {o.domain for o in made.opset_import} == {"", "com.microsoft"}
    ran, read = onnxruntime_runs(made, arrays), interpret(load_onnx(made), arrays)
    spelled = graph.copy()
    fired: set[str] = set()
    from intaglio.export.onnx.export_rules import target

    legalize(target(None, True), spelled, lambda r, n, no: no is None and fired.add(r.name))
    assert name in fired
    assert any(n.op.startswith("onnx.") for n in spelled.nodes())
    for key, w in want.items():
        compare(interpret(spelled, arrays)[key], w, name, tolerance=1e-4)
        close(ran[key], w, name)
        close(read[key], w, name)


def test_only_on_request():
    made = intaglio.to_onnx(graph_of(lambda x: ops.relu(conv(x)), [IMAGE]))
    assert [n.op_type for n in made.graph.node] == ["Conv", "Relu"]
    assert [o.domain for o in made.opset_import] == [""]


def test_what_the_operators_cannot_take_stays():
    half = Type("f16", (1, 3, 6, 6))

    def build(x: Value) -> Value:
        w = constant(np.ones((4, 3, 1, 1), np.float16))
        made: Value = ops.relu(ops.conv(x, w, stride=(1, 1), pad=(0,) * 4, dilation=(1, 1)))
        return made

    made = intaglio.to_onnx(graph_of(build, [half]), contrib=True)
    assert [n.op_type for n in made.graph.node] == ["Conv", "Relu"]
