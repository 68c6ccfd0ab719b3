from __future__ import annotations

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput
from intaglio.ir import Type, Value
from intaglio.ops import attention
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(5)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def test_one_head_by_hand() -> None:
    q, k, v = f(1, 1, 2, 4), f(1, 1, 3, 4), f(1, 1, 3, 5)
    scores = np.exp(q[0, 0] @ k[0, 0].T * 0.3)
    want = scores / scores.sum(1, keepdims=True) @ v[0, 0]
    close(run("attention", q, k, v, scale=0.3)[0, 0], want)


@pytest.mark.parametrize(("dtype", "tolerance"), FLOATS.items())
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_groups_share_keys(dtype: type, tolerance: float, softcap: float) -> None:
    q, k, v = (x.astype(dtype) for x in (f(2, 6, 3, 4), f(2, 2, 5, 4), f(2, 2, 5, 3)))
    mask = f(2, 1, 3, 5).astype(dtype)
    got = run("attention", q, k, v, mask, scale=0.5, softcap=softcap, tolerance=tolerance)
    k, v = np.repeat(k, 3, 1), np.repeat(v, 3, 1)
    want = run("attention", q, k, v, mask, scale=0.5, softcap=softcap, tolerance=tolerance)
    close(got, want)


def test_masks() -> None:
    q, k, v = f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 3, 4)
    seen = np.tril(np.ones((3, 3), bool))
    causal = run("attention", q, k, v, seen, scale=1.0)
    close(causal[:, :, 0], v[:, :, 0])  # the first sees only itself
    added = np.where(seen, 0, -np.inf).astype(np.float32)
    close(run("attention", q, k, v, added, scale=1.0), causal)


def test_a_row_that_sees_nothing_is_zero() -> None:
    q, k, v = f(1, 1, 2, 4), f(1, 1, 3, 4), f(1, 1, 3, 4)
    seen = np.array([[False, False, False], [True, True, False]])
    got = run("attention", q, k, v, seen, scale=1.0)
    assert not got[0, 0, 0].any()
    assert np.isfinite(got).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_keeps_lengths_and_can_be_undone(interleaved: bool) -> None:
    x, angle = f(2, 3, 5, 10), f(5, 4)
    cos, sin = np.cos(angle), np.sin(angle)
    y = run("rotary_embedding", x, cos, sin, interleaved=interleaved)
    close(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1))
    assert np.array_equal(y[..., 8:], x[..., 8:])
    close(run("rotary_embedding", y, cos, -sin, interleaved=interleaved), x)


def test_work_and_refusals() -> None:
    def v(*shape: int) -> Value:
        return Value(Type("f32", shape))

    y = attention(v(2, 4, 3, 8), v(2, 2, 5, 8), v(2, 2, 5, 6), scale=1.0)
    assert REGISTRY["attention"].macs(y.producer) == 2 * 4 * 3 * 5 * (8 + 6)
    with pytest.raises(BadInput, match="multiple"):
        attention(v(2, 3, 3, 8), v(2, 2, 5, 8), v(2, 2, 5, 6), scale=1.0)
    with pytest.raises(BadInput, match="batch, heads"):
        attention(v(3, 3, 8), v(2, 5, 8), v(2, 5, 6), scale=1.0)
    with pytest.raises(BadInput, match="mask"):
        attention(v(1, 1, 3, 8), v(1, 1, 5, 8), v(1, 1, 5, 6), v(2, 1, 3, 5), scale=1.0)
