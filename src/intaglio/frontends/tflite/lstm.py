"""Importers of TFLite LSTMs in floats: separate weights per gate.

A plain LSTM becomes `lstm`. With cell clipping, projection or layer norm it becomes a `scan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio import ops
from intaglio.frontends.tflite.node import TfliteNode, real
from intaglio.ir import Graph, Quant, Type, Value, constant

TANH = 4  # ActivationFunctionType of the schema
EPSILON = 1e-8  # of the layer norm of gates


@dataclass
class OperandIndices:
    """Operand indices of one direction; each list is input, forget, cell, output gate."""

    inputs: Sequence[int] = (1, 2, 3, 4)
    recurrent: Sequence[int] = (5, 6, 7, 8)
    peepholes: Sequence[int] = (9, 10, 11)  # input, forget, output
    biases: Sequence[int] = (12, 13, 14, 15)
    projection: tuple[int, int] = (16, 17)
    states: tuple[int, int] = (18, 19)
    norms: Sequence[int] = (20, 21, 22, 23)
    backward: bool = False


@dataclass
class LstmLayer:
    """One direction of an LSTM over x [time, batch, inputs]; a subclass has the arithmetic."""

    n: TfliteNode
    p: OperandIndices = field(default_factory=OperandIndices)

    def __post_init__(self) -> None:
        n, p = self.n, self.p
        self.coupled = n.input(p.inputs[0]) is None  # CIFG: input gate = 1 - forget gate
        self.gates = range(1 if self.coupled else 0, 4)
        self.hidden = n.required(p.inputs[1]).shape[0]
        self.normed = n.input(p.norms[1]) is not None if p.norms else False
        self.projected = n.input(p.projection[0]) is not None
        self.kept_h, self.kept_c = n.state(p.states[0]), n.state(p.states[1])

    def body(self, gates: Value) -> Graph:
        """One step: the states and a row of gate inputs in, the states and the output out."""
        raise NotImplementedError

    def scan(self, gates: Value) -> Value:
        """The outputs for gate inputs [time, batch, gates]; updates the states."""
        h, c, y = ops.scan(
            self.kept_h.value,
            self.kept_c.value,
            gates,
            body=self.body(gates),
            states=2,
            scans=1,
            reverse_in=int(self.p.backward),
            reverse_out=int(self.p.backward),
        )
        self.kept_h.value, self.kept_c.value = h, c
        result: Value = y
        return result


@dataclass
class Lstm(LstmLayer):
    """An LSTM in floats."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n = self.n
        self.activation = n.option("FusedActivationFunction", TANH)
        self.cell_clip = float(n.option("CellClip", 0.0))
        self.projection_clip = float(n.option("ProjClip", 0.0))

    # ---- operands ----
    def rows(self, places: Sequence[int]) -> Value:
        """Stored weights of all gates, concatenated by rows."""
        n = self.n
        values = [n.required(places[k]) for k in self.gates]
        tensors = [n.tensor(places[k]) for k in self.gates]
        quants = [t.quant for t in tensors if t is not None]
        if all(v.data is not None for v in values):
            data = constant(np.concatenate([v.data for v in values]))
            if not all(quants):
                return data
            pairs = list(zip(quants, values, strict=True))
            scale = tuple(s for q, v in pairs if q for s in _spread(q.scale, v.shape[0]))
            zero = tuple(z for q, v in pairs if q for z in _spread(q.zero, v.shape[0]))
            return real(data, Quant(scale, tuple(int(z) for z in zero), 0))
        result: Value = ops.concat(*[n.real(places[k]) for k in self.gates], axis=0)
        return result

    def bias(self) -> Value | None:
        n, places = self.n, self.p.biases
        if n.input(places[1]) is None:
            return None
        parts = [n.required(places[k]) for k in self.gates]
        if all(v.data is not None for v in parts):
            return constant(np.concatenate([v.data for v in parts]))
        result: Value = ops.concat(*parts, axis=0)
        return result

    # ---- the layer ----
    def run(self, x: Value) -> Value:
        """The outputs for x [time, batch, inputs], time first; updates the states."""
        plain = not (self.coupled or self.normed or self.projected)
        if plain and not self.cell_clip and self.activation == TANH:
            return self._plain(x)
        bias = None if self.normed else self.bias()
        flat = ops.reshape(x, shape=(x.shape[0] * x.shape[1], x.shape[2]))
        parts = ops.gemm(flat, self.rows(self.p.inputs), bias, trans_b=True)
        parts = ops.reshape(parts, shape=(*x.shape[:2], len(self.gates) * self.hidden))
        return self.scan(parts)

    def _plain(self, x: Value) -> Value:
        """Our `lstm`, which has another gate order and an axis of directions."""
        n = self.hidden
        order = np.concatenate([np.arange(n) + k * n for k in (0, 3, 1, 2)])

        def ordered(v: Value) -> Value:
            got: Value = ops.gather(v, constant(order), axis=0)
            return ops.reshape(got, shape=(1, *got.shape))

        w, r = (ordered(self.rows(p)) for p in (self.p.inputs, self.p.recurrent))
        b, zeros = self.bias(), constant(np.zeros((1, 4 * n), np.float32))
        both = None if b is None else ops.concat(ordered(b), zeros, axis=1)
        states = [
            ops.reshape(s.value, shape=(1, *s.value.shape)) for s in (self.kept_h, self.kept_c)
        ]
        peep = None
        if self.n.input(self.p.peepholes[1]) is not None:
            each = [self.n.real(self.p.peepholes[k]) for k in (0, 2, 1)]
            peep = ops.reshape(ops.concat(*each, axis=0), shape=(1, 3 * n))
        y, h, c = ops.lstm(
            x,
            w,
            r,
            both,
            None,
            *states,
            peep,
            hidden_size=n,
            direction="reverse" if self.p.backward else "forward",
        )
        self.kept_h.value = ops.reshape(h, shape=h.shape[1:])
        self.kept_c.value = ops.reshape(c, shape=c.shape[1:])
        result: Value = ops.reshape(y, shape=(y.shape[0], *y.shape[2:]))
        return result

    # ---- one step ----
    def body(self, parts: Value) -> Graph:
        old_h, old_c = (
            Value(Type(s.input.dtype, s.input.shape), name)
            for s, name in ((self.kept_h, "h"), (self.kept_c, "c"))
        )
        given = Value(Type(parts.dtype, parts.shape[1:]), "gates")
        z = ops.add(ops.gemm(old_h, self.rows(self.p.recurrent), None, trans_b=True), given)
        c: Value = old_c
        split = {
            k: ops.part(z, i * self.hidden, (i + 1) * self.hidden, axis=1)
            for i, k in enumerate(self.gates)
        }
        forget = ops.sigmoid(self._gate(split[1], 1, c))
        if self.coupled:
            let_in = ops.sub(constant(1.0, dtype="f32"), forget)
        else:
            let_in = ops.sigmoid(self._gate(split[0], 0, c))
        new = self._act(self._gate(split[2], 2, None))
        c = ops.add(ops.mul(forget, c), ops.mul(let_in, new))
        if self.cell_clip > 0:
            c = ops.clip(c, lo=-self.cell_clip, hi=self.cell_clip)
        let_out = ops.sigmoid(self._gate(split[3], 3, c))
        h = ops.mul(let_out, self._act(c))
        h = self._projected(h) if self.projected else h
        return Graph([old_h, old_c, given], [h, c, h], ["h", "c", "y"]).copy()

    def _projected(self, h: Value) -> Value:
        weights, bias = self.p.projection
        y: Value = ops.gemm(h, self.n.real(weights), self.n.input(bias), trans_b=True)
        if self.projection_clip > 0:
            y = ops.clip(y, lo=-self.projection_clip, hi=self.projection_clip)
        return y

    def _gate(self, z: Value, k: int, c: Value | None) -> Value:
        """The input of the activation of gate k."""
        n = self.n
        place = {0: 0, 1: 1, 3: 2}.get(k)
        if c is not None and place is not None and n.input(self.p.peepholes[place]) is not None:
            seen = ops.mul(c, n.real(self.p.peepholes[place]))
            z = ops.add(z, seen)
        if not self.normed:
            return z
        mean = ops.reduce_mean(z, axes=(1,), keepdims=True)
        centred = ops.sub(z, mean)
        spread = ops.reduce_mean(ops.mul(centred, centred), axes=(1,), keepdims=True)
        least = constant(EPSILON, dtype="f32")
        z = ops.mul(ops.div(centred, ops.sqrt(ops.add(spread, least))), n.real(self.p.norms[k]))
        b = n.real(self.p.biases[k])
        return z if b is None else ops.add(z, b)

    def _act(self, v: Value) -> Value:
        if self.activation in (0, 1, 3):
            ends = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 3: (0.0, 6.0)}[self.activation]
            return v if self.activation == 0 else ops.clip(v, lo=ends[0], hi=ends[1])
        if self.activation != TANH:
            self.n.unsupported(f"activation {self.activation} of the schema is not supported")
        result: Value = ops.tanh(v)
        return result


def _spread(values: Sequence[float], rows: int) -> Sequence[float]:
    return values if len(values) == rows else tuple(values) * rows
