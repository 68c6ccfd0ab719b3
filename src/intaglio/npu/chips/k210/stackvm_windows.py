"""The tensor functions of stackvm that slide a window over maps, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.chips.k210.stackvm import Padding, StackVm
from intaglio.npu.chips.k210.stackvm_code import REDUCTIONS
from intaglio.npu.chips.k210.stackvm_operands import FLOAT, Fields, clamped, only, source, store


def _taps(
    x: Array, f: Fields, kernel: tuple[int, int], paddings: tuple[Padding, Padding], value: Any
) -> list[list[Array]]:
    """The map [N, C, H, W] that each tap of the window reads, by row and column."""
    steps = (f["stride_h"], f["stride_w"]), (f["dilation_h"], f["dilation_w"])
    strides, dilations = steps
    bad = min(*strides, *dilations, *kernel) < 1 or any(p[2] for p in paddings)
    if bad or x.ndim != 4 or min(*paddings[0], *paddings[1]) < 0:
        raise BadFile(f"kmodel: a window of {kernel} with strides {strides} over {x.shape}")
    extents = [1, 1]
    for axis in (0, 1):
        whole = x.shape[2 + axis] + paddings[axis][0] + paddings[axis][1]
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        extents[axis] = (whole - reach) // strides[axis] + 1
        if whole < reach:
            raise BadFile(f"kmodel: a window of {kernel} is larger than its map {x.shape}")
    wide = np.pad(x, ((0, 0), (0, 0), *(p[:2] for p in paddings)), constant_values=value)
    ends = [(n - 1) * s + 1 for n, s in zip(extents, strides, strict=True)]
    return [
        [
            wide[:, :, i : i + ends[0] : strides[0], j : j + ends[1] : strides[1]]
            for j in range(0, kernel[1] * dilations[1], dilations[1])
        ]
        for i in range(0, kernel[0] * dilations[0], dilations[0])
    ]


def _padded(vm: StackVm, x: Array, paddings: tuple[Padding, Padding]) -> None:
    """Count the elements of a padded map before it is made."""
    high, wide = (
        d + max(p[0], 0) + max(p[1], 0) for d, p in zip(x.shape[2:], paddings, strict=True)
    )
    vm.count(x.shape[0] * x.shape[1] * high * wide)


def conv2d(vm: StackVm, f: Fields) -> None:
    """A convolution of floats."""
    right, down = vm.padding(), vm.padding()
    to, bias, weights, where = vm.address(), vm.address(), vm.address(), vm.address()
    only("conv2d", f)
    x = source(vm, f, where)
    w = vm.view(weights, FLOAT, vm.shape(f["rkernel"]), vm.shape(f["rkernel_stride"]))
    groups = f["groups"]
    if x.ndim != 4 or w.ndim != 4 or groups < 1 or w.shape[0] % groups:
        raise BadFile(f"kmodel: tensor.conv2d of {x.shape} with {w.shape} in {groups} groups")
    if x.shape[1] != w.shape[1] * groups:
        raise BadFile(f"kmodel: tensor.conv2d of {x.shape} with {w.shape} in {groups} groups")
    _padded(vm, x, (down, right))
    taps = _taps(x, f, w.shape[2:], (down, right), 0)
    n, _, high, wide = taps[0][0].shape
    vm.count(0, n * w.size * high * wide)
    split = n, groups, w.shape[1], high, wide
    kernel = w.reshape(groups, -1, *w.shape[1:]).astype(np.float64)
    total: Any = 0
    for i, row in enumerate(taps):
        for j, tap in enumerate(row):
            part = tap.reshape(split).astype(np.float64)
            total = total + np.einsum("ngchw,goc->ngohw", part, kernel[..., i, j], optimize=True)
    added = vm.view(bias, FLOAT, (w.shape[0],), vm.shape(f["rbias"]))
    made = total.reshape(n, -1, high, wide) + added.reshape(-1, 1, 1)
    store(vm, f, to, clamped(made.astype(np.float32), f))


def reduce_window2d(vm: StackVm, f: Fields) -> None:
    """Pooling of floats; pixels outside of the map do not count."""
    right, down = vm.padding(), vm.padding()
    to, first, where = vm.address(), vm.number(), vm.address()
    only("reduce_window2d", f)
    x = source(vm, f, where)
    if f["kind"] >= len(REDUCTIONS) or x.ndim != 4:
        raise BadFile(f"kmodel: tensor.reduce_window2d of kind {f['kind']} over {x.shape}")
    kind, kernel = REDUCTIONS[f["kind"]], (f["filter_h"], f["filter_w"])
    _padded(vm, x, (down, right))
    vm.count(x.size * kernel[0] * kernel[1])
    outside = {"min": np.inf, "max": -np.inf}.get(kind, 0.0)
    taps = [t for row in _taps(x, f, kernel, (down, right), outside) for t in row]
    if kind in ("min", "max"):
        function = np.minimum if kind == "min" else np.maximum
        made = function(function.reduce(taps), np.float32(first))
    else:
        made = np.sum(taps, 0, np.float64) + first
        if kind == "mean":
            inside = _taps(np.ones_like(x[:1, :1]), f, kernel, (down, right), 0)
            made = made / np.sum([t for row in inside for t in row], 0)
    store(vm, f, to, clamped(np.asarray(made, np.float32), f))
