"""ONNX RNN, GRU, LSTM, and onnxruntime's DynamicQuantizeLSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.frontends.onnx.importer import OnnxNode, importer
from intaglio.ir import Array, Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.dynamic_matmul import MAX_DEPTH
from intaglio.ops.dynamic_recurrent import dynamic_lstm
from intaglio.ops.recurrent import ACTIVATIONS, gru, lstm, rnn

_NAMES = {name.lower(): name for name in ACTIVATIONS}
# default alpha and beta of activation functions
ALPHA = {
    "Affine": 1.0,
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "ScaledTanh": 1.0,
    "HardSigmoid": 0.2,
    "Elu": 1.0,
}
BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}


def _attrs(n: OnnxNode, functions: tuple[str, ...]) -> dict[str, Any]:
    direction = n.attr("direction", "forward")
    count = len(functions) * (2 if direction == "bidirectional" else 1)
    given = n.attr("activations") or functions * (count // len(functions))
    names = []
    for name in given[:count]:
        if name.lower() not in _NAMES:
            n.unsupported(f"activation '{name}' is none of {', '.join(ACTIVATIONS)}")
        names.append(_NAMES[name.lower()])
    alpha, beta = iter(n.attr("activation_alpha", ())), iter(n.attr("activation_beta", ()))
    recurrence = n.required(2)
    if recurrence.type.rank != 3:
        raise BadInput(f"the recurrence weights must have rank 3, they are {recurrence.type}")
    return {
        "hidden_size": n.attr("hidden_size", recurrence.shape[2]),
        "direction": direction,
        "activations": tuple(names),
        # the values of the file go in order to the functions that take one
        "activation_alpha": tuple(next(alpha, ALPHA[a]) if a in ALPHA else 0.0 for a in names),
        "activation_beta": tuple(next(beta, BETA[a]) if a in BETA else 0.0 for a in names),
        "clip": n.attr("clip", 0.0),
        "layout": n.attr("layout", 0),
    }


def _inputs(n: OnnxNode) -> list[Value | None]:
    """The operands; sequence lengths that all equal the full length are dropped."""
    inputs = list(n.inputs)
    lens = n.input(4)
    if lens is not None:
        x = n.required(0)
        time = x.shape[n.attr("layout", 0)]
        if n.is_const(4) and np.all(n.const(4) == time):
            inputs[4] = None
        elif lens.dtype != "i32":
            inputs[4] = cast(lens, dtype="i32")
    return inputs


@importer("RNN")
def import_rnn(n: OnnxNode) -> list[Value]:
    return rnn(*_inputs(n), **_attrs(n, ("Tanh",)))


@importer("GRU")
def import_gru(n: OnnxNode) -> list[Value]:
    reset = bool(n.attr("linear_before_reset", 0))
    return gru(*_inputs(n), **_attrs(n, ("Sigmoid", "Tanh")), linear_before_reset=reset)


@importer("LSTM")
def import_lstm(n: OnnxNode) -> list[Value]:
    forget = bool(n.attr("input_forget", 0))
    return lstm(*_inputs(n), **_attrs(n, ("Sigmoid", "Tanh", "Tanh")), input_forget=forget)


# ---- onnxruntime's DynamicQuantizeLSTM -----------------------------------------------------------
def _whole(n: OnnxNode, at: int, scale: int) -> tuple[Array, Array]:
    """Weights [d, gates * hidden, inputs] minus their zeros, and one scale per row."""
    stored = np.asarray(n.const(at)).astype(np.int16)  # d, inputs, gates * hidden
    wide = (stored.shape[0], stored.shape[2])
    by = np.asarray(n.const(scale), np.float32).reshape(wide[0], -1)
    zero = np.zeros(1) if n.input(scale + 1) is None else np.asarray(n.const(scale + 1))
    zero = np.broadcast_to(
        zero.astype(np.int16).reshape(-1, 1)
        if zero.size == 1
        else zero.astype(np.int16).reshape(wide[0], -1),
        wide,
    )
    less = stored - zero[:, None, :]
    return less.swapaxes(1, 2), np.ascontiguousarray(np.broadcast_to(by, wide))


@importer("DynamicQuantizeLSTM", domain="com.microsoft")
def import_dynamic_quantize_lstm(n: OnnxNode) -> list[Value]:
    """Inputs and states are quantised per row; onnxruntime quantises whole tensors."""
    (w, ws), (r, rs) = _whole(n, 1, 8), _whole(n, 2, 10)
    attrs = {**_attrs(n, ("Sigmoid", "Tanh", "Tanh")), "hidden_size": r.shape[2]}
    every = [*_inputs(n), *[None] * 8]
    x, b, lens, h, c, peephole = (every[i] for i in (0, 3, 4, 5, 6, 7))
    forget = bool(n.attr("input_forget", 0))
    usual = ("Sigmoid", "Tanh", "Tanh") * len(w)
    plain = attrs["activations"] == usual and not (attrs["clip"] or attrs["layout"] or forget)
    fits = all(np.abs(q).max(initial=0) <= 128 and q.max(initial=0) < 128 for q in (w, r))
    if (
        plain
        and fits
        and lens is None
        and peephole is None
        and max(w.shape[2], r.shape[2]) <= MAX_DEPTH
    ):
        parts = [constant(a) for q, s in ((w, ws), (r, rs)) for a in (_bytes(q), s)]
        only = {k: attrs[k] for k in ("hidden_size", "direction")}
        results: list[Value] = dynamic_lstm(x, *parts, b, h, c, **only)
        return results
    real = [constant((q * s[:, :, None]).astype(np.float32)) for q, s in ((w, ws), (r, rs))]
    return lstm(x, *real, b, lens, h, c, peephole, **attrs, input_forget=forget)


def _bytes(q: Array) -> Array:
    return np.ascontiguousarray(q.astype(np.int8))
