"""Matrix products: packing, the packed product with its epilogues, and any element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import BadInput, RunError
from intaglio.targets.cpu import epilogue, packing
from intaglio.targets.cpu import gemm as cpu_gemm
from intaglio.targets.cpu.packing import PANEL

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def packed(*shape: int) -> np.ndarray:
    return packing.pack.body(floats(*shape), tile=PANEL)


@pytest.mark.parametrize(
    "shape", [(3, 5), (16, 16), (1, 1), (7, 33), (0, 4), (4, 0), (2, 3, 9, 17)]
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
def test_pack(shape: tuple[int, ...], transposed: bool, dtype: str) -> None:
    b = rng.integers(-9, 9, shape).astype(dtype)
    check("cpu.pack", b, tile=16, transposed=transposed)
    check("cpu.pack", b, tile=5, transposed=transposed)


SIZES = [(m, n, k) for m in (1, 2, 6, 7, 13) for n in (1, 15, 16, 33, 64, 81) for k in (0, 1, 19)]


@pytest.mark.parametrize("size", [*SIZES, (50, 130, 300), (3, 700, 260), (100, 16, 1500)])
def test_gemm(size: tuple[int, int, int]) -> None:
    m, n, k = size
    tolerance = 1e-4 if k > 100 else None  # rounding errors depend on the order of a long sum
    check("cpu.gemm", floats(m, k), packed(k, n), n=n, tolerance=tolerance)
    check(
        "cpu.gemm",
        floats(m, k),
        packed(k, n),
        floats(n),
        floats(m, n),
        n=n,
        act="relu",
        tolerance=tolerance,
    )


def test_empty_operands() -> None:
    check("cpu.gemm", floats(0, 5), packed(5, 7), n=7)
    check("cpu.gemm", floats(5, 5), packed(5, 0), n=0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 5, 6), (6, 7)),
        ((4, 5, 6), (4, 6, 7)),
        ((2, 1, 5, 6), (3, 6, 17)),
        ((5, 6), (2, 3, 6, 7)),
        ((2, 3, 5, 6), (1, 1, 6, 7)),
        ((1, 3, 5, 6), (2, 1, 6, 7)),
        ((0, 5, 6), (0, 6, 7)),
    ],
)
def test_batches(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    n = b[-1]
    (y,) = check("cpu.gemm", floats(*a), packed(*b), n=n)
    check("cpu.gemm", floats(*a), packed(*b), floats(n), floats(*y.shape), n=n, act="tanh")


ARGS = {
    "clip": (-0.5, 0.75),
    "leaky_relu": (0.1,),
    "swish": (1.0,),
    "hard_sigmoid": (0.2, 0.5),
    "elu": (1.0,),
    "selu": (1.6, 1.05),
    "celu": (1.5,),
    "thresholded_relu": (0.3,),
    "shrink": (0.1, 0.4),
}


@pytest.mark.parametrize("act", epilogue.FUSABLE)
@pytest.mark.parametrize("n", [64, 23])
def test_epilogue(act: str, n: int) -> None:
    a, b, bias, residual = floats(9, 8), packed(8, n), floats(n), floats(9, n)
    if act in ("log", "sqrt", "reciprocal"):  # keep away from the poles
        a, b, bias, residual = np.abs(a), np.abs(b), np.abs(bias) + 1, np.abs(residual)
    for add_last in (False, True):
        check(
            "cpu.gemm",
            a,
            b,
            bias,
            residual,
            n=n,
            act=act,
            act_args=ARGS.get(act, ()),
            add_last=add_last,
            tolerance=1e-4,
        )


@pytest.mark.parametrize(("m", "n"), [(9, 64), (9, 23), (1, 7), (30, 16), (5, 200)])
def test_slopes(m: int, n: int) -> None:
    a, b, slope, residual = floats(m, 8), packed(8, n), floats(n), floats(m, n)
    check("cpu.gemm", a, b, None, None, slope, n=n, act="prelu")
    for add_last in (False, True):
        check("cpu.gemm", a, b, slope, residual, slope, n=n, act="prelu", add_last=add_last)


def test_prelu_needs_slopes_of_the_right_shape() -> None:
    a, b, slope = floats(2, 3), packed(3, 4), floats(4)
    for operands, attrs, words in (
        ((a, b, None, None, slope), {"act": "relu"}, "prelu takes a slope"),
        ((a, b), {"act": "prelu"}, "prelu takes a slope"),
        ((a, b, None, None, slope[:3]), {"act": "prelu"}, "slope is f32"),
    ):
        with pytest.raises(BadInput, match=words):
            cpu_gemm.gemm.node(*operands, n=4, **attrs)


def test_a_clamp_keeps_nan() -> None:
    a = floats(7, 3)
    a[2, 1] = np.nan
    (y,) = check("cpu.gemm", a, packed(3, 32), n=32, act="clip", act_args=(0.0, 1.0))
    assert np.isnan(y[2]).all()


def test_every_isa_packs_the_same_bytes() -> None:
    products = [k for k in native.kernels() if k.op.name in ("cpu.gemm", "cpu.conv")]
    tiles = {k.types == "bf16": k.tile for k in products}
    assert tiles == {False: str(PANEL), True: f"{PANEL}x2"}


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((3, 0), (0, 5)),
    ((0, 3), (3, 5)),
    ((2, 70), (70, 130)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "uint64"],
)
def test_matmul(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> None:
    np_dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    low, high = (0, 200) if dtype.startswith("u") else (-100, 100)
    left, right = (rng.integers(low, high, s).astype(np_dtype) for s in (a, b))
    if "float" in dtype:
        left, right = left / np_dtype.type(64), right / np_dtype.type(64)
    check("matmul", left, right)


def test_integers_wrap_around() -> None:
    (y,) = check("matmul", np.full((1, 3), 100, np.int8), np.full((3, 1), 100, np.int8))
    assert y[0, 0] == np.int64(30000).astype(np.int8)


@pytest.mark.parametrize(
    ("a", "b", "attrs", "words"),
    [
        ((3, 5), (1, 4, 16), {"n": 7}, "agree on k"),
        ((3, 5), (1, 5, 8), {"n": 7}, "16 columns"),
        ((3, 5), (1, 5, 16), {"n": 17}, "n does not fit"),
        ((3, 5), (1, 5, 16), {"n": -1}, "n does not fit"),
        ((2, 3, 5), (3, 1, 5, 16), {"n": 7}, "broadcast"),
    ],
)
def test_refusals(
    a: tuple[int, ...], b: tuple[int, ...], attrs: dict[str, int], words: str
) -> None:
    kernel = native.find_kernel("cpu.gemm", "f32", native.machine())
    assert kernel is not None
    rest = {"act": "none", "act_args": (), "add_last": False, "made": "same"}
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, [floats(*a), floats(*b)], {**attrs, **rest})
