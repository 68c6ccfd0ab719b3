"""Convolutions and linear layers of quantised tensors become npu.conv and npu.depthwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import (
    MOVING,
    Maker,
    Refused,
    before,
    data,
    is_npu,
    number,
    of_integers,
    real,
)
from intaglio.npu.lowering.data_movement import reordered
from intaglio.npu.ops import WEIGHTS, concat, conv, depthwise, resize, slice_
from intaglio.rewrite import P, Rule, rule
from intaglio.targets.chip import Chip

x, w, b, t = P["x w! b!? t!"]
xs, xz, ws, wz, ys, yz = P["xs! xz! ws! wz! ys!? yz!?"]
r, rs, rz = P["r? rs!? rz!?"]
PRODUCT = P.qlinear_conv(x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)
START = 512  # cycles by which one more instruction is dearer than one more product, about


@dataclass(frozen=True)
class Product:
    """A product as a unit takes it; nothing is built before it is called."""

    x: Value  # N x C x H x W
    w: Array  # i8 (or i16, f16) [OC, IC of the group, KH, KW]
    scale: Array  # f32 [OC]
    bias: Array  # i32 (of floats f32) [OC]
    residual: Value | None
    groups: int
    attrs: dict[str, Any]

    def __call__(self, make: Maker, chip: Chip, table: Value | None = None) -> Value:
        """The node, or the nodes of its groups."""
        channels, (many, deep) = self.x.shape[1], self.w.shape[:2]
        if self.groups == 1:
            most = chip.units["conv"].limits.get("channels", many)
            if isinstance(most, int) and many > most:
                return self._in_parts(make, chip, table, -(-many // -(-many // most)))
            return make(conv, self.x, *self._constants(), self.residual, table, **self.attrs)
        if not self.groups == channels == many or deep != 1 or "depthwise" not in chip.units:
            return self._in_groups(make, chip, table)
        return make(depthwise, self.x, *self._constants(), self.residual, table, **self.attrs)

    def _constants(self) -> tuple[Value, Value, Value]:
        w, scale, bias = (np.ascontiguousarray(a) for a in (self.w, self.scale, self.bias))
        return constant(w), constant(scale), constant(bias)

    def _in_groups(self, make: Maker, chip: Chip, table: Value | None) -> Value:
        """Some groups at a time, with zeros for the weights between them."""
        (many, deep), joined = self.w.shape[:2], _groups_at_once(chip, self)
        made = []
        for i in range(self.groups // joined):
            seen = self._cut(make, self.x, i * deep * joined, deep * joined)
            first, count = i * (many // self.groups * joined), many // self.groups * joined
            dense = _side_by_side(self.w[first : first + count], joined)
            made.append(self._part(make, seen, dense, first)(make, chip, table))
        return self._together(make, made)

    def _in_parts(self, make: Maker, chip: Chip, table: Value | None, size: int) -> Value:
        """Some output channels at a time."""
        made = [
            self._part(make, self.x, self.w[i : i + size], i)(make, chip, table)
            for i in range(0, self.w.shape[0], size)
        ]
        return self._together(make, made)

    def _part(self, make: Maker, x: Value, w: Array, first: int) -> Product:
        """The product of some output channels, with weights `w`."""
        rows = slice(first, first + w.shape[0])
        r = None if self.residual is None else self._cut(make, self.residual, first, w.shape[0])
        return Product(x, w, self.scale[rows], self.bias[rows], r, 1, self.attrs)

    def _together(self, make: Maker, made: list[Value]) -> Value:
        if len(made) == 1:
            return made[0]
        return make.beside(*made) if self.attrs["dtype"] == "f32" else make(concat, *made)

    def _cut(self, make: Maker, v: Value, first: int, count: int) -> Value:
        return v if count == v.shape[1] else make(slice_, v, first=first, count=count)


def _side_by_side(w: Array, groups: int) -> Array:
    """Weights of several groups as those of one, with zeros where groups do not meet."""
    many, deep = w.shape[0] // groups, w.shape[1]
    dense = np.zeros((w.shape[0], deep * groups, *w.shape[2:]), w.dtype)
    for g in range(groups):
        rows = slice(g * many, (g + 1) * many)
        dense[rows, g * deep : (g + 1) * deep] = w[rows]
    return dense


def _groups_at_once(chip: Chip, product: Product) -> int:
    """How many groups one convolution should do, by the channels that the unit does at once."""
    unit, groups, w = chip.units["conv"], product.groups, product.w
    kind = product.x.dtype
    into, out_of = unit.in_atom.get(kind, 1), unit.out_atom.get(kind, 1)
    # Pixels of the image rather than of the result: strides make both estimates alike.
    taps = w.shape[2] * w.shape[3] * product.x.shape[2] * product.x.shape[3]

    def cycles(k: int) -> int:
        blocks = -(-k * w.shape[1] // into) * -(-k * (w.shape[0] // groups) // out_of)
        return int(groups // k * (blocks * taps + (START if k < groups else 0)))

    return min((k for k in range(1, groups + 1) if groups % k == 0), key=lambda k: (cycles(k), -k))


# ---- operands ------------------------------------------------------------------------------------
def _without_zero(w: Value, wz: Value) -> Array:
    """Weights less their zero, in i32."""
    zero = data(wz).astype(np.int32).reshape(-1, *[1] * (w.type.rank - 1))
    return data(w).astype(np.int32) - zero


def _in_bytes(make: Maker, product: Product) -> Product:
    """Weights as i8; where they need nine bits, as sums of two, for an image that is there twice.

    What is summed up is the same, so the bits of the result are. Images of i16 take i16, too.
    """
    w, x, a = product.w, product.x, product.attrs
    for kind in WEIGHTS[x.dtype]:
        low, high = dtypes.limits(kind)
        if not w.size or (w.min() >= low and w.max() <= high):
            return replace(product, w=w.astype(dtypes.numpy_of(kind)))
    halves = w >> 1, w - (w >> 1)
    if halves[1].max() > 127:
        raise Refused(
            f"weights less their zero reach from {w.min()} to {w.max()}: "
            "quantise them symmetrically"
        )
    first, second = (h.astype(np.int8) for h in halves)
    if product.groups == 1:
        return replace(product, x=make(concat, x, x), w=np.concatenate([first, second], 1))
    if a["dilation"][1] == 1:  # every column is there twice, and so is every tap
        wide = np.stack([first, second], 4).reshape(*w.shape[:3], 2 * w.shape[3])
        top, left, bottom, right = a["pad"]
        window = {
            "stride": (a["stride"][0], 2 * a["stride"][1]),
            "pad": (top, 2 * left, bottom, 2 * right),
        }
        return replace(product, x=make(resize, x, factor=(1, 2)), w=wide, attrs={**a, **window})
    twice = np.repeat(np.arange(x.shape[1]), 2)
    beside = np.stack([first, second], 2).reshape(w.shape[0], 2 * w.shape[1], *w.shape[2:])
    return replace(product, x=reordered(make, x, twice), w=beside)


def _scales(xs: Value, ws: Value, ys: Value | None, many: int) -> Array:
    """From sums to results, rounded as the neutral op does it."""
    one = np.float32(1)
    scale = (one * data(xs).reshape(-1)) * (one * data(ws).reshape(-1))
    scale = scale if ys is None else scale / (one * data(ys).reshape(-1))
    if not np.isfinite(scale).all() or scale.size not in (1, many):
        raise Refused(f"{scale.size} scales for {many} channels, or one is zero or not finite")
    return np.broadcast_to(scale.astype(np.float32), (many,))


def _bias(b: Value | None, many: int) -> Array:
    if b is None:
        return np.zeros(many, np.int32)
    low, high = dtypes.limits("i32")
    if data(b).size and not low <= data(b).min() <= data(b).max() <= high:
        raise Refused(f"a bias is as large as {np.abs(data(b)).max()}; units add up to 32 bits")
    return data(b).astype(np.int32)


Given = tuple[
    Value,
    Value,
    Value,
    Value,
    Value,
    Value,
    Value | None,
    Value | None,
    Value | None,
    Value | None,
    Value | None,
    Value | None,
]


def _operands(make: Maker, given: Given, window: dict[str, Any], way: str) -> Product:
    """A qlinear_conv as a Product; its residual is one of bytes."""
    x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz = given
    of_integers(x, w, r)
    for v in (xs, ys, rs):
        if v is not None:
            real(v)
    if xz.type.size != 1:
        raise Refused(f"an activation has {xz.type.size} zeros; one per tensor is needed")
    many, weights, a = w.shape[0], _without_zero(w, wz), dict(window)
    scales, bias, groups = _scales(xs, ws, ys, many), _bias(b, many), a.pop("groups")
    if x.type.rank == 3:
        weights, a = weights[..., None], second_axis(a)
    attrs = {**a, "x_zero": number(xz), "dtype": "f32"}
    if ys is not None and yz is not None:
        low, high = dtypes.limits(yz.dtype)
        attrs |= {"y_zero": number(yz), "low": low, "high": high, "dtype": yz.dtype}
    if r is not None and rs is not None and ys is not None:
        attrs |= {"r_zero": number(rz), "r_factor": float(real(rs) / real(ys))}
        r = make.column(r) if way == "column" else make.image(r)
    seen, weights = as_seen(make, x, weights, attrs, way)
    return _in_bytes(make, Product(seen, weights, scales, bias, r, groups, attrs))


def as_seen(
    make: Maker, x: Value, w: Array, attrs: dict[str, Any], way: str
) -> tuple[Value, Array]:
    """Image and weights of a product in one of its ways; changes the window in `attrs` to that."""
    if way == "patches":
        attrs["stride"] = (1, 1)
        return _patches(make, x, w.shape[2:]), w.reshape(len(w), -1, 1, 1)
    if way == "window" and (flat := _before_flattening(x)) is not None:
        return flat, w.reshape(len(w), *flat.shape[1:])
    return make.column(x) if way == "column" else make.image(x), w


def _are_patches(x: Value, w: Value, window: dict[str, Any]) -> bool:
    """Do windows lie side by side, as those of tokens of a picture do?"""
    if x.type.rank != 4 or x.type.dynamic or window["groups"] != 1 or any(window["pad"]):
        return False
    fit = all(d % k == 0 for d, k in zip(x.shape[2:], w.shape[2:], strict=True))
    return fit and window["stride"] == w.shape[2:] != (1, 1) and set(window["dilation"]) == {1}


def _patches(make: Maker, x: Value, kernel: tuple[int, ...]) -> Value:
    """Windows that lie side by side as the channels of single pixels; the CPU moves them."""
    (n, c, h, w), (kh, kw) = x.shape, kernel
    split = make.shaped(x, (n, c, h // kh, kh, w // kw, kw))
    turned = make.moved(ops.transpose, split, perm=(0, 1, 3, 5, 2, 4))
    return make.shaped(turned, (n, c * kh * kw, h // kh, w // kw))


def ways(x: Value, w: Value, window: dict[str, Any]) -> list[str]:
    """How a product can see its image, the best first.

    A linear layer of a flattened image sees that through a "window" of its size. Rows of numbers,
    such as those of words, make one image as a "column", not one image each.
    """
    if _are_patches(x, w, window):
        return ["image", "patches"]
    if x.type.rank != 3 or x.shape[2] != 1 or w.shape[2] != 1 or x.type.dynamic:
        return ["image"]
    if _before_flattening(x) is not None:
        return ["window", "image"]
    shape = (*x.shape, 1)
    made = before(x, lambda v: v.shape == shape and v.producer is not None and is_npu(v.producer))
    return ["image"] if x.shape[0] == 1 or made is not None else ["column", "image"]


def second_axis(a: dict[str, Any]) -> dict[str, Any]:
    """A window of one axis as one of two."""
    (begin, end) = a["pad"]
    return {"stride": (*a["stride"], 1), "dilation": (*a["dilation"], 1), "pad": (begin, 0, end, 0)}


def _before_flattening(x: Value) -> Value | None:
    """The image whose numbers are the channels of `x`, [N, C * H * W, 1]."""

    def fits(v: Value) -> bool:
        return v.type.rank == 4 and v.shape[0] == x.shape[0] and v.shape[2:] != (1, 1)

    found = before(x, fits)
    return None if found is None or found.type.dynamic else found


# ---- rules ---------------------------------------------------------------------------------------
def products(make: Maker, chip: Chip) -> tuple[Rule, ...]:
    """The rules by which products become those of `chip`."""

    def computed(
        make: Maker,
        given: Given,
        window: dict[str, Any],
        shape: tuple[int, ...],
        table: Value | None = None,
        **changes: Any,
    ) -> Value:
        """The product in the first of the ways in which the chip can do it."""
        why: list[Refused] = []
        for way in ways(given[0], given[3], window):
            try:
                found = _operands(make, given, window, way)
                found.attrs.update(changes)
                made = found(make, chip, table)
                return make.rows(made, shape) if way == "column" else make.shaped(made, shape)
            except Refused as e:
                why.append(e)
        raise why[0]

    def ended(
        make: Maker,
        node: Node,
        product: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
        b: Value | None,
        r: Value | None,
        rs: Value | None,
        rz: Value | None,
        table: Value | None,
        **changes: Any,
    ) -> Value:
        beside = r if ys is None else None  # f32, added to f32: by the CPU, to the same bits
        given = (x, xs, xz, w, ws, wz, ys, yz, b, None if beside is not None else r, rs, rz)
        made = computed(make, given, product.attrs, node.outputs[0].shape, table, **changes)
        return made if beside is None else ops.add(made, beside)

    @rule(PRODUCT)
    def conv_on_npu(
        node: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
        b: Value | None,
        r: Value | None,
        rs: Value | None,
        rz: Value | None,
    ) -> Any:
        """qlinear_conv -> npu.conv or npu.depthwise, in groups with slices and a concat"""
        if node.outputs[0].dtype == "i16" and _becomes_bytes(node):
            return None  # goes with its table
        return make.tried(ended, node, node, x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz, table=None)

    @rule(P.lookup_wide(PRODUCT @ "product", t))
    def conv_and_table_on_npu(
        node: Node,
        product: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
        b: Value | None,
        r: Value | None,
        rs: Value | None,
        rz: Value | None,
        t: Value,
    ) -> Any:
        """qlinear_conv to 16 bits and a table of those -> npu.conv or npu.depthwise"""
        return make.tried(
            ended,
            node,
            product,
            x,
            xs,
            xz,
            w,
            ws,
            wz,
            ys,
            yz,
            b,
            r,
            rs,
            rz,
            table=t,
            base=node.attrs["base"],
            dtype=t.dtype,
        )

    def linear(
        make: Maker,
        node: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
    ) -> Value:
        if w.type.rank != 2 or x.type.rank < 2 or x.type.dynamic or not x.type.size:
            raise Refused(f"{x.type} times {w.type} is not one product of fixed size")
        k, n = w.shape
        rows = make.shaped(x, (x.type.size // k, k, 1))
        turned = constant(np.ascontiguousarray(data(w).T).reshape(n, k, 1))
        window = {"stride": (1,), "pad": (0, 0), "dilation": (1,), "groups": 1}
        given = (rows, xs, xz, turned, ws, wz, ys, yz, None, None, None, None)
        return computed(make, given, window, node.outputs[0].shape)

    @rule(P.qlinear_matmul(x, xs, xz, w, ws, wz, ys, yz))
    def linear_on_npu(
        node: Node,
        x: Value,
        xs: Value,
        xz: Value,
        w: Value,
        ws: Value,
        wz: Value,
        ys: Value | None,
        yz: Value | None,
    ) -> Any:
        """qlinear_matmul with constant weights -> npu.conv of 1x1"""
        return make.tried(linear, node, x, xs, xz, w, ws, wz, ys, yz)

    return conv_and_table_on_npu, conv_on_npu, linear_on_npu


def _becomes_bytes(node: Node) -> bool:
    """Is a table all that reads the result, maybe after it was moved?"""
    while len(node.outputs[0].uses) == 1:
        node = next(iter(node.outputs[0].uses))
        if node.op not in MOVING:
            return node.op == "lookup_wide"
    return False
