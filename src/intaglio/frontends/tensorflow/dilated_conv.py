"""SpaceToBatch, convolution, BatchToSpace: imported as one dilated convolution."""

from __future__ import annotations

from intaglio import ops
from intaglio.frontends.space_to_batch import batch_to_space, space_to_batch
from intaglio.frontends.tensorflow.conv import Image, conv_weights, depthwise_weights
from intaglio.frontends.tensorflow.file import Node
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value

_CONVOLUTIONS = {"Conv2D": conv_weights, "DepthwiseConv2dNative": depthwise_weights}


@importer("SpaceToBatchND")
def space_to_batch_nd(n: TfNode) -> Value:
    return space_to_batch(n.value(0), n.ints(1), n.ints(2))


@importer("SpaceToBatch")
def space_to_batch_old(n: TfNode) -> Value:
    return space_to_batch(n.value(0), (n.attr("block_size", 2),) * 2, n.ints(1))


@importer("BatchToSpace")
def batch_to_space_old(n: TfNode) -> Value:
    return batch_to_space(n.value(0), (n.attr("block_size", 2),) * 2, n.ints(1))


@importer("BatchToSpaceND")
def batch_to_space_nd(n: TfNode) -> Value:
    result = _dilated(n)
    return batch_to_space(n.value(0), n.ints(1), n.ints(2)) if result is None else result


def _dilated(n: TfNode) -> Value | None:
    """The dilated convolution, if this BatchToSpace is the last of these three nodes."""
    scope, block, crops = n.scope, n.ints(1), n.ints(2)
    middle = scope.source(n.node.inputs[0])
    if middle is None or middle.op not in _CONVOLUTIONS or len(middle.inputs) != 2:
        return None
    first = scope.source(middle.inputs[0])
    if first is None or first.op != "SpaceToBatchND" or len(first.inputs) != 3:
        return None
    inner, outer = _seen(n, middle), _seen(n, first)
    if not outer.is_const(1) or not outer.is_const(2) or outer.ints(1) != block or len(block) != 2:
        return None
    image = Image(inner)
    plain = image.last and inner.attr("padding", "VALID") == "VALID"
    if not plain or {*image.numbers("strides"), *image.numbers("dilations", 1)} != {1}:
        return None
    pads = [p - c for p, c in zip(outer.ints(2), crops, strict=True)]
    if min(pads) < 0:
        return None
    w, _, groups = _CONVOLUTIONS[middle.op](inner, image)
    x = Image(outer)
    y = ops.conv(
        x.front,
        w,
        stride=(1, 1),
        pad=(pads[0], pads[2], pads[1], pads[3]),
        dilation=block,
        groups=groups,
    )
    return x.back(y)


def _seen(n: TfNode, node: Node) -> TfNode:
    return TfNode(node, [n.scope.get(r) for r in node.inputs], n.scope.prefix + node.name, n.scope)
