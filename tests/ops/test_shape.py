from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.ops.body import run

from intaglio.errors import BadInput, RunError, Unsupported
from intaglio.ir import Type, Value
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(0)
FAR = 1 << 62
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.bool_, ml_dtypes.int4]


def a(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return R.integers(0, 7, shape).astype(dtype)


def infer(op: str, *types: Type, **attrs: Any) -> str:
    return str(REGISTRY[op].node(*[Value(t, "x") for t in types], **attrs).outputs[0].type)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (2, 0, 4)])
def test_moving_keeps_every_type(dtype: Any, shape: tuple[int, ...]) -> None:
    x = a(*shape, dtype=dtype)
    assert np.array_equal(run("transpose", x, perm=(2, 0, 1)), x.transpose(2, 0, 1))
    assert np.array_equal(run("concat", x, x, axis=-2), np.concatenate([x, x], 1))
    assert np.array_equal(run("tile", x, repeats=(1, 2, 3)), np.tile(x, (1, 2, 3)))
    assert np.array_equal(run("expand", x, shape=(5, 1, 1, 1)), np.stack([x] * 5))
    flip = {"start": (0, FAR, 1), "stop": (FAR, -FAR, -1), "step": (1, -1, 2)}
    assert np.array_equal(run("slice", x, **flip), x[:, ::-1, 1:-1:2])
    assert np.array_equal(run("reshape", x, shape=(x.size,)), x.reshape(-1))
    assert np.array_equal(run("shape_of", x), shape)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad(mode: str) -> None:
    x = a(3, 4, 1)
    width = [(2, 7), (0, 1), (3, 0)]
    before, after = zip(*width, strict=True)
    assert np.array_equal(
        run("pad", x, before=before, after=after, mode=mode), np.pad(x, width, mode)
    )


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks(mode: str) -> None:
    x = a(2, 8, 3, 4)
    y = run("depth_to_space", x, blocksize=2, mode=mode)
    assert y.shape == (2, 2, 6, 8)
    assert np.array_equal(run("space_to_depth", y, blocksize=2, mode=mode), x)
    # channel 0 of block offset (0, 1): DCR keeps offsets outermost, CRD channels
    assert y[0, 0, 0, 1] == x[0, 2 if mode == "DCR" else 1, 0, 0]


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (1, 6, 3, 4), (2, 6, 0)])
def test_channel_shuffle(shape: tuple[int, ...]) -> None:
    x = a(*shape)
    y = run("channel_shuffle", x, groups=2)  # two groups of three: 0 1 2 | 3 4 5
    assert np.array_equal(y, x[:, [0, 3, 1, 4, 2, 5]])
    assert np.array_equal(run("channel_shuffle", y, groups=3), x)


def test_run_time_shapes() -> None:
    x, vector = a(2, 6), np.array([3, -1])
    assert run("reshape_to", x, vector, bound=(4, 4)).shape == (3, 4)
    assert run("expand_to", a(1, 6), np.array([3, 1]), bound=(8, 6)).shape == (3, 6)
    starts, stops, steps = (np.array([k]) for k in (-2, FAR, 1))
    y = run("slice_to", x, starts, stops, steps, axes=(1,), bound=(2, 6))
    assert np.array_equal(y, x[:, -2:])
    assert run("range", np.int8(9), np.int8(0), np.int8(-4), bound=(3,)).tolist() == [9, 5, 1]
    with pytest.raises(RunError, match=r"\(3, 4\) exceeds the bound \(2, 4\)"):
        run("reshape_to", x, vector, bound=(2, 4))
    with pytest.raises(RunError, match="delta is 0"):
        run("range", np.int8(0), np.int8(1), np.int8(0), bound=(3,))


def test_run_time_extents_travel() -> None:
    x = Type("f32", (10, 4), dynamic=(0,))
    assert infer("reshape", x, shape=(-1, 2)) == "f32[<=20x2]"
    assert infer("transpose", x, perm=(1, 0)) == "f32[4x<=10]"
    assert infer("expand", x, shape=(3, 1, 1)) == "f32[3x<=10x4]"
    assert infer("concat", x, x, axis=1) == "f32[<=10x8]"
    assert infer("concat", x, Type("f32", (2, 4)), axis=0) == "f32[<=12x4]"
    # an extent of 6 keeps 5 of [-8:5]; the bound of 10 itself only 3
    cut = {"start": (-8, 0), "stop": (5, FAR), "step": (1, 1)}
    assert infer("slice", x, **cut) == "f32[<=5x4]"
    pool = Type("f32", (1, 1, 10), dynamic=(2,))
    even = {"kernel": (1,), "stride": (2,), "pad": (0, 0), "dilation": (1,)}
    assert infer("max_pool", pool, **even) == "f32[1x1x<=5]"
    with pytest.raises(Unsupported, match="known only at run time"):
        infer("reshape", x, shape=(40,))


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        ("reshape", {"shape": (-1, -1)}, "at most one extent may be -1"),
        ("reshape", {"shape": (5,)}, "cannot reshape 6 elements"),
        ("transpose", {"perm": (0, 2)}, "not a permutation"),
        ("tile", {"repeats": (2,)}, "repeats has 1 entries"),
        ("expand", {"shape": (4, 3)}, "cannot be expanded"),
        ("slice", {"start": (0, 0), "stop": (1, 1), "step": (1, 0)}, "must not be 0"),
        ("pad", {"before": (-1, 0), "after": (0, 0)}, "must not be negative"),
        ("pad", {"before": (1, 0), "after": (0, 0), "mode": "mirror"}, "'mirror' is none of"),
        ("concat", {"axis": 2}, "axis 2 is outside"),
        ("channel_shuffle", {"groups": 2}, "cannot be split into 2 groups"),
    ],
)
def test_refusals(op: str, attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as e:
        run(op, a(2, 3), **attrs)
    assert words in str(e.value)
