"""Kernels that move elements: against their numpy bodies, in every element size."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

SIZES = [np.float32, np.uint8, np.float16, np.float64, np.bool_, ml_dtypes.int4]
END = 2**62


def numbered(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=np.int64)).reshape(shape).astype(np.int8).astype(dtype)


@pytest.mark.parametrize("dtype", SIZES)
def test_reshape(dtype: Any) -> None:
    check("reshape", numbered((4, 6), dtype), shape=(3, 8))
    check("reshape", numbered((4, 6), dtype), shape=(2, -1, 2))
    check("reshape", numbered((0, 6), dtype), shape=(3, 0))
    check("reshape", numbered((1,), dtype), shape=())


@pytest.mark.parametrize("dtype", SIZES)
def test_transpose(dtype: Any) -> None:
    for shape in [(), (5,), (0, 3), (33, 47), (64, 64), (3, 1, 5), (2, 17, 19), (2, 3, 17, 18)]:
        for perm in itertools.permutations(range(len(shape))):
            check("transpose", numbered(shape, dtype), perm=perm)
    check("transpose", numbered((2, 3, 2, 3, 2, 3, 2, 3), dtype), perm=(7, 1, 5, 3, 4, 2, 6, 0))


@pytest.mark.parametrize("turns", [4, 5, 17, 70])
def test_short_runs_of_every_length(turns: int) -> None:
    """Runs as in a pixel shuffle; also runs in reverse order, and with gaps between them."""
    for run in range(1, 18):
        x = numbered((2, turns, 3, run), np.uint8)
        check("transpose", x, perm=(0, 2, 1, 3))
        for start, stop, step in ((-1, -END, -1), (0, END, 2)):
            ends = {"start": (0, start, 1, 0), "stop": (2, stop, 3, run), "step": (1, step, 1, 1)}
            check("slice", x, **ends)
            check("slice", x[:, :, 0], **{k: (*v[:2], v[3]) for k, v in ends.items()})
    check("transpose", numbered((1, 5, turns, 3, 3)), perm=(0, 1, 3, 2, 4))


@pytest.mark.parametrize("rows", [4, 7, 8, 9, 58, 300])
@pytest.mark.parametrize("cols", [2, 3])
def test_transpose_of_two_rows(rows: int, cols: int) -> None:
    check("transpose", numbered((3, 5, cols, rows), "float32"), perm=(0, 1, 3, 2))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 17, 33, 300])
def test_every_second_element(n: int) -> None:
    """Pixels of two channels to planes, and slices with a step of two that end early or not."""
    check("transpose", numbered((n, 2), "float32"), perm=(1, 0))
    for length in (2 * n - 1, 2 * n):
        cut = {"start": (0,), "stop": (length,), "step": (2,)}
        check("slice", numbered((length,), "float32"), **cut)


def test_transpose_of_images() -> None:
    x = np.random.default_rng(0).normal(size=(2, 40, 50, 35)).astype(np.float32)
    check("transpose", x, perm=(0, 2, 3, 1))
    check("transpose", x, perm=(0, 3, 1, 2))
    check("transpose", x, perm=(0, 3, 2, 1))


@pytest.mark.parametrize("dtype", SIZES)
def test_expand_and_tile(dtype: Any) -> None:
    for shape, to in [
        ((), (3, 2)),
        ((3, 1), (2, 1, 40)),
        ((5, 1), (1,)),
        ((1, 4), (0, 1)),
        ((7,), (2000, 7)),
        ((3, 70, 1), (3, 70, 2)),  # every element several times in a row
        ((2, 1, 400, 1), (2, 3, 400, 5)),
        ((1, 9, 1), (4, 9, 17)),
    ]:
        check("expand", numbered(shape, dtype), shape=to)
    for shape, repeats in [
        ((), ()),
        ((3,), (4,)),
        ((2, 3), (2, 2)),
        ((2, 3), (1, 0)),
        ((2, 1, 5), (3, 4, 1)),
    ]:
        check("tile", numbered(shape, dtype), repeats=repeats)
    check("tile", numbered((1, 2, 1, 2, 1, 2, 1, 2), dtype), repeats=(2, 2, 2, 2, 2, 2, 2, 2))


@pytest.mark.parametrize("dtype", SIZES)
def test_concat(dtype: Any) -> None:
    x = numbered((3, 4, 50), dtype)
    for axis in (0, 1, 2, -1):
        check("concat", x, x[::-1], axis=axis)
        check("concat", x, axis=axis)
    check("concat", x[:, :0], x, x[:, :1], x[:, :0], axis=1)
    check("concat", x[:0], x[:0], axis=0)
    check("concat", numbered((700, 3), dtype), numbered((900, 3), dtype), axis=0)


@pytest.mark.parametrize("dtype", SIZES)
def test_slice(dtype: Any) -> None:
    x = numbered((5, 6, 70), dtype)
    for cut in [
        ((0, 0, 0), (END, END, END), (1, 1, 1)),
        ((1, 2, 3), (4, -1, 60), (1, 1, 1)),
        ((0, 0, 0), (5, 6, 70), (2, 3, 7)),
        ((-1, -1, -1), (-END, -END, -END), (-1, -1, -1)),
        ((4, 5, 65), (0, -END, 2), (-2, -1, -3)),
        ((100, 0, 0), (END, END, END), (1, 1, 1)),
        ((-100, -3, 1), (END, END, 2), (END, 1, 1)),
        ((0, 0, 60), (END, END, END), (1, 1, -(2**63))),
    ]:
        start, stop, step = cut
        check("slice", x, start=start, stop=stop, step=step)
    check("slice", numbered((), dtype), start=(), stop=(), step=())
    check("slice", numbered((0, 4), dtype), start=(0, 1), stop=(9, 3), step=(1, 1))


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, np.int64])
def test_pad(mode: str, dtype: Any) -> None:
    for shape, before, after in [
        ((), (), ()),
        ((5,), (2,), (3,)),
        ((1,), (3,), (2,)),
        ((3, 4, 6), (0, 0, 0), (0, 0, 0)),
        ((3, 4, 6), (1, 2, 3), (2, 1, 0)),
        ((2, 3, 4, 5), (0, 1, 2, 0), (0, 2, 1, 0)),
        ((3, 2), (7, 5), (8, 9)),
        ((0, 3), (0, 1), (0, 1)),
    ]:
        check("pad", numbered(shape, dtype), before=before, after=after, mode=mode, value=3.0)
    if mode == "constant":
        check("pad", numbered((0, 2), dtype), before=(2, 1), after=(1, 0), mode=mode, value=5.0)


def test_shapes_known_at_run_time() -> None:
    x = numbered((4, 6))
    check("shape_of", x)
    check("shape_of", numbered(()))
    check("reshape_to", x, np.array([3, -1]), bound=(3, 8))
    check("reshape_to", x, np.array([2, 2, 6], np.int32), bound=(4, 4, 6))
    check("expand_to", numbered((3, 1)), np.array([2, 1, 4]), bound=(2, 3, 4))
    check("expand_to", numbered((3, 1)), np.array([5]), bound=(3, 9))
    cuts = np.array([1, -1]), np.array([3, -99]), np.array([1, -2])
    check("slice_to", x, *cuts, axes=(0, 1), bound=(2, 3))
    check("slice_to", x, *[c[1:] for c in cuts], axes=(1,), bound=(4, 3))
    for dtype in (np.int32, np.int64, np.float32, np.float64, np.int16, np.float16):
        check("range", dtype(3), dtype(20), dtype(2), bound=(12,))
        check("range", dtype(5), dtype(-8), dtype(-3), bound=(12,))
        check("range", dtype(5), dtype(5), dtype(1), bound=(12,))


def test_refusals() -> None:
    x = numbered((2, 3))

    def pads(rows: int, mode: str) -> dict[str, Any]:
        return {"before": (rows, 0), "after": (abs(rows), 0), "mode": mode, "value": 0.0}

    for words, op, arrays, attrs in [
        ("as many elements", "reshape", [x], {"shape": (4, 2)}),
        ("as many elements", "reshape", [x], {"shape": (-1, -1)}),
        ("as many elements", "reshape", [x], {"shape": (2**40, 2**40)}),
        ("no permutation", "transpose", [x], {"perm": (1, 1)}),
        ("no permutation", "transpose", [x], {"perm": (0, 5)}),
        ("does not broadcast", "expand", [x], {"shape": (2, 4)}),
        ("too large", "expand", [x[:1, :1]], {"shape": (2**40, 2**40)}),
        ("too large", "expand", [x[:1, :1]], {"shape": (-3, 1)}),
        ("too large", "tile", [x], {"repeats": (2**40, 2**40)}),
        ("too large", "tile", [x], {"repeats": (2**62, 2**62)}),
        ("negative", "tile", [x], {"repeats": (-1, 1)}),
        ("axis is not", "concat", [x, x], {"axis": 2}),
        ("differ off the axis", "concat", [x, x[:1]], {"axis": 1}),
        ("element type", "concat", [x, x.astype(np.float64)], {"axis": 1}),
        ("step is 0", "slice", [x], {"start": (0, 0), "stop": (1, 1), "step": (1, 0)}),
        (
            "negative",
            "pad",
            [x],
            {"before": (-1, 0), "after": (0, 0), "mode": "edge", "value": 0.0},
        ),
        (
            "too large",
            "pad",
            [x],
            {"before": (2**62, 0), "after": (2**62, 0), "mode": "edge", "value": 0.0},
        ),
        (
            "empty axis",
            "pad",
            [x[:0]],
            {"before": (1, 0), "after": (0, 0), "mode": "wrap", "value": 0.0},
        ),
        ("exceeds", "reshape_to", [x, np.array([6])], {"bound": (5,)}),
        ("as many elements", "reshape_to", [x, np.array([7])], {"bound": (9,)}),
        ("exceeds", "expand_to", [x, np.array([5, 1, 1])], {"bound": (4, 2, 3)}),
        ("step is 0", "slice_to", [x, *[np.array([0])] * 3], {"axes": (0,), "bound": (2, 3)}),
        ("axes are not", "slice_to", [x, *[np.array([1])] * 3], {"axes": (2,), "bound": (2, 3)}),
        ("delta is 0", "range", [np.float32(0)] * 3, {"bound": (5,)}),
        ("exceeds", "range", [np.int64(0), np.int64(2**62), np.int64(1)], {"bound": (5,)}),
        ("exceeds", "range", [np.float32(0), np.float32(np.nan), np.float32(1)], {"bound": (5,)}),
    ]:
        kernel = native.find_kernel(op, "f32", 0)
        assert kernel
        with pytest.raises(RunError, match=words):
            native.run_kernel(kernel, arrays, attrs)  # type: ignore[arg-type]
