"""Importers of LSTM, GRU and RNN layers and cells; the gate order is converted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends.torch.elementwise import add
from intaglio.frontends.torch.importer import as_dtype, importer, reshaped, tensors
from intaglio.frontends.torch.linear import linear
from intaglio.ir import Value, constant

# PyTorch's gate index for each of our gates: i o f c from i f g o; z r h from r z n
LSTM, GRU, RNN = (0, 3, 1, 2), (1, 0, 2), (0,)


def _ordered(w: Value, gates: tuple[int, ...]) -> Value:
    if len(gates) == 1:
        return w
    h = w.shape[0] // len(gates)
    parts = [ops.part(w, g * h, (g + 1) * h, axis=0) for g in gates]
    result: Value = ops.concat(*parts, axis=0)
    return result


def _stacked(ws: list[Value]) -> Value:
    result: Value = ops.concat(*(reshaped(w, (1, *w.shape)) for w in ws), axis=0)
    return result if len(ws) > 1 else reshaped(ws[0], (1, *ws[0].shape))


class Layers:
    """Stacked layers of one or two directions; each is one of our recurrent ops."""

    def __init__(
        self,
        gates: tuple[int, ...],
        params: list[Value],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ):
        self.gates, self.params, self.biases = gates, params, bool(has_biases)
        self.layers, self.directions = int(num_layers), 2 if bidirectional else 1
        self.batch_first = bool(batch_first)
        self.lengths: Value | None = None
        each = (4 if self.biases else 2) * self.directions * self.layers
        if len(params) != each:
            if len(params) == each + self.layers * self.directions:
                raise Unsupported("recurrent layers with projections (proj_size) are not supported")
            raise BadInput(
                f"{len(params)} weights are given; {each} per layer and direction are needed"
            )

    def weights(self, layer: int) -> tuple[Value, Value, Value]:
        """w, r and b of one layer, all directions stacked."""
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
                [reshaped(s, (s.shape[0], 1, s.shape[-1])) for s in states],
                layer_of,
            )
            y, *last = whole
            return (
                reshaped(y, (x.shape[0], y.shape[-1])),
                *(reshaped(s, (s.shape[0], s.shape[2])) for s in last),
            )
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


@dataclass(frozen=True, eq=False)
class PackedSequence:
    """A packed sequence; its data stays padded, time first."""

    padded: Value
    lengths: Value


@importer("_pack_padded_sequence")
def pack_padded_sequence(input: Value, lengths: Value, batch_first: bool) -> Any:
    """The second result, batch_sizes, only carries the number of sequences."""
    x = ops.transpose(input, perm=(1, 0, 2)) if batch_first else input
    return PackedSequence(x, as_dtype(lengths, "i32")), constant(np.array([x.shape[1]], np.int64))


@importer("_pad_packed_sequence")
def pad_packed_sequence(
    data: PackedSequence,
    batch_sizes: Value,
    batch_first: bool,
    padding_value: float,
    total_length: int = -1,
) -> Any:
    """The sequences padded with zeros to their length before packing."""
    if padding_value:
        raise Unsupported(f"sequences are padded with {padding_value}; only zeros are supported")
    y, more = data.padded, max(total_length - data.padded.shape[0], 0)
    if more:
        y = ops.pad(y, before=(0, 0, 0), after=(more, 0, 0))
    y = ops.transpose(y, perm=(1, 0, 2)) if batch_first else y
    return y, as_dtype(data.lengths, "i64")


def layered(gates: tuple[int, ...], args: tuple[Any, ...], layer_of: Any) -> Any:
    """Forms: (input, hx, params, ..., batch_first) and (data, batch_sizes, hx, params, ...).

    `layer_of(directions)` returns the function that builds one layer.
    """
    x, packed = args[0], isinstance(args[0], PackedSequence)
    if packed:
        _, _, hx, params, biases, count, _, _, both = args[:9]
        first = False
    else:
        _, hx, params, biases, count, _, _, both, first = (*args, False)[:9]
    layers = Layers(gates, tensors(params), biases, count, both, first)
    layers.lengths = x.lengths if packed else None
    states = tensors(hx) if isinstance(hx, list | tuple) else [hx]
    y, *last = layers.run(x.padded if packed else x, states, layer_of(layers))
    return (PackedSequence(y, x.lengths) if packed else y), *last


def _lstm(layers: Layers) -> Any:
    n = 3 * layers.directions

    def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
        return ops.lstm(
            x,
            w,
            r,
            b,
            layers.lengths,
            *s,
            None,
            activations=("Sigmoid", "Tanh", "Tanh") * layers.directions,
            activation_alpha=(0.0,) * n,
            activation_beta=(0.0,) * n,
            **at,
        )

    return one


def _gru(layers: Layers) -> Any:
    n = 2 * layers.directions

    def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
        return ops.gru(
            x,
            w,
            r,
            b,
            layers.lengths,
            *s,
            activations=("Sigmoid", "Tanh") * layers.directions,
            activation_alpha=(0.0,) * n,
            activation_beta=(0.0,) * n,
            linear_before_reset=True,
            **at,
        )

    return one


def _rnn(kind: str) -> Any:
    def of(layers: Layers) -> Any:
        n = layers.directions

        def one(x: Value, w: Value, r: Value, b: Value, s: list[Value], **at: Any) -> Any:
            none = (0.0,) * n
            return ops.rnn(
                x,
                w,
                r,
                b,
                layers.lengths,
                *s,
                activations=(kind,) * n,
                activation_alpha=none,
                activation_beta=none,
                **at,
            )

        return one

    return of


@importer("lstm")
def lstm(*args: Any) -> Any:
    return layered(LSTM, args, _lstm)


@importer("gru")
def gru(*args: Any) -> Any:
    return layered(GRU, args, _gru)


@importer("rnn_tanh")
def rnn_tanh(*args: Any) -> Any:
    return layered(RNN, args, _rnn("Tanh"))


@importer("rnn_relu")
def rnn_relu(*args: Any) -> Any:
    return layered(RNN, args, _rnn("Relu"))


@importer("lstm_cell")
def lstm_cell(
    input: Value,
    hx: Any,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Any:
    """One LSTM step of simple operations."""
    h, c = tensors(hx)
    gates = add(linear(input, w_ih, b_ih), linear(h, w_hh, b_hh))
    n = c.shape[-1]
    i, f, g, o = (ops.part(gates, k * n, (k + 1) * n, axis=gates.type.rank - 1) for k in range(4))
    new = ops.add(ops.mul(ops.sigmoid(f), c), ops.mul(ops.sigmoid(i), ops.tanh(g)))
    return ops.mul(ops.sigmoid(o), ops.tanh(new)), new


@importer("gru_cell")
def gru_cell(
    input: Value,
    hx: Value,
    w_ih: Value,
    w_hh: Value,
    b_ih: Value | None = None,
    b_hh: Value | None = None,
) -> Value:
    a, b, n = linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh), hx.shape[-1]

    def cut(x: Value, k: int) -> Value:
        result: Value = ops.part(x, k * n, (k + 1) * n, axis=x.type.rank - 1)
        return result

    r, z = (ops.sigmoid(ops.add(cut(a, k), cut(b, k))) for k in (0, 1))
    new = ops.tanh(ops.add(cut(a, 2), ops.mul(r, cut(b, 2))))
    result: Value = ops.add(new, ops.mul(z, ops.sub(hx, new)))
    return result


def _cell(act: Any) -> Any:
    def function(
        input: Value,
        hx: Value,
        w_ih: Value,
        w_hh: Value,
        b_ih: Value | None = None,
        b_hh: Value | None = None,
    ) -> Value:
        result: Value = act(add(linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)))
        return result

    return function


importer("rnn_tanh_cell")(_cell(ops.tanh))
importer("rnn_relu_cell")(_cell(ops.relu))
