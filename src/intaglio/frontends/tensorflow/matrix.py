"""Importers of MatrixDiag, ExtractImagePatches and MaxPoolWithArgmax."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.frontends.tensorflow.conv import Image
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Value, constant


def _main_diagonal(n: TfNode) -> None:
    """Unsupported if V2 or V3 selects other diagonals than the main one."""
    if len(n.inputs) > 1 and set(n.ints(1)) != {0}:
        n.unsupported(f"diagonals {n.ints(1)}; only the main one is supported")


@importer("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3")
def matrix_diag(n: TfNode) -> Value:
    _main_diagonal(n)
    x = n.value(0)
    if any(n.ints(i) not in ((-1,), x.shape[-1:]) for i in (2, 3) if i < len(n.inputs)):
        n.unsupported("a matrix that is larger than its diagonal is not supported")
    if len(n.inputs) > 4 and n.number(4):
        n.unsupported("a padding value other than 0 is not supported")
    eye = constant(np.eye(x.shape[-1]), dtype=x.dtype)
    result: Value = ops.mul(ops.reshape(x, shape=(*x.shape, 1)), eye)
    return result


@importer("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part(n: TfNode) -> Value:
    _main_diagonal(n)
    x = n.value(0)
    if x.type.rank < 2:
        n.unsupported(f"its operand is {x.type}; a matrix is needed")
    side = min(x.shape[-2:])
    square = ops.part(ops.part(x, 0, side, axis=-1), 0, side, axis=-2)
    result: Value = ops.einsum(square, equation="...ii->...i")
    return result


@importer("ExtractImagePatches")
def extract_image_patches(n: TfNode) -> Value:
    """Every window as one vector, ordered by row, column, channel."""
    image = Image(n)
    kernel, stride = image.numbers("ksizes"), image.numbers("strides")
    rates = image.numbers("rates", 1)
    x, taps = image.front, kernel[0] * kernel[1]
    if taps * x.shape[1] > 1 << 16:
        n.unsupported(f"windows of {kernel} over {x.shape[1]} channels are too large")
    one = np.eye(taps, dtype=np.float32).reshape(taps, 1, *kernel)
    w = constant(np.tile(one, (x.shape[1], 1, 1, 1)))
    y = ops.conv(
        x,
        w,
        stride=stride,
        pad=image.padding(kernel, stride, rates),
        dilation=rates,
        groups=x.shape[1],
    )
    parts = ops.reshape(y, shape=(x.shape[0], x.shape[1], taps, *y.shape[2:]))
    moved = ops.transpose(parts, perm=(0, 3, 4, 2, 1))
    result: Value = ops.reshape(moved, shape=(x.shape[0], *y.shape[2:], taps * x.shape[1]))
    return result


@importer("MaxPoolWithArgmax")
def max_pool_with_argmax(n: TfNode) -> list[Value]:
    """Indices count rows, columns and channels, within each image or over the batch."""
    image = Image(n)
    kernel, stride = image.numbers("ksize"), image.numbers("strides")
    pad = image.padding(kernel, stride, (1, 1))
    y, at = ops.max_pool(
        image.front, kernel=kernel, stride=stride, pad=pad, dilation=(1, 1), with_indices=True
    )
    batch, channels, height, width = image.front.shape
    plane = height * width
    planes = np.arange(batch * channels, dtype=np.int64).reshape(batch, channels, 1, 1)
    within = ops.sub(at, constant(planes * plane))
    place = ops.add(ops.mul(within, constant(np.int64(channels))), constant(planes % channels))
    if n.attr("include_batch_in_index", False):
        place = ops.add(place, constant(planes // channels * plane * channels))
    kind = n.dtype("Targmax", "i64")
    return [image.back(y), ops.cast(image.back(place), dtype=kind)]
