"""The operands of a quantised convolution in the form that units take: i8 weights, rank 4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Value
from intaglio.npu.lowering.builder import (
    Builder,
    Refused,
    before_reshapes,
    data,
    integer,
    is_npu,
    require_integers,
    scale_of,
    two_axes,
)
from intaglio.npu.lowering.conv_groups import Convolution
from intaglio.npu.lowering.data_movement import select_channels
from intaglio.npu.ops import concat, resize
from intaglio.npu.ops.feature_maps import WEIGHTS


class QlinearConv(NamedTuple):
    """The inputs of qlinear_conv: x, w, result and residual, each with scale and zero point."""

    x: Value
    xs: Value
    xz: Value
    w: Value
    ws: Value
    wz: Value
    ys: Value | None = None
    yz: Value | None = None
    bias: Value | None = None
    residual: Value | None = None
    rs: Value | None = None
    rz: Value | None = None

    def convolution(self, make: Builder, window: dict[str, Any], view: str) -> Convolution:
        """The operands for units; the residual is one of integers."""
        residual, outputs, attrs = self.residual, self.w.shape[0], dict(window)
        require_integers(self.x, self.w, residual)
        for v in (self.xs, self.ys, self.rs):
            if v is not None:
                scale_of(v)
        if self.xz.type.size != 1:
            raise Refused(
                f"an activation has {self.xz.type.size} zero points; one per tensor is needed"
            )
        scales, bias = self._scales(outputs), self._bias(outputs)
        weights, groups = _without_zero_point(self.w, self.wz), attrs.pop("groups")
        if self.x.type.rank == 3:
            weights, attrs = weights[..., None], two_axes(attrs)
        attrs |= {"x_zero": integer(self.xz), "dtype": "f32"}
        if self.ys is not None and self.yz is not None:
            low, high = dtypes.limits(self.yz.dtype)
            attrs |= {"y_zero": integer(self.yz), "low": low, "high": high, "dtype": self.yz.dtype}
        if residual is not None and self.rs is not None and self.ys is not None:
            factor = float(scale_of(self.rs) / scale_of(self.ys))
            attrs |= {"r_zero": integer(self.rz), "r_factor": factor}
            column = view == "column"
            residual = make.as_column(residual) if column else make.as_feature_map(residual)
        x, weights = viewed_operands(make, self.x, weights, attrs, view)
        return _narrow_weights(make, Convolution(x, weights, scales, bias, residual, groups, attrs))

    def _scales(self, outputs: int) -> Array:
        """The factors from sums to results, rounded to f32 as the neutral op rounds them."""
        one = np.float32(1)
        scale = (one * data(self.xs).reshape(-1)) * (one * data(self.ws).reshape(-1))
        scale = scale if self.ys is None else scale / (one * data(self.ys).reshape(-1))
        if not np.isfinite(scale).all() or scale.size not in (1, outputs):
            raise Refused(
                f"there are {scale.size} scales for {outputs} channels, or one is not finite"
            )
        return np.broadcast_to(scale.astype(np.float32), (outputs,))

    def _bias(self, outputs: int) -> Array:
        if self.bias is None:
            return np.zeros(outputs, np.int32)
        numbers, (low, high) = data(self.bias), dtypes.limits("i32")
        if numbers.size and not low <= numbers.min() <= numbers.max() <= high:
            raise Refused(f"a bias is as large as {np.abs(numbers).max()}; units add 32 bits")
        return numbers.astype(np.int32)


def _without_zero_point(w: Value, wz: Value) -> Array:
    """Weights minus their zero point, as i32."""
    zero = data(wz).astype(np.int32).reshape(-1, *[1] * (w.type.rank - 1))
    return data(w).astype(np.int32) - zero


def _narrow_weights(make: Builder, product: Convolution) -> Convolution:
    """Weights as i8 (or i16, if the feature map is i16).

    Weights that need nine bits become sums of two i8, each of which multiplies a copy of the
    feature map. The sums stay the same, and so do the result's bits.
    """
    w, x, a = product.w, product.x, product.attrs
    for kind in WEIGHTS[x.dtype]:
        low, high = dtypes.limits(kind)
        if not w.size or (w.min() >= low and w.max() <= high):
            return replace(product, w=w.astype(dtypes.numpy_of(kind)))
    halves = w >> 1, w - (w >> 1)
    if halves[1].max() > 127:
        raise Refused(
            f"weights minus their zero point range from {w.min()} to {w.max()}: "
            "quantise them symmetrically"
        )
    first, second = (h.astype(np.int8) for h in halves)
    if product.groups == 1:
        return replace(product, x=make(concat, x, x), w=np.concatenate([first, second], 1))
    if a["dilation"][1] == 1:  # repeat every column, and every tap of the window
        wide = np.stack([first, second], 4).reshape(*w.shape[:3], 2 * w.shape[3])
        top, left, bottom, right = a["pad"]
        window = {
            "stride": (a["stride"][0], 2 * a["stride"][1]),
            "pad": (top, 2 * left, bottom, 2 * right),
        }
        return replace(product, x=make(resize, x, factor=(1, 2)), w=wide, attrs={**a, **window})
    twice = np.repeat(np.arange(x.shape[1]), 2)
    interleaved = np.stack([first, second], 2).reshape(w.shape[0], 2 * w.shape[1], *w.shape[2:])
    return replace(product, x=select_channels(make, x, twice), w=interleaved)


# ---- views ---------------------------------------------------------------------------------------
def operand_views(x: Value, w: Value, window: dict[str, Any]) -> list[str]:
    """How a unit can read the operands of a convolution, the best view first.

    "image": as they are. "patches": windows that do not overlap, as in vision transformers, become
    the channels of single pixels. "window": a linear layer of a flattened feature map is a
    convolution with a window of that map's size. "column": rows of channels, such as tokens, become
    one feature map instead of one each.
    """
    if _has_patches(x, w, window):
        return ["image", "patches"]
    if x.type.rank != 3 or x.shape[2] != 1 or w.shape[2] != 1 or x.type.dynamic:
        return ["image"]
    if _before_flattening(x) is not None:
        return ["window", "image"]
    shape = (*x.shape, 1)

    def made_by_npu(v: Value) -> bool:
        return v.shape == shape and v.producer is not None and is_npu(v.producer)

    single = x.shape[0] == 1 or before_reshapes(x, made_by_npu) is not None
    return ["image"] if single else ["column", "image"]


def viewed_operands(
    make: Builder, x: Value, w: Array, attrs: dict[str, Any], view: str
) -> tuple[Value, Array]:
    """Feature map and weights in one of these views; adapts the window in `attrs` to it."""
    if view == "patches":
        attrs["stride"] = (1, 1)
        return _patches(make, x, w.shape[2:]), w.reshape(len(w), -1, 1, 1)
    if view == "window" and (flat := _before_flattening(x)) is not None:
        return flat, w.reshape(len(w), *flat.shape[1:])
    return make.as_column(x) if view == "column" else make.as_feature_map(x), w


def _has_patches(x: Value, w: Value, window: dict[str, Any]) -> bool:
    """Do the windows cover the feature map without overlap or padding?"""
    if x.type.rank != 4 or x.type.dynamic or window["groups"] != 1 or any(window["pad"]):
        return False
    fit = all(d % k == 0 for d, k in zip(x.shape[2:], w.shape[2:], strict=True))
    return fit and window["stride"] == w.shape[2:] != (1, 1) and set(window["dilation"]) == {1}


def _patches(make: Builder, x: Value, kernel: tuple[int, ...]) -> Value:
    """The CPU moves the elements of each window to the channels of one pixel."""
    (n, c, h, w), (kh, kw) = x.shape, kernel
    split = make.reshaped(x, (n, c, h // kh, kh, w // kw, kw))
    turned = make.on_cpu(ops.transpose, split, perm=(0, 1, 3, 5, 2, 4))
    return make.reshaped(turned, (n, c * kh * kw, h // kh, w // kw))


def _before_flattening(x: Value) -> Value | None:
    """The feature map that was flattened to the channels of `x`, [N, C * H * W, 1]."""

    def fits(v: Value) -> bool:
        return v.type.rank == 4 and v.shape[0] == x.shape[0] and v.shape[2:] != (1, 1)

    found = before_reshapes(x, fits)
    return None if found is None or found.type.dynamic else found
