"""The attention kernel: views, masks, groups of heads, blocks of keys, few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

import intaglio
from intaglio import ops
from intaglio.ir import Graph, Type, Value
from intaglio.ops.glu import GATES
from intaglio.targets.cpu import attention as cpu_attention  # noqa: F401  # defines the op

RNG = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(
    batch: int,
    heads: int,
    rows: int,
    keys: int,
    size: int,
    value_size: int,
    mask: Any = None,
    *,
    kv_heads: int = 0,
    joined: bool = True,
    **attrs: Any,
) -> np.ndarray:
    """Run one attention, with the heads interleaved in each row or stored one after another."""
    kv = kv_heads or heads

    def operand(n: int, length: int, width: int) -> tuple[np.ndarray, tuple[int, ...]]:
        if joined:
            row = n * width + 5
            return array(batch, length, row), (3, length * row, width, row)
        return array(batch, n, length, width), (0, n * length * width, length * width, width)

    (q, q_view), (k, k_view), (v, v_view) = (
        operand(heads, rows, size),
        operand(kv, keys, size),
        operand(kv, keys, value_size),
    )
    attrs = {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv,
        "rows": rows,
        "keys": keys,
        "size": size,
        "value_size": value_size,
        "q_view": q_view,
        "k_view": k_view,
        "v_view": v_view,
        "scale": size**-0.5,
        **attrs,
    }
    if size % 2 == 0 and "tolerance" not in attrs:
        check("cpu.attention_bf16", q, k, v, mask, tolerance=0.05, **attrs)
    return check("cpu.attention", q, k, v, mask, **attrs)[0]


SIZES = [
    (1, 1, 1, 1, 1, 1),
    (2, 3, 5, 7, 9, 4),
    (1, 2, 16, 16, 16, 16),
    (2, 2, 49, 49, 24, 24),
    (1, 2, 50, 33, 8, 40),
    (1, 1, 197, 197, 64, 64),
    (1, 4, 1, 130, 64, 64),
    (1, 2, 2, 600, 20, 70),
    (1, 2, 3, 40, 33, 17),
    (1, 1, 20, 1100, 16, 24),
    (2, 2, 9, 513, 7, 3),
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("joined", [True, False])
def test_sizes(sizes: tuple[int, ...], joined: bool) -> None:
    run(*sizes, joined=joined)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 4, 5, 6), (1, 2, 0, 4, 5, 6), (1, 2, 3, 4, 5, 0)])
def test_empty_operands(sizes: tuple[int, ...]) -> None:
    run(*sizes)


@pytest.mark.parametrize("rows", [2, 5])
def test_no_keys(rows: int) -> None:
    assert not run(1, 2, rows, 0, 4, 3).any()


@pytest.mark.parametrize(
    "shape", [(), (7,), (1,), (6, 7), (6, 1), (3, 6, 7), (2, 1, 1, 7), (1, 3, 6, 1), (2, 3, 6, 7)]
)
@pytest.mark.parametrize("kind", ["bool", "float", "low"])
@pytest.mark.parametrize("rows", [6, 2])
def test_masks(shape: tuple[int, ...], kind: str, rows: int) -> None:
    shape = tuple(rows if n == 6 else n for n in shape)
    mask: Any = RNG.random(shape) > 0.4
    if kind == "float":
        mask = np.where(mask, RNG.standard_normal(shape), -np.inf).astype(np.float32)
    elif kind == "low":
        mask = np.where(mask, 0, np.finfo(np.float32).min).astype(np.float32)
    run(2, 3, rows, 7, 8, 5, np.asarray(mask))


@pytest.mark.parametrize("rows", [8, 2])
@pytest.mark.parametrize("dtype", [np.bool_, np.float32])
def test_rows_that_attend_to_nothing_are_zero(rows: int, dtype: Any) -> None:
    mask = np.ones((rows, 9), bool)
    mask[1] = False
    given = mask if dtype is np.bool_ else np.where(mask, 0, -np.inf).astype(np.float32)
    y = run(1, 2, rows, 9, 8, 5, given)
    assert not y[:, 1].any()
    assert y[:, 0].all()


def test_a_row_masked_by_the_lowest_number_is_flat() -> None:
    lowest = np.full((6, 7), np.finfo(np.float32).min)
    lowest[:, 5:] = -np.inf
    run(1, 2, 6, 7, 8, 5, lowest.astype(np.float32))


@pytest.mark.parametrize("length", [7, 64, 600])
def test_causal(length: int) -> None:
    run(1, 2, length, length, 8, 20, np.tri(length, dtype=bool))
    lower = np.where(np.tri(length, dtype=bool), 0, -np.inf).astype(np.float32)
    run(1, 2, length, length, 8, 20, lower)


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 11])
def test_groups(kv_heads: int, rows: int) -> None:
    run(2, 6, rows, 13, 8, 8, RNG.random((2, 6, rows, 13)) > 0.3, kv_heads=kv_heads)


def test_softcap_and_large_scores() -> None:
    run(1, 2, 9, 20, 8, 8, softcap=3.0, scale=2.0)
    run(1, 2, 2, 20, 8, 8, softcap=3.0, scale=2.0)
    run(1, 2, 9, 20, 8, 8, scale=40.0, tolerance=1e-3)


def test_keys_with_a_stride_of_zero() -> None:
    """A stride of 0 makes all heads read the same keys."""
    q, k = array(1, 4, 6, 8), array(1, 1, 5, 8)
    y = check(
        "cpu.attention",
        q,
        k,
        k,
        None,
        batch=1,
        heads=4,
        kv_heads=4,
        rows=6,
        keys=5,
        size=8,
        value_size=8,
        q_view=(0, 192, 48, 8),
        k_view=(0, 40, 0, 8),
        v_view=(0, 40, 0, 8),
        scale=0.3,
    )
    want = ops.attention.body(q, k, k, None, scale=0.3)
    np.testing.assert_allclose(y[0], want.swapaxes(1, 2), rtol=1e-5, atol=1e-6)


# ---- rotary embedding and gated activations ------------------------------------------------------
ANGLES = [
    ((3, 4), (4, 7)),
    ((2, 3, 5), (5, 16)),
    ((2, 3, 5), (2, 1, 5, 8)),
    ((2, 5, 3), (5, 1, 20)),
    ((7,), (7, 3)),
    ((), (5,)),
    ((0, 4), (4, 3)),
    ((2, 3), (1,)),
    ((2,), (0,)),
]
HALVED = [
    ((2, 6), -1),
    ((3, 4, 5), 1),
    ((2, 0), 1),
    ((4,), 0),
    ((5, 3000), 1),
    ((0, 4), 1),
    ((2, 3, 34), 2),
]


@pytest.mark.parametrize(("lead", "angles"), ANGLES)
@pytest.mark.parametrize("rest", [0, 3])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(lead: Any, angles: Any, rest: int, interleaved: bool) -> None:
    x = array(*lead, 2 * angles[-1] + rest)
    check("rotary_embedding", x, array(*angles), array(*angles), interleaved=interleaved)


@pytest.mark.parametrize("act", GATES)
@pytest.mark.parametrize(("shape", "axis"), HALVED)
def test_glu(act: str, shape: Any, axis: int) -> None:
    check("glu", array(*shape), axis=axis, act=act, gate_first=False)
    check("glu", array(*shape), axis=axis, act=act, gate_first=True)


def test_half_precision_is_lowered() -> None:
    x = Value(Type("f16", (2, 6)), "x")
    compiled = intaglio.compile(Graph([x], [ops.glu(x)], ["y"]))
    given = array(2, 6).astype(np.float16)
    with intaglio.open(compiled.bytes) as session:
        y = session.run({"x": given})["y"]
    np.testing.assert_allclose(y, ops.glu.body(given), rtol=2e-3)
