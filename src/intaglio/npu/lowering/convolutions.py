"""Convolutions and linear layers of quantised tensors become npu.conv and npu.depthwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.npu.lowering.builder import LAYOUT_CHANGES, Builder, Refused, data
from intaglio.npu.lowering.conv_operands import QlinearConv, operand_views
from intaglio.rewrite import P, Rule, rule
from intaglio.targets.chip import Chip

x, w, b, t = P["x w! b!? t!"]
xs, xz, ws, wz, ys, yz = P["xs! xz! ws! wz! ys!? yz!?"]
r, rs, rz = P["r? rs!? rz!?"]
CONV = P.qlinear_conv(x, xs, xz, w, ws, wz, ys, yz, b, r, rs, rz)
LINEAR_WINDOW = {"stride": (1,), "pad": (0, 0), "dilation": (1,), "groups": 1}


def convolution_rules(make: Builder, chip: Chip) -> tuple[Rule, ...]:
    """The rules by which convolutions and linear layers become those of `chip`."""

    @rule(CONV)
    def conv_on_npu(node: Node) -> Any:
        """Lower qlinear_conv to npu.conv or npu.depthwise; split groups by slice and concat."""
        if node.outputs[0].dtype == "i16" and _only_a_table_reads(node):
            return None  # conv_and_table_on_npu takes it together with its table
        return make.attempt(_conv, chip, node, node)

    @rule(P.lookup_wide(CONV @ "conv", t))
    def conv_and_table_on_npu(node: Node, conv: Node, t: Value) -> Any:
        """Lower qlinear_conv to 16 bits, with its lookup table, to npu.conv or npu.depthwise."""
        changes = {"base": node.attrs["base"], "dtype": t.dtype}
        return make.attempt(_conv, chip, node, conv, t, **changes)

    @rule(P.qlinear_matmul(x, xs, xz, w, ws, wz, ys, yz))
    def linear_on_npu(node: Node) -> Any:
        """Lower qlinear_matmul with constant weights to a 1x1 npu.conv."""
        return make.attempt(_linear, chip, node)

    return conv_and_table_on_npu, conv_on_npu, linear_on_npu


def _first_possible(
    make: Builder,
    chip: Chip,
    given: QlinearConv,
    window: dict[str, Any],
    shape: tuple[int, ...],
    table: Value | None = None,
    **changes: Any,
) -> Value:
    """The convolution with the first view of its operands that the chip can compute."""
    refusals: list[Refused] = []
    for view in operand_views(given.x, given.w, window):
        try:
            found = given.convolution(make, window, view)
            found.attrs.update(changes)
            result = found(make, chip, table)
            if view == "column":
                return make.from_column(result, shape)
            return make.reshaped(result, shape)
        except Refused as e:
            refusals.append(e)
    raise refusals[0]


def _conv(
    make: Builder, chip: Chip, node: Node, conv: Node, table: Value | None = None, **changes: Any
) -> Value:
    given = QlinearConv(*conv.inputs)  # type: ignore[arg-type]
    added = None
    if given.ys is None:  # the CPU adds an f32 residual to an f32 result, with the same bits
        added, given = given.residual, given._replace(residual=None)
    shape = node.outputs[0].shape
    result = _first_possible(make, chip, given, conv.attrs, shape, table, **changes)
    return result if added is None else ops.add(result, added)


def _linear(make: Builder, chip: Chip, node: Node) -> Value:
    given: list[Any] = node.inputs
    x, xs, xz, w, ws, wz, ys, yz = given
    if w.type.rank != 2 or x.type.rank < 2 or x.type.dynamic or not x.type.size:
        raise Refused(f"{x.type} times {w.type} is not one matrix product of fixed size")
    k, n = w.shape
    rows = make.reshaped(x, (x.type.size // k, k, 1))
    weights = constant(np.ascontiguousarray(data(w).T).reshape(n, k, 1))
    conv = QlinearConv(rows, xs, xz, weights, ws, wz, ys, yz)
    return _first_possible(make, chip, conv, LINEAR_WINDOW, node.outputs[0].shape)


def _only_a_table_reads(node: Node) -> bool:
    """Is a 16-bit lookup table the only reader of the result, maybe after reshape or transpose?"""
    while len(node.outputs[0].uses) == 1:
        node = next(iter(node.outputs[0].uses))
        if node.op not in LAYOUT_CHANGES:
            return node.op == "lookup_wide"
    return False
