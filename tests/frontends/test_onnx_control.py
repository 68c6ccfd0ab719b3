"""ONNX If, Loop and Scan: the imported ops, and their results against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import RunError, Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.interpret import interpret
from intaglio.ir import Graph

R = np.random.default_rng(9)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def same(text: str, opset: int = 18, **inputs: Any) -> Graph:
    """Import and compare with onnxruntime; returns the graph."""
    proto = model(text, opset)
    graph = load_onnx(proto)
    feed = {k: np.asarray(v) for k, v in inputs.items()}
    got = interpret(graph, feed)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for name, want in zip(got, session.run(list(got), feed), strict=True):
        assert got[name].shape == want.shape
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)
    return graph


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes()]


# ---- If ------------------------------------------------------------------------------------------
IF = """(bool c, float[2,3] x) => (float[a,b] y) {
    y = If(c) <
        then_branch = t () => (float[a,b] p) { p = Relu(x) },
        else_branch = e () => (float[a,b] q) { ELSE }
    >
}"""


@pytest.mark.parametrize("c", [True, False])
def test_if(c: bool) -> None:
    graph = same(IF.replace("ELSE", "q = Add(x, x)"), c=c, x=f(2, 3))
    assert ops(graph) == ["if"]
    assert str(graph.outputs[0].type) == "f32[2x3]"


@pytest.mark.parametrize("c", [True, False])
def test_if_of_two_shapes(c: bool) -> None:
    graph = same(IF.replace("ELSE", "q = Concat<axis=0>(x, x)"), c=c, x=f(2, 3))
    assert str(graph.outputs[0].type) == "f32[<=4x3]"


def test_if_decided() -> None:
    decided = "o = Constant<value_int=1>() k = Cast<to=9>(o) y = If(k)"
    text = IF.replace("bool c, ", "").replace("y = If(c)", decided).replace("ELSE", "q = Add(x, x)")
    assert ops(same(text, x=f(2, 3))) == ["relu"]


def test_if_of_two_ranks() -> None:
    with pytest.raises(Unsupported, match=r"f32\[2x3\] and f32\[1x2x3\].*values={.c"):
        load_onnx(model(IF.replace("ELSE", "o = Constant<value_ints=[0]>() q = Unsqueeze(x, o)")))


def test_branches_that_make_a_scalar_and_a_vector_of_one():
    text = """(bool c, float[1] x) => (float[1] z) {
        y = If(c) <
            then_branch = t () => (float[1] p) { p = Relu(x) },
            else_branch = e () => (float q) { q = ReduceSum<keepdims=0>(x) }
        >
        z = Add(y, x)
    }"""
    for c in (True, False):
        same(text, c=np.array(c), x=f(1))


RATES = """(float[1,W] x, int64 sr, float[1,1,4] h) => (float[1,1,1,4] y) <float[1,16,3] w = {W0},
    float[1,16,4] r = {R0}, int64 k = {6}, int64[1] one = {1}, int64[3] flat = {1,1,3}> {
    c = Equal(sr, k)
    y = If(c) <
        then_branch = t () => (float[1,1,1,4] p) {
            a = Reshape(x, flat)  p, ph, pc = LSTM<hidden_size=4>(a, w, r, , , h)
        },
        else_branch = e () => (float[1,1,1,4] q) {
            b = Unsqueeze(x, one)  q, qh, qc = LSTM<hidden_size=4>(b, w, r, , , h)
        }
    >
}"""


def test_a_branch_that_does_not_fit_the_shapes_fails_when_it_is_taken():
    """A model for two sample rates has a branch for each; a window fits only one of them."""
    numbers = [", ".join(f"{v:.3f}" for v in f(n)) for n in (48, 64)]
    text = RATES.replace("W0", numbers[0]).replace("R0", numbers[1])
    short = text.replace("[1,W]", "[1,3]")
    for rate in (6, 7):
        same(short, x=f(1, 3), sr=np.int64(rate), h=f(1, 1, 4))
    long = model(text.replace("[1,W]", "[1,3]").replace("flat = {1,1,3}", "flat = {1,1,5}"), 18)
    with pytest.warns(UserWarning, match="Reshape.*the model fails if it takes this branch"):
        graph = load_onnx(long)
    feeds = {"x": f(1, 3), "sr": np.array(7), "h": f(1, 1, 4)}
    session = onnxruntime.InferenceSession(long.SerializeToString())
    with intaglio.open(intaglio.compile(graph), threads=1) as ours:
        np.testing.assert_allclose(ours.run(feeds)["y"], session.run(None, feeds)[0], atol=1e-6)
        with pytest.raises(RunError, match="the branch for True does not fit the shapes given"):
            ours.run({**feeds, "sr": np.array(6)})
    with pytest.raises(RunError):
        interpret(graph, {**feeds, "sr": np.array(6)})


# ---- Loop ----------------------------------------------------------------------------------------
LOOP = """(HEAD float[2] x) => (OUT) {
    CONSTANTS
    RESULTS = Loop(TRIP, COND, x) <
        body = b (int64 i, bool go, float[m] h) => (bool more, float[m] k SCANS) { BODY }
    >
}"""
COUNTED = {
    "HEAD": "",
    "OUT": "float[2] y, float[n,2] s",
    "CONSTANTS": "M = Constant<value_int=4>()",
    "RESULTS": "y, s",
    "TRIP": "M",
    "COND": "",
    "SCANS": ", float[m] e",
    "BODY": "more = Identity(go) k = Add(h, x) e = Mul(k, k)",
}


def loop(**changes: str) -> str:
    text = LOOP
    for word, value in {**COUNTED, **changes}.items():
        text = text.replace(word, value)
    return text


def test_counted_loop_is_static() -> None:
    graph = same(loop(), x=f(2))
    assert [str(v.type) for v in graph.outputs] == ["f32[2]", "f32[4x2]"]
    (node,) = graph.nodes()
    assert (node.op, node.attrs["carried"], node.attrs["bound"], len(node.inputs)) == (
        "loop",
        1,
        4,
        4,
    )


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_loop_that_ends_early(start: float) -> None:
    body = """k = Add(h, h) e = Relu(k) t = ReduceSum<keepdims=0>(k)
        c = Constant<value_float=9.0>() more = Less(t, c)"""
    graph = same(loop(BODY=body), x=np.full(2, start, np.float32))
    assert str(graph.outputs[1].type) == "f32[<=4x2]"


def test_loop_with_a_trip_count_at_run_time() -> None:
    text = loop(HEAD="int64 M,", CONSTANTS="", OUT="float[2] y, float[6,2] s")
    graph = load_onnx(model(text))
    assert str(graph.outputs[1].type) == "f32[<=6x2]"
    x = f(2)
    for trips in (0, 3, 6):
        got = interpret(graph, {"M": np.array(trips), "x": x})
        assert got["s"].shape == (trips, 2)
        np.testing.assert_allclose(got["y"], x * (trips + 1), rtol=1e-5)
    with pytest.raises(RunError, match="more than 6 iterations"):
        interpret(graph, {"M": np.array(7), "x": x})
    with pytest.raises(Unsupported, match=r"its trip count decides a shape.*values={.M"):
        load_onnx(model(loop(HEAD="int64 M,", CONSTANTS="")))


def test_while_loop_needs_no_bound() -> None:
    body = """k = Add(h, h) t = ReduceSum<keepdims=0>(k)
        c = Constant<value_float=99.0>() more = Less(t, c)"""
    changes = {"CONSTANTS": "", "TRIP": "", "SCANS": "", "OUT": "float[2] y", "RESULTS": "y"}
    same(loop(BODY=body, **changes), x=np.ones(2, np.float32))
    collects = loop(BODY=body + " e = Identity(k)", CONSTANTS="", TRIP="")
    with pytest.raises(Unsupported, match="declare the shape of its outputs"):
        load_onnx(model(collects))


def test_carried_value_that_grows() -> None:
    body = "more = Identity(go) k = Concat<axis=0>(h, x)"
    changes = {"SCANS": "", "OUT": "float[n] y", "RESULTS": "y"}
    graph = same(loop(BODY=body, **changes), x=f(2))
    assert str(graph.outputs[0].type) == "f32[<=10]"
    free = loop(BODY=body, HEAD="int64 M,", **{**changes, "CONSTANTS": ""})
    with pytest.raises(Unsupported, match="grows along axis 0"):
        load_onnx(model(free))


def test_slice_by_iteration_number() -> None:
    body = """more = Identity(go) o = Constant<value_ints=[1]>() r = Constant<value_ints=[-1]>()
        a = Reshape(i, r) z = Add(a, o) e = Slice(w, a, z) k = Add(h, e)"""
    text = loop(BODY=body, HEAD="float[5] w,", OUT="float[1] y, float[n,m] s")
    graph = same(text.replace("float[2] x", "float[1] x"), w=f(5), x=f(1))
    assert str(graph.outputs[1].type) == "f32[4x<=1]"


def test_carried_values_that_begin_as_any_scalar():
    """PaddlePaddle carries results that the body writes and never reads; they begin as a scalar.
    One that has one element may begin with another rank."""
    text = """(float[2] x) => (float[2] w, float s, float[2] z) {
        m = Constant<value_int=3>() one = Constant<value_ints=[1]>()
        u = Constant<value_float=7.0>() v = Constant<value_float=1.0>()
        yes = Constant<value_int=1>() go = Cast<to=9>(yes)
        w, s, z = Loop(m, go, u, v, x) <
            body = b (int64 i, bool g, float[] a, float[] c, float[2] h)
                => (bool more, float[2] a2, float[1] c2, float[2] k) {
                more = Identity(g) k = Add(h, h) a2 = Relu(k) d = Add(c, c) c2 = Reshape(d, one)
            }
        >
    }"""
    proto = model(text, 18)
    got = interpret(load_onnx(proto), {"x": np.float32([1, -2])})
    np.testing.assert_array_equal(got["w"], [8, 0])
    np.testing.assert_array_equal(got["s"], 8)
    np.testing.assert_array_equal(got["z"], [8, -16])


# ---- Scan ----------------------------------------------------------------------------------------
SCAN = """(float[2] s, float[4,2] x, float[3,4] z) => (float[2] t, float[a,b] y, float[c,d] u) {
    t, y, u = Scan(s, x, z) <num_scan_inputs=2 ATTRS,
        body = b (float[2] h, float[2] p, float[3] q) => (float[2] k, float[2] e, float[3] g)
        { k = Add(h, p) e = Mul(k, s) g = Relu(q) }
    >
}"""


@pytest.mark.parametrize(
    "attrs",
    [
        "",
        ", scan_input_directions=[1, 0]",
        ", scan_output_directions=[0, 1], scan_output_axes=[1, -1]",
    ],
)
def test_scan(attrs: str) -> None:
    text = SCAN.replace(" ATTRS", attrs + ", scan_input_axes=[0, 1]")
    graph = same(text, s=f(2), x=f(4, 2), z=f(3, 4))
    assert "scan" in ops(graph)


def test_scan_8_has_a_batch_axis() -> None:
    text = """(float[3,2] s, float[3,4,2] x) => (float[3,2] t, float[3,4,2] y) {
        t, y = Scan(, s, x) <num_scan_inputs=1, body =
            b (float[2] h, float[2] p) => (float[2] k, float[2] e) { k = Add(h, p) e = Relu(k) }
        >
    }"""
    same(text, 8, s=f(3, 2), x=f(3, 4, 2))


def test_sequences_are_refused_with_words() -> None:
    body = "more = Identity(go) k = SequenceInsert(h, x)"
    text = loop(BODY=body, SCANS="", OUT="float[n] y", RESULTS="y")
    with pytest.raises(Unsupported, match="a sequence has no fixed place in memory"):
        load_onnx(model(text))
