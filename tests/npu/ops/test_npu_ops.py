"""NPU ops against loops in plain Python, and against their equivalents for the CPU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio import dtypes, interpret
from intaglio.errors import BadInput
from intaglio.ir import Graph, Value, constant
from intaglio.npu.ops import cpu_fallback
from intaglio.ops.registry import REGISTRY, evaluate
from intaglio.verify import verify

assert cpu_fallback  # importing it registers the ops and their equivalents on a CPU


def codes(rng, dtype, *shape):
    low, high = dtypes.limits(dtype)
    return rng.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))


def run(op, *arrays, **attrs):
    """The result of an op; checks that its equivalent for the CPU has the same bits."""
    node = REGISTRY[op].node(*[None if a is None else constant(a) for a in arrays], **attrs)
    want = evaluate(Graph([], node.outputs), [])
    made = REGISTRY[op].lower(*node.inputs, **node.attrs)
    if made is not None:
        got = evaluate(Graph([], [made]), [])
        assert got[0].dtype == want[0].dtype
        np.testing.assert_array_equal(got[0], want[0])
    return want[0]


def f32(x):
    return np.float32(x)


def ended(t, a, table):
    """One number, rounded."""
    if a["dtype"] in ("f32", "i32"):
        return t
    v = min(max(float(np.rint(t) + f32(a.get("y_zero", 0))), a["low"]), a["high"])
    if table is None:
        return int(v)
    return table[min(max(int(v) - a["base"], 0), len(table) - 1)]


def windowed(x, y, ky, kx, a):
    """A pixel under the window of output pixel y; None if it is padding."""
    at = [y[i] * a["stride"][i] + k * a["dilation"][i] - a["pad"][i] for i, k in ((0, ky), (1, kx))]
    inside = all(0 <= p < d for p, d in zip(at, x.shape, strict=True))
    return int(x[tuple(at)]) if inside else None


def slow_conv(x, w, scale, bias, residual, table, a, deep):
    """The same in loops; not `deep`: depthwise."""
    counts = [
        (d + a["pad"][i] + a["pad"][i + 2] - a["dilation"][i] * (w.shape[i + 2] - 1) - 1)
        // a["stride"][i]
        + 1
        for i, d in enumerate(x.shape[2:])
    ]
    out = np.zeros((x.shape[0], w.shape[0], *counts), dtypes.numpy_of(a["dtype"]))
    for n, m, oy, ox in itertools.product(*map(range, out.shape)):
        total = int(bias[m])
        for c, ky, kx in itertools.product(*map(range, w.shape[1:])):
            seen = windowed(x[n, c if deep else m], (oy, ox), ky, kx, a)
            total += 0 if seen is None else (seen - a["x_zero"]) * int(w[m, c, ky, kx])
        t = total if a["dtype"] == "i32" else f32(total) * scale[m]
        if residual is not None:
            t = t + f32(int(residual[n, m, oy, ox]) - a["r_zero"]) * f32(a["r_factor"])
        out[n, m, oy, ox] = ended(t, a, table)
    return out


@st.composite
def endings(draw, floats=True):
    """Attributes of an epilogue, and whether it has a table."""
    dtype = draw(st.sampled_from(["i8", "u8", "i16", *(["f32", "i32"] if floats else [])]))
    if dtype in ("f32", "i32"):
        return {"dtype": dtype}, None
    tabled = dtype != "i16" and draw(st.booleans())
    stored = draw(st.sampled_from(["i8", "u8", "i16"])) if tabled else dtype
    first, last = dtypes.limits(stored)
    low, high = sorted([draw(st.integers(first, last)), draw(st.integers(first, last))])
    made = {"dtype": dtype, "low": low, "high": high, "y_zero": draw(st.integers(first, last))}
    if not tabled:
        return made, None
    base, size = draw(st.integers(-300, 200)), draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    return {**made, "base": base}, codes(rng, dtype, size)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolutions_are_sums_of_products(data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    a, table = draw(endings())
    sums = a["dtype"] == "i32"  # only convolutions return sums, without a residual
    deep = sums or draw(st.booleans())
    pair = st.tuples(st.integers(1, 2), st.integers(1, 2))
    x = codes(rng, draw(st.sampled_from(["i8", "u8"])), 1, 3, draw(st.integers(3, 5)), 4)
    w = codes(rng, "i8", 2 if deep else 3, 3 if deep else 1, draw(st.integers(1, 2)), 2)
    a |= {"stride": draw(pair), "dilation": draw(pair), "pad": (*draw(pair), *draw(pair))}
    a["x_zero"] = int(codes(rng, dtypes.name_of(x.dtype), 1)[0])
    scale = rng.uniform(0.001, 0.1, len(w)).astype(np.float32)
    bias = rng.integers(-9000, 9000, len(w)).astype(np.int32)
    want = slow_conv(x, w, scale, bias, None, table, a, deep)
    residual = None
    if not sums and draw(st.booleans()):
        residual = codes(rng, draw(st.sampled_from(["i8", "u8"])), *want.shape)
        a |= {"r_zero": int(residual.flat[0]), "r_factor": float(f32(rng.uniform(0.1, 2)))}
        want = slow_conv(x, w, scale, bias, residual, table, a, deep)
    op = "npu.conv" if deep else "npu.depthwise"
    np.testing.assert_array_equal(run(op, x, w, scale, bias, residual, table, **a), want)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_pools_ignore_padding(data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["max", "avg"]))
    x = codes(rng, draw(st.sampled_from(["i8", "u8"])), 1, 2, 5, draw(st.integers(3, 6)))
    name = dtypes.name_of(x.dtype)
    a, _ = draw(endings(floats=False).filter(lambda e: e[1] is None and e[0]["dtype"] != "i16"))
    if kind == "max":
        a = {"dtype": name, "low": dtypes.limits(name)[0], "high": dtypes.limits(name)[1] - 9}
    a |= {
        "kernel": (3, 2),
        "stride": (draw(st.integers(1, 2)), 1),
        "pad": (1, 0, 1, 1),
        "dilation": (1, 1),
        "x_zero": int(x.flat[0]),
    }
    if kind == "avg":
        a |= {
            "x_scale": 0.1,
            "y_scale": float(f32(rng.uniform(0.05, 0.2))),
            "count_include_pad": draw(st.booleans()),
        }
    got = run("npu.pool", x, kind=kind, **a)
    for n, c, oy, ox in itertools.product(*map(range, got.shape)):
        seen = [windowed(x[n, c], (oy, ox), *k, a) for k in np.ndindex(*a["kernel"])]
        real = [s for s in seen if s is not None]
        if kind == "max":
            want = min(max(max(real), a["low"]), a["high"])
        else:
            count = 6 if a["count_include_pad"] else len(real)
            factor = f32(a["x_scale"]) / (f32(a["y_scale"]) * f32(count))
            want = ended(f32(sum(s - a["x_zero"] for s in real)) * factor, a, None)
        assert got[n, c, oy, ox] == want


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_eltwise(data):
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    kind = draw(st.sampled_from(["add", "mul"]))
    spread = [d if draw(st.booleans()) else 1 for d in (3, 4, 2)]
    left, right = (
        codes(rng, draw(st.sampled_from(["i8", "u8"])), 1, *s) for s in ((3, 4, 2), spread)
    )
    a, table = draw(endings(floats=False))
    a |= {
        "kind": kind,
        "a_zero": int(left.flat[0]),
        "b_zero": int(right.flat[0]),
        "a_factor": float(f32(rng.uniform(0.01, 1))),
        "b_factor": 0.3,
    }
    got = run("npu.eltwise", left, right, table, **a)
    other = np.broadcast_to(right, left.shape)
    for at in np.ndindex(*left.shape):
        p, q = int(left[at]) - a["a_zero"], int(other[at]) - a["b_zero"]
        if kind == "mul":
            t = f32(p * q) * f32(a["a_factor"])
        else:
            t = f32(p) * f32(a["a_factor"]) + f32(q) * f32(a["b_factor"])
        assert got[at] == ended(t, a, table)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", ["i8", "f32", "i32"])
def test_matmul(turned, dtype):
    rng = np.random.default_rng(3)
    a, b = codes(rng, "i8", 2, 5, 4, 1), codes(rng, "u8", 2, *((5, 3) if turned else (3, 5)), 1)
    end = {"low": -128, "high": 100, "y_zero": 3} if dtype == "i8" else {}
    got = run(
        "npu.matmul", a, b, turned=turned, a_zero=1, b_zero=99, factor=0.01, dtype=dtype, **end
    )
    for n, c, m in np.ndindex(2, 3, 4):
        column = b[n, :, c, 0] if turned else b[n, c, :, 0]
        total = sum(
            (int(p) - 1) * (int(q) - 99) for p, q in zip(a[n, :, m, 0], column, strict=True)
        )
        t = total if dtype == "i32" else f32(total) * f32(0.01)
        assert got[n, c, m, 0] == ended(t, {"dtype": dtype, **end}, None)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16"])
def test_tables_clamp_to_their_ends(dtype):
    x = codes(np.random.default_rng(1), dtype, 1, 2, 9, 9)
    table = codes(np.random.default_rng(2), "u8", 200)
    got = run("npu.lut", x, table, base=-60)
    np.testing.assert_array_equal(got, table[np.clip(x.astype(int) + 60, 0, 199)])


def test_moves():
    x = codes(np.random.default_rng(1), "i8", 2, 5, 2, 3)
    y = run("npu.resize", x, factor=(2, 3))
    assert all(y[n, c, i, j] == x[n, c, i // 2, j // 3] for n, c, i, j in np.ndindex(*y.shape))
    np.testing.assert_array_equal(run("npu.slice", x, first=1, count=3), x[:, 1:4])
    np.testing.assert_array_equal(run("npu.concat", x, x[:, :2])[:, 5:], x[:, :2])


def test_a_program_is_its_body():
    x = Value(constant(np.zeros((1, 4, 2, 2), np.int8)).type, "x")
    inner = Value(x.type, "image")
    body = Graph([inner], [REGISTRY["npu.resize"](inner, factor=(2, 2))], ["large"])
    graph = Graph([x], REGISTRY["npu.program"].node(x, body=body).outputs, ["y"])
    verify(graph)
    assert "npu.resize(%image" in str(graph)
    image = codes(np.random.default_rng(1), "i8", 1, 4, 2, 2)
    made = interpret(graph.copy(), {"x": image})["y"]
    np.testing.assert_array_equal(made, image.repeat(2, 2).repeat(2, 3))


WINDOW = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1)}
BYTES = {"low": -128, "high": 127, "dtype": "i8"}
CONV = {"x_zero": 0, **WINDOW, **BYTES}
IMAGE, OTHER = "i8 1x3x4x4", "i8 2x3x1x1"


@pytest.mark.parametrize(
    ("op", "given", "attrs", "words"),
    [
        ("conv", [IMAGE, "i8 2x2x1x1", "f32 2", "i32 2"], CONV, "3 input channels"),
        ("conv", [IMAGE, OTHER, "f32 1", "i32 2"], CONV, "one f32"),
        ("conv", [IMAGE, OTHER, "f32 2", "i32 2"], {**CONV, "x_zero": 200}, "x_zero"),
        ("conv", [IMAGE, OTHER, "f32 2", "i32 2"], {**CONV, "y_zero": 128}, "y_zero"),
        ("conv", ["i32 1x3x4x4", OTHER, "f32 2", "i32 2"], CONV, "i8 or u8 or i16 or f16"),
        ("conv", ["f16 1x3x4x4", OTHER, "f32 2", "f32 2"], CONV, "f16 with 3 input channels"),
        ("conv", [IMAGE, "i16 2x3x1x1", "f32 2", "i32 2"], CONV, "i8 with 3 input channels"),
        ("conv", ["f16 1x3x4x4", "f16 2x3x1x1", "f32 2", "i32 2"], CONV, "one f32 and one f32"),
        (
            "conv",
            ["i16 1x512x64x65", "i8 1x512x64x65", "f32 1", "i32 1"],
            CONV,
            "16 bits are summed",
        ),
        (
            "conv",
            ["f16 1x3x4x4", "f16 2x3x1x1", "f32 2", "f32 2"],
            {**CONV, "dtype": "f16", "least": 2.0, "most": 1.0},
            "not in order",
        ),
        (
            "conv",
            ["f16 1x3x4x4", "f16 2x3x1x1", "f32 2", "f32 2", "f16 1x2x4x4", "f32 256"],
            {**CONV, "dtype": "f16"},
            "1985",
        ),
        (
            "conv",
            [IMAGE, OTHER, "f32 2", "i32 2", "i8 1x2x4x4", "f32 1985"],
            {**CONV, "dtype": "f16"},
            "no table",
        ),
        (
            "eltwise",
            [IMAGE, "f16 1x3x4x4"],
            {"kind": "add", "a_zero": 0, "b_zero": 0, "a_factor": 1.0, **BYTES},
            "mix integers and floats",
        ),
        ("conv", [IMAGE, OTHER, "f32 2", "i32 2"], {**CONV, "low": 9, "high": 8}, "bounds"),
        ("depthwise", [IMAGE, "i8 2x1x1x1", "f32 2", "i32 2"], CONV, "window"),
        ("pool", [IMAGE], {"kind": "min", "kernel": (1, 1), **WINDOW, **BYTES}, "pooling"),
        (
            "eltwise",
            [IMAGE, "i8 1x2x4x4"],
            {"kind": "add", "a_zero": 0, "b_zero": 0, "a_factor": 1.0, **BYTES},
            "broadcast",
        ),
        ("lut", [IMAGE, "u8 5000"], {"base": 0}, "4096"),
        ("resize", [IMAGE], {"factor": (0, 1)}, "whole"),
        ("concat", [IMAGE, "u8 1x3x4x4"], {}, "more than their channels"),
        ("slice", [IMAGE], {"first": 2, "count": 2}, "channels 2 to 4"),
        (
            "matmul",
            ["i8 1x3x4x1", "i8 1x5x4x1"],
            {"a_zero": 0, "b_zero": 0, "factor": 1.0, **BYTES},
            "product",
        ),
    ],
)
def test_bad_operands_are_refused(op, given, attrs, words):
    values = []
    for text in given:
        dtype, dims = text.split()
        shape = tuple(map(int, dims.split("x")))
        values.append(constant(np.zeros(shape, dtypes.numpy_of(dtype))))
    with pytest.raises(BadInput, match=words):
        REGISTRY[f"npu.{op}"].node(*values, **attrs)
