"""Convolutions, linear layers and matrix products of floats become f16 NPU ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Node, Value, constant
from intaglio.npu.lowering.builder import Builder, Refused, data, two_axes
from intaglio.npu.lowering.conv_groups import Convolution
from intaglio.npu.lowering.conv_operands import operand_views, viewed_operands
from intaglio.npu.lowering.convolutions import LINEAR_WINDOW
from intaglio.npu.lowering.f16_operands import FLOATS, F16Casts, as_f16
from intaglio.npu.lowering.matmul import batched_matmul
from intaglio.rewrite import P, Rule, rule
from intaglio.targets.chip import Chip

x, w, b = P["x w! b!?"]
a, r = P["a r"]


def f16_product_rules(make: Builder, chip: Chip, casts: F16Casts) -> tuple[Rule, ...]:
    """The rules by which convolutions and matrix products of floats become those of `chip`."""

    def is_f16(*values: Value) -> bool:
        """Does the model, or the user, ask for these operands in f16?"""
        return all(v.dtype in FLOATS for v in values) and (
            casts.every or all(as_f16(v) is not None for v in values)
        )

    def linear(node: Node, x: Value, w: Value, b: Value | None = None, **attrs: Any) -> Any:
        if not is_f16(x):
            return None
        return make.attempt(_linear, casts, chip, node, x, w, b, **attrs)

    @rule(P.op("conv", x, w, b))
    def conv_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Lower conv of floats to npu.conv or npu.depthwise of f16."""
        return make.attempt(_conv, casts, chip, node, x, w, b) if is_f16(x) else None

    @rule(P.op("gemm", x, w, b))
    def gemm_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Lower gemm of floats with constant weights to npu.conv of f16."""
        return linear(node, x, w, b, **node.attrs)

    @rule(P.add(P.matmul(x, w), b))
    def biased_matmul_in_f16(node: Node, x: Value, w: Value, b: Value | None) -> Any:
        """Lower matmul of floats with constant weights and a bias to npu.conv of f16."""
        return linear(node, x, w, b)

    @rule(P.matmul(x, w))
    def linear_in_f16(node: Node, x: Value, w: Value) -> Any:
        """Lower matmul of floats with constant weights to npu.conv of f16."""
        out = node.outputs[0]
        readers = list(out.uses)
        if len(readers) == 1 and readers[0].op == "add":
            other = next((v for v in readers[0].inputs if v is not out), None)
            if other is not None and other.data is not None and other.type.size in (1, w.shape[-1]):
                return None  # biased_matmul_in_f16 takes it together with its bias
        return linear(node, x, w)

    @rule(P.op("matmul", a, r))
    def matmul_in_f16(node: Node, a: Value, r: Value) -> Any:
        """Lower matmul of two float activations to npu.matmul of f16."""
        given = casts.every or (as_f16(a) is not None and as_f16(r) is not None)
        if a.data is not None or r.data is not None or not given:
            return None
        return make.attempt(_matmul, casts, node, a, r)

    return conv_in_f16, gemm_in_f16, biased_matmul_in_f16, linear_in_f16, matmul_in_f16


def _convolve(
    make: Builder,
    casts: F16Casts,
    chip: Chip,
    node: Node,
    x: Value,
    weights: Array,
    bias: Array,
    window: dict[str, Any],
) -> Value:
    """A convolution with the first view of its operands that the chip can compute."""
    refusals: list[Refused] = []
    image, out = make.reshaped(casts(x), x.shape), node.outputs[0]
    for view in operand_views(image, constant(weights), window):
        try:
            attrs = dict(window)
            groups, w = attrs.pop("groups"), weights
            if image.type.rank == 3:
                w, attrs = w[..., None], two_axes(attrs)
            seen, w = viewed_operands(make, image, w, attrs, view)
            ones = np.ones(len(w), np.float32)
            attrs |= {"x_zero": 0, "dtype": "f16"}
            result = Convolution(seen, w, ones, bias, None, groups, attrs)(make, chip)
            column = view == "column"
            result = (
                make.from_column(result, out.shape) if column else make.reshaped(result, out.shape)
            )
            return casts.back(result, out)
        except Refused as e:
            refusals.append(e)
    raise refusals[0]


def _bias(b: Value | None, outputs: int) -> Array:
    if b is None:
        return np.zeros(outputs, np.float32)
    if b.type.size not in (1, outputs) or (b.type.size > 1 and b.shape[-1] != outputs):
        raise Refused(f"the bias is {b.type}; one number for each of {outputs} channels is needed")
    return np.ascontiguousarray(np.broadcast_to(data(b).astype(np.float32).reshape(-1), (outputs,)))


def _conv(
    make: Builder, casts: F16Casts, chip: Chip, node: Node, x: Value, w: Value, b: Value | None
) -> Value:
    if x.type.dynamic or x.type.rank not in (3, 4):
        raise Refused(f"{x.type} is no feature map of fixed shape")
    weights, bias = casts.weights(w), _bias(b, w.shape[0])
    return _convolve(make, casts, chip, node, x, weights, bias, node.attrs)


def _linear(
    make: Builder,
    casts: F16Casts,
    chip: Chip,
    node: Node,
    x: Value,
    w: Value,
    b: Value | None,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Value:
    """gemm and matmul with constant weights: a 1x1 convolution of rows."""
    if trans_a or alpha != 1 or (b is not None and beta != 1):
        raise Refused("its first operand is transposed, or alpha or beta is not 1")
    if w.type.rank != 2 or x.type.rank < 2 or x.type.dynamic or not x.type.size:
        raise Refused(f"{x.type} times {w.type} is not one matrix product of fixed size")
    small = casts.weights(w)
    rows = np.ascontiguousarray(small if trans_b else small.T)[..., None]
    depth = rows.shape[1]
    flat = make.reshaped(casts(x), (x.type.size // depth, depth, 1))
    return _convolve(make, casts, chip, node, flat, rows, _bias(b, len(rows)), LINEAR_WINDOW)


def _matmul(make: Builder, casts: F16Casts, node: Node, a: Value, b: Value) -> Value:
    attrs = {"a_zero": 0, "b_zero": 0, "factor": 1.0, "dtype": "f16"}
    return casts.back(batched_matmul(make, casts(a), casts(b), **attrs), node.outputs[0])
