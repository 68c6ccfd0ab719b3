"""ONNX convolutions, col2im, and onnxruntime's FusedConv."""

from __future__ import annotations

from typing import Any

from intaglio.errors import BadInput
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.frontends.onnx.shape import ints
from intaglio.frontends.onnx.windows import same_pad, windows_of
from intaglio.ir import Value
from intaglio.ops.conv import col2im, conv, conv_transpose
from intaglio.ops.deform_conv import deform_conv
from intaglio.ops.elementwise import add
from intaglio.ops.integer_conv import conv_integer, qlinear_conv
from intaglio.ops.registry import named

FUSED = named("ort_fused")  # activations of FusedConv and FusedGemm


def _kernel(n: OnnxNode, w: Value) -> tuple[int, ...]:
    kernel = tuple(n.attr("kernel_shape", ())) or w.shape[2:]
    if kernel != w.shape[2:]:
        raise BadInput(f"kernel_shape is {kernel}, but the weights are {w.type}")
    return kernel


def _conv(n: OnnxNode) -> Value:
    x, w = n.required(0), n.required(1)
    at = windows_of(n, x.shape[2:], _kernel(n, w))
    result: Value = conv(x, w, n.input(2), **at.attrs, groups=n.attr("group", 1))
    return result


@importer("Conv")
def import_conv(n: OnnxNode) -> Value:
    return _conv(n)


@importer("ConvInteger")
def import_conv_integer(n: OnnxNode) -> Value:
    x, w = n.required(0), n.required(1)
    at = windows_of(n, x.shape[2:], _kernel(n, w))
    return conv_integer(*n.inputs, **at.attrs, groups=n.attr("group", 1))


@importer("QLinearConv")
def import_qlinear_conv(n: OnnxNode) -> Value:
    x, w = n.required(0), n.required(3)
    at = windows_of(n, x.shape[2:], _kernel(n, w))
    return qlinear_conv(*n.inputs, **at.attrs, groups=n.attr("group", 1))


@importer("DeformConv")
def import_deform_conv(n: OnnxNode) -> Value:
    x, w = n.required(0), n.required(1)
    at = windows_of(n, x.shape[2:], _kernel(n, w))
    groups, offset_groups = n.attr("group", 1), n.attr("offset_group", 1)
    return deform_conv(*n.inputs, **at.attrs, groups=groups, offset_groups=offset_groups)


@importer("ConvTranspose")
def import_conv_transpose(n: OnnxNode) -> Value:
    x, w = n.required(0), n.required(1)
    rank, kernel = x.type.rank - 2, _kernel(n, w)
    stride = tuple(n.attr("strides", ())) or (1,) * rank
    dilation = tuple(n.attr("dilations", ())) or (1,) * rank
    output_pad = list(n.attr("output_padding", ()) or (0,) * rank)
    pad = list(n.attr("pads", ()) or (0,) * (2 * rank))
    auto = n.attr("auto_pad", "NOTSET")
    wanted = n.attr("output_shape", ())[-rank:]
    if not wanted and auto.startswith("SAME"):
        wanted = tuple(d * s for d, s in zip(x.shape[2:], stride, strict=True))
    if auto == "VALID":
        pad = [0] * (2 * rank)
    for i, want in enumerate(wanted):
        span = dilation[i] * (kernel[i] - 1) + 1
        total = stride[i] * (x.shape[2 + i] - 1) + output_pad[i] + span - want
        pad[i], pad[rank + i] = same_pad(max(total, 0), auto == "SAME_UPPER")
        output_pad[i] += max(-total, 0)
    return conv_transpose(
        x,
        w,
        n.input(2),
        stride=stride,
        pad=tuple(pad),
        output_pad=tuple(output_pad),
        dilation=dilation,
        groups=n.attr("group", 1),
    )


@importer("Col2Im")
def import_col2im(n: OnnxNode) -> Value:
    x, image, block = n.required(0), ints(n.const(1)), ints(n.const(2))
    at = windows_of(n, image, block)
    return col2im(x, image=image, block=block, **at.attrs)


@importer("FusedConv", domain="com.microsoft")
def fused_conv(n: OnnxNode) -> Value:
    """A convolution that onnxruntime's optimiser fused with an addition and an activation."""
    y = _conv(n)
    other = n.input(3)
    a, b = (*n.attr("activation_params", ()), 0.0, 0.0)[:2]
    return activated(n, y if other is None else add(y, other), a, b)


def activated(n: OnnxNode, y: Value, a: float, b: float) -> Value:
    """`y` with the activation of the contrib op's `activation` attribute."""
    name = n.attr("activation", "")
    if not name:
        return y
    if name not in FUSED:
        n.unsupported(f"activation '{name}' is not supported; use one of {', '.join(FUSED)}")
    op = FUSED[name]
    attrs: dict[str, Any] = dict(zip(op.attr_names, (a, b), strict=False))
    result: Value = op(y, **attrs)
    return result
