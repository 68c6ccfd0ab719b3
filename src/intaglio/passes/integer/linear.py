"""Integer conv, gemm and matmul of quantised tensors, with bias, residual and float results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.ir import Node, Value, constant
from intaglio.passes.integer.bias import real_constant, with_bias
from intaglio.passes.integer.operands import (
    BITS4,
    BITS8,
    b,
    is_nibbles,
    parameters,
    r,
    real,
    rs,
    rz,
    source,
    w,
    why_not_one,
    ws,
    wz,
    x,
    xs,
    xz,
    ys,
    yz,
    zero_of,
)
from intaglio.rewrite import No, P, no, rule
from intaglio.targets.replace.upsample import (
    flipped,
    from_phases,
    per_phase,
    phases_of,
    why_no_phases,
    with_flipped,
)

DX, DW = real(x, xs, xz, "dx"), real(w, ws, wz, "dw")
CONV = P.conv(DX, DW, b) @ "product"
GEMM = P.gemm(DX, DW, b) @ "product"
MATMUL = P.matmul(DX, DW) @ "product"
(c,) = P["c!"]
BIASED = P.add(P.matmul(DX, DW), c) @ "product"
ANY_LINEAR = P.any("conv", "gemm", "matmul", "add") @ "product"


@dataclass(frozen=True)
class Linear:
    """A conv, gemm or matmul as a quantised convolution. It is built only when called."""

    x: tuple[Value, Value, Value]  # integers, scale, zero point
    w: tuple[Value, Value, Value]
    bias: Value | None  # i32
    made: Node  # the conv, gemm or matmul
    shape: tuple[int, ...]

    def __call__(
        self,
        ys: Value | None = None,
        yz: Value | None = None,
        r: Value | None = None,
        rs: Value | None = None,
        rz: Value | None = None,
    ) -> Value:
        (x, *of_x), (w, *of_w) = self.x, self.w
        window = self.made.attrs
        y: Value
        if self.made.op == "conv":
            y = ops.qlinear_conv(x, *of_x, w, *of_w, ys, yz, self.bias, r, rs, rz, **window)
            return y
        if not _is_transposed(self.made):
            w = ops.transpose(w, perm=(1, 0))
        n, k = w.shape
        rows = x.type.size // k if k else 0
        x, w = ops.reshape(x, shape=(rows, k, 1)), ops.reshape(w, shape=(n, k, 1))
        r = None if r is None else ops.reshape(r, shape=(rows, n, 1))
        y = ops.qlinear_conv(
            x,
            *of_x,
            w,
            *of_w,
            ys,
            yz,
            self.bias,
            r,
            rs,
            rz,
            stride=(1,),
            pad=(0, 0),
            dilation=(1,),
            groups=1,
        )
        y = ops.reshape(y, shape=self.shape)
        return y


def _is_transposed(made: Node) -> bool:
    """Does the weight have one row per output, instead of one column?"""
    return made.op == "conv" or (made.op == "gemm" and bool(made.attrs["trans_b"]))


def linear(product: Node, kinds: tuple[str, ...] = BITS8) -> Linear | No | None:
    """Conv, gemm, matmul or add(matmul, bias) of dequantised operands; None for any other node."""
    result, bias = product, product.inputs[2] if product.op in ("conv", "gemm") else None
    if product.op == "add":
        found = _biased(product)
        if found is None:
            return None
        result, bias = found
    dx, dw = source(result.inputs[0], kinds), source(result.inputs[1], (*kinds, *BITS4))
    if result.op not in ("conv", "gemm", "matmul") or dx is None or dw is None:
        return None
    if kinds == BITS8 and _bytes(dw):
        return None
    x, w = dx.outputs[0].type, dw.outputs[0].type
    if result.op != "conv" and (w.rank != 2 or x.rank < 2 or x.dynamic):
        return no(f"{x} @ {w} is not one matmul of static size")
    if result.op == "gemm":
        a = result.attrs
        if a["trans_a"] or a["alpha"] != 1 or a["beta"] != 1:
            return no("the gemm scales or transposes its operands")
    axis = 0 if _is_transposed(result) else 1
    if why := _why_not(dx, dw, channel_axis=axis):
        return no(why)
    of_x = parameters(dx)
    fitted = with_bias(bias, of_x[1], parameters(dw), axis)
    if isinstance(fitted, No):
        return fitted
    return Linear(of_x, *fitted, result, product.outputs[0].shape)


def _biased(add: Node) -> tuple[Node, Value] | None:
    """The matmul and the bias of add(matmul, bias)."""
    for product, bias in (add.inputs, add.inputs[::-1]):
        result = product.producer if product is not None else None
        if (
            result is None
            or result.op != "matmul"
            or len(result.outputs[0].uses) != 1
            or bias is None
        ):
            continue
        n = result.outputs[0].shape[-1:]
        if bias.data is not None and bias.shape in (n, (1, *n)) and result.inputs[1].type.rank == 2:  # type: ignore[union-attr]
            return result, constant(bias.data.reshape(n))
    return None


def _why_not(dx: Node, dw: Node, channel_axis: int) -> str | None:
    """Why the integer ops do not support these operands, or None."""
    if dx.inputs[1].type.size != 1:  # type: ignore[union-attr]
        return "the activations have more than one scale"
    if dx.attrs["block_size"] or dw.attrs["block_size"]:
        return "the scales are per block"
    axis = dw.attrs["axis"] % dw.outputs[0].type.rank
    if dw.inputs[1].type.size != 1 and axis != channel_axis:  # type: ignore[union-attr]
        return f"the weight has scales along axis {axis}, not along its output channels"
    return None


# ---- transposed convolution ---------------------------------------------------------------------
@rule(P.conv_transpose(DX, DW, b) @ "product")
def integer_conv_transpose(product: Node, dw: Node, b: Value | None) -> Any:
    """Compute a quantised transposed convolution as an integer convolution, and depth_to_space if
    its stride is above 1.
    """
    image, (w, ws, wz) = product.inputs[0], parameters(dw)
    assert image is not None
    assert ws.data is not None
    assert wz.data is not None
    if source(image) is None or w.dtype not in BITS8 or w.data is None or image.type.dynamic:
        return no("the operands are not 8-bit with constant weights and static shapes")
    single = set(product.attrs["stride"]) == {1}
    if not single and (why := why_no_phases(product, image, w)):
        return no(why)
    groups = product.attrs["groups"]
    depthwise = groups == w.shape[0] and w.shape[1] == 1
    if ws.type.size != 1 and dw.attrs["axis"] % w.type.rank != (0 if depthwise else 1):
        return no("the weight has scales along its input channels")
    if np.any(wz.data):
        return no("the weights have a zero point; the missing taps would need it too")
    bias = None if b is None else real_constant(b)
    if b is not None and bias is None:
        return no("the bias is not constant with one value per output channel")
    s = product.attrs["stride"][0]
    weights = flipped(w.data, groups) if single else phases_of(w.data, groups, s)
    scale = ws.data
    if ws.type.size != 1:
        each = scale.reshape(-1) if depthwise else np.tile(scale.reshape(-1), groups)
        scale = each if single else per_phase(each, groups, s)
    grain = {**dw.attrs, "axis": 0}
    of_bytes = ops.dequantize_linear(
        constant(np.ascontiguousarray(weights)),
        constant(np.ascontiguousarray(scale)),
        None,
        **grain,
    )
    if single:
        return with_flipped(product, image, of_bytes, None if bias is None else constant(bias))
    addend = None if bias is None else constant(per_phase(bias.reshape(-1), groups, s))
    return from_phases(product, image, of_bytes, addend)


# ---- int8 results --------------------------------------------------------------------------------
def _stored(product: Node, node: Node, *residual: Value) -> Any:
    """The integer form of `product` with the result that `node` quantises."""
    if why := why_not_one(node, kinds=(*BITS8, "i16")):
        return no(why)
    found = linear(product)
    if not isinstance(found, Linear):
        return found
    ys, yz = node.inputs[1:]
    return found(ys, zero_of(node.outputs[0], yz), *residual)


@rule(P.quantize_linear(CONV, ys, yz))
def integer_conv(product: Node, node: Node) -> Any:
    """Compute a convolution between quantised tensors in integers."""
    return _stored(product, node)


@rule(P.quantize_linear(GEMM, ys, yz))
def integer_gemm(product: Node, node: Node) -> Any:
    """Compute a gemm between quantised tensors in integers, as a 1x1 convolution."""
    return _stored(product, node)


@rule(P.quantize_linear(BIASED, ys, yz))
def integer_biased_matmul(product: Node, node: Node) -> Any:
    """Compute a matmul with bias between quantised tensors in integers, as a 1x1 convolution."""
    return _stored(product, node)


@rule(P.quantize_linear(P.add(ANY_LINEAR, real(r, rs, rz, "dr")), ys, yz))
def integer_residual(product: Node, dr: Node, node: Node) -> Any:
    """Add a quantised tensor inside the integer convolution, before its result is rounded."""
    if product.outputs[0].shape != dr.outputs[0].shape or why_not_one(dr):
        return no(f"{dr.outputs[0].type} does not have the result's shape and one scale")
    return _stored(product, node, *parameters(dr))


def _why_not_matmul(dx: Node, dw: Node) -> str | None:
    """Why qlinear_matmul does not support these operands, or None."""
    w = dw.outputs[0].type
    if w.rank == 2:
        return _why_not(dx, dw, channel_axis=1)
    size = dw.inputs[1].type.size  # type: ignore[union-attr]
    if size != 1:
        return f"the second operand has {size} scales; one is needed"
    return _why_not(dx, dw, channel_axis=0)


@rule(P.quantize_linear(MATMUL, ys, yz))
def integer_matmul(dx: Node, dw: Node, node: Node) -> Any:
    """Compute a matmul between quantised tensors in integers."""
    if why := why_not_one(node) or _bytes(dx, dw) or _why_not_matmul(dx, dw):
        return no(why)
    y = node.inputs[1], zero_of(node.outputs[0], node.inputs[2])
    return ops.qlinear_matmul(*parameters(dx), *parameters(dw), *y)


def _bytes(*nodes: Node) -> str | None:
    stored = [n.inputs[0] for n in nodes]
    odd = [q.dtype for q in stored if q.dtype not in BITS8 and not is_nibbles(q)]  # type: ignore[union-attr,arg-type]
    return f"an operand is {odd[0]}, not 8 bits wide" if odd else None


# ---- float results -------------------------------------------------------------------------------
def _fuses_with_add(product: Node) -> bool:
    """Is the only reader an add that the integer op can include?"""
    out = product.outputs[0]
    user = next(iter(out.uses), None)
    if user is None or len(out.uses) != 1 or user.op != "add" or user.inputs[0] is user.inputs[1]:
        return False
    other = user.inputs[1 if user.inputs[0] is out else 0]
    assert other is not None
    if other.data is None and other.type == out.type:
        return isinstance(linear(product), Linear)
    return product.op == "matmul" and isinstance(linear(user), Linear)


def _floats(product: Node, *residual: Value) -> Any:
    if not residual and _fuses_with_add(product):
        return None
    if product.outputs[0].dtype != "f32":
        return no(f"the result is {product.outputs[0].dtype}; only f32 is supported")
    found = linear(product)
    return found(None, None, *residual) if isinstance(found, Linear) else found


@rule(CONV)
def conv_to_floats(product: Node) -> Any:
    """Compute a quantised convolution with a float result in integers."""
    return _floats(product)


@rule(GEMM)
def gemm_to_floats(product: Node) -> Any:
    """Compute a quantised gemm with a float result in integers."""
    return _floats(product)


@rule(BIASED)
def biased_matmul_to_floats(product: Node) -> Any:
    """Compute a quantised matmul with bias and a float result in integers."""
    return _floats(product)


@rule(MATMUL)
def matmul_to_floats(dx: Node, dw: Node, node: Node) -> Any:
    """Compute a quantised matmul with a float result in integers."""
    if _fuses_with_add(node):
        return None
    if node.outputs[0].dtype != "f32":
        return no(f"the result is {node.outputs[0].dtype}; only f32 is supported")
    if why := _bytes(dx, dw) or _why_not_matmul(dx, dw):
        return no(why)
    return ops.qlinear_matmul(*parameters(dx), *parameters(dw))


(t,) = P["t"]


@rule(P.add(ANY_LINEAR, t))
def residual_to_floats(product: Node, t: Value, node: Node) -> Any:
    """Add a float tensor inside a quantised convolution or matmul with a float result."""
    if t.data is not None or t.type != product.outputs[0].type or t is product.outputs[0]:
        return None
    return _floats(product, t)


PRODUCTS = [
    integer_conv_transpose,
    integer_residual,
    integer_conv,
    integer_gemm,
    integer_biased_matmul,
    integer_matmul,
]
SUMS = [
    residual_to_floats,
    biased_matmul_to_floats,
    conv_to_floats,
    gemm_to_floats,
    matmul_to_floats,
]
