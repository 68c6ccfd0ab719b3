"""LSTM and GRU on the CPU: one matmul for the inputs of all steps, then the steps.

A layer with the usual activations and full-length sequences becomes a matmul and cpu.lstm_steps or
cpu.gru_steps. Ordinary nodes pack the weights, so that constant ones fold: in blocks of 16 units
with the gates of a block side by side. A single long sequence includes its matmul (cpu.lstm_layer,
cpu.gru_layer), because reading recurrent weights leaves the multipliers half idle. All other layers
use the general kernel.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops import add, concat, matmul, pad, reshape, slice_, transpose
from intaglio.ops.recurrent import gru, lstm
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.epilogue import HALVES

UNITS = 16  # units per block, on every ISA
GATES = {"lstm": 4, "gru": 3}
USUAL = {"lstm": ("Sigmoid", "Tanh", "Tanh"), "gru": ("Sigmoid", "Tanh")}


# ---- the ops -------------------------------------------------------------------------------------
def _types(name: str, gates: Value, r: Value, hidden: int, direction: str) -> list[Type]:
    blocks, d = -(-hidden // UNITS), 2 if direction == "bidirectional" else 1
    wide = GATES[name] * UNITS
    if gates.type.rank != 3 or gates.shape[0] < 1 or gates.shape[2] != d * blocks * wide:
        raise BadInput(
            f"cpu.{name}_steps: gates {gates.type} are not steps {d * blocks * wide} wide"
        )
    pair = 2 if r.dtype == "bf16" else 1  # bf16 rows are interleaved in pairs
    if r.dtype not in ("f32", *HALVES) or hidden % pair:
        raise BadInput(f"cpu.{name}_steps: {r.type} cannot be weights for {hidden} units")
    if r.shape != (d, blocks, hidden // pair, wide * pair):
        raise BadInput(f"cpu.{name}_steps: weights {r.type} are not packed for {hidden} units")
    steps, batch = gates.shape[:2]
    state = Type(gates.dtype, (d, batch, hidden))
    return [Type(gates.dtype, (steps, *state.shape)), state]


def _lstm_types(
    gates: Value, r: Value, h: Value | None, c: Value | None, *, hidden: int, direction: str
) -> list[Type]:
    y, state = _types("lstm", gates, r, hidden, direction)
    return [y, state, state]


def _gru_types(
    gates: Value, r: Value, h: Value | None, bias: Value | None, *, hidden: int, direction: str
) -> list[Type]:
    return _types("gru", gates, r, hidden, direction)


def _macs(node: Node) -> int:
    return node.inputs[0].type.size * int(node.attrs["hidden"])  # type: ignore[union-attr]


def unblock(a: Array, gates: int, hidden: int) -> Array:
    """[.., blocks * gates * 16] -> [.., gates * hidden]"""
    blocks = -(-hidden // UNITS)
    split = a.reshape(*a.shape[:-1], blocks, gates, UNITS)
    flat = np.swapaxes(split, -3, -2).reshape(*a.shape[:-1], gates, blocks * UNITS)
    return np.ascontiguousarray(flat[..., :hidden]).reshape(*a.shape[:-1], gates * hidden)


def _neutral(gates: Array, r: Array, count: int, hidden: int) -> tuple[list[Array], Array]:
    """The gates' input parts of each direction, and the recurrent weights, in the neutral
    layout.
    """
    d, blocks, rows, wide = r.shape
    pairs = r.astype(np.float32).reshape(d, blocks, rows, wide * rows // hidden, hidden // rows)
    r = np.moveaxis(pairs, -1, -2).reshape(d, blocks, hidden, wide * rows // hidden)
    given = gates.reshape(*gates.shape[:2], d, gates.shape[2] // d)
    flat = np.swapaxes(r, 1, 2).reshape(d, hidden, given.shape[3])
    weights = np.swapaxes(unblock(flat, count, hidden), 1, 2)
    return [unblock(given[:, :, i], count, hidden) for i in range(d)], weights


def _each_direction(
    body: Any,
    gates: Array,
    r: Array,
    bias: Array | None,
    count: int,
    states: list[Array | None],
    hidden: int,
    direction: str,
) -> Any:
    """Run the neutral op's body for one direction after the other, with the inputs already
    multiplied.
    """
    given, weights = _neutral(gates, r, count, hidden)
    results = []
    for i, x in enumerate(given):
        w = np.eye(count * hidden, dtype=x.dtype)[None]
        way = "reverse" if direction == "reverse" or i == 1 else "forward"
        ours = [None if s is None else s[i : i + 1] for s in states]
        b = None if bias is None else bias[i : i + 1]
        results.append(
            body(x, w, weights[i : i + 1], b, None, *ours, hidden_size=hidden, direction=way)
        )
    ys, *last = zip(*results, strict=True)
    return np.concatenate(ys, 1), *(np.concatenate(s, 0) for s in last)


@op(_lstm_types, name="cpu.lstm_steps", macs=_macs)
def lstm_steps(
    gates: Array,
    r: Array,
    h: Array | None = None,
    c: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """The steps of an LSTM, given the gates' input parts with biases."""
    return _each_direction(lstm.body, gates, r, None, 4, [h, c], hidden, direction)


@op(_gru_types, name="cpu.gru_steps", macs=_macs)
def gru_steps(
    gates: Array,
    r: Array,
    h: Array | None = None,
    bias: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """The steps of a GRU with linear_before_reset; `bias` belongs to the hidden gate's recurrent
    product.
    """

    def body(*inputs: Any, **attrs: Any) -> Any:
        return gru.body(*inputs, **attrs, linear_before_reset=True)

    both = None
    if bias is not None:
        both = np.zeros((r.shape[0], 6 * hidden), bias.dtype)
        both[:, 5 * hidden :] = bias[:, :hidden]
    return _each_direction(body, gates, r, both, 3, [h], hidden, direction)


# ---- input matmul and steps as one op ------------------------------------------------------------
def _given(name: str, x: Value, w: Value, bias: Value | None, hidden: int, direction: str) -> Value:
    """The gates that a layer's matmul makes."""
    d = 2 if direction == "bidirectional" else 1
    panels = d * -(-hidden // UNITS) * GATES[name]
    if x.type.rank != 3 or x.shape[1] != 1 or w.shape != (panels, x.shape[2], UNITS):
        raise BadInput(f"cpu.{name}_layer: {x.type} is not one sequence for weights {w.type}")
    if bias is not None and bias.shape != (panels * UNITS,):
        raise BadInput(f"cpu.{name}_layer: bias {bias.type} is not for {panels * UNITS} gates")
    return Value(Type(x.dtype, (x.shape[0], 1, panels * UNITS)))


def _lstm_layer_types(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    h: Value | None,
    c: Value | None,
    *,
    hidden: int,
    direction: str,
) -> list[Type]:
    given = _given("lstm", x, w, bias, hidden, direction)
    return _lstm_types(given, r, h, c, hidden=hidden, direction=direction)


def _gru_layer_types(
    x: Value,
    w: Value,
    r: Value,
    bias: Value | None,
    h: Value | None,
    last: Value | None,
    *,
    hidden: int,
    direction: str,
) -> list[Type]:
    given = _given("gru", x, w, bias, hidden, direction)
    return _gru_types(given, r, h, last, hidden=hidden, direction=direction)


def _layer_macs(node: Node) -> int:
    w, r = node.inputs[1], node.inputs[2]
    steps = node.outputs[0].shape[0]
    return steps * (w.type.size + r.type.size)  # type: ignore[union-attr]


def _multiplied(x: Array, w: Array, bias: Array | None) -> Array:
    matrix = np.swapaxes(w, 0, 1).reshape(x.shape[2], -1)
    result: Array = x @ matrix if bias is None else x @ matrix + bias
    return result


@op(_lstm_layer_types, name="cpu.lstm_layer", macs=_layer_macs)
def lstm_layer(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    h: Array | None = None,
    c: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """An LSTM of one sequence: the matmul of its inputs with packed weights, and its steps."""
    return lstm_steps.body(_multiplied(x, w, bias), r, h, c, hidden=hidden, direction=direction)


@op(_gru_layer_types, name="cpu.gru_layer", macs=_layer_macs)
def gru_layer(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    h: Array | None = None,
    last: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """A GRU of one sequence: the matmul of its inputs with packed weights, and its steps."""
    return gru_steps.body(_multiplied(x, w, bias), r, h, last, hidden=hidden, direction=direction)


# ---- lowering ------------------------------------------------------------------------------------
def _blocked(v: Value, count: int, hidden: int) -> Value:
    """[d, gates * hidden, n] -> [d, blocks, n, gates * 16]"""
    d, _, n = v.shape
    blocks = -(-hidden // UNITS)
    split = reshape(v, shape=(d, count, hidden, n))
    if blocks * UNITS > hidden:
        split = pad(split, before=(0,) * 4, after=(0, 0, blocks * UNITS - hidden, 0))
    split = reshape(split, shape=(d, count, blocks, UNITS, n))
    transposed = transpose(split, perm=(0, 2, 4, 1, 3))
    result: Value = reshape(transposed, shape=(d, blocks, n, count * UNITS))
    return result


def _product(x: Value, w: Value, bias: Value | None, count: int, hidden: int) -> Value:
    """x * w + bias for all steps, in block order."""
    packed = _blocked(w, count, hidden)
    wide = math.prod(packed.shape) // w.shape[2]
    matrix = reshape(transpose(packed, perm=(2, 0, 1, 3)), shape=(w.shape[2], wide))
    result: Value = matmul(x, matrix)
    if bias is not None:
        column = reshape(bias, shape=(*bias.shape, 1))
        result = add(result, reshape(_blocked(column, count, hidden), shape=(wide,)))
    return result


def _part(v: Value, start: int, stop: int) -> Value:
    result: Value = slice_(v, start=(0, start), stop=(v.shape[0], stop), step=(1, 1))
    return result


def why_not_plain(node: Node) -> str | None:
    """Why the step kernels do not support this layer, or None."""
    a, lens = node.attrs, node.inputs[4]
    directions = 2 if a["direction"] == "bidirectional" else 1
    if node.outputs[0].dtype != "f32" or any(v.type.dynamic for v in node.inputs if v is not None):
        return "it is not f32 of static shape"
    if not node.outputs[0].shape[0]:
        return "it has no steps"
    if lens is not None:
        return "its sequences differ in length"
    if a["activations"] != USUAL[node.op] * directions or a["clip"]:
        return f"its activations are {a['activations']}, clipped at {a['clip']}"
    if a["layout"]:
        return "time is not its first axis"
    if node.op == "gru" and not a["linear_before_reset"]:
        return "its reset gate applies before the matmul (linear_before_reset=0)"
    if node.op == "lstm" and (a["input_forget"] or node.inputs[7] is not None):
        return "it couples gates or has peepholes"
    return None


@rule(P.op("lstm", *P["x w r b? lens? h? c? p?"]))
def lstm_as_steps(
    node: Node, x: Value, w: Value, r: Value, b: Value | None, h: Value | None, c: Value | None
) -> list[Value] | No:
    """Lower an LSTM to one matmul for all inputs and cpu.lstm_steps."""
    if why := why_not_plain(node):
        return no(why)
    hidden, direction = node.attrs["hidden_size"], node.attrs["direction"]
    half = 4 * hidden
    bias = None if b is None else add(_part(b, 0, half), _part(b, half, 2 * half))
    gates = _product(x, w, bias, 4, hidden)
    results: list[Value] = lstm_steps(
        gates, _blocked(r, 4, hidden), h, c, hidden=hidden, direction=direction
    )
    return results


@rule(P.op("gru", *P["x w r b? lens? h?"]))
def gru_as_steps(
    node: Node, x: Value, w: Value, r: Value, b: Value | None, h: Value | None
) -> list[Value] | No:
    """Lower a GRU to one matmul for all inputs and cpu.gru_steps."""
    if why := why_not_plain(node):
        return no(why)
    hidden, direction = node.attrs["hidden_size"], node.attrs["direction"]
    half, two = 3 * hidden, 2 * hidden
    bias = last = None
    if b is not None:
        rest = constant(np.zeros((b.shape[0], hidden), np.float32))
        both = concat(
            _part(b, half, half + two), rest, axis=1
        )  # the hidden gate's bias is separate
        bias = add(_part(b, 0, half), both)
        last = _part(b, half + two, 2 * half)
        padding = -(-hidden // UNITS) * UNITS - hidden
        last = pad(last, before=(0, 0), after=(0, padding)) if padding else last
    gates = _product(x, w, bias, 3, hidden)
    results: list[Value] = gru_steps(
        gates, _blocked(r, 3, hidden), h, last, hidden=hidden, direction=direction
    )
    return results


# ---- fusing the input matmul ---------------------------------------------------------------------
STEPS_AHEAD = 16  # steps whose inputs are multiplied together, before the first of them
PRODUCT = P.op("cpu.gemm", *P["x w bias?"]) @ "product"


def _with_product(layer: Any, node: Node, product: Node, given: list[Value | None]) -> Any:
    x, w, bias = product.inputs[:3]
    assert x is not None
    assert w is not None
    if w.type.rank != 3 or product.attrs["act"] != "none" or node.outputs[0].shape[2] != 1:
        return no("the matmul has an activation or more than one sequence")
    if x.shape[0] < 2 * STEPS_AHEAD:
        return no(f"only {x.shape[0]} steps; {STEPS_AHEAD} are multiplied before the first one")
    if not node.attrs["hidden"] <= 4 * x.shape[2] <= 16 * node.attrs["hidden"]:
        return no("the matmul and the steps differ too much in size to overlap")
    r, *rest = given
    return layer(x, w, r, bias, *rest, **node.attrs)


@rule(P.op("cpu.lstm_steps", PRODUCT, *P["r h? c?"]))
def gemm_into_lstm(node: Node, product: Node, r: Value, h: Value | None, c: Value | None) -> Any:
    """Overlap the input matmul with the steps of an LSTM, which leave the multipliers idle."""
    return _with_product(lstm_layer, node, product, [r, h, c])


@rule(P.op("cpu.gru_steps", PRODUCT, *P["r h? last?"]))
def gemm_into_gru(node: Node, product: Node, r: Value, h: Value | None, last: Value | None) -> Any:
    """Overlap the input matmul with the steps of a GRU, which leave the multipliers idle."""
    return _with_product(gru_layer, node, product, [r, h, last])


RECURRENT: list[Rule] = [lstm_as_steps, gru_as_steps]
RECURRENT_FUSE: list[Rule] = [gemm_into_lstm, gemm_into_gru]
