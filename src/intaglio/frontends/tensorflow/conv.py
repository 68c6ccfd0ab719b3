"""Importers of convolution, pooling, normalisation and resizing, in NHWC and NCHW."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value, constant


def transposed(v: Value, perm: tuple[int, ...]) -> Value:
    """A transpose; for dequantised weights the stored integers are transposed."""
    node = v.producer
    if node is not None and node.op == "dequantize_linear":
        stored, scale, zero = node.inputs
        if stored is not None and stored.data is not None:
            attrs = {**node.attrs, "axis": perm.index(node.attrs["axis"])}
            moved = constant(np.ascontiguousarray(stored.data.transpose(perm)))
            result: Value = ops.dequantize_linear(moved, scale, zero, **attrs)
            return result
    result = ops.transpose(v, perm=perm)
    return result


class Image:
    """An image operand in NCHW; `back` returns a result to the node's data_format."""

    def __init__(self, n: TfNode, i: int = 0, ranks: tuple[int, ...] = (4,)):
        self.x, self.n = n.value(i), n
        if self.x.type.rank not in ranks:
            n.unsupported(f"its input is {self.x.type}; images of rank {ranks[0]} are supported")
        format = n.attr("data_format", "NHWC")
        if format not in ("NHWC", "NCHW", "NDHWC", "NCDHW"):
            n.unsupported(f"its data_format is {format}; NHWC and NCHW are supported")
        self.last = format.endswith("C")
        rank = self.x.type.rank
        to_front = (0, rank - 1, *range(1, rank - 1))
        self.front: Value = transposed(self.x, to_front) if self.last else self.x
        self.spatial = self.front.shape[2:]

    def back(self, y: Value) -> Value:
        return transposed(y, (0, *range(2, y.type.rank), 1)) if self.last else y

    def numbers(self, name: str, default: int | None = None) -> tuple[int, ...]:
        """The spatial entries of a list attribute; its other entries must be 1."""
        rank = self.x.type.rank
        whole = self.n.attr(name, [default] * rank if default is not None else None)
        if not isinstance(whole, list) or len(whole) != rank:
            raise BadInput(f"attribute '{name}' is {whole}; {rank} numbers are needed")
        outer = (whole[0], whole[-1 if self.last else 1])
        if outer != (1, 1):
            self.n.unsupported(f"'{name}' is {whole}; only 1 is supported along batch and channels")
        found = tuple(int(k) for k in (whole[1:-1] if self.last else whole[2:]))
        if not all(0 < k < 1 << 20 for k in found):
            raise BadInput(f"attribute '{name}' is {whole}; its entries must be above 0")
        return found

    def padding(
        self,
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        dilation: tuple[int, ...],
        extents: tuple[int, ...] = (),
    ) -> tuple[int, ...]:
        """(begin.., end..); SAME puts an odd pixel at the end."""
        extents = extents or self.spatial
        way = self.n.attr("padding", "VALID")
        if way == "VALID":
            return (0,) * (2 * len(extents))
        if way == "EXPLICIT":
            pairs = self.n.attr("explicit_paddings", [])
            inner = pairs[2:-2] if self.last else pairs[4:]
            if len(pairs) != 2 * self.x.type.rank or min(pairs) < 0:
                raise BadInput(f"explicit_paddings are {pairs}; they must not be negative")
            return (*inner[::2], *inner[1::2])
        if way != "SAME":
            self.n.unsupported(f"its padding is {way}; SAME, VALID and EXPLICIT are supported")
        total = []
        for d, k, s, step in zip(extents, kernel, stride, dilation, strict=True):
            total.append(max((-(-d // s) - 1) * s + (k - 1) * step + 1 - d, 0))
        return (*(t // 2 for t in total), *(t - t // 2 for t in total))


def convolution(n: TfNode, image: Image, w: Value, kernel: tuple[int, ...], groups: int) -> Value:
    """A convolution with weights `w` [out, in of the group, kernel..]."""
    stride, dilation = image.numbers("strides"), image.numbers("dilations", 1)
    pad = image.padding(kernel, stride, dilation)
    y = ops.conv(image.front, w, stride=stride, pad=pad, dilation=dilation, groups=groups)
    return image.back(y)


def conv_weights(n: TfNode, image: Image) -> tuple[Value, tuple[int, ...], int]:
    """Weights [.., in, out] in our order, the kernel, and the number of groups."""
    w, rank = n.value(1), image.x.type.rank
    channels = image.front.shape[1]
    if w.type.rank != rank or not w.shape[-2] or channels % w.shape[-2]:
        n.unsupported(f"weights {w.type} do not fit {image.x.type}")
    ready = transposed(w, (rank - 1, rank - 2, *range(rank - 2)))
    return ready, w.shape[: rank - 2], channels // w.shape[-2]


def depthwise_weights(n: TfNode, image: Image) -> tuple[Value, tuple[int, ...], int]:
    """Weights [h, w, channels, multiplier] as [channels * multiplier, 1, h, w]."""
    w, channels = n.value(1), image.front.shape[1]
    if w.type.rank != 4 or w.shape[2] != channels or not w.type.size:
        n.unsupported(f"weights {w.type} do not fit {image.x.type}")
    if w.shape[3] == 1:
        return transposed(w, (2, 3, 0, 1)), w.shape[:2], channels
    count = channels * w.shape[3]
    node = w.producer
    if node is not None and node.op == "dequantize_linear" and len(node.inputs[1].shape):  # type: ignore[union-attr]
        n.unsupported("weights with scales per channel and a multiplier above 1 are not supported")
    ready = ops.reshape(ops.transpose(w, perm=(2, 3, 0, 1)), shape=(count, 1, *w.shape[:2]))
    return ready, w.shape[:2], channels


@importer("Conv2D", "Conv3D")
def conv(n: TfNode) -> Value:
    image = Image(n, 0, (4,) if n.op == "Conv2D" else (5,))
    return convolution(n, image, *conv_weights(n, image))


@importer("FusedPadConv2D", "FusedResizeAndPadConv2D")
def fused_conv(n: TfNode) -> Value:
    """FusedPadConv2D and FusedResizeAndPadConv2D of the graph optimiser."""
    x, sized = n.value(0), n.op == "FusedResizeAndPadConv2D"
    if x.type.rank != 4:
        n.unsupported(f"its input is {x.type}; images of rank 4 are supported")
    if sized:
        way = "align_corners" if n.attr("resize_align_corners", False) else "asymmetric"
        x = _sized(n, x, n.ints(1), (1, 2), "linear", way)
    around = n.ints(2 if sized else 1)
    if n.attr("mode", "REFLECT") != "REFLECT":
        n.unsupported("its mode is SYMMETRIC; only REFLECT is supported")
    if any(around):
        x = ops.pad(x, before=around[::2], after=around[1::2], mode="reflect")
    seen = TfNode(n.node, [x, n.operand(-1)], n.origin, n.scope)
    image = Image(seen)
    return convolution(seen, image, *conv_weights(seen, image))


@importer("DepthwiseConv2dNative")
def depthwise(n: TfNode) -> Value:
    image = Image(n)
    return convolution(n, image, *depthwise_weights(n, image))


@importer("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_transpose(n: TfNode) -> Value:
    """Operands are the shape of the result, weights [.., out, in] and the image."""
    rank = 4 if n.op.startswith("Conv2D") else 5
    shape, w, image = n.ints(0), n.value(1), Image(n, 2, (rank,))
    if len(shape) == rank - 2 and image.last:  # only height and width
        shape = (image.x.shape[0], *shape, w.shape[-2])
    if len(shape) != rank or w.type.rank != rank or min(shape) < 1:
        n.unsupported(f"a result of shape {shape} does not fit {image.x.type} and weights {w.type}")
    stride, dilation = image.numbers("strides"), image.numbers("dilations", 1)
    kernel, extents = w.shape[:-2], shape[1:-1] if image.last else shape[2:]
    pad = image.padding(kernel, stride, dilation, extents)
    whole = zip(image.spatial, stride, kernel, dilation, strict=True)
    full = [(d - 1) * s + (k - 1) * step + 1 for d, s, k, step in whole]
    more = tuple(e - (full[i] - pad[i] - pad[len(full) + i]) for i, e in enumerate(extents))
    if min(more) < 0 or shape[0] != image.x.shape[0]:
        n.unsupported(f"a result of shape {shape} does not fit the windows over {image.x.type}")
    ready = transposed(w, (rank - 1, rank - 2, *range(rank - 2)))
    y = ops.conv_transpose(
        image.front, ready, stride=stride, pad=pad, output_pad=more, dilation=dilation, groups=1
    )
    return image.back(y)


@importer("AvgPool", "MaxPool", "AvgPool3D", "MaxPool3D")
def pool(n: TfNode) -> Value:
    image = Image(n, 0, (5,) if n.op.endswith("3D") else (4,))
    kernel, stride = image.numbers("ksize"), image.numbers("strides")
    ones = (1,) * len(kernel)
    window: dict[str, Any] = {
        "kernel": kernel,
        "stride": stride,
        "dilation": ones,
        "pad": image.padding(kernel, stride, ones),
    }
    op = ops.avg_pool if n.op.startswith("Avg") else ops.max_pool
    return image.back(op(image.front, **window))


@importer("BiasAdd", "BiasAddV1")
def bias_add(n: TfNode) -> Value:
    x, b = n.value(0), n.value(1)
    if b.type.rank != 1:
        n.unsupported(f"its bias is {b.type}; a vector is needed")
    if n.attr("data_format", "NHWC").startswith("NC") and x.type.rank > 2:
        b = ops.reshape(b, shape=(b.shape[0], *[1] * (x.type.rank - 2)))
    result: Value = ops.add(x, b)
    if result.shape != x.shape:
        raise BadInput(f"the bias {b.type} does not fit {x.type}")
    return result


@importer("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(n: TfNode) -> list[Value]:
    """With the stored mean and variance, or with those of the input if is_training is set."""
    image = Image(n, 0, (4, 5))
    scale, offset, mean, var = (n.value(i) for i in range(1, 5))
    if n.attr("is_training", True):
        x, axes = image.front, (0, *range(2, image.front.type.rank))
        far = ops.sub(x, ops.reduce_mean(x, axes=axes))
        mean = ops.reduce_mean(x, axes=axes, keepdims=False)
        var = ops.reduce_mean(ops.mul(far, far), axes=axes, keepdims=False)
    y = ops.batch_norm(image.front, scale, offset, mean, var, epsilon=n.attr("epsilon", 1e-4))
    return [image.back(y), mean, var, mean, var, mean]


@importer("LRN")
def lrn(n: TfNode) -> Value:
    """Our lrn divides alpha by the size of the window."""
    image, size = Image(n), 2 * n.attr("depth_radius", 5) + 1
    y = ops.lrn(
        image.front,
        size=size,
        alpha=n.attr("alpha", 1.0) * size,
        beta=n.attr("beta", 0.5),
        bias=n.attr("bias", 1.0),
    )
    return image.back(y)


# ---- resizing ------------------------------------------------------------------------------------
def _sized(
    n: TfNode,
    x: Value,
    size: tuple[int, ...],
    axes: tuple[int, ...],
    mode: str,
    way: str,
    **more: Any,
) -> Value:
    if len(size) != 2 or not all(0 < s < 1 << 20 for s in size):
        n.unsupported(f"the size is {size}; a height and a width are needed")
    scales = tuple(float(s / x.shape[a]) for s, a in zip(size, axes, strict=True))
    if mode != "nearest" and x.dtype != "f32":
        x = ops.cast(x, dtype="f32")
    result: Value = ops.resize(
        x,
        axes=axes,
        shape=size,
        scales=scales,
        mode=mode,
        coordinate_transformation_mode=way,
        **more,
    )
    return result


def _resized(n: TfNode, mode: str, **more: Any) -> Value:
    image = Image(n)
    if n.attr("align_corners", False):
        way = "align_corners"
    elif n.attr("half_pixel_centers", False):
        way = "tf_half_pixel_for_nn" if mode == "nearest" else "half_pixel"
    else:
        way = "asymmetric"
    return image.back(_sized(n, image.front, n.ints(1), (2, 3), mode, way, **more))


@importer("ResizeBilinear")
def resize_bilinear(n: TfNode) -> Value:
    return _resized(n, "linear")


@importer("ResizeNearestNeighbor")
def resize_nearest(n: TfNode) -> Value:
    rounding = "round_prefer_ceil" if n.attr("align_corners", False) else "floor"
    return _resized(n, "nearest", nearest_mode=rounding)


@importer("ResizeBicubic")
def resize_bicubic(n: TfNode) -> Value:
    if n.attr("half_pixel_centers", False):
        return _resized(n, "cubic", cubic_coeff_a=-0.5, exclude_outside=True)
    return _resized(n, "cubic", cubic_coeff_a=-0.75)


@importer("ScaleAndTranslate")
def scale_and_translate(n: TfNode) -> Value:
    """As tf.image.resize writes it for antialias=True: a resize without a shift."""
    image, size, scale = Image(n), n.ints(1), n.const(2).reshape(-1)
    kernel = n.attr("kernel_type", "lanczos3")
    if kernel not in ("triangle", "keyscubic") or np.any(n.const(3)) or len(size) != 2:
        n.unsupported(f"kernel {kernel} with a shift of {n.const(3).tolist()} is not supported")
    fits = [abs(k * d - s) < 1e-3 * s for k, d, s in zip(scale, image.spatial, size, strict=True)]
    if not all(fits) or not all(0 < s < 1 << 20 for s in size):
        n.unsupported(f"a scale of {scale.tolist()} does not give the size {size}")
    y = ops.resize(
        image.front,
        axes=(2, 3),
        shape=size,
        scales=tuple(float(k) for k in scale),
        mode="linear" if kernel == "triangle" else "cubic",
        cubic_coeff_a=-0.5,
        antialias=n.attr("antialias", True),
        exclude_outside=True,
    )
    return image.back(y)


@importer("DepthToSpace", "SpaceToDepth")
def blocks(n: TfNode) -> Value:
    image, size = Image(n), n.attr("block_size", 2)
    move = ops.depth_to_space if n.op == "DepthToSpace" else ops.space_to_depth
    return image.back(move(image.front, blocksize=size))
