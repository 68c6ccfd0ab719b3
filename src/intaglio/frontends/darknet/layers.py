"""Importers of Darknet sections: convolutional, connected, route, shortcut and others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.darknet.file import Section, Weights
from intaglio.ir import Array, Type, Value, constant
from intaglio.symint import lowest

EPSILON = 1e-5  # added to variances


@dataclass(slots=True)
class Net:
    """The state of the import: results by layer, weights, detection heads, recurrent states."""

    width: int
    height: int
    weights: Weights
    made: list[Value] = field(default_factory=list)  # results by layer
    heads: list[int] = field(default_factory=list)  # numbers of detection layers
    carries: bool = False  # recurrent states are inputs and outputs of the graph
    states: dict[str, Value] = field(default_factory=dict)  # state inputs by name
    after: dict[str, Value] = field(default_factory=dict)  # state outputs by name

    def other(self, section: Section, number: int) -> Value:
        """The result of a layer by its number, or by a negative offset from this one."""
        index = section.number + number if number < 0 else number
        if not 0 <= index < section.number:
            raise BadFile(f"darknet: {section} reads layer {number}, which does not precede it")
        return self.made[index]

    def initial_state(self, section: Section, what: str, shape: tuple[int, ...]) -> Value:
        """The state of a layer before the first step: zeros, or an input."""
        name = f"state.{section.name}_{section.number}.{what}"
        if not self.carries:
            self.states[name] = constant(np.zeros(shape, np.float32))
        else:
            self.states[name] = Value(Type("f32", shape), name)
        return self.states[name]

    def record_state(self, section: Section, what: str, value: Value) -> None:
        """Record the state of a layer after the last step."""
        self.after[f"state.{section.name}_{section.number}.{what}"] = value


Layer = Callable[[Net, Section, Value], Value]
LAYERS: dict[str, Layer] = {}


def layer(*names: str) -> Callable[[Layer], Layer]:
    def define(function: Layer) -> Layer:
        LAYERS.update(dict.fromkeys(names, function))
        return function

    return define


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "linear": lambda x: x,
    "leaky": lambda x: ops.leaky_relu(x, alpha=0.1),
    "relu": ops.relu,
    "relu6": lambda x: ops.clip(x, lo=0.0, hi=6.0),
    "logistic": ops.sigmoid,
    "tanh": ops.tanh,
    "elu": ops.elu,
    "selu": ops.selu,
    "gelu": lambda x: ops.gelu(x, approximate="tanh"),
    "mish": ops.mish,
    "swish": ops.swish,
    "ramp": lambda x: ops.add(ops.relu(x), ops.mul(x, np.float32(0.1))),
    "loggy": lambda x: ops.sub(ops.mul(ops.sigmoid(x), np.float32(2)), np.float32(1)),
    "hardtan": lambda x: ops.clip(x, lo=-1.0, hi=1.0),
}


def activate(x: Value, section: Section, default: str = "logistic", kind: str = "") -> Value:
    name = kind or section.text("activation", default)
    if name not in ACTIVATIONS:
        raise Unsupported(
            f"darknet: {section}: activation={name} is not supported; "
            f"use one of {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name](x)


def _image(x: Value, section: Section) -> tuple[int, ...]:
    if x.type.rank != 4:
        raise BadFile(f"darknet: {section} has an input {x.type}; an image is needed")
    return x.shape


def _strides(section: Section, default: int = 1) -> tuple[int, int]:
    both = section.whole("stride", default)
    results = section.whole("stride_y", both), section.whole("stride_x", both)
    if min(results) < 1:
        raise BadFile(f"darknet: {section}: stride is {min(results)}; it must be above 0")
    return results


def _normalized(
    w: Array, bias: Array, scale: Array, mean: Array, var: Array
) -> tuple[Array, Array]:
    """Weights and bias with the batch norm folded into them."""
    with np.errstate(all="ignore"):  # damaged files may hold inf and NaN
        factor = scale / np.sqrt(np.maximum(var, 0) + np.float32(EPSILON))
        return w * factor.reshape(-1, *[1] * (w.ndim - 1)), bias - mean * factor


def weights_of(
    net: Net, section: Section, filters: int, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Weights and bias of a convolution."""
    take, norm = net.weights.take, section.whole("batch_normalize", 0)
    bias = take(filters, what=section)
    rest = [take(filters, what=section) for _ in range(3)] if norm else []
    w = take(*shape, what=section)
    return _normalized(w, bias, *rest) if norm else (w, bias)


def dense_weights(net: Net, section: Section, ins: int, outs: int) -> tuple[Array, Array]:
    """Weights [outs, ins] and bias of a dense layer."""
    take, norm = net.weights.take, section.whole("batch_normalize", 0)
    bias = take(outs, what=section)
    if net.weights.turned:
        w = np.ascontiguousarray(take(ins, outs, what=section).T)
    else:
        w = take(outs, ins, what=section)
    if norm:
        w, bias = _normalized(w, bias, *(take(outs, what=section) for _ in range(3)))
    return w, bias


@layer("convolutional", "conv")
def convolutional(net: Net, section: Section, x: Value) -> Value:
    _, channels, _, _ = _image(x, section)
    filters, size = section.whole("filters", 1), section.whole("size", 1)
    groups, dilation = section.whole("groups", 1), section.whole("dilation", 1)
    pad = size // 2 if section.whole("pad", 0) else section.whole("padding", 0)
    if min(filters, size, groups, dilation) < 1 or pad < 0 or channels % groups or filters % groups:
        raise BadFile(
            f"darknet: {section}: {filters} filters of {size} in {groups} groups over "
            f"{channels} channels do not fit"
        )
    for key in ("xnor", "binary", "antialiasing", "deform", "rotate", "sway", "stretch"):
        if section.whole(key, 0):
            raise Unsupported(f"darknet: {section}: {key}=1 is not supported; train without it")
    w, bias = weights_of(net, section, filters, (filters, channels // groups, size, size))
    pads = (pad * dilation,) * 4
    y = ops.conv(
        x, w, bias, stride=_strides(section), pad=pads, dilation=(dilation, dilation), groups=groups
    )
    return activate(y, section)


@layer("connected", "conn")
def connected(net: Net, section: Section, x: Value) -> Value:
    outputs, inputs = section.whole("output", 1), x.type.size // x.shape[0]
    if outputs < 1:
        raise BadFile(f"darknet: {section} has {outputs} outputs; at least 1 is needed")
    w, bias = dense_weights(net, section, inputs, outputs)
    flat = ops.reshape(x, shape=(x.shape[0], inputs))
    return activate(ops.gemm(flat, w, bias, trans_b=True), section)


@layer("maxpool", "max", "local_avgpool", "local_avg")
def pool(net: Net, section: Section, x: Value) -> Value:
    _, _, height, width = _image(x, section)
    if section.whole("maxpool_depth", 0) or section.whole("antialiasing", 0):
        raise Unsupported(
            f"darknet: {section}: maxpool_depth and antialiasing are not supported; train without "
            "them"
        )
    stride = _strides(section)
    size = section.whole("size", stride[0])
    padding = section.whole("padding", size - 1)
    if size < 1 or padding < 0 or min(lowest(height), lowest(width)) + padding < size:
        raise BadFile(
            f"darknet: {section}: windows of {size}, padded by {padding}, do not fit {x.type}"
        )
    before = padding // 2
    pads = (before, before, padding - before, padding - before)
    op = ops.avg_pool if section.name.startswith("local") else ops.max_pool
    return op(x, kernel=(size, size), stride=stride, pad=pads, dilation=(1, 1))


@layer("avgpool", "avg")
def avgpool(net: Net, section: Section, x: Value) -> Value:
    _image(x, section)
    return ops.reduce_mean(x, axes=(2, 3), keepdims=True)


@layer("route")
def route(net: Net, section: Section, x: Value) -> Value:
    found = [net.other(section, n) for n in section.wholes("layers")]
    groups, group = section.whole("groups", 1), section.whole("group_id", 0)
    if not found or groups < 1 or not 0 <= group < groups:
        raise BadFile(
            f"darknet: {section}: layers={section.text('layers')} groups={groups} group_id={group}"
        )
    parts = []
    for v in found:
        channels = _image(v, section)[1]
        if channels % groups:
            raise BadFile(
                f"darknet: {section}: {channels} channels cannot be split into {groups} groups"
            )
        each = channels // groups
        parts.append(ops.part(v, group * each, (group + 1) * each, axis=1) if groups > 1 else v)
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)


@layer("shortcut")
def shortcut(net: Net, section: Section, x: Value) -> Value:
    if section.text("weights_type", "none") not in ("", "none"):
        raise Unsupported(
            f"darknet: {section}: weights_type is not supported; train without weighted shortcuts"
        )
    sources = section.wholes("from")
    if not sources:
        raise BadFile(f"darknet: {section} has no from")
    y = x
    for number in sources:
        other = net.other(section, number)
        if other.shape != y.shape:
            raise Unsupported(
                f"darknet: {section} adds {other.type} to {y.type}; their shapes must be equal"
            )
        y = ops.add(y, other)
    return activate(y, section, "linear")


@layer("scale_channels", "sam")
def scaled(net: Net, section: Section, x: Value) -> Value:
    """scale_channels: an image times one number per channel; sam: times another image."""
    other = net.other(section, section.whole("from"))
    if section.whole("scale_wh", 0):
        raise Unsupported(f"darknet: {section}: scale_wh=1 is not supported; train without it")
    return activate(ops.mul(other, x), section, "linear")


@layer("upsample")
def upsample(net: Net, section: Section, x: Value) -> Value:
    _, _, height, width = _image(x, section)
    stride, scale = section.whole("stride", 2), section.real("scale", 1.0)
    if not 1 <= stride <= 64:
        raise Unsupported(f"darknet: {section}: stride={stride}; 1 to 64 are supported")
    y = ops.resize(
        x,
        axes=(2, 3),
        shape=(height * stride, width * stride),
        scales=(float(stride),) * 2,
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return y if scale == 1.0 else ops.mul(y, np.float32(scale))


@layer("reorg", "reorg3d")
def reorg(net: Net, section: Section, x: Value) -> Value:
    n, c, h, w = _image(x, section)
    s = section.whole("stride", 1)
    if s < 1 or h % s or w % s or section.whole("reverse", 0):
        raise Unsupported(
            f"darknet: {section}: stride={s} over {x.type}, or reverse=1, is not supported; train "
            "without it"
        )
    if section.name == "reorg3d":
        return ops.space_to_depth(x, blocksize=s)
    if c % (s * s):
        raise BadFile(f"darknet: {section}: {c} channels are not a multiple of {s * s}")
    # Darknet reads the memory of c maps as c / s^2 maps of s times the height and width.
    blocks = ops.reshape(x, shape=(n, c // (s * s), h, s, w, s))
    turned = ops.transpose(blocks, perm=(0, 3, 5, 1, 2, 4))
    return ops.reshape(turned, shape=(n, c * s * s, h // s, w // s))


@layer("softmax", "soft")
def softmax(net: Net, section: Section, x: Value) -> Value:
    if section.text("tree") or section.whole("spatial", 0):
        raise Unsupported(
            f"darknet: {section}: class trees and spatial softmax are not supported; train "
            "without them"
        )
    groups, warm = section.whole("groups", 1), section.real("temperature", 1.0)
    size = x.type.size // x.shape[0]
    if groups < 1 or size % groups or not warm:
        raise BadFile(
            f"darknet: {section}: {size} numbers in {groups} groups with temperature {warm} are "
            "invalid"
        )
    y = ops.reshape(x, shape=(x.shape[0], groups, size // groups))
    y = y if warm == 1.0 else ops.div(y, np.float32(warm))
    return ops.reshape(ops.softmax(y, axis=-1), shape=(x.shape[0], size))


@layer("local")
def local(net: Net, section: Section, x: Value) -> Value:
    """Locally connected: a convolution with different weights at every position."""
    n, c, h, w = _image(x, section)
    filters, size, (stride, _) = (
        section.whole("filters", 1),
        section.whole("size", 1),
        _strides(section),
    )
    pad = int(section.whole("pad", 0) != 0)  # one pixel for every kernel size
    high, wide = ((e - 1 if pad else e - size) // stride + 1 for e in (h, w))
    starts = [(o - 1) * stride + size - 2 * pad for o in (high, wide)]
    if filters < 1 or size < 1 or min(high, wide) < 1 or starts[0] > h or starts[1] > w:
        raise BadFile(f"darknet: {section}: {filters} filters of {size} do not fit {x.type}")
    bias = net.weights.take(filters, high, wide, what=section)
    weights = net.weights.take(high * wide, filters, c * size * size, what=section)
    padded = ops.pad(x, before=(0, 0, pad, pad), after=(0, 0, pad, pad)) if pad else x
    rows, columns = h + 2 * pad, w + 2 * pad
    y, i = np.divmod(np.arange(high * wide), wide)
    k, down, across = np.unravel_index(np.arange(c * size * size), (c, size, size))
    at = (k * rows + y[:, None] * stride + down) * columns + i[:, None] * stride + across
    flat = ops.reshape(padded, shape=(n, c * rows * columns))
    patches = ops.transpose(ops.gather(flat, at.astype(np.int64), axis=1), perm=(1, 0, 2))
    result = ops.matmul(patches, np.ascontiguousarray(weights.transpose(0, 2, 1)))
    image = ops.reshape(ops.transpose(result, perm=(1, 2, 0)), shape=(n, filters, high, wide))
    return activate(ops.add(image, bias[None]), section)


@layer("crop")
def crop(net: Net, section: Section, x: Value) -> Value:
    """Centre crop; scales 0..1 to -1..1 unless noadjust is set."""
    _, _, h, w = _image(x, section)
    high, wide = section.whole("crop_height", 1), section.whole("crop_width", 1)
    if not (1 <= high <= h and 1 <= wide <= w):
        raise BadFile(f"darknet: {section}: a crop of {high} x {wide} does not fit {x.type}")
    top, left = (h - high) // 2, (w - wide) // 2
    y = ops.part(ops.part(x, top, top + high, axis=2), left, left + wide, axis=3)
    if section.whole("noadjust", 0):
        return y
    return ops.sub(ops.mul(y, np.float32(2)), np.float32(1))


@layer("activation", "logistic")
def activation(net: Net, section: Section, x: Value) -> Value:
    return activate(x, section, kind="logistic" if section.name == "logistic" else "")


@layer("dropout", "cost", "detection")
def identity(net: Net, section: Section, x: Value) -> Value:
    """Sections that only act in training; `detection` (YOLO 1) returns its input."""
    return x


def head_channels(x: Value, anchors: int, section: Section) -> tuple[list[Value], int, int]:
    """The channels of a head by kind, each [N, H, W, anchors]; and H and W."""
    n, channels, h, w = _image(x, section)
    if anchors < 1 or channels % anchors:
        raise BadFile(f"darknet: {section}: {channels} channels do not fit {anchors} anchors")
    kinds = channels // anchors
    turned = ops.transpose(ops.reshape(x, shape=(n, anchors, kinds, h, w)), perm=(0, 3, 4, 1, 2))
    return (
        [ops.part(turned, i, i + 1, axis=4) for i in range(4)]
        + [ops.part(turned, 4, 5, axis=4), ops.part(turned, 5, kinds, axis=4)],
        h,
        w,
    )


def centres(h: int, w: int) -> tuple[Array, Array]:
    across = np.arange(w, dtype=np.float32).reshape(1, 1, w, 1, 1)
    return across, np.arange(h, dtype=np.float32).reshape(1, h, 1, 1, 1)


def sized(values: Sequence[float]) -> Array:
    return np.asarray(values, np.float32).reshape(1, 1, 1, -1, 1)
