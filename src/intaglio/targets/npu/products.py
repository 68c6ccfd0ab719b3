"""Convolutions and linear layers of quantised tensors become npu.conv and npu.depthwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Node, Value, constant
from intaglio.ops.quantized import BITS8
from intaglio.rewrite import P, Rule, rule
from intaglio.targets.chip import Chip
from intaglio.targets.npu.making import Maker, Refused, data, image, number, real, shaped
from intaglio.targets.npu.ops import concat, conv, depthwise, slice_

x, w, b, t = P["x w! b!? t!"]
xs, xz, ws, wz, ys, yz = P["xs! xz! ws! wz! ys!? yz!?"]
r, rs, rz = P["r? rs!? rz!?"]
PRODUCT = P.qlinear_conv(x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)
START = 512  # cycles by which one more instruction is dearer than one more product, about


@dataclass(frozen=True)
class Product:
    """A product as a unit takes it; nothing is built before it is called."""

    x: Value  # N x C x H x W
    w: Array  # i8 [OC, IC of the group, KH, KW]
    scale: Array  # f32 [OC]
    bias: Array  # i32 [OC]
    residual: Value | None
    groups: int
    attrs: dict[str, Any]

    def __call__(self, make: Maker, chip: Chip, table: Value | None = None) -> Value:
        """The node, or the nodes of its groups."""
        channels, (many, deep) = self.x.shape[1], self.w.shape[:2]
        if self.groups == 1:
            return make(conv, self.x, *self._constants(), self.residual, table, **self.attrs)
        if not self.groups == channels == many or deep != 1:
            return self._in_groups(make, chip, table)
        try:
            return make(depthwise, self.x, *self._constants(), self.residual, table, **self.attrs)
        except Refused:
            if "depthwise" in chip.units:
                raise
            return self._in_groups(make, chip, table)

    def _constants(self) -> tuple[Value, Value, Value]:
        w, scale, bias = (np.ascontiguousarray(a) for a in (self.w, self.scale, self.bias))
        return constant(w), constant(scale), constant(bias)

    def _in_groups(self, make: Maker, chip: Chip, table: Value | None) -> Value:
        """Some groups at a time, with zeros for the weights between them."""
        (many, deep), joined = self.w.shape[:2], _groups_at_once(chip, self)
        parts, of_part = self.groups // joined, many // self.groups * joined
        made = []
        for i in range(parts):
            rows = slice(i * of_part, (i + 1) * of_part)
            dense = _side_by_side(self.w[rows], joined)
            cut = self._cut(make, self.x, i * deep * joined, deep * joined)
            r = self.residual
            r = None if r is None else self._cut(make, r, rows.start, of_part)
            part = Product(cut, dense, self.scale[rows], self.bias[rows], r, 1, self.attrs)
            made.append(part(make, chip, table))
        return made[0] if parts == 1 else make(concat, *made)

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
    into, out_of = unit.in_atom.get("i8", 1), unit.out_atom.get("i8", 1)
    # Pixels of the image rather than of the result: strides make both estimates alike.
    taps = w.shape[2] * w.shape[3] * product.x.shape[2] * product.x.shape[3]

    def cycles(k: int) -> int:
        blocks = -(-k * w.shape[1] // into) * -(-k * (w.shape[0] // groups) // out_of)
        return int(groups // k * (blocks * taps + (START if k < groups else 0)))

    return min((k for k in range(1, groups + 1) if groups % k == 0), key=lambda k: (cycles(k), -k))


# ---- operands ------------------------------------------------------------------------------------
def _signed(w: Value, wz: Value) -> Array:
    """Weights without their zero, as i8."""
    zero = data(wz).astype(np.int16).reshape(-1, *[1] * (w.type.rank - 1))
    plain = data(w).astype(np.int16) - zero
    if plain.size and not -128 <= plain.min() <= plain.max() <= 127:
        raise Refused(f"weights less their zero reach from {plain.min()} to {plain.max()}; "
                      "8 bits hold -128 to 127: quantise weights symmetrically")  # fmt: skip
    return plain.astype(np.int8)


def _scales(xs: Value, ws: Value, ys: Value | None, many: int) -> Array:
    """From sums to results, rounded as the neutral op does it."""
    one = np.float32(1)
    scale = (one * data(xs).reshape(-1)) * (one * data(ws).reshape(-1))
    scale = scale if ys is None else scale / (one * data(ys).reshape(-1))
    if not np.isfinite(scale).all() or scale.size not in (1, many):
        raise Refused(f"{scale.size} scales for {many} channels, or one is zero or not finite")
    return np.broadcast_to(scale.astype(np.float32), (many,))


def _bias(b: Value | None, many: int) -> Array:
    if b is not None and b.dtype != "i32":
        raise Refused(f"the bias is {b.dtype}; sums have 32 bits")
    return np.zeros(many, np.int32) if b is None else data(b)


def _bytes(*values: Value | None) -> None:
    for v in values:
        if v is not None and v.dtype not in BITS8:
            raise Refused(f"an operand is {v.dtype}; products are of 8 bits: quantise it to those")


Given = tuple[Value, Value, Value, Value, Value, Value, Value | None, Value | None, Value | None,
              Value | None, Value | None, Value | None]  # fmt: skip


def _operands(given: Given, window: dict[str, Any], whole: bool = False) -> Product:
    """A qlinear_conv as a Product; its residual is one of bytes.

    `whole`: a linear layer sees a flattened image through a window of its size.
    """
    x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz = given
    _bytes(x, w, r)
    for v in (xs, ys, rs):
        if v is not None:
            real(v)
    if xz.type.size != 1:
        raise Refused(f"an activation has {xz.type.size} zeros; one per tensor is needed")
    before = _before_flattening(x) if whole else None
    seen = image(x) if before is None else before
    weights, a = _signed(w, wz), dict(window)
    groups = a.pop("groups")
    if x.type.rank == 3:
        weights, a = weights[..., None], _second_axis(a)
    if before is not None:
        weights = weights.reshape(w.shape[0], *before.shape[1:])
    attrs = {**a, "x_zero": number(xz), "dtype": "f32"}
    if ys is not None and yz is not None:
        low, high = dtypes.limits(yz.dtype)
        attrs |= {"y_zero": number(yz), "low": low, "high": high, "dtype": yz.dtype}
    if r is not None and rs is not None and ys is not None:
        attrs |= {"r_zero": number(rz), "r_factor": float(real(rs) / real(ys))}
        r = image(r)
    many = w.shape[0]
    return Product(seen, weights, _scales(xs, ws, ys, many), _bias(b, many), r, groups, attrs)


def _second_axis(a: dict[str, Any]) -> dict[str, Any]:
    """A window of one axis as one of two."""
    (begin, end) = a["pad"]
    return {"stride": (*a["stride"], 1), "dilation": (*a["dilation"], 1), "pad": (begin, 0, end, 0)}


def _before_flattening(x: Value) -> Value | None:
    """The image whose numbers are the channels of `x`, [N, C * H * W, 1]."""
    found: Value | None = x if x.type.rank == 3 and x.shape[2] == 1 else None
    while found is not None:
        made = found.producer
        found = made.inputs[0] if made is not None and made.op == "reshape" else None
        alike = found is not None and found.type.rank == 4 and found.shape[0] == x.shape[0]
        if found is not None and alike and found.shape[2:] != (1, 1) and not found.type.dynamic:
            return found
    return None


# ---- rules ---------------------------------------------------------------------------------------
def products(make: Maker, chip: Chip) -> tuple[Rule, ...]:
    """The rules by which products become those of `chip`."""

    def computed(make: Maker, given: Given, window: dict[str, Any], table: Value | None = None,
                 **changes: Any) -> Value:  # fmt: skip
        try:
            found = _operands(given, window, whole=True)
            found.attrs.update(changes)
            return found(make, chip, table)
        except Refused:
            if _before_flattening(given[0]) is None:
                raise
        found = _operands(given, window)
        found.attrs.update(changes)
        return found(make, chip, table)

    def ended(make: Maker, node: Node, product: Node, x: Value, xs: Value, xz: Value, w: Value,
              ws: Value, wz: Value, ys: Value | None, yz: Value | None, b: Value | None,
              r: Value | None, rs: Value | None, rz: Value | None, table: Value | None,
              **changes: Any) -> Value:  # fmt: skip
        beside = r if ys is None else None  # f32, added to f32: by the CPU, to the same bits
        given = (x, xs, xz, w, ws, wz, ys, yz, b, None if beside is not None else r, rs, rz)
        found = computed(make, given, product.attrs, table, **changes)
        made = shaped(found, node.outputs[0].shape)
        return made if beside is None else ops.add(made, beside)

    @rule(PRODUCT)
    def conv_on_npu(node: Node, x: Value, xs: Value, xz: Value, w: Value, ws: Value, wz: Value,
                    ys: Value | None, yz: Value | None, b: Value | None, r: Value | None,
                    rs: Value | None, rz: Value | None) -> Any:  # fmt: skip
        """qlinear_conv -> npu.conv or npu.depthwise, in groups with slices and a concat"""
        only = next(iter(node.outputs[0].uses))
        if node.outputs[0].dtype == "i16" and only.op == "lookup_wide" and _is_read_once(node):
            return None  # goes with its table
        return make.tried(ended, node, node, x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz, table=None)

    @rule(P.lookup_wide(PRODUCT @ "product", t))
    def conv_and_table_on_npu(node: Node, product: Node, x: Value, xs: Value, xz: Value, w: Value,
                              ws: Value, wz: Value, ys: Value | None, yz: Value | None,
                              b: Value | None, r: Value | None, rs: Value | None, rz: Value | None,
                              t: Value) -> Any:  # fmt: skip
        """qlinear_conv to 16 bits and a table of those -> npu.conv or npu.depthwise"""
        return make.tried(ended, node, product, x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz,
                          table=t, base=node.attrs["base"], dtype=t.dtype)  # fmt: skip

    def linear(make: Maker, node: Node, x: Value, xs: Value, xz: Value, w: Value, ws: Value,
               wz: Value, ys: Value | None, yz: Value | None) -> Value:  # fmt: skip
        if w.type.rank != 2 or x.type.rank < 2 or x.type.dynamic or not x.type.size:
            raise Refused(f"{x.type} times {w.type} is not one product of fixed size")
        k, n = w.shape
        rows = shaped(x, (x.type.size // k, k, 1))
        turned = constant(np.ascontiguousarray(data(w).T).reshape(n, k, 1))
        window = {"stride": (1,), "pad": (0, 0), "dilation": (1,), "groups": 1}
        given = (rows, xs, xz, turned, ws, wz, ys, yz, None, None, None, None)
        return shaped(computed(make, given, window), node.outputs[0].shape)

    @rule(P.qlinear_matmul(x, xs, xz, w, ws, wz, ys, yz))
    def linear_on_npu(node: Node, x: Value, xs: Value, xz: Value, w: Value, ws: Value, wz: Value,
                      ys: Value | None, yz: Value | None) -> Any:  # fmt: skip
        """qlinear_matmul with constant weights -> npu.conv of 1x1"""
        return make.tried(linear, node, x, xs, xz, w, ws, wz, ys, yz)

    return conv_and_table_on_npu, conv_on_npu, linear_on_npu


def _is_read_once(node: Node) -> bool:
    return len(node.outputs[0].uses) == 1
