"""Recurrent layers; PyTorch's gates come in another order than ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.elementwise import add
from intaglio.frontends.torch.importer import importer, reshaped, tensors
from intaglio.frontends.torch.linear import linear
from intaglio.ir import Value, constant

# blocks of rows in our order, by their place in PyTorch's: i o f c from i f g o; z r h from r z n
LSTM, GRU, RNN = (0, 3, 1, 2), (1, 0, 2), (0,)


def _ordered(w: Value, gates: tuple[int, ...]) -> Value:
    if len(gates) == 1:
        return w
    h = w.shape[0] // len(gates)
    parts = [ops.part(w, g * h, (g + 1) * h, axis=0) for g in gates]
    made: Value = ops.concat(*parts, axis=0)
    return made


def _stacked(ws: list[Value]) -> Value:
    made: Value = ops.concat(*(reshaped(w, (1, *w.shape)) for w in ws), axis=0)
    return made if len(ws) > 1 else reshaped(ws[0], (1, *ws[0].shape))


class Layers:
    """Several layers of one or two directions; `run` is one layer of ours."""

    def __init__(self, gates: tuple[int, ...], params: list[Value], has_biases: bool,
                 num_layers: int, bidirectional: bool, batch_first: bool):  # fmt: skip
        self.gates, self.params, self.biases = gates, params, bool(has_biases)
        self.layers, self.directions = int(num_layers), 2 if bidirectional else 1
        self.batch_first = bool(batch_first)
        each = (4 if self.biases else 2) * self.directions * self.layers
        if len(params) != each:
            if len(params) == each + self.layers * self.directions:
                raise Unsupported("recurrent layers with projections are not read")
            raise BadInput(f"{len(params)} weights are given, {each} are needed")

    def weights(self, layer: int) -> tuple[Value, Value, Value]:
        """w, r and b of one layer, both directions."""
        per = 4 if self.biases else 2
        w, r, b = [], [], []
        for d in range(self.directions):
            at = (layer * self.directions + d) * per
            w.append(_ordered(self.params[at], self.gates))
            r.append(_ordered(self.params[at + 1], self.gates))
            if self.biases:
                both = [_ordered(self.params[at + i], self.gates) for i in (2, 3)]
                b.append(ops.concat(*both, axis=0))
            else:
                rows = 2 * self.params[at].shape[0]
                b.append(constant(np.zeros(rows, dtypes.numpy_of(self.params[at].dtype))))
        return _stacked(w), _stacked(r), _stacked(b)

    def run(self, x: Value, states: list[Value], layer_of: Any) -> tuple[Value, ...]:
        """The outputs of the last layer and the last states of all."""
        if x.type.rank == 2:  # one sequence
            whole = self.run(
                reshaped(x, (1, *x.shape) if self.batch_first else (x.shape[0], 1, x.shape[1])),
                [reshaped(s, (s.shape[0], 1, s.shape[-1])) for s in states], layer_of,
            )  # fmt: skip
            y, *last = whole
            return (reshaped(y, (x.shape[0], y.shape[-1])),
                    *(reshaped(s, (s.shape[0], s.shape[2])) for s in last))  # fmt: skip
        if self.batch_first:
            x = ops.transpose(x, perm=(1, 0, 2))
        d, direction = self.directions, ("forward", "bidirectional")[self.directions - 1]
        ends: list[list[Value]] = [[] for _ in states]
        for i in range(self.layers):
            w, r, b = self.weights(i)
            given = [ops.part(s, i * d, (i + 1) * d, axis=0) for s in states]
            y, *last = layer_of(x, w, r, b, given, hidden_size=r.shape[2], direction=direction)
            time, _, batch, h = y.shape
            x = reshaped(ops.transpose(y, perm=(0, 2, 1, 3)), (time, batch, d * h))
            for k, s in enumerate(last):
                ends[k].append(s)
        if self.batch_first:
            x = ops.transpose(x, perm=(1, 0, 2))
        return x, *(ops.concat(*s, axis=0) if len(s) > 1 else s[0] for s in ends)


def _check(*rest: Any) -> None:
    if rest and isinstance(rest[0], list | tuple):
        raise Unsupported("packed sequences are not read; run the layer on padded ones")


@importer("lstm")
def lstm(
    input: Value,
    hx: Any,
    params: Any,
    has_biases: Any,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> Any:
    _check(has_biases)
    layers = Layers(LSTM, tensors(params), has_biases, num_layers, bidirectional, batch_first)
    n = 3 * layers.directions

    def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
        return ops.lstm(x, w, r, b, None, *s, None,
                        activations=("Sigmoid", "Tanh", "Tanh") * layers.directions,
                        activation_alpha=(0.0,) * n, activation_beta=(0.0,) * n, **at)  # fmt: skip

    return layers.run(input, tensors(hx), one)


@importer("gru")
def gru(
    input: Value,
    hx: Value,
    params: Any,
    has_biases: Any,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> Any:
    _check(has_biases)
    layers = Layers(GRU, tensors(params), has_biases, num_layers, bidirectional, batch_first)
    n = 2 * layers.directions

    def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
        return ops.gru(x, w, r, b, None, *s, activations=("Sigmoid", "Tanh") * layers.directions,
                       activation_alpha=(0.0,) * n, activation_beta=(0.0,) * n,
                       linear_before_reset=True, **at)  # fmt: skip

    return layers.run(input, [hx], one)


def _plain(kind: str) -> Any:
    def function(input: Value, hx: Value, params: Any, has_biases: Any,
                 num_layers: int, dropout: float, train: bool, bidirectional: bool,
                 batch_first: bool = False) -> Any:  # fmt: skip
        _check(has_biases)
        layers = Layers(RNN, tensors(params), has_biases, num_layers, bidirectional, batch_first)
        n = layers.directions

        def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
            return ops.rnn(
                x,
                w,
                r,
                b,
                None,
                *s,
                activations=(kind,) * n,
                activation_alpha=(0.0,) * n,
                activation_beta=(0.0,) * n,
                **at,
            )

        return layers.run(input, [hx], one)

    return function


importer("rnn_tanh")(_plain("Tanh"))
importer("rnn_relu")(_plain("Relu"))


@importer("lstm_cell")
def lstm_cell(input: Value, hx: Any, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
              b_hh: Value | None = None) -> Any:  # fmt: skip
    """One step, from simple operations."""
    h, c = tensors(hx)
    gates = add(linear(input, w_ih, b_ih), linear(h, w_hh, b_hh))
    n = c.shape[-1]
    i, f, g, o = (ops.part(gates, k * n, (k + 1) * n, axis=gates.type.rank - 1) for k in range(4))
    new = ops.add(ops.mul(ops.sigmoid(f), c), ops.mul(ops.sigmoid(i), ops.tanh(g)))
    return ops.mul(ops.sigmoid(o), ops.tanh(new)), new


@importer("gru_cell")
def gru_cell(input: Value, hx: Value, w_ih: Value, w_hh: Value, b_ih: Value | None = None,
             b_hh: Value | None = None) -> Value:  # fmt: skip
    a, b, n = linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx.shape[-1]

    def cut(x: Value, k: int) -> Value:
        made: Value = ops.part(x, k * n, (k + 1) * n, axis=x.type.rank - 1)
        return made

    r, z = (ops.sigmoid(ops.add(cut(a, k), cut(b, k))) for k in (0, 1))
    new = ops.tanh(ops.add(cut(a, 2), ops.mul(r, cut(b, 2))))
    made: Value = ops.add(new, ops.mul(z, ops.sub(hx, new)))
    return made


def _cell(act: Any) -> Any:
    def function(input: Value, hx: Value, w_ih: Value, w_hh: Value,
                 b_ih: Value | None = None, b_hh: Value | None = None) -> Value:  # fmt: skip
        made: Value = act(add(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)))
        return made

    return function


importer("rnn_tanh_cell")(_cell(ops.tanh))
importer("rnn_relu_cell")(_cell(ops.relu))
