"""cast and bitcast against their numpy bodies: every pair of the 23 element types."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes
from intaglio.errors import RunError

NAMES = list(dtypes.TABLE)


def samples(name: str) -> np.ndarray:
    """Every code of a one-byte type; edges and random values of the others."""
    d = dtypes.TABLE[name]
    if d.kind == "b":
        return np.array([False, True, True, False, True])
    if d.bits < 8:
        return (
            np.arange(1 << d.bits, dtype=np.int64).astype(d.numpy)
            if d.kind != "f"
            else (np.arange(16, dtype=np.uint8).view(d.numpy))
        )
    if d.bits == 8:
        return np.arange(256, dtype=np.uint8).view(d.numpy)
    rng = np.random.default_rng(3)
    if d.bits == 16:
        return np.arange(65536, dtype=np.uint16).view(d.numpy)
    if d.kind in "iu":
        low, high = dtypes.limits(name)
        edges = [low, low + 1, high, high - 1, 0, 1, 2, 7, 8, 100, 127, 128, 255, 256, 65504, 65520]
        wide = np.uint64 if low == 0 else np.int64
        return np.concatenate(
            [np.array(edges, wide), rng.integers(low, high, 500, wide, True)]
        ).astype(d.numpy)
    edges = [
        0,
        -0.0,
        1,
        -1,
        0.5,
        1.5,
        2.5,
        -1.5,
        240,
        448,
        464,
        465,
        57344,
        61440,
        65504,
        65520,
        1e9,
        -1e9,
        3e9,
        1e20,
        -1e20,
        np.inf,
        -np.inf,
        np.nan,
        2.0**31,
        -(2.0**31),
        2.0**63,
        2.0**64,
        1e-9,
        6e-8,
        1e-45,
    ]
    spread = rng.normal(size=2000) * 2.0 ** rng.integers(-20, 20, 2000)
    return np.concatenate([np.array(edges), spread]).astype(d.numpy)


@pytest.mark.parametrize("to", NAMES)
@pytest.mark.parametrize("source", NAMES)
def test_cast_between_all_types(source: str, to: str) -> None:
    x = samples(source)
    check("cast", x, dtype=to, saturate=True, tolerance=0.0)
    if dtypes.TABLE[to].bits <= 8 and dtypes.is_float(to):
        check("cast", x, dtype=to, saturate=False, tolerance=0.0)


def test_cast_of_no_and_of_one_element() -> None:
    check("cast", np.zeros((2, 0, 3), np.float32), dtype="f16")
    check("cast", np.float32(2.5).reshape(()), dtype="i8")


def test_bitcast() -> None:
    x = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    check("bitcast", x, dtype="i32")
    check("bitcast", x, dtype="u32")
    check("bitcast", np.arange(256, dtype=np.uint8), dtype="f8e5m2")


def test_bitcast_refuses_other_sizes() -> None:
    from intaglio import native

    kernel = native.find_kernel("bitcast", "f32", 0)
    assert kernel
    with pytest.raises(RunError, match="different sizes"):
        native.run_kernel(kernel, [np.zeros(3, np.float32)], {"dtype": "f64"})
