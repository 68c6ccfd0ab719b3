"""ONNX extents that data decides and that have a bound, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import Unsupported
from intaglio.frontends.onnx import load_onnx

R = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def same(text: str, *feeds: dict[str, Any]) -> None:
    """The compiled model and onnxruntime agree for all feeds, also in the extents."""
    proto = model(text)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    graph = load_onnx(proto)
    with intaglio.open(intaglio.compile(graph), threads=1) as ours:
        for feed in feeds:
            got = ours.run(feed)
            want = dict(zip(got, theirs.run(list(got), feed), strict=True))
            meant = intaglio.interpret(graph, feed)
            for name, a in got.items():
                np.testing.assert_array_equal(a, want[name])
                np.testing.assert_array_equal(meant[name], want[name])


def whole(n: int) -> np.ndarray:
    return np.array([n], np.int64)


TOPK = """(float[2,8] x, int64[1] k) => (float[2,n] y, int64[2,n] i) {
    y, i = TopK<axis=1, largest=LARGEST>(x, k)
}"""


@pytest.mark.parametrize("largest", [0, 1])
def test_topk_with_k_at_run_time(largest):
    """At most all values are asked for, so that the extent bounds k."""
    text = TOPK.replace("LARGEST", str(largest))
    same(text, *({"x": f(2, 8), "k": whole(k)} for k in (3, 8, 0)))


LIMITED = """(float[8] x, int64[1] k) => (float[n] y, int64[n] i) {
    most = Constant<value_ints=[5]>() few = Min(k, most) y, i = TopK(x, few)
}"""
FOUND = """(float[8] x) => (float[n] y, int64[n] i) {
    at = NonZero(x) flat = Constant<value_ints=[-1]>() places = Reshape(at, flat)
    picked = Gather(x, places) s = Shape(picked) most = Constant<value_ints=[5]>()
    k = Min(s, most) y, i = TopK(picked, k)
}"""


def test_topk_with_a_limit():
    same(LIMITED, *({"x": f(8), "k": whole(k)} for k in (2, 5, 7)))
    assert load_onnx(model(LIMITED)).outputs[0].shape == (5,)


def test_topk_of_values_found_at_run_time():
    """Fewer values than the limit may be found."""
    sparse = np.float32([0, 3, 0, -2, 0, 0, 1, 0])
    same(FOUND, {"x": f(8)}, {"x": sparse}, {"x": 0 * sparse})


RANGES = {
    "minimum": ("k = Min(a, most)", {"a": np.int64(4)}, {"a": np.int64(40)}),
    "clip": ("k = Clip(a, zero, most)", {"a": np.int64(4)}, {"a": np.int64(-3)}),
    "remainder": ("k = Mod(a, most)", {"a": np.int64(17)}, {"a": np.int64(9)}),
    "product": ("b = Clip(a, zero, most) c = Mul(b, most) k = Sub(c, b)", {"a": np.int64(4)}),
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges(name):
    steps, *feeds = RANGES[name]
    text = f"""(int64 a) => (int64[n] y) {{
        zero = Constant<value_int=0>() one = Constant<value_int=1>() most = Constant<value_int=9>()
        {steps} y = Range(zero, k, one)
    }}"""
    same(text, *({k: np.asarray(v) for k, v in feed.items()} for feed in feeds))


WRITTEN = """(float[5] x, int64 a) => (float[5] y) {
    five = Constant<value_ints=[5]>() one = Constant<value_int=1>()
    flat = Constant<value_ints=[1]>()
    fa = Cast<to=1>(a) f1 = Constant<value_float=1.0>() fb = Add(fa, f1) b = Cast<to=7>(fb)
    vb = Reshape(b, flat) most = Min(five, vb) stop = Squeeze(most)
    va = Reshape(a, flat) held = Slice(x, va, most) s = Shape(held) zero = ConstantOfShape(s)
    at = Range(a, stop, one) y = ScatterElements(x, at, zero)
}"""


def test_one_place_of_a_tensor_is_written():
    """PaddlePaddle writes x[a : a + 1] with a range from a to the smaller of a + 1 and the end."""
    same(WRITTEN, *({"x": f(5), "a": np.array(a)} for a in (0, 4, 5)))


COUNTED = """(float[6] x) => (int64[n] y, float[m] z) {
    flat = Constant<value_ints=[-1]>() zero = Constant<value_int=0>() one = Constant<value_int=1>()
    low = Constant<value_float=0.0>() p = Greater(x, low) q = Cast<to=7>(p)
    n0 = ReduceSum<keepdims=0>(q) y = Range(zero, n0, one)
    best = ArgMax<axis=0, keepdims=1>(x) z = ConstantOfShape(best)
}"""


def test_counts_and_indices():
    same(COUNTED, {"x": f(6)}, {"x": -np.abs(f(6))}, {"x": np.abs(f(6))})


LOOP = """(int64 a, float[2] x) => (float[n,2] y) {
    most = Constant<value_int=4>() k = Min(a, most) go = Constant<value_int=1>() c = Cast<to=9>(go)
    h, y = Loop(k, c, x) <
        body = b (int64 i, bool g, float[2] s) => (bool more, float[2] t, float[2] e) {
            more = Identity(g) t = Add(s, x) e = Mul(t, x)
        }
    >
}"""


def test_loops_with_a_trip_count_that_has_a_limit():
    x = f(2)
    same(LOOP, *({"a": np.array(a), "x": x} for a in (0, 3, 4, 9)))


def test_a_number_without_a_limit_is_refused():
    text = "(int64 a, int64 z, int64 s) => (int64[n] y) { y = Range(z, a, s) }"
    with pytest.raises(Unsupported, match="bind it with values"):
        load_onnx(model(text))
