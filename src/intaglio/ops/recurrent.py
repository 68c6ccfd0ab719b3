"""RNN, GRU and LSTM with ONNX's layouts and gate orders.

`activations` has one name per gate function and direction, `activation_alpha` and `activation_beta`
one number each (0 where the function has none). `clip` bounds the inputs of these functions; 0
means no bound. With `layout` 0 the time axis comes first (T×B×I → T×D×B×H), with 1 the batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput, RunError
from intaglio.ir import Array, Node, Type, Value
from intaglio.ops.precision import widen
from intaglio.ops.registry import op
from intaglio.ops.shape import transpose

Names = tuple[str, ...]
Floats = tuple[float, ...]
Activation = Callable[[Array, float, float], Array]


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, Activation] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: _sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x >= 0, x, a * x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x >= 0, x, a * np.expm1(x)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(x, 0),
}


# ---- shared by rnn, gru and lstm -----------------------------------------------------------------
def _check(
    gates: int,
    functions: int,
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    lens: Value | None,
    states: dict[str, Value | None],
    *,
    hidden_size: int,
    direction: str,
    activations: Names,
    activation_alpha: Floats,
    activation_beta: Floats,
    clip: float,
    layout: int,
) -> list[Type]:
    floats = [v for v in (x, w, r, b, *states.values()) if v is not None]
    if len({v.dtype for v in floats}) > 1 or not dtypes.is_float(x.dtype) or x.type.rank != 3:
        raise BadInput(
            f"the input is {x.type}; a recurrent layer needs rank 3 and floats of one type"
        )
    if direction not in ("forward", "reverse", "bidirectional"):
        raise BadInput(f"direction '{direction}' is none of forward, reverse, bidirectional")
    if layout not in (0, 1) or hidden_size < 1 or not clip >= 0:
        raise BadInput(f"layout {layout}, hidden_size {hidden_size} or clip {clip} is out of range")
    d, h = 2 if direction == "bidirectional" else 1, hidden_size
    time, batch = x.shape[:2] if layout == 0 else x.shape[1::-1]
    state = (d, batch, h) if layout == 0 else (batch, d, h)
    wanted = {
        "w": (w, (d, gates * h, x.shape[2])),
        "r": (r, (d, gates * h, h)),
        "b": (b, (d, 2 * gates * h)),
        "sequence_lens": (lens, (batch,)),
        **{name: (v, (d, 3 * h) if name == "p" else state) for name, v in states.items()},
    }
    for name, (v, shape) in wanted.items():
        if v is not None and v.shape != shape:
            raise BadInput(f"{name} is {v.type}, its shape must be {shape}")
    if lens is not None and lens.dtype != "i32":
        raise BadInput(f"sequence_lens must be i32, it is {lens.type}")
    for given in (activations, activation_alpha, activation_beta):
        if len(given) != functions * d:
            raise BadInput(
                f"activations, alphas or betas are {given}; {functions * d} of each are needed"
            )
    if unknown := [a for a in activations if a not in ACTIVATIONS]:
        raise BadInput(f"activation '{unknown[0]}' is none of {', '.join(ACTIVATIONS)}")
    y = (time, d, batch, h) if layout == 0 else (batch, time, d, h)
    return [Type(x.dtype, y), Type(x.dtype, state), Type(x.dtype, state)]


Step = Callable[..., tuple[Array, ...]]  # one time step: input part, states... -> new states...


def _run(
    make: Callable[[int], Step],
    x: Array,
    w: Array,
    b: Array | None,
    lens: Array | None,
    states: list[Array | None],
    direction: str,
    hidden: int,
    layout: int,
) -> tuple[Array, ...]:
    """Y and the last states of all directions; `make(d)` returns the step of direction d."""
    if layout:
        x = x.swapaxes(0, 1)
        states = [None if s is None else s.swapaxes(0, 1) for s in states]
    time, batch = x.shape[:2]
    directions = 2 if direction == "bidirectional" else 1
    if lens is not None and lens.size and (lens.min() < 0 or lens.max() > time):
        raise RunError(f"sequence_lens must lie in [0, {time}], they are {lens.tolist()}")
    y = np.zeros((time, directions, batch, hidden), x.dtype)
    last = [np.zeros((directions, batch, hidden), x.dtype) for _ in states]
    for d in range(directions):
        now = [np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in states]
        parts = x @ w[d].T
        if b is not None:
            parts = parts + b[d, : w.shape[1]]
        step = make(d)
        backwards = direction == "reverse" or d == 1
        for t in range(time)[:: -1 if backwards else 1]:
            new = step(parts[t], *now)
            if lens is None:
                now = list(new)
            else:  # a sequence that has ended keeps its state
                live = (t < lens)[:, None]
                now = [np.where(live, a, b) for a, b in zip(new, now, strict=True)]
            y[t, d] = now[0] if lens is None else np.where(live, now[0], 0)
        for all_, s in zip(last, now, strict=True):
            all_[d] = s
    if layout:
        return y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)
    return y, *last


class _Functions:
    """The activation functions of one direction."""

    def __init__(self, count: int, d: int, names: Names, alpha: Floats, beta: Floats, clip: float):
        at = range(d * count, (d + 1) * count)
        self.all = [(ACTIVATIONS[names[i]], alpha[i], beta[i]) for i in at]
        self.clip = clip

    def gate(self, i: int, x: Array) -> Array:
        return self(i, np.clip(x, -self.clip, self.clip) if self.clip else x)

    def __call__(self, i: int, x: Array) -> Array:
        f, alpha, beta = self.all[i]
        return f(x, alpha, beta).astype(x.dtype)


def _bias(b: Array | None, d: int, rows: int) -> Any:
    return 0 if b is None else b[d, rows:]


def _macs(node: Node) -> int:
    x, w = node.inputs[0], node.inputs[1]
    assert x is not None
    assert w is not None
    return (
        x.shape[0] * x.shape[1] * w.shape[0] * w.shape[1] * (w.shape[2] + node.attrs["hidden_size"])
    )


def _time_first(
    which: Any, inputs: list[Value | None], batched: range, attrs: dict[str, Any]
) -> Any:
    """Lower layout 1 to transposes around layout 0."""
    if attrs["layout"] == 0:
        return None
    moved = [
        transpose(v, perm=(1, 0, 2)) if v is not None and (i == 0 or i in batched) else v
        for i, v in enumerate(inputs)
    ]
    y, *states = which(*moved, **{**attrs, "layout": 0})
    return [transpose(y, perm=(2, 0, 1, 3)), *(transpose(s, perm=(1, 0, 2)) for s in states)]


# ---- rnn -----------------------------------------------------------------------------------------
def _rnn(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    **attrs: Any,
) -> list[Type]:
    return _check(1, 1, x, w, r, b, sequence_lens, {"initial_h": initial_h}, **attrs)[:2]


@op(_rnn, macs=_macs)
@widen
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Names = ("Tanh",),
    activation_alpha: Floats = (0.0,),
    activation_beta: Floats = (0.0,),
    clip: float = 0.0,
    layout: int = 0,
) -> tuple[Array, ...]:
    """H = f(X·Wᵀ + H·Rᵀ + Wb + Rb)"""

    def make(d: int) -> Step:
        f = _Functions(1, d, activations, activation_alpha, activation_beta, clip)
        bias = _bias(b, d, hidden_size)
        return lambda part, h: (f.gate(0, part + h @ r[d].T + bias),)

    return _run(make, x, w, b, sequence_lens, [initial_h], direction, hidden_size, layout)


@rnn.lowers
def _lower_rnn(*inputs: Value | None, **attrs: Any) -> Any:
    return _time_first(rnn, list(inputs), range(5, 6), attrs)


# ---- gru -----------------------------------------------------------------------------------------
def _gru(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    *,
    linear_before_reset: bool,
    **attrs: Any,
) -> list[Type]:
    return _check(3, 2, x, w, r, b, sequence_lens, {"initial_h": initial_h}, **attrs)[:2]


@op(_gru, macs=_macs)
@widen
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Names = ("Sigmoid", "Tanh"),
    activation_alpha: Floats = (0.0, 0.0),
    activation_beta: Floats = (0.0, 0.0),
    clip: float = 0.0,
    linear_before_reset: bool = False,
    layout: int = 0,
) -> tuple[Array, ...]:
    """Gates z (update), r (reset), h (hidden): H = (1 - z) · h + z · H"""
    n = hidden_size

    def make(d: int) -> Step:
        f = _Functions(2, d, activations, activation_alpha, activation_beta, clip)
        bias = _bias(b, d, 3 * n)
        gate_r, hidden_r = r[d, : 2 * n].T, r[d, 2 * n :].T
        gate_b, hidden_b = (bias, bias) if b is None else (bias[: 2 * n], bias[2 * n :])

        def step(part: Array, h: Array) -> tuple[Array]:
            zr = f.gate(0, part[:, : 2 * n] + h @ gate_r + gate_b)
            z, reset = zr[:, :n], zr[:, n:]
            if linear_before_reset:
                new = reset * (h @ hidden_r + hidden_b)
            else:
                new = (reset * h) @ hidden_r + hidden_b
            return ((1 - z) * f.gate(1, part[:, 2 * n :] + new) + z * h,)

        return step

    return _run(make, x, w, b, sequence_lens, [initial_h], direction, n, layout)


@gru.lowers
def _lower_gru(*inputs: Value | None, **attrs: Any) -> Any:
    return _time_first(gru, list(inputs), range(5, 6), attrs)


# ---- lstm ----------------------------------------------------------------------------------------
def _lstm(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None,
    sequence_lens: Value | None,
    initial_h: Value | None,
    initial_c: Value | None,
    p: Value | None,
    *,
    input_forget: bool,
    **attrs: Any,
) -> list[Type]:
    states = {"initial_h": initial_h, "initial_c": initial_c, "p": p}
    return _check(4, 3, x, w, r, b, sequence_lens, states, **attrs)


@op(_lstm, macs=_macs)
@widen
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    sequence_lens: Array | None = None,
    initial_h: Array | None = None,
    initial_c: Array | None = None,
    p: Array | None = None,
    *,
    hidden_size: int,
    direction: str = "forward",
    activations: Names = ("Sigmoid", "Tanh", "Tanh"),
    activation_alpha: Floats = (0.0, 0.0, 0.0),
    activation_beta: Floats = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    input_forget: bool = False,
    layout: int = 0,
) -> tuple[Array, ...]:
    """Gates i, o, f, c; `p` are the peephole weights of i, o, f: C = f · C + i · c, H = o · h(C)"""
    n = hidden_size

    def make(d: int) -> Step:
        f = _Functions(3, d, activations, activation_alpha, activation_beta, clip)
        bias = _bias(b, d, 4 * n)
        peep = np.zeros(3 * n, x.dtype) if p is None else p[d]

        def step(part: Array, h: Array, c: Array) -> tuple[Array, Array]:
            i, o, forget, cell = np.split(part + h @ r[d].T + bias, 4, 1)
            i = f.gate(0, i + peep[:n] * c)
            forget = 1 - i if input_forget else f.gate(0, forget + peep[2 * n :] * c)
            c = forget * c + i * f.gate(1, cell)
            o = f.gate(0, o + peep[n : 2 * n] * c)
            return o * f(2, c), c

        return step

    states = [initial_h, initial_c]
    return _run(make, x, w, b, sequence_lens, states, direction, n, layout)


@lstm.lowers
def _lower_lstm(*inputs: Value | None, **attrs: Any) -> Any:
    return _time_first(lstm, list(inputs), range(5, 7), attrs)
