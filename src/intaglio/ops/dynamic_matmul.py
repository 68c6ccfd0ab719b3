"""Dynamic int8 matmul: rows of the left operand are quantised at run time."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.registry import op

MAX_DEPTH = (2**31 - 1) // (128 * 255)  # products of bytes whose sum always fits into i32


def quantized_rows(x: Array) -> tuple[Array, Array]:
    """Rows as i8 and their scales: scale = max|x| / 127, q = rint(x * (127 / max|x|)).

    A row of (nearly) zeros becomes zeros. A row with inf or NaN becomes zeros with scale NaN.
    """
    with np.errstate(all="ignore"):
        most = np.abs(x).max(axis=-1, initial=np.float32(0))
        by = np.float32(127) / most
        by = np.where(np.isfinite(by) & np.isfinite(most), by, np.float32(0))
        scale = np.where(np.isfinite(most), most / np.float32(127), np.float32(np.nan))
        q = np.rint(np.where(by[..., None] > 0, x, 0) * by[..., None])
    return q.astype(np.int8), scale.astype(np.float32)


def _dynamic_matmul(x: Value, w: Value, ws: Value, b: Value | None = None) -> Type:
    if x.dtype != "f32" or w.dtype != "i8" or ws.dtype != "f32":
        raise BadInput(
            f"dynamic_matmul of {x.dtype}, {w.dtype} and scales of {ws.dtype}; "
            "f32, i8 and f32 are needed"
        )
    if x.type.rank < 1 or w.type.rank != 2 or x.shape[-1] != w.shape[0]:
        raise BadInput(f"dynamic_matmul of {x.shape} and {w.shape}: [.., k] and [k, n] are needed")
    if w.shape[0] > MAX_DEPTH:
        raise BadInput(
            f"dynamic_matmul: {w.shape[0]} products may overflow i32; at most {MAX_DEPTH} fit"
        )
    n = w.shape[1]
    if ws.shape not in ((), (1,), (n,)) or (b is not None and b.type != Type("f32", (n,))):
        raise BadInput(
            f"dynamic_matmul: one scale, or one scale and one f32 addend per column "
            f"of {n} are needed, not {ws.type}, {b and b.type}"
        )
    return Type("f32", (*x.shape[:-1], n))


def _macs(node: Node) -> int:
    return node.outputs[0].type.size * node.inputs[1].shape[0]  # type: ignore[union-attr]


@op(_dynamic_matmul, macs=_macs)
def dynamic_matmul(x: Array, w: Array, ws: Array, b: Array | None = None) -> Array:
    """f32(q @ w) * (scale * ws) + b, where `quantized_rows` gives q and scale of x."""
    q, scale = quantized_rows(x)
    acc = np.matmul(q.astype(np.float64), w.astype(np.float64))  # exact up to MAX_DEPTH
    y = acc.astype(np.float32) * (scale[..., None] * ws.reshape(-1))
    return y if b is None else y + b
