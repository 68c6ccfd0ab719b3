"""What the sections of a cfg compute, one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.darknet.file import Section, Weights
from intaglio.ir import Array, Value

EPSILON = 1e-5  # that Darknet adds to variances


@dataclass(slots=True)
class Net:
    """What has been built so far."""

    width: int
    height: int
    weights: Weights
    made: list[Value] = field(default_factory=list)  # by layer
    heads: list[int] = field(default_factory=list)  # layers that detect

    def other(self, section: Section, number: int) -> Value:
        """The result of a layer by its number, or relative to this one where that is negative."""
        index = section.number + number if number < 0 else number
        if not 0 <= index < section.number:
            raise BadFile(f"darknet: {section} reads layer {number}; there is no such layer yet")
        return self.made[index]


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


def activate(x: Value, section: Section, default: str = "logistic") -> Value:
    name = section.text("activation", default)
    if name not in ACTIVATIONS:
        raise Unsupported(f"darknet: {section}: activation={name} is not known; "
                          f"known are {', '.join(ACTIVATIONS)}")  # fmt: skip
    return ACTIVATIONS[name](x)


def _image(x: Value, section: Section) -> tuple[int, ...]:
    if x.type.rank != 4:
        raise BadFile(f"darknet: {section} needs an image, what comes before makes {x.type}")
    return x.shape


def _strides(section: Section, default: int = 1) -> tuple[int, int]:
    both = section.whole("stride", default)
    made = section.whole("stride_y", both), section.whole("stride_x", both)
    if min(made) < 1:
        raise BadFile(f"darknet: {section}: a stride of {min(made)}")
    return made


def _normalized(
    w: Array, bias: Array, scale: Array, mean: Array, var: Array
) -> tuple[Array, Array]:
    """Weights and bias with a batch norm in them."""
    with np.errstate(all="ignore"):  # hostile files have any floats
        factor = scale / np.sqrt(np.maximum(var, 0) + np.float32(EPSILON))
        return w * factor.reshape(-1, *[1] * (w.ndim - 1)), bias - mean * factor


@layer("convolutional", "conv")
def convolutional(net: Net, section: Section, x: Value) -> Value:
    _, channels, _, _ = _image(x, section)
    filters, size = section.whole("filters", 1), section.whole("size", 1)
    groups, dilation = section.whole("groups", 1), section.whole("dilation", 1)
    pad = size // 2 if section.whole("pad", 0) else section.whole("padding", 0)
    if min(filters, size, groups, dilation) < 1 or pad < 0 or channels % groups or filters % groups:
        raise BadFile(f"darknet: {section}: {filters} filters of {size} in {groups} groups over "
                      f"{channels} channels make no sense")  # fmt: skip
    for key in ("xnor", "binary", "antialiasing", "deform", "rotate", "sway", "stretch"):
        if section.whole(key, 0):
            raise Unsupported(f"darknet: {section}: {key}=1 is not read; train without it")
    take, norm = net.weights.take, section.whole("batch_normalize", 0)
    bias = take(filters, what=section)
    rest = [take(filters, what=section) for _ in range(3)] if norm else []
    w = take(filters, channels // groups, size, size, what=section)
    if norm:
        w, bias = _normalized(w, bias, *rest)
    pads = (pad * dilation,) * 4
    y = ops.conv(x, w, bias, stride=_strides(section), pad=pads, dilation=(dilation, dilation),
                 groups=groups)  # fmt: skip
    return activate(y, section)


@layer("connected", "conn")
def connected(net: Net, section: Section, x: Value) -> Value:
    outputs, inputs = section.whole("output", 1), x.type.size // x.shape[0]
    take, norm = net.weights.take, section.whole("batch_normalize", 0)
    if outputs < 1:
        raise BadFile(f"darknet: {section} has {outputs} outputs")
    bias = take(outputs, what=section)
    if net.weights.turned:
        w = np.ascontiguousarray(take(inputs, outputs, what=section).T)
    else:
        w = take(outputs, inputs, what=section)
    if norm:
        w, bias = _normalized(w, bias, *(take(outputs, what=section) for _ in range(3)))
    flat = ops.reshape(x, shape=(x.shape[0], inputs))
    return activate(ops.gemm(flat, w, bias, trans_b=True), section)


@layer("maxpool", "max", "local_avgpool", "local_avg")
def pool(net: Net, section: Section, x: Value) -> Value:
    _, _, height, width = _image(x, section)
    if section.whole("maxpool_depth", 0) or section.whole("antialiasing", 0):
        raise Unsupported(f"darknet: {section}: pooling over depth, or blurred, is not read")
    stride = _strides(section)
    size = section.whole("size", stride[0])
    padding = section.whole("padding", size - 1)
    if size < 1 or padding < 0 or min(height, width) + padding < size:
        raise BadFile(f"darknet: {section}: windows of {size}, padded by {padding}, over {x.type}")
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
        raise BadFile(f"darknet: {section}: layers={section.text('layers')} groups={groups} "
                      f"group_id={group}")  # fmt: skip
    parts = []
    for v in found:
        channels = _image(v, section)[1]
        if channels % groups:
            raise BadFile(f"darknet: {section}: {channels} channels in {groups} groups")
        each = channels // groups
        parts.append(ops.part(v, group * each, (group + 1) * each, axis=1) if groups > 1 else v)
    return parts[0] if len(parts) == 1 else ops.concat(*parts, axis=1)


@layer("shortcut")
def shortcut(net: Net, section: Section, x: Value) -> Value:
    if section.text("weights_type", "none") not in ("", "none"):
        raise Unsupported(f"darknet: {section}: weighted shortcuts are not read")
    sources = section.wholes("from")
    if not sources:
        raise BadFile(f"darknet: {section} has no from")
    y = x
    for number in sources:
        other = net.other(section, number)
        if other.shape != y.shape:
            raise Unsupported(f"darknet: {section} adds {other.type} to {y.type}; "
                              "only equal shapes are read")  # fmt: skip
        y = ops.add(y, other)
    return activate(y, section, "linear")


@layer("scale_channels", "sam")
def scaled(net: Net, section: Section, x: Value) -> Value:
    """scale_channels: an image times one number per channel; sam: times another image."""
    other = net.other(section, section.whole("from"))
    if section.whole("scale_wh", 0):
        raise Unsupported(f"darknet: {section}: scale_wh=1 is not read")
    return activate(ops.mul(other, x), section, "linear")


@layer("upsample")
def upsample(net: Net, section: Section, x: Value) -> Value:
    _, _, height, width = _image(x, section)
    stride, scale = section.whole("stride", 2), section.real("scale", 1.0)
    if not 1 <= stride <= 64:
        raise Unsupported(f"darknet: {section}: stride={stride}; 1 to 64 are read")
    y = ops.resize(x, axes=(2, 3), shape=(height * stride, width * stride),
                   scales=(float(stride),) * 2, nearest_mode="floor",
                   coordinate_transformation_mode="asymmetric")  # fmt: skip
    return y if scale == 1.0 else ops.mul(y, np.float32(scale))


@layer("reorg", "reorg3d")
def reorg(net: Net, section: Section, x: Value) -> Value:
    n, c, h, w = _image(x, section)
    s = section.whole("stride", 1)
    if s < 1 or h % s or w % s or section.whole("reverse", 0):
        raise Unsupported(f"darknet: {section}: stride={s} over {x.type}, or reverse, is not read")
    if section.name == "reorg3d":
        return ops.space_to_depth(x, blocksize=s)
    if c % (s * s):
        raise BadFile(f"darknet: {section}: {c} channels are no multiple of {s * s}")
    # The old layer takes the bytes of c maps for those of c / s^2 maps that are s times as large.
    blocks = ops.reshape(x, shape=(n, c // (s * s), h, s, w, s))
    turned = ops.transpose(blocks, perm=(0, 3, 5, 1, 2, 4))
    return ops.reshape(turned, shape=(n, c * s * s, h // s, w // s))


@layer("softmax", "soft")
def softmax(net: Net, section: Section, x: Value) -> Value:
    if section.text("tree") or section.whole("spatial", 0):
        raise Unsupported(f"darknet: {section}: trees and softmax over an image are not read")
    groups, warm = section.whole("groups", 1), section.real("temperature", 1.0)
    size = x.type.size // x.shape[0]
    if groups < 1 or size % groups or not warm:
        raise BadFile(f"darknet: {section}: {size} numbers in {groups} groups by {warm}")
    y = ops.reshape(x, shape=(x.shape[0], groups, size // groups))
    y = y if warm == 1.0 else ops.div(y, np.float32(warm))
    return ops.reshape(ops.softmax(y, axis=-1), shape=(x.shape[0], size))


@layer("dropout", "cost", "detection")
def nothing(net: Net, section: Section, x: Value) -> Value:
    """What does something in training only; `detection` (YOLO 1) leaves its numbers as they are."""
    return x


def rows_of(x: Value, anchors: int, section: Section) -> tuple[list[Value], int, int]:
    """A head's map as one value per kind of number, each [N, H, W, anchors]; and H and W."""
    n, channels, h, w = _image(x, section)
    if anchors < 1 or channels % anchors:
        raise BadFile(f"darknet: {section}: {channels} channels for {anchors} anchors")
    kinds = channels // anchors
    turned = ops.transpose(ops.reshape(x, shape=(n, anchors, kinds, h, w)), perm=(0, 3, 4, 1, 2))
    return [ops.part(turned, i, i + 1, axis=4) for i in range(4)] + [
        ops.part(turned, 4, 5, axis=4), ops.part(turned, 5, kinds, axis=4)], h, w  # fmt: skip


def centres(h: int, w: int) -> tuple[Array, Array]:
    across = np.arange(w, dtype=np.float32).reshape(1, 1, w, 1, 1)
    return across, np.arange(h, dtype=np.float32).reshape(1, h, 1, 1, 1)


def sized(values: Sequence[float]) -> Array:
    return np.asarray(values, np.float32).reshape(1, 1, 1, -1, 1)
