"""ONNX forms of convolution, pooling, resizing and sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.export.onnx.elementwise import only
from intaglio.export.onnx.expression import Forms, Onnx, make, writes
from intaglio.ir import Node, Value

Ints = tuple[int, ...]


def window(n: Node, **more: Any) -> dict[str, Any]:
    """The window's attributes by their ONNX names; defaults are left out."""
    a = n.attrs
    return {
        "strides": a["stride"] if set(a["stride"]) != {1} else None,
        "pads": a["pad"] if any(a["pad"]) else None,
        "dilations": a["dilation"] if set(a["dilation"]) != {1} else None,
        **more,
    }


# ---- convolution ---------------------------------------------------------------------------------
_CONV = {
    "conv": "Conv",
    "conv_integer": "ConvInteger",
    "qlinear_conv": "QLinearConv",
    "deform_conv": "DeformConv",
    "conv_transpose": "ConvTranspose",
}


@writes(*_CONV)
def conv(n: Node) -> Forms:
    if n.op == "qlinear_conv" and (n.inputs[6] is None or n.inputs[9] is not None):
        return ()  # ONNX has neither f32 results nor residuals
    w = n.inputs[3 if n.op == "qlinear_conv" else 1]
    assert w is not None
    more: dict[str, Any] = {"kernel_shape": w.shape[2:], "group": n.attrs["groups"]}
    if n.op == "deform_conv":
        more["offset_group"] = n.attrs["offset_groups"]
    if n.op == "conv_transpose" and any(n.attrs["output_pad"]):
        more["output_padding"] = n.attrs["output_pad"]
    return make(_CONV[n.op], *n.inputs, **window(n, **more))


@writes("col2im")
def col2im(n: Node) -> Onnx:
    return make("Col2Im", only(n), n.attrs["image"], n.attrs["block"], **window(n))


# ---- pooling -------------------------------------------------------------------------------------
def _used_pad(n: Node) -> Ints:
    """The padding that windows read. Runtimes refuse padding larger than the kernel."""
    x, a = only(n), n.attrs
    rank = len(a["kernel"])
    ends = []
    for i, count in enumerate(n.outputs[0].shape[2:]):
        span = a["dilation"][i] * (a["kernel"][i] - 1) + 1
        reach = (count - 1) * a["stride"][i] + span
        ends.append(max(min(reach - x.shape[2 + i] - a["pad"][i], a["pad"][rank + i]), 0))
    return (*a["pad"][:rank], *ends)


@writes("max_pool", "avg_pool", "lp_pool")
def pool(n: Node) -> Onnx:
    x, a, pad = only(n), n.attrs, _used_pad(n)
    more: dict[str, Any] = {"kernel_shape": a["kernel"], "pads": pad if any(pad) else None}
    source: Any = x
    if any(p >= k for p, k in zip(pad, (*a["kernel"], *a["kernel"]), strict=True)):
        source, more["pads"] = _padded(n, x, pad), None
    if n.op == "max_pool":
        more["storage_order"] = a["storage_order"] if a["with_indices"] else None
        return make("MaxPool", source, **window(n, **more))
    if n.op == "lp_pool":
        return make("LpPool", source, **window(n, **more), p=a["p"])
    more["count_include_pad"] = int(a["count_include_pad"]) or None
    return make("AveragePool", source, **window(n, **more))


def _padded(n: Node, x: Value, pad: Ints) -> Onnx:
    """A Pad before the pool, for padding larger than the kernel."""
    rank = len(pad) // 2
    value = None
    if n.op == "max_pool":
        low = -math.inf if dtypes.is_float(x.dtype) else dtypes.limits(x.dtype)[0]
        value = np.array(low).astype(dtypes.numpy_of(x.dtype))
    return make("Pad", x, [0, 0, *pad[:rank], 0, 0, *pad[rank:]], value)


@writes("max_unpool")
def max_unpool(n: Node) -> Forms:
    """ONNX derives the shape from kernel and stride, so both are chosen to give it."""
    x, indices = n.inputs
    assert x is not None
    kernel = tuple(w - d + 1 for w, d in zip(n.attrs["shape"][2:], x.shape[2:], strict=True))
    if n.attrs["shape"][:2] != x.shape[:2] or min(kernel) < 1:
        return ()
    return make("MaxUnpool", x, indices, kernel_shape=kernel)


# ---- resizing ------------------------------------------------------------------------------------
@writes("resize")
def resize(n: Node) -> Forms:
    x, a = only(n), n.attrs
    rank, f = x.type.rank, np.float32
    shape, scales = list(x.shape), [1.0] * rank
    begin, end = [0.0] * rank, [1.0] * rank
    for i, axis in enumerate(a["axes"]):
        shape[axis], scales[axis] = a["shape"][i], a["scales"][i]
        if a["roi"]:
            begin[axis], end[axis] = a["roi"][i], a["roi"][len(a["axes"]) + i]
    roi = np.array([*begin, *end], f) if a["roi"] else None
    names = (
        "mode",
        "coordinate_transformation_mode",
        "cubic_coeff_a",
        "exclude_outside",
        "extrapolation_value",
        "nearest_mode",
    )
    attrs = {k: a[k] for k in names} | {"antialias": 1 if a["antialias"] else None}
    forms = []
    if all(f(s) == f(w / max(d, 1)) for s, w, d in zip(scales, shape, x.shape, strict=True)):
        forms.append(make("Resize", x, roi, None, shape, **attrs))
    if all(math.floor(f(d) * f(s)) == w for s, w, d in zip(scales, shape, x.shape, strict=True)):
        forms.append(make("Resize", x, roi, np.array(scales, f), **attrs))
    if a["coordinate_transformation_mode"] == "half_pixel_symmetric":
        forms = [form.between(19) for form in forms]
    return tuple(forms)


@writes("interpolate")
def interpolate(n: Node) -> Onnx:
    """One tap becomes Gather; several become a matmul with the matrix of weights."""
    x, index, weight = n.inputs
    assert x is not None
    assert index is not None
    assert weight is not None
    axis, rank = n.attrs["axis"] % x.type.rank, x.type.rank
    if index.data is None or weight.data is None:
        raise AssertionError("interpolate has constant tables")
    if index.shape[1] == 1:
        return make("Gather", x, index.data[:, 0], axis=axis)
    matrix = np.zeros((index.shape[0], x.shape[axis]), np.float64)
    for i, w in zip(index.data.T, weight.data.T, strict=True):
        np.add.at(matrix, (np.arange(len(i)), i), w.astype(np.float64))
    letters = "abcdefgh"[:rank]
    out = letters.replace(letters[axis], "z")
    equation = f"{letters},z{letters[axis]}->{out}"
    return make("Einsum", x, matrix.astype(dtypes.numpy_of(x.dtype)), equation=equation)


@writes("grid_sample")
def grid_sample(n: Node) -> Forms:
    """Opset 20 renamed the modes and added volumes."""
    a, flat = n.attrs, only(n).type.rank == 4
    rest = {"padding_mode": a["padding_mode"], "align_corners": a["align_corners"]}
    old = {"linear": "bilinear", "cubic": "bicubic"}.get(a["mode"], a["mode"])
    new = make("GridSample", *n.inputs, mode=a["mode"], **rest).between(20)
    return (make("GridSample", *n.inputs, mode=old, **rest).between(16, 19), new) if flat else new


@writes("affine_grid")
def affine_grid(n: Node) -> Onnx:
    return make("AffineGrid", only(n), n.attrs["size"], align_corners=n.attrs["align_corners"])
