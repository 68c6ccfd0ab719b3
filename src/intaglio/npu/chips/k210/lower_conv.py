"""Convolutions of any stride that the KPU can express, with the activation and pooling after them.

The KPU computes all pixels. A stride of 2 keeps the top left pixel of every 2x2, or the top right
one: after a convolution in the same command, after a depthwise one in the command of its reader,
since depthwise commands of Canaan's compiler never pool. TensorFlow's "same" padding of even maps
keeps the bottom right pixel: a copy of the map, one row higher, makes it the top right one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio import ops as neutral
from intaglio.ir import Array, Node, Value
from intaglio.npu.chips.k210 import layer, parts
from intaglio.npu.chips.k210.arithmetic import POOLS
from intaglio.npu.chips.k210.operands import byte_weights, factors, name_of, offset
from intaglio.npu.lowering.builder import Refused, data, integer

if TYPE_CHECKING:
    from intaglio.npu.chips.k210.lower import Lowering

TOP_LEFT, TOP_RIGHT = 5, 6  # pooling modes
SAME, SAME_OF_EVEN = (1, 1, 1, 1), (0, 0, 1, 1)


def conv(lowering: Lowering, node: Node) -> None:
    """Lower a quantised convolution or linear layer."""
    x, xs, xz, w, ws, wz, ys, yz, bias, residual = (*node.inputs, None, None)[:10]
    assert x is not None
    assert w is not None
    if ys is None:
        raise Refused("its result is f32; the KPU writes bytes: quantise for k210")
    if residual is not None:
        raise Refused("it adds a residual before it rounds; the KPU cannot: quantise for k210")
    if integer_type(x) or w.data is None:
        raise Refused(f"it multiplies {x.dtype} by {w.type}; the KPU reads constant bytes")
    weights, w_zero = byte_weights(data(w), wz)
    zero = integer(xz) + offset(x)
    depthwise = node.attrs["groups"] == lowering._map(x).shape[1] == len(weights) > 1
    if node.attrs["groups"] > 1 and (not depthwise or set(w.shape[2:]) == {1}):
        depthwise, weights = False, _over_groups(weights, node.attrs["groups"], w_zero)
    added = np.zeros(1) if bias is None else data(bias)
    scale = factors(xs, ws, ys, len(weights))
    if lowering._map(x).shape[2:] == (1, 1) and set(w.shape[2:]) == {1}:
        pixel = lowering._pixel(x)
        function, last = lowering.follow(node, ys, yz)
        made = parts.linear(
            pixel,
            weights.reshape(len(weights), -1),
            scale,
            added,
            function,
            zero,
            name_of(node),
            w_zero,
        )
        lowering.result(last, made)
        return
    window = _window(node, lowering._map(x).shape, weights) | {"depthwise": depthwise}
    function, last = lowering.follow(node, ys, yz)
    given = scale, added, function, zero, w_zero
    even = lowering.enlarged(x, zero, name_of(node)) if window["enlarge"] else None
    if window["depthwise"]:
        source = even or lowering._whole(x)
        made = parts.convolution(source, weights, *given, depthwise=True, origin=name_of(node))
        pick = TOP_LEFT if window["stride"] == 2 else 0
        if window["shift"]:
            made, pick = parts.shifted_up(made, 0, name_of(node)), TOP_RIGHT
        lowering.result(last, made, pick)
        return
    found = lowering._map(x)
    mode, pooled = _pool_after(lowering, last, found.shape, window)
    if found.pick and weights.shape[2] == 1 and not mode and _alone(x):
        source, mode = found.value, found.pick
    else:
        source = even or lowering._whole(x)
    if window["shift"]:
        higher = parts.shifted_up(source, zero, name_of(node))
        source = neutral.concat(source, higher, axis=1)
        weights = _over_shifted(weights, w_zero)
        if why := layer.why_not(source.shape[1:]):
            raise Refused(why)
    made = parts.convolution(source, weights, *given, pool=mode, origin=name_of(node))
    lowering.result(pooled, made)
    if pooled is not last and last.outputs[0] in lowering.scales:
        lowering.scales[pooled.outputs[0]] = lowering.scales[last.outputs[0]]


def integer_type(x: Value) -> bool:
    """Whether the KPU cannot read the elements."""
    return x.dtype not in ("i8", "u8")


def _alone(x: Value) -> bool:
    return len(x.uses) == 1


def _window(node: Node, shape: tuple[int, ...], w: Array) -> dict[str, Any]:
    """Kernel, stride and phase of a convolution; Refused where the KPU cannot do them."""
    a = node.attrs
    kernel = list(w.shape[2:])
    channels, high, wide = shape[1:]
    small = layer.is_small(shape[2:])
    height, width = (layer.enlarged(high), layer.enlarged(wide)) if small else (high, wide)
    if kernel not in ([1, 1], [3, 3]):
        size = "x".join(map(str, kernel))
        raise Refused(f"its kernel is {size}; the KPU does 1x1 and 3x3")
    if set(a["dilation"]) != {1}:
        raise Refused(f"its dilation is {a['dilation']}; the KPU has none")
    if shape[0] != 1:
        raise Refused(f"it computes {shape[0]} pictures at once; the KPU does one")
    if why := layer.why_not((channels, height, width)):
        raise Refused(why)
    stride, pad = tuple(a["stride"]), tuple(a["pad"])
    if stride not in ((1, 1), (2, 2)):
        raise Refused(f"its stride is {stride}; the KPU does 1 and 2")
    odd = stride == (2, 2) and bool(high % 2 or wide % 2)
    if odd and (why := layer.why_not((channels, height + height % 2, width + width % 2))):
        raise Refused(why)
    shift = stride == (2, 2) and kernel == [3, 3] and pad == SAME_OF_EVEN and not odd
    if pad != ((0,) * 4 if kernel == [1, 1] else SAME) and not shift:
        raise Refused(
            f"its padding is {pad}; the KPU pads a {kernel[0]}x{kernel[0]} kernel by "
            f"{kernel[0] // 2} on all sides"
        )
    return {"stride": stride[0], "shift": shift, "enlarge": odd or small}


def _over_groups(w: Array, groups: int, zero: int) -> Array:
    """Weights of a convolution in groups as those of one without: zero for other groups."""
    outputs, deep = w.shape[:2]
    wide = np.full((outputs, groups, *w.shape[1:]), zero, np.uint8)
    wide[np.arange(outputs), np.arange(outputs) * groups // outputs] = w
    return wide.reshape(outputs, groups * deep, *w.shape[2:])


def _over_shifted(w: Array, zero: int) -> Array:
    """Weights over a map and its copy one row higher: rows 0, 1, 2 of the window are the map's row
    0 and the copy's rows 0 and 1."""
    outputs, deep = w.shape[:2]
    wide = np.full((outputs, 2 * deep, 3, 3), zero, np.uint8)
    wide[:, :deep, 1] = w[:, :, 0]
    wide[:, deep:, 1:] = w[:, :, 1:]
    return wide


def _pool_after(
    lowering: Lowering, last: Node, shape: tuple[int, ...], window: dict[str, Any]
) -> tuple[int, Node]:
    """The pooling mode of a convolution's command, and the node whose result it makes."""
    if window["stride"] == 2:
        return (TOP_RIGHT if window["shift"] else TOP_LEFT), last
    readers = list(last.outputs[0].uses)
    if len(readers) == 1 and readers[0].op == "max_pool":
        try:
            mode = pool_mode("max", readers[0], shape)
        except Refused:
            return 0, last
        lowering.done.add(readers[0])
        return mode, readers[0]
    return 0, last


def is_around(node: Node) -> bool:
    """Whether a pool takes squares around pixels, all of them or every second."""
    a = node.attrs
    kernel, stride = a["kernel"][0], a["stride"][0]
    wanted = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (kernel // 2,) * 4}
    fits = all(tuple(a[k]) == v for k, v in wanted.items()) and stride in (1, 2)
    return bool(kernel % 2 and kernel > 1 and fits and set(a.get("dilation", (1,))) == {1})


def pool_mode(kind: str, node: Node, shape: tuple[int, ...]) -> int:
    """The KPU's pooling mode of a node; Refused where it has none."""
    a = node.attrs
    kernel, stride, pad = tuple(a["kernel"]), tuple(a["stride"]), tuple(a["pad"])
    if why := layer.why_not(shape[1:]):
        raise Refused(why)
    for mode, how in POOLS.items():
        if how.kind != kind or kernel != (how.size,) * 2 or stride != (how.stride,) * 2:
            continue
        if set(a.get("dilation", (1,))) != {1} or a.get("ceil", 0):
            break
        if how.stride == 1 and pad == (0, 0, 1, 1) and kind == "max":
            return mode
        if how.stride > 1 and not any(pad) and not any(d % how.stride for d in shape[2:]):
            return mode
    raise Refused(
        f"it pools {kernel} with stride {stride} and padding {pad} over {shape[2]}x{shape[3]}; "
        "the KPU does 2x2 and 4x4 without overlap, and the maximum of 2x2 with stride 1"
    )
