from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Type, Value
from intaglio.ops import einsum, gemm, matmul
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(2)


def v(dtype: str, *shape: int) -> Value:
    return Value(Type(dtype, shape))


@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 1, 2, 3), (4, 3, 2)), ((2, 0), (0, 3))],
)
def test_matmul_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    for dtype in (np.float32, np.float16, np.int32, np.uint8):
        x, y = (R.integers(0, 4, s).astype(dtype) for s in (a, b))
        assert np.array_equal(run("matmul", x, y), np.matmul(x, y))


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("c", [None, (4,), (3, 1), ()])
def test_gemm(trans_a: bool, trans_b: bool, c: tuple[int, ...] | None) -> None:
    for dtype, tolerance in FLOATS.items():
        a = R.random((2, 3) if trans_a else (3, 2)).astype(dtype)
        b = R.random((4, 2) if trans_b else (2, 4)).astype(dtype)
        addend = None if c is None else R.random(c).astype(dtype)
        run(
            "gemm",
            a,
            b,
            addend,
            alpha=0.5,
            beta=2.0,
            trans_a=trans_a,
            trans_b=trans_b,
            tolerance=tolerance,
        )


def test_gemm_of_integers_wants_whole_factors() -> None:
    a = np.int32([[1, 2]])
    assert run("gemm", a, a, trans_b=True, alpha=3.0).tolist() == [[15]]
    with pytest.raises(Unsupported, match="integer factor"):
        REGISTRY["gemm"].lower(v("i32", 1, 2), v("i32", 2, 1), alpha=0.5)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("ii->i", [(3, 3)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("iij->ij", [(3, 3, 2)]),
        ("ba", [(2, 3)]),
        ("ij,jk", [(2, 3), (3, 4)]),
        ("...ij,...jk->...ik", [(5, 1, 2, 3), (4, 3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ijk,k->j", [(2, 3, 4), (4,)]),
        ("ij,->ij", [(2, 3), ()]),
        (" i j , j k -> i k ", [(2, 3), (3, 4)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    for dtype in (np.float32, np.float64, np.int32):
        xs = [R.integers(-3, 4, s).astype(dtype) for s in shapes]
        close(run("einsum", *xs, equation=equation), np.einsum(equation, *xs))


@pytest.mark.parametrize(
    ("equation", "shapes", "words"),
    [
        ("ij,jk", [(2, 3)], "2 terms for 1 operands"),
        ("ij", [(2, 3, 4)], "ranks"),
        ("ij->ik", [(2, 3)], "no operand has"),
        ("i1->i", [(2, 3)], "letters"),
        ("ij,jk", [(2, 3), (4, 5)], "differ"),
    ],
)
def test_bad_einsum(equation: str, shapes: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        einsum(*[v("f32", *s) for s in shapes], equation=equation)


def test_integer_products_with_zeros_per_row_and_column() -> None:
    a, b = R.integers(0, 255, (4, 3)).astype(np.uint8), R.integers(-9, 9, (3, 5)).astype(np.int8)
    a_zero, b_zero = np.arange(4, dtype=np.uint8), np.arange(5, dtype=np.int8)
    want = (a.astype(int) - a_zero[:, None].astype(int)) @ (b.astype(int) - b_zero)
    assert np.array_equal(run("matmul_integer", a, b, a_zero, b_zero, declines=True), want)
    scales = np.full(5, 0.02, np.float32)
    got = run(
        "qlinear_matmul",
        a,
        np.float32(0.1),
        np.uint8(3),
        b,
        scales,
        b_zero,
        np.float32(0.5),
        np.int8(-4),
        declines=True,
    )
    real = (a.astype(float) - 3) * 0.1 @ ((b.astype(float) - b_zero) * 0.02)
    assert np.array_equal(got, np.clip(np.rint(real / 0.5) - 4, -128, 127))


def test_det() -> None:
    x = R.random((2, 3, 3))
    close(run("det", x), np.linalg.det(x))
    assert run("det", x.astype(np.float16)).dtype == np.float16


def test_multiply_accumulates() -> None:
    y = matmul(v("f32", 2, 3, 4), v("f32", 4, 5))
    assert REGISTRY["matmul"].macs(y.producer) == 2 * 3 * 4 * 5
    y = gemm(v("f32", 4, 3), v("f32", 4, 5), trans_a=True)
    assert REGISTRY["gemm"].macs(y.producer) == 3 * 4 * 5


@pytest.mark.parametrize(
    ("a", "b"), [(("f32", 2, 3), ("f32", 4, 5)), (("f32",), ("f32", 1)), (("f32", 1), ("f64", 1))]
)
def test_bad_matmul(a: tuple[str, int], b: tuple[str, int]) -> None:
    with pytest.raises(BadInput):
        matmul(v(*a), v(*b))
