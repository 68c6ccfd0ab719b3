"""LSTM and GRU with i8 weights: rows of inputs and states are quantised at run time.

Layouts and gate orders are those of `lstm` and `gru`, time first, with the default activations; the
GRU's reset gate acts on the product (linear_before_reset). Products are `dynamic_matmul`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from intaglio.errors import BadInput
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.dynamic_matmul import MAX_DEPTH, dynamic_matmul
from intaglio.ops.registry import op

Times = Callable[[Array], Array]  # the product of a state and the recurrent weights
Step = Callable[..., tuple[Array, ...]]  # products of the inputs, states -> new states


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), x.dtype)


def lstm_step(times: Times) -> Step:
    """Gates i, o, f, c."""

    def step(part: Array, h: Array, c: Array) -> tuple[Array, Array]:
        i, o, forget, cell = np.split(part + times(h), 4, 1)
        c = _sigmoid(forget) * c + _sigmoid(i) * np.tanh(cell)
        return _sigmoid(o) * np.tanh(c), c

    return step


def gru_step(times: Times, bias: Array | float) -> Step:
    """Gates z, r, h; the bias is that of the last gate's product."""

    def step(part: Array, h: Array) -> tuple[Array]:
        z, reset, new = np.split(part, 3, 1)
        tz, tr, tn = np.split(times(h), 3, 1)
        new = np.tanh(new + _sigmoid(reset + tr) * (tn + bias))
        z = _sigmoid(z + tz)
        return ((1 - z) * new + z * h,)

    return step


def run_steps(
    parts: Sequence[Array],
    steps: Sequence[Step],
    states: Sequence[Array | None],
    direction: str,
    hidden: int,
) -> tuple[Array, ...]:
    """Y and the last states. A direction has input products [time, batch, ..] and a step."""
    time, batch = parts[0].shape[:2]
    y = np.zeros((time, len(parts), batch, hidden), np.float32)
    last = [np.zeros((len(parts), batch, hidden), np.float32) for _ in states]
    for d, (part, step) in enumerate(zip(parts, steps, strict=True)):
        now = [np.zeros((batch, hidden), np.float32) if s is None else s[d] for s in states]
        for t in range(time)[:: -1 if direction == "reverse" or d else 1]:
            now = list(step(part[t], *now))
            y[t, d] = now[0]
        for all_, s in zip(last, now, strict=True):
            all_[d] = s
    return y, *last


def _check(
    gates: int,
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    b: Value | None,
    states: Sequence[Value | None],
    hidden_size: int,
    direction: str,
) -> list[Type]:
    if direction not in ("forward", "reverse", "bidirectional"):
        raise BadInput(f"direction '{direction}' is none of forward, reverse, bidirectional")
    if x.dtype != "f32" or x.type.rank != 3 or hidden_size < 1:
        raise BadInput(f"input {x.type} is not f32 of rank 3, or hidden_size is {hidden_size}")
    d, rows = 2 if direction == "bidirectional" else 1, gates * hidden_size
    state = Type("f32", (d, x.shape[1], hidden_size))
    wanted = {
        "w": (w, Type("i8", (d, rows, x.shape[2]))),
        "ws": (ws, Type("f32", (d, rows))),
        "r": (r, Type("i8", (d, rows, hidden_size))),
        "rs": (rs, Type("f32", (d, rows))),
        "b": (b, Type("f32", (d, 2 * rows))),
        **{f"state {i}": (s, state) for i, s in enumerate(states)},
    }
    for name, (v, want) in wanted.items():
        if v is not None and v.type != want:
            raise BadInput(f"{name} is {v.type}, {want} is needed")
    if max(x.shape[2], hidden_size) > MAX_DEPTH:
        raise BadInput(f"more than {MAX_DEPTH} products may overflow i32")
    return [Type("f32", (x.shape[0], *state.shape)), state, state]


def _lstm_types(
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    b: Value | None,
    h: Value | None,
    c: Value | None,
    *,
    hidden_size: int,
    direction: str,
) -> list[Type]:
    return _check(4, x, w, ws, r, rs, b, (h, c), hidden_size, direction)


def _gru_types(
    x: Value,
    w: Value,
    ws: Value,
    r: Value,
    rs: Value,
    b: Value | None,
    h: Value | None,
    *,
    hidden_size: int,
    direction: str,
) -> list[Type]:
    return _check(3, x, w, ws, r, rs, b, (h,), hidden_size, direction)[:2]


def _macs(node: Node) -> int:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    return (
        x.shape[0]
        * x.shape[1]
        * w.shape[0]
        * w.shape[1]
        * (w.shape[2] + int(node.attrs["hidden_size"]))
    )


def _times(w: Array, scale: Array) -> Times:
    matrix = np.ascontiguousarray(w.T)
    return lambda h: dynamic_matmul.body(h, matrix, scale)


@op(_lstm_types, macs=_macs)
def dynamic_lstm(
    x: Array,
    w: Array,
    ws: Array,
    r: Array,
    rs: Array,
    b: Array | None = None,
    h: Array | None = None,
    c: Array | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
) -> Any:
    """`lstm` with `dynamic_matmul` for the products of inputs and of states."""
    both = np.zeros((len(w), 4 * hidden_size), np.float32)
    if b is not None:
        both = b[:, : 4 * hidden_size] + b[:, 4 * hidden_size :]
    parts = [_times(w[d], ws[d])(x) + both[d] for d in range(len(w))]
    steps = [lstm_step(_times(r[d], rs[d])) for d in range(len(w))]
    return run_steps(parts, steps, [h, c], direction, hidden_size)


@op(_gru_types, macs=_macs)
def dynamic_gru(
    x: Array,
    w: Array,
    ws: Array,
    r: Array,
    rs: Array,
    b: Array | None = None,
    h: Array | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
) -> Any:
    """`gru` with `dynamic_matmul` for the products of inputs and of states."""
    n, d = hidden_size, len(w)
    given, last = np.zeros((d, 3 * n), np.float32), np.zeros((d, n), np.float32)
    if b is not None:
        given = b[:, : 3 * n] + np.concatenate([b[:, 3 * n : 5 * n], last], 1)
        last = b[:, 5 * n :]
    parts = [_times(w[i], ws[i])(x) + given[i] for i in range(d)]
    steps = [gru_step(_times(r[i], rs[i]), last[i]) for i in range(d)]
    return run_steps(parts, steps, [h], direction, n)
