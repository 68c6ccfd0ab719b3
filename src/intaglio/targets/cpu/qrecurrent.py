"""int8 LSTM and GRU: one matmul for the inputs of all steps, then the steps.

Like `recurrent.py`, in blocks of 16 units; the recurrent weights are packed in groups of four along
k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value, constant
from intaglio.ops.dynamic_matmul import quantized_rows
from intaglio.ops.dynamic_recurrent import Times, gru_step, lstm_step, run_steps
from intaglio.ops.registry import op
from intaglio.rewrite import No, P, Rule, no, rule
from intaglio.targets.cpu.qgemm import FOUR, ZERO, product, quantize_rows
from intaglio.targets.cpu.recurrent import GATES, UNITS, unblock


# ---- the ops -------------------------------------------------------------------------------------
def _types(
    name: str, gates: Value, r: Value, scale: Value, sums: Value, hidden: int, direction: str
) -> list[Type]:
    blocks, d = -(-hidden // UNITS), 2 if direction == "bidirectional" else 1
    wide = GATES[name] * UNITS
    if gates.type.rank != 3 or gates.shape[0] < 1 or gates.shape[2] != d * blocks * wide:
        raise BadInput(f"gates {gates.type} are not steps {d * blocks * wide} wide")
    if r.type != Type("i8", (d, blocks, -(-hidden // FOUR), wide * FOUR)):
        raise BadInput(f"weights {r.type} are not packed for {hidden} units")
    each = (d, blocks * wide)
    if scale.type != Type("f32", each) or sums.type != Type("i32", each):
        raise BadInput(f"f32 scales and i32 sums {each} are needed, not {scale.type}, {sums.type}")
    steps, batch = gates.shape[:2]
    state = Type("f32", (d, batch, hidden))
    return [Type("f32", (steps, *state.shape)), state]


def _lstm_types(
    gates: Value,
    r: Value,
    scale: Value,
    sums: Value,
    h: Value | None,
    c: Value | None,
    *,
    hidden: int,
    direction: str,
) -> list[Type]:
    y, state = _types("lstm", gates, r, scale, sums, hidden, direction)
    return [y, state, state]


def _gru_types(
    gates: Value,
    r: Value,
    scale: Value,
    sums: Value,
    h: Value | None,
    bias: Value | None,
    *,
    hidden: int,
    direction: str,
) -> list[Type]:
    return _types("gru", gates, r, scale, sums, hidden, direction)


def _macs(node: Node) -> int:
    return node.inputs[0].type.size * int(node.attrs["hidden"])  # type: ignore[union-attr]


def _times(r: Array, scale: Array, count: int, hidden: int) -> Times:
    """The function that multiplies a state with the packed weights of one direction."""
    blocks, fours = r.shape[:2]
    split = r.reshape(blocks, fours, count * UNITS, FOUR).transpose(1, 3, 0, 2)
    rows = split.reshape(fours * FOUR, blocks * count * UNITS)[:hidden]
    matrix, by = unblock(rows, count, hidden).astype(np.float64), unblock(scale, count, hidden)

    def times(h: Array) -> Array:
        q, s = quantized_rows(h)
        acc = np.matmul(q.astype(np.float64), matrix)
        return np.asarray(acc.astype(np.float32) * (s[..., None] * by))

    return times


def _parts(gates: Array, d: int, count: int, hidden: int) -> list[Array]:
    given = gates.reshape(*gates.shape[:2], d, gates.shape[2] // d)
    return [unblock(given[:, :, i], count, hidden) for i in range(d)]


@op(_lstm_types, name="cpu.qlstm_steps", macs=_macs)
def qlstm_steps(
    gates: Array,
    r: Array,
    scale: Array,
    sums: Array,
    h: Array | None = None,
    c: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """The steps of an LSTM, given the gates' input parts with biases."""
    steps = [lstm_step(_times(r[i], scale[i], 4, hidden)) for i in range(len(r))]
    return run_steps(_parts(gates, len(r), 4, hidden), steps, [h, c], direction, hidden)


@op(_gru_types, name="cpu.qgru_steps", macs=_macs)
def qgru_steps(
    gates: Array,
    r: Array,
    scale: Array,
    sums: Array,
    h: Array | None = None,
    bias: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
) -> Any:
    """The steps of a GRU; `bias` belongs to the hidden gate's product with the state."""
    last = np.zeros((len(r), hidden), np.float32) if bias is None else bias[:, :hidden]
    steps = [gru_step(_times(r[i], scale[i], 3, hidden), last[i]) for i in range(len(r))]
    return run_steps(_parts(gates, len(r), 3, hidden), steps, [h], direction, hidden)


# ---- lowering ------------------------------------------------------------------------------------
def blocked(a: Array, count: int, hidden: int) -> Array:
    """[d, gates * hidden, ..] -> [d, blocks, gates * 16, ..], padded with zeros."""
    d, rest, blocks = a.shape[0], a.shape[2:], -(-hidden // UNITS)
    full = np.zeros((d, count, blocks * UNITS, *rest), a.dtype)
    full[:, :, :hidden] = a.reshape(d, count, hidden, *rest)
    transposed = full.reshape(d, count, blocks, UNITS, *rest).swapaxes(1, 2)
    return np.ascontiguousarray(transposed).reshape(d, blocks, count * UNITS, *rest)


def _inputs(x: Value, w: Array, ws: Array, bias: Array, count: int, hidden: int) -> Value:
    """The gates' input parts for all steps, in block order."""
    matrix = blocked(w, count, hidden).reshape(-1, w.shape[2]).T
    scale, both = blocked(ws, count, hidden).reshape(-1), blocked(bias, count, hidden).reshape(-1)
    q, rows = quantize_rows(x)
    return product(q, np.ascontiguousarray(matrix), scale, constant(both), rows, x_zero=ZERO)


def _recurrent(r: Array, rs: Array, count: int, hidden: int) -> list[Value]:
    """The packed recurrent weights, their scales, and their column sums."""
    tall = blocked(r, count, hidden)  # d, blocks, gates * 16, k
    d, blocks, wide, k = tall.shape
    full = np.zeros((d, blocks, wide, -(-k // FOUR) * FOUR), np.int8)
    full[..., :k] = tall
    packed = full.reshape(d, blocks, wide, -1, FOUR).transpose(0, 1, 3, 2, 4)
    sums = tall.sum(-1, dtype=np.int32).reshape(d, -1)
    return [
        constant(np.ascontiguousarray(packed).reshape(d, blocks, -1, wide * FOUR)),
        constant(blocked(rs, count, hidden).reshape(d, -1)),
        constant(sums),
    ]


x, w, ws, r, rs, b, h, c = P["x w! ws! r! rs! b!? h? c?"]


def _data(*values: Value) -> list[Any]:
    return [v.data for v in values]


@rule(P.dynamic_lstm(x, w, ws, r, rs, b, h, c))
def dynamic_lstm_as_steps(
    node: Node,
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    b: Value | None,
    h: Value | None,
    c: Value | None,
) -> Any:
    """Lower a dynamically quantised LSTM to one matmul for all inputs and cpu.qlstm_steps."""
    if (why := _why_not(x)) is not None:
        return why
    n, (wd, wsd, rd, rsd) = node.attrs["hidden_size"], _data(w, ws, r, rs)
    bias = np.zeros((len(wd), 4 * n), np.float32)
    if b is not None and b.data is not None:
        bias = b.data[:, : 4 * n] + b.data[:, 4 * n :]
    return qlstm_steps(
        _inputs(x, wd, wsd, bias, 4, n),
        *_recurrent(rd, rsd, 4, n),
        h,
        c,
        hidden=n,
        direction=node.attrs["direction"],
    )


@rule(P.dynamic_gru(x, w, ws, r, rs, b, h))
def dynamic_gru_as_steps(
    node: Node, x: Value, w: Value, ws: Value, r: Value, rs: Value, b: Value | None, h: Value | None
) -> Any:
    """Lower a dynamically quantised GRU to one matmul for all inputs and cpu.qgru_steps."""
    if (why := _why_not(x)) is not None:
        return why
    n, (wd, wsd, rd, rsd) = node.attrs["hidden_size"], _data(w, ws, r, rs)
    bias, last = np.zeros((len(wd), 3 * n), np.float32), None
    if b is not None and b.data is not None:
        none = np.zeros((len(wd), n), np.float32)
        bias = b.data[:, : 3 * n] + np.concatenate([b.data[:, 3 * n : 5 * n], none], 1)
        padded = np.zeros((len(wd), -(-n // UNITS) * UNITS), np.float32)
        padded[:, :n] = b.data[:, 5 * n :]
        last = constant(padded)
    return qgru_steps(
        _inputs(x, wd, wsd, bias, 3, n),
        *_recurrent(rd, rsd, 3, n),
        h,
        last,
        hidden=n,
        direction=node.attrs["direction"],
    )


def _why_not(x: Value) -> No | None:
    if x.type.dynamic or not x.shape[0]:
        return no(f"the input is {x.type}; a static number of steps is needed")
    return None


QRECURRENT: tuple[Rule, ...] = (dynamic_lstm_as_steps, dynamic_gru_as_steps)
