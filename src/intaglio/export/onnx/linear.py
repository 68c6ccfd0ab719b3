"""ONNX forms of reductions, gemm and Fourier transforms."""

from __future__ import annotations

import numpy as np

from intaglio.export.onnx.elementwise import only
from intaglio.export.onnx.expression import Forms, Onnx, make, writes
from intaglio.ir import Node

_REDUCE = {
    "reduce_sum": "ReduceSum",
    "reduce_mean": "ReduceMean",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_l1": "ReduceL1",
    "reduce_l2": "ReduceL2",
    "reduce_log_sum": "ReduceLogSum",
    "reduce_log_sum_exp": "ReduceLogSumExp",
    "reduce_sum_square": "ReduceSumSquare",
}
_GLOBAL = {"reduce_mean": "GlobalAveragePool", "reduce_max": "GlobalMaxPool"}


@writes(*_REDUCE)
def reduce(n: Node) -> Forms:
    x, axes, keepdims = only(n), n.attrs["axes"], n.attrs["keepdims"]
    op_type = _REDUCE[n.op]
    forms = (
        make(op_type, x, axes, keepdims=keepdims),
        make(op_type, x, axes=axes, keepdims=keepdims),
    )
    spatial = x.type.rank > 2 and axes == tuple(range(2, x.type.rank)) and keepdims
    return (make(_GLOBAL[n.op], x), *forms) if spatial and n.op in _GLOBAL else forms


@writes("gemm")
def gemm(n: Node) -> Onnx:
    a = n.attrs
    return make(
        "Gemm",
        *n.inputs,
        alpha=a["alpha"],
        beta=a["beta"],
        transA=a["trans_a"],
        transB=a["trans_b"],
    )


@writes("dft")
def dft(n: Node) -> Forms:
    x, a = only(n), n.attrs
    options = {"inverse": a["inverse"], "onesided": a["onesided"]}
    length, axis = np.int64(a["length"]), a["axis"]
    return make("DFT", x, length, np.int64(axis), **options), make(
        "DFT", x, length, axis=axis, **options
    )


@writes("stft")
def stft(n: Node) -> Onnx:
    x, window = n.inputs
    step, length = np.int64(n.attrs["frame_step"]), np.int64(n.attrs["frame_length"])
    return make("STFT", x, step, window, length, onesided=n.attrs["onesided"])
