"""ONNX export: rewrite rules, the choice of the opset, and error messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from tests.check import compare
from tests.export.test_onnx_roundtrip import equal, onnxruntime_runs
from tests.frontends.onnx_text import model
from tests.passes.cases.build import f32, graph_of, num, scalar

import intaglio
from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.export.onnx.export_rules import EXPORT_RULES, split, sum_
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret
from intaglio.ir import Graph, Type, Value, constant
from intaglio.rewrite import rewrite
from intaglio.verify import verify


def written(build: Any, *types: Type, **options: Any) -> Any:
    made = intaglio.to_onnx(graph_of(build, list(types)), **options)
    onnx.checker.check_model(made, full_check=True)
    return made


def op_types(m: Any) -> list[str]:
    return [n.op_type for n in m.graph.node]


def feeds(graph: Graph) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        v.name: rng.uniform(-2, 2, v.shape).astype(dtypes.numpy_of(v.dtype)) for v in graph.inputs
    }


# ---- rules ---------------------------------------------------------------------------------------
def pieces(x: Value) -> list[Value]:
    return [ops.part(x, a, b, axis=1) for a, b in ((0, 2), (2, 5), (6, 8))]


def picks(x: Value) -> list[Value]:
    cut = [ops.part(x, i, i + 1, axis=1) for i in range(3)]
    return [ops.reshape(v, shape=(x.shape[0], x.shape[2])) for v in cut]


def heads(v: Value, n: int = 2) -> Value:
    split = ops.reshape(v, shape=(*v.shape[:2], n, v.shape[2] // n))
    made: Value = ops.transpose(split, perm=(0, 2, 1, 3))
    return made


def joined(v: Value) -> Value:
    b, n, length, size = v.shape
    made: Value = ops.reshape(ops.transpose(v, perm=(0, 2, 1, 3)), shape=(b, length, n * size))
    return made


def grouped_attention(q: Value, k: Value, v: Value, mask: Value) -> Value:
    return joined(ops.attention(heads(q, 4), heads(k), heads(v), mask, scale=0.5))


def packed_attention(x: Value) -> Value:
    b, length, width = x.shape
    five = ops.reshape(x, shape=(b, length, 3, 2, width // 6))
    five = ops.transpose(five, perm=(2, 0, 3, 1, 4))
    parts = [ops.part(five, i, i + 1, axis=0) for i in range(3)]
    q, k, v = (ops.reshape(p, shape=p.shape[1:]) for p in parts)
    return joined(ops.attention(q, k, v, scale=0.25))


BYTES, OF = Type("i8", (4, 8)), [np.float32(0.25), np.int8(3)]


def of(q: Value) -> list[Any]:
    """A quantised tensor with scale and zero."""
    return [q, np.float32(0.5), np.int8(1)]


T = {"perm": (1, 0)}
CASES: list[tuple[str, Any, list[Type], list[str]]] = [
    ("slices_as_split", pieces, [f32(2, 8, 3)], ["Split"]),
    ("slice_as_gather", picks, [f32(2, 3, 4)], ["Gather"] * 3),
    (
        "gemm_of_sum",
        lambda x, y, z: ops.add(ops.matmul(x, y), z),
        [f32(3, 4), f32(4, 5), f32(5)],
        ["Gemm"],
    ),
    (
        "sum_into_gemm",
        lambda x, y, z: ops.add(z, ops.gemm(x, y, trans_b=True, alpha=0.5)),
        [f32(3, 4), f32(5, 4), f32(3, 1)],
        ["Gemm"],
    ),
    (
        "gemm_of_transposed",
        lambda x, y: ops.matmul(ops.transpose(x, **T), y),
        [f32(4, 3), f32(4, 5)],
        ["Gemm"],
    ),
    (
        "gemm_by_transposed",
        lambda x, y: ops.matmul(x, ops.transpose(y, **T)),
        [f32(3, 4), f32(5, 4)],
        ["Gemm"],
    ),
    (
        "transpose_into_gemm",
        lambda x, y: ops.gemm(x, ops.transpose(y, **T), trans_a=True),
        [f32(4, 3), f32(5, 4)],
        ["Gemm"],
    ),
    (
        "affine_as_batch_norm",
        lambda x: ops.add(ops.mul(x, num(3, 1, 1)), num(1, 3, 1, 1)),
        [f32(2, 3, 4, 4)],
        ["BatchNormalization"],
    ),
    (
        "attention_packed_heads",
        grouped_attention,
        [f32(2, 5, 8), f32(2, 6, 4), f32(2, 6, 4), f32(5, 6)],
        ["Attention"],
    ),
    (
        "mask_for_every_row",
        lambda q, k, v, m: ops.attention(q, k, v, m, scale=0.5),
        [f32(2, 3, 5, 8), f32(2, 3, 6, 8), f32(2, 3, 6, 8), f32(2, 1, 1, 6)],
        ["Expand", "Attention"],
    ),
    (
        "sum_of_three",
        lambda x, y, z: ops.add(ops.add(x, y), z),
        [f32(2, 3), f32(3), f32(2, 1)],
        ["Sum"],
    ),
    (
        "sum_of_more",
        lambda x, y, z: ops.add(sum_(x, y, z), x),
        [f32(2, 3), f32(3), f32(2, 1)],
        ["Sum"],
    ),
    (
        "pair_in_floats",
        lambda a, b: ops.qlinear_add(*of(a), *of(b), *OF),
        [BYTES, BYTES],
        ["DequantizeLinear", "DequantizeLinear", "Add", "QuantizeLinear"],
    ),
    (
        "pair_in_floats",
        lambda a, b: ops.qlinear_mul(*of(a), *of(b), *OF),
        [BYTES, BYTES],
        ["DequantizeLinear", "DequantizeLinear", "Mul", "QuantizeLinear"],
    ),
    (
        "mean_in_floats",
        lambda a: ops.qlinear_mean(*of(a), *OF, axes=(1,)),
        [BYTES],
        ["DequantizeLinear", "ReduceMean", "QuantizeLinear"],
    ),
]


def layer_of_bytes(op: Any, gates: int) -> Any:
    """A dynamically quantised bidirectional LSTM or GRU."""
    rng = np.random.default_rng(3)

    def build(x: Value) -> Value:
        w, r = (
            constant(rng.integers(-127, 128, (2, gates * 6, k)).astype(np.int8)) for k in (4, 6)
        )
        ws, rs = (
            constant(rng.uniform(0.001, 0.004, (2, gates * 6)).astype(np.float32)) for _ in "wr"
        )
        made = op(x, w, ws, r, rs, num(2, gates * 12), hidden_size=6, direction="bidirectional")
        first: Value = made[0]
        return first

    return build


# Dynamic quantisation is exported as floats, which gives different bits.
NEARLY = {
    "lstm_in_floats": (layer_of_bytes(ops.dynamic_lstm, 4), "LSTM"),
    "gru_in_floats": (layer_of_bytes(ops.dynamic_gru, 3), "GRU"),
}


def test_every_rule_has_a_case():
    assert {r.name for r in EXPORT_RULES} == {name for name, *_ in CASES} | {*NEARLY}


@pytest.mark.parametrize("name", NEARLY)
def test_what_quantises_as_it_goes_is_written_in_floats(name: str):
    build, said = NEARLY[name]
    graph = graph_of(build, [f32(5, 2, 4)])
    arrays = feeds(graph)
    model = intaglio.to_onnx(graph)
    assert op_types(model) == ["DequantizeLinear", "Reshape"] * 2 + [said]
    for key, want in interpret(graph, arrays).items():
        np.testing.assert_allclose(onnxruntime_runs(model, arrays)[key], want, atol=0.02)


@pytest.mark.parametrize(("name", "build", "types", "said"), CASES, ids=[c[0] for c in CASES])
def test_rule(name: str, build: Any, types: list[Type], said: list[str]):
    graph = graph_of(build, types)
    arrays = feeds(graph)
    want = interpret(graph, arrays)
    model = intaglio.to_onnx(graph)
    fired = set()
    rewrite(graph, [r for r in EXPORT_RULES if r.name == name], lambda r, n, no: fired.add(r.name))
    verify(graph)
    assert fired == {name}
    assert op_types(model) == said
    for got in (interpret(graph, arrays), onnxruntime_runs(model, arrays)):
        for key, w in want.items():
            compare(got[key], w, name)


def test_packed_queries_keys_and_values():
    graph = graph_of(packed_attention, [f32(2, 5, 12)])
    model = intaglio.to_onnx(graph)
    assert op_types(model) == ["Split", "Attention"]
    want = interpret(graph, feeds(graph))
    equal(onnxruntime_runs(model, feeds(graph)), want, 1e-4, 1e-5)
    equal(interpret(load_onnx(model), feeds(graph)), want, 1e-5, 1e-6)


def test_what_a_split_cannot_say_stays_slices():
    def build(x: Value) -> list[Value]:
        return [ops.part(x, 0, 5, axis=1), ops.part(x, 4, 8, axis=1), ops.part(x, 0, 1, axis=0)]

    assert op_types(written(build, f32(2, 8))) == ["Slice"] * 3


def test_own_ops_are_made_of_ours():
    x = Value(f32(2, 8), "x")
    graph = Graph([x], [sum_(*split(x, axis=1, parts=(2, 2, 4))[:2], scalar(1))], ["y"])
    want = interpret(graph, feeds(graph))
    assert op_types(intaglio.to_onnx(graph)) == ["Split", "Sum"]
    package = intaglio.compile(graph)
    with intaglio.open(package) as session:
        equal(session.run(feeds(graph)), want, 1e-6, 0)


# ---- opsets --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("build", "given", "opset", "said"),
    [
        (ops.relu, None, 17, ["Relu"]),
        (ops.gelu, None, 20, ["Gelu"]),
        (ops.gelu, 17, 17, ["Mul", "Mul", "Erf", "Add", "Mul"]),
        (ops.swish, None, 24, ["Swish"]),
        (ops.swish, 22, 22, ["Sigmoid", "Mul"]),
        (lambda x: ops.reduce_sum(x, axes=(1,)), None, 17, ["ReduceSum"]),
        (lambda x: ops.reduce_max(x, axes=(1,)), None, 17, ["ReduceMax"]),
        (lambda x: ops.reduce_max(ops.gelu(x), axes=(1,)), None, 20, ["Gelu", "ReduceMax"]),
        (lambda x: ops.rms_norm(x), 18, 18, ["Mul", "ReduceMean", "Add", "Sqrt", "Div"]),
        (lambda x: ops.rms_norm(x), None, 23, ["RMSNormalization"]),
        (lambda x: ops.cumprod(x, axis=0), None, 26, ["CumProd"]),
    ],
)
def test_the_opset_with_the_fewest_nodes(build: Any, given: Any, opset: int, said: list[str]):
    made = written(build, f32(3, 4), opset=given)
    assert made.opset_import[0].version == opset
    assert sorted(op_types(made)) == sorted(said)
    graph = graph_of(build, [f32(3, 4)])
    equal(interpret(load_onnx(made), feeds(graph)), interpret(graph, feeds(graph)), 1e-5, 1e-6)


def test_versions_can_be_chosen():
    made = written(ops.relu, f32(2), opset=21, ir_version=10)
    assert (made.opset_import[0].version, made.ir_version) == (21, 10)
    with pytest.raises(BadInput, match="opset is 9; give a whole number from 17 to"):
        written(ops.relu, f32(2), opset=9)


def test_what_an_old_opset_lacks_is_lowered_or_refused():
    def normalized(x: Value) -> Value:
        return ops.group_norm(x, num(4), num(4), groups=2)

    assert op_types(written(normalized, f32(1, 4, 6))) == ["GroupNormalization"]
    assert "LayerNormalization" in op_types(written(normalized, f32(1, 4, 6), opset=17))
    with pytest.raises(Unsupported, match=r"onnx: cumprod reads f32\[3\].*opset 17"):
        written(lambda x: ops.cumprod(x, axis=0), f32(3), opset=17)


def test_ops_of_a_chip_are_refused():
    graph = intaglio.load(model("(float[1,3,8,8] x, float[4,3,3,3] w) => (y) {y = Conv(x, w)}"))
    from intaglio.compiler import trace

    with pytest.raises(Unsupported, match="write the graph before it is lowered"):
        intaglio.to_onnx(trace(graph).graph)
