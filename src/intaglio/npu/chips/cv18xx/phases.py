"""Transposed convolutions and pixel shuffles: a convolution makes the phases, copies interleave.

A copy stays in its lane. So phases have as many channels as fill all lanes, and all channels of a
phase lie together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.ops import conv, depth_to_space
from intaglio.targets.chip import Chip


def split_depthwise_phases(graph: Graph) -> None:
    """Depthwise transposed convolutions: one depthwise convolution for each phase.

    The integer pass leaves a convolution with as many groups as channels and several results of
    each, whose order is that of depth_to_space in mode CRD.
    """
    for node in list(graph.nodes()):
        x = node.inputs[0] if node.inputs else None
        maker = x.producer if x is not None else None
        if node.op != "depth_to_space" or node.attrs["mode"] != "CRD":
            continue
        if maker is None or maker.op != "qlinear_conv" or maker.inputs[0] is None:
            continue
        assert x is not None
        phases, channels = node.attrs["blocksize"] ** 2, maker.inputs[0].shape[1]
        single = len(x.uses) == 1 and all(v is None for v in maker.inputs[9:])
        if single and maker.attrs["groups"] == channels == x.shape[1] // phases:
            parts = [_phase(maker, k, phases) for k in range(phases)]
            attrs: dict[str, Any] = {**node.attrs, "mode": "DCR"}
            made = ops.depth_to_space(ops.concat(*parts, axis=1), **attrs)
            graph.replace(node.outputs[0], made)


def _phase(maker: Node, first: int, step: int) -> Value:
    """Every `step`-th output channel of a convolution."""
    given = []
    for k, v in enumerate(maker.inputs):
        whole = v is None or v.data is None or v.type.size == 1
        if k in (3, 4, 5, 8) and not whole:  # weights, their scales and zero points, the bias
            assert v is not None
            assert v.data is not None
            v = constant(np.ascontiguousarray(v.data[first::step]))
        given.append(v)
    made: Value = ops.qlinear_conv(*given, **maker.attrs)
    return made


def fill_lanes(graph: Graph, chip: Chip) -> None:
    """Give every phase of a depth_to_space channels for all lanes; those beyond are zeros."""
    lanes = chip.c2["i8"]
    for node in list(graph.nodes()):
        if node.op != "npu.depth_to_space" or node.attrs["blocksize"] == 1:
            continue
        x, phases = node.inputs[0], node.attrs["blocksize"] ** 2
        assert x is not None
        deep = x.shape[1] // phases
        if deep % lanes == 0:
            continue
        order = np.full((phases, -(-deep // lanes) * lanes), -1)
        order[:, :deep] = np.arange(phases * deep).reshape(phases, deep)
        made = depth_to_space.node(_ordered(x, order.reshape(-1)), **node.attrs, origin=node.origin)
        made.outputs[0].name = node.outputs[0].name
        graph.replace(node.outputs[0], made.outputs[0])


def _ordered(x: Value, order: Array) -> Value:
    """Channels `order` of a map; -1: zeros. The convolution that makes the map makes them so."""
    maker = x.producer
    if maker is not None and maker.op == "npu.conv" and len(x.uses) == 1:
        constants = [_rows(v, order) for v in maker.inputs[1:4]]
        again = conv.node(maker.inputs[0], *constants, **maker.attrs, origin=maker.origin)
        return again.outputs[0]
    return selected(x, order)


def selected(x: Value, order: Array, origin: str = "") -> Value:
    """Channels `order` of a map, by a convolution with weights of 0 and 1; -1: zeros."""
    low, high = dtypes.limits(x.dtype)
    weights = np.zeros((len(order), x.shape[1], 1, 1), np.int8)
    weights[np.nonzero(order >= 0)[0], order[order >= 0]] = 1
    made = conv.node(
        x,
        constant(weights),
        constant(np.ones(len(order), np.float32)),
        constant(np.zeros(len(order), np.int32)),
        stride=(1, 1),
        pad=(0, 0, 0, 0),
        dilation=(1, 1),
        x_zero=0,
        low=low,
        high=high,
        dtype=x.dtype,
        origin=origin,
    )
    return made.outputs[0]


def _rows(v: Value | None, order: Array) -> Value:
    """Rows of a constant in another order; those of -1 are the first, times 0 if weights."""
    assert v is not None
    assert v.data is not None
    made = v.data[np.maximum(order, 0)]
    if v.type.rank > 1:
        made[order < 0] = 0
    return constant(np.ascontiguousarray(made))
