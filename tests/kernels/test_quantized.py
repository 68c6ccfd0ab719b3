"""Kernels of arithmetic on quantised tensors: every instruction set gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.check import check

from intaglio import dtypes, native
from intaglio.errors import RunError

RNG = np.random.default_rng(6)


def codes(dtype, *shape):
    low, high = dtypes.limits(dtype)
    return RNG.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))


# ---- tables --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (1,), (31,), (64,), (65,), (7, 129), (3, 4099), (0, 5)])
@pytest.mark.parametrize("x", ["i8", "u8"])
@pytest.mark.parametrize("table", ["i8", "u8", "i16", "f32", "f64", "bf16", "bool"])
def test_lookup(shape, x, table):
    entries = RNG.integers(0, 100, 256).astype(np.float32) if table in ("f32", "f64", "bf16") else (
        RNG.integers(0, 2, 256) if table == "bool" else codes(table, 256))  # fmt: skip
    check("lookup", codes(x, *shape), entries.astype(dtypes.numpy_of(table)), tolerance=0)


def test_every_entry_is_found():
    (y,) = check("lookup", np.arange(256, dtype=np.uint8), np.arange(255, -1, -1, np.uint8))
    np.testing.assert_array_equal(y, np.arange(255, -1, -1))


def refused(op, arrays, attrs=None):
    kernel = native.find_kernel(op, "u8", 0)
    assert kernel is not None
    with pytest.raises(RunError):
        native.run_kernel(kernel, arrays, attrs or {})


X, T = np.zeros(3, np.uint8), np.zeros(256, np.uint8)


@pytest.mark.parametrize(
    "arrays", [[X], [X.astype(np.int16), T], [X, T[1:]], [X, T.reshape(2, 128)]]
)
def test_lookup_refuses(arrays):
    refused("lookup", arrays)
