"""Products of rows of bytes with f32 results, and quantisation of rows at run time."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.ops import REGISTRY
from intaglio.targets.cpu.qconv_packing import packed

RNG = np.random.default_rng(0)


def rows(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def product(m, k, n, dtype=np.uint8, lead=()):
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max + 1, (*lead, m, k)).astype(dtype)
    w = RNG.integers(-128, 128, (k, n)).astype(np.int8)
    whole = -(-n // 16) * 16
    scale, sums = np.zeros(whole, np.float32), np.zeros(whole, np.int32)
    scale[:n], sums[:n] = RNG.uniform(0.001, 0.01, n), w.sum(0, dtype=np.int32)
    columns = np.ascontiguousarray(w.T).reshape(1, n, k, 1)
    return x, packed(columns)[0], scale, sums


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 8), (2, 3, 384), (1, 1), (2, 0), (0, 4)])
def test_quantize_rows(shape):
    check("cpu.quantize_rows", rows(*shape) * 100)


def test_rows_of_zeros_infinities_and_nan():
    x = rows(7, 20)
    x[1] = 0
    x[2] = 1e-40
    x[3, 4] = np.inf
    x[4, 19] = np.nan
    x[5] = -0.0
    x[6] = 3e38
    q, scale = check("cpu.quantize_rows", x)
    assert (q[1:6] == 128).all()
    assert np.isnan(scale[3:5]).all()


@pytest.mark.parametrize("k", [4, 20, 384])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 70), (2, 16), (8, 48), (13, 33), (7, 100)])
def test_product(m, k, n):
    x, w, scale, sums = product(m, k, n)
    none = (None, None, None)
    check("cpu.qgemm", x, w, *none, scale, sums, None, None, n=n, x_zero=7, tolerance=0)
    by = RNG.uniform(0.5, 2, m).astype(np.float32)
    check("cpu.qgemm", x, w, rows(n), None, None, scale, sums, by, np.uint8(200), n=n, tolerance=0)


def test_sums_start_from_integers():
    x, w, scale, sums = product(5, 24, 40, np.int8)
    start = np.zeros(48, np.int32)
    start[:40] = RNG.integers(-(2**20), 2**20, 40)
    check(
        "cpu.qgemm",
        x,
        w,
        None,
        rows(5, 40),
        None,
        scale,
        sums,
        None,
        None,
        start,
        n=40,
        x_zero=-3,
        tolerance=0,
    )


def test_product_of_signed_bytes_and_batches():
    x, w, scale, sums = product(9, 32, 40, np.int8, (2,))
    by = RNG.uniform(0.5, 2, (2, 9)).astype(np.float32)
    check(
        "cpu.qgemm", x, w, None, None, None, scale, sums, by, None, n=40, x_zero=-100, tolerance=0
    )
    one = np.array([0.5], np.float32)
    check("cpu.qgemm", x, w, None, None, None, scale, sums, one, np.int8(-3), n=40, tolerance=0)


@pytest.mark.parametrize("act", ["relu", "gelu", "prelu", "tanh"])
@pytest.mark.parametrize("add_last", [False, True])
@pytest.mark.parametrize("n", [40, 48])
def test_epilogue(act, add_last, n):
    x, w, scale, sums = product(11, 16, n)
    scale /= 100
    slope = rows(n) if act == "prelu" else None
    check(
        "cpu.qgemm",
        x,
        w,
        rows(n),
        rows(11, n),
        slope,
        scale,
        sums,
        None,
        None,
        n=n,
        x_zero=128,
        act=act,
        add_last=add_last,
    )


def test_empty():
    x, w, scale, sums = product(0, 8, 5)
    check("cpu.qgemm", x, w, None, None, None, scale, sums, None, None, n=5, x_zero=0)


@pytest.mark.parametrize("k", [3, 8, 50])
def test_a_dynamic_matmul_compiles_to_qgemm(k):
    import intaglio
    from intaglio.ir import Graph, Type, Value, constant

    x = Value(Type("f32", (2, 5, k)), "x")
    w = constant(RNG.integers(-127, 128, (k, 20)).astype(np.int8))
    ws, b = constant(rows(20)), constant(rows(20))
    graph = Graph([x], [REGISTRY["dynamic_matmul"](x, w, ws, b)], ["y"])
    package = intaglio.compile(graph)
    assert "cpu.qgemm" in {s.op for s in package.plan.steps}
    feeds = {"x": rows(2, 5, k)}
    with intaglio.open(package) as session:
        got = session.run(feeds)["y"]
    np.testing.assert_array_equal(got, intaglio.interpret(graph, feeds)["y"])


def test_error_of_rows_is_small():
    x, w = rows(64, 256), rows(256, 32)
    ws = np.abs(w).max(0) / 127
    q = np.rint(w / ws).astype(np.int8)
    y = REGISTRY["dynamic_matmul"].body(x, q, ws)
    want = x @ w
    assert np.linalg.norm(y - want) < 0.02 * np.linalg.norm(want)


def test_every_instruction_set_has_the_kernel():
    assert {k.isa for k in native.kernels() if k.op.name == "cpu.qgemm"} >= {"scalar"}
