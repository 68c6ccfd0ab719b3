"""The element type in which each op of a network is computed, and casts between these types.

Ops of f32 are computed in the type that the user asks for, those of f16 and bf16 in their own.
Results are cast back to the type of the network; the next layer reads the number before the cast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Node, Value, constant
from intaglio.npu.chips.bm1684x import float_ops
from intaglio.npu.chips.bm1684x.float_layout import inputs_at_once
from intaglio.npu.chips.bm1684x.float_windows import float_conv, float_depthwise
from intaglio.npu.chips.bm1684x.variants import VARIANTS
from intaglio.npu.chips.bm1684x.views import Step, as_feature_map, root_of
from intaglio.npu.lowering import limits
from intaglio.npu.lowering.builder import Builder, Refused
from intaglio.npu.ops import concat, conv, depthwise
from intaglio.npu.ops.feature_maps import MOVED
from intaglio.ops.registry import REGISTRY, Op
from intaglio.targets.chip import Chip

WINDOW = ("stride", "pad", "dilation")
CLAMPED = ("npu.float_conv", "npu.float_depthwise", "npu.arithmetic")


class FloatBuilder(Builder):
    """Makes convolutions of floats where rules ask for those of a unit."""

    moved = MOVED

    def __init__(self, chip: Chip):
        super().__init__(limits.why_not(chip))
        self.chip = chip

    def __call__(self, op: Op, *inputs: Value | None, **attrs: Any) -> Value:
        if op is not conv and op is not depthwise:
            return super().__call__(op, *inputs, **attrs)
        x, w, _, bias = inputs[:4]
        assert x is not None
        assert bias is not None
        window = {k: attrs[k] for k in WINDOW}
        if op is conv:
            return super().__call__(float_conv, x, w, bias, block=self.block(x.dtype), **window)
        added = self.constant(bias, x.dtype)
        return super().__call__(float_depthwise, x, w, added, **window)

    def channels_on_cpu(self, *maps: Value) -> Value:
        """Feature maps joined along their channels, by the chip."""
        return self(concat, *maps)

    def block(self, dtype: str) -> int:
        """Products that a convolution adds at once."""
        return inputs_at_once(dtype, VARIANTS[self.chip.name])

    @staticmethod
    def constant(v: Value, dtype: str) -> Value:
        """A constant in another type; Refused if a number is too large for it."""
        return constant(as_type(v, dtype))


def as_type(v: Value, dtype: str) -> Any:
    """The numbers of a constant in a float type; Refused if one is too large for it."""
    assert v.data is not None
    with np.errstate(over="ignore"):
        found = v.data.astype(dtypes.numpy_of(dtype))
    wide = found.astype(np.float32)
    if not np.isfinite(wide[np.isfinite(v.data)]).all():
        raise Refused(f"a constant is larger than {dtype} can hold: compute it in bf16 or f32")
    return found


class FloatTypes:
    """Chooses the type of each op, and casts its operands and results; `every` op may begin.

    `layers` has the types of single ones, by the names of the model's operators.
    """

    def __init__(
        self,
        chip: Chip,
        dtype: str = "f32",
        every: bool = False,
        layers: Mapping[str, str] | None = None,
    ):
        self.chip, self.dtype, self.every, self.layers = chip, dtype, every, layers or {}
        self.make = FloatBuilder(chip)

    def of(self, node: Node) -> str:
        """The type in which a node is computed."""
        own = node.outputs[0].dtype
        if own not in float_ops.FLOATS:
            raise Refused(f"it makes {own}; floats are possible")
        return self.layers.get(node.origin, self.dtype) if own == "f32" else own

    def of_product(self, node: Node, *operands: Value | None) -> str:
        """The type of a product: that to which the network rounds all its operands, if it does."""
        own = self.of(node)
        if own != "f32":
            return own
        for dtype in ("f16", "bf16"):
            if all(v is not None and _is_rounded(v, dtype) for v in operands):
                return dtype
        return own

    def typed(self, v: Value | None, dtype: str) -> Value:
        """A value of floats in a type: by a cast, or the value that a cast made it from."""
        assert v is not None
        if v.dtype == dtype:
            return v
        if v.data is not None:
            return constant(as_type(v, dtype))
        if v.dtype not in float_ops.FLOATS or v.type.dynamic:
            raise Refused(f"it works on {v.type}; floats of fixed extents are needed")
        root, steps = root_of(v)
        if root.data is not None:
            return applied(constant(as_type(root, dtype)), steps)
        before = _source(root)
        if before.dtype == dtype:
            return applied(before, steps)
        found = _known(before, dtype)
        if found is None:
            flat = as_feature_map(before)
            found = float_ops.cast(flat, dtype=dtype)
            if flat is not before:
                found = ops.reshape(found, shape=before.shape)
        return applied(found, steps)

    def back(self, y: Value, like: Value) -> Value:
        """A result in the type of `like`, to whose shape it is reshaped."""
        root, steps = root_of(y)
        if root.dtype != like.dtype:
            root = float_ops.cast(as_feature_map(root), dtype=like.dtype)
        y = applied(root, steps)
        return y if y.shape == like.shape else ops.reshape(y, shape=like.shape)

    def clamped(self, node: Node, x: Value, least: float, most: float) -> Value | None:
        """The layer that makes `x` for this reader alone, with bounds; None: there is none."""
        root, steps = root_of(x)
        made = root.producer
        if made is None or made.op not in CLAMPED or not _read_by(root, node):
            return None
        bounds = {"least": max(least, made.attrs["least"]), "most": min(most, made.attrs["most"])}
        if bounds["least"] > bounds["most"]:
            return None
        again = REGISTRY[made.op](*made.inputs, **{**made.attrs, **bounds})
        again.producer.origin = made.origin
        return applied(again, steps)


def _is_rounded(v: Value, dtype: str) -> bool:
    """Whether the numbers of a value are those of a smaller type."""
    root, _ = root_of(v)
    if root.data is not None:
        with np.errstate(over="ignore"):
            small = root.data.astype(dtypes.numpy_of(dtype))
        return bool((small.astype(root.data.dtype) == root.data).all())
    return _source(root).dtype == dtype


def _source(v: Value) -> Value:
    """The value that a cast on the chip made `v` from; `v` itself if none did."""
    node = v.producer
    if node is None or node.op != "npu.cast":
        return v
    before = node.inputs[0]
    assert before is not None
    # a narrower type in between has rounded the number
    return before if dtypes.itemsize(before.dtype) <= dtypes.itemsize(v.dtype) else v


def _known(v: Value, dtype: str) -> Value | None:
    """The cast of a value that exists already."""
    found = (u.outputs[0] for u in v.uses if u.op == "npu.cast" and u.attrs["dtype"] == dtype)
    return next(found, None)


def _read_by(v: Value, node: Node) -> bool:
    """Whether casts, reshapes and transposes lead from a value to this node alone."""
    readers = [u for u in v.uses if u is node or any(o.uses for o in u.outputs) or u.op == "result"]
    if readers == [node]:
        return True
    if len(readers) != 1 or readers[0].op not in ("npu.cast", "reshape", "transpose"):
        return False
    return _read_by(readers[0].outputs[0], node)


def applied(v: Value, steps: list[Step]) -> Value:
    """A value after reshapes and transposes."""
    for kind, given in steps:
        if kind == "transpose":
            v = ops.transpose(v, perm=given)
        elif v.shape != given:
            v = ops.reshape(v, shape=given)
    return v
