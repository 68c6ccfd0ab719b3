"""Which nodes the exported kernels can run."""

from __future__ import annotations

from collections.abc import Callable

from intaglio.ir import Node, Value
from intaglio.ops.registry import normalize_axis

MAX_RANK = 6
BITS8 = ("i8", "u8")
COPIES = ("reshape", "transpose", "concat", "slice", "pad", "expand", "interpolate")
QUANTISED = ("qlinear_add", "qlinear_mul", "qlinear_mean", "qlinear_softmax", "lookup", "cpu.qpool")
CONVERSIONS = ("quantize_linear", "dequantize_linear")
CLIPS = ("relu", "clip")
FLOATS = (*CLIPS, "micro.softmax", "micro.sigmoid", "add", "sub", "mul", "div")
OPS = ("micro.conv", "cpu.pool", *FLOATS, *QUANTISED, *CONVERSIONS, *COPIES)


def why_not(node: Node) -> str | None:
    """None if the kernels can run this node; otherwise the reason."""
    if node.op not in OPS:
        floats = any(v is not None and v.dtype == "f32" for v in node.inputs)
        hint = "; quantise the model to 8 bits" if floats else ""
        return f"the exported kernels have no op '{node.op}'{hint}"
    every = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if any(not v.type.fixed or v.type.dynamic for v in every):
        return "a shape is not fixed"
    if any(v.type.rank > MAX_RANK for v in every):
        return f"a tensor has more than {MAX_RANK} axes"
    return _CHECKS[node.op](node) if node.op in _CHECKS else _quantised(node)


def _dtypes(node: Node) -> tuple[str, str]:
    x = node.inputs[0]
    assert x is not None
    return x.dtype, node.outputs[0].dtype


def _quantised(node: Node) -> str | None:
    if any(t not in BITS8 for t in _dtypes(node)):
        return f"{node.op} is for 8-bit tensors; quantise the model to 8 bits"
    if any(v is not None and v.data is None for v in _parameters(node)):
        return "a scale, zero point or table is not constant"
    return None


def _parameters(node: Node) -> list[Value | None]:
    pair = node.op in ("qlinear_add", "qlinear_mul")
    return [v for i, v in enumerate(node.inputs) if i and not (pair and i == 3)]


def _pool(node: Node) -> str | None:
    kind, (dtype, _) = node.attrs["kind"], _dtypes(node)
    x = node.inputs[0]
    assert x is not None
    if kind != "max" or dtype not in (*BITS8, "f32") or x.type.rank not in (3, 4):
        return f"{kind} pooling of {x.type}; maxima of 8-bit and f32 images are supported"
    return None


def _conversion(node: Node) -> str | None:
    scale = node.inputs[1]
    whole, real = reversed(_dtypes(node)) if node.op == "quantize_linear" else _dtypes(node)
    if whole not in BITS8 or real != "f32":
        return f"{node.op} between {real} and {whole}; f32 and 8 bits are supported"
    if scale is None or scale.type.size != 1 or any(v.data is None for v in node.inputs[1:] if v):
        return "one constant scale is needed"
    return None


def _floats(node: Node) -> str | None:
    every = {v.dtype for v in (*node.inputs, *node.outputs) if v is not None}
    other = next(iter(every - {"f32"}), None)
    return f"{node.op} of {other}; it is supported for f32" if other else None


def _pad(node: Node) -> str | None:
    if node.attrs.get("mode", "constant") != "constant":
        return f"padding in mode {node.attrs['mode']}; constant padding is supported"
    if any(v is not None and v.data is None for v in node.inputs[1:]):
        return "the padding is not constant"
    return None


def _interpolate(node: Node) -> str | None:
    index = node.inputs[1]
    assert index is not None
    if index.data is None:
        return "the places that a resize reads are not constant"
    if index.type.shape[1] != 1:
        return "only resizing to the nearest neighbour is supported; use mode 'nearest'"
    return None


def _softmax(node: Node) -> str | None:
    x = node.inputs[0]
    assert x is not None
    normalize_axis(node.attrs["axis"], x.type.rank)
    return _quantised(node)


_CHECKS: dict[str, Callable[[Node], str | None]] = {
    "micro.conv": lambda node: None,
    "cpu.pool": _pool,
    "quantize_linear": _conversion,
    "dequantize_linear": _conversion,
    "qlinear_softmax": _softmax,
    "pad": _pad,
    "interpolate": _interpolate,
    **dict.fromkeys(FLOATS, _floats),
    **dict.fromkeys(("reshape", "transpose", "concat", "slice", "expand"), lambda node: None),
}
