"""Importers of TFLite LSTMs: separate weights per gate, in floats or integers.

A plain float LSTM becomes `lstm`. With cell clipping, projection, layer norm or integers it becomes
a `scan`. Integer LSTMs are computed as real numbers that are rounded where LiteRT rounds: gate
inputs to 2^-12, gate outputs to 2^-15, cells to the scale of the file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from intaglio import dtypes, ops
from intaglio.frontends.tflite.file import Tensor
from intaglio.frontends.tflite.fixed_point import HIGH, sigmoid_table, tanh_table
from intaglio.frontends.tflite.node import TfliteNode, parameters, real
from intaglio.ir import Array, Graph, Quant, Type, Value, constant

GATE, SHARE = (
    Quant((2.0**-12,), (0,)),
    Quant((2.0**-15,), (0,)),
)  # scales of i16 gate inputs and outputs
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
class Stored:
    """Storage of a state: quantised integers or floats."""

    dtype: str
    quant: Quant | None

    def real(self, v: Value) -> Value:
        return real(v, self.quant)

    def store(self, v: Value) -> Value:
        if self.quant is None:
            return v
        scale, zero, attrs = parameters(self.quant, self.dtype)
        made: Value = ops.quantize_linear(v, scale, zero, dtype=self.dtype, **attrs)
        return made


WORD = Stored("i16", GATE)


@dataclass
class Lstm:
    """One direction of an LSTM over x [time, batch, inputs]."""

    n: TfliteNode
    p: OperandIndices = field(default_factory=OperandIndices)

    def __post_init__(self) -> None:
        n, p = self.n, self.p
        self.coupled = n.input(p.inputs[0]) is None  # CIFG: input gate = 1 - forget gate
        self.gates = range(1 if self.coupled else 0, 4)
        self.hidden = n.required(p.inputs[1]).shape[0]
        self.activation = n.option("FusedActivationFunction", TANH)
        self.cell_clip = float(n.option("CellClip", 0.0))
        self.projection_clip = float(n.option("ProjClip", 0.0))
        self.normed = n.input(p.norms[1]) is not None if p.norms else False
        self.projected = n.input(p.projection[0]) is not None
        self.kept_h, self.kept_c = n.state(p.states[0]), n.state(p.states[1])
        h, c = (n.tensor(i) for i in p.states)
        assert h is not None
        assert c is not None
        self.h, self.c = _stored(h), _stored(c)
        self.integer = self.h.quant is not None
        if self.integer and self.c.dtype != "i16":
            n.unsupported(
                f"its cells are {self.c.dtype}; only i16 (full integer quantisation) is supported"
            )

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
        made: Value = ops.concat(*[n.real(places[k]) for k in self.gates], axis=0)
        return made

    def bias(self) -> Value | None:
        n, places = self.n, self.p.biases
        if n.input(places[1]) is None:
            return None
        parts = []
        for k in self.gates:
            v = n.required(places[k])
            if v.dtype in ("i32", "i64"):  # in units of input scale * weight scale
                units = [n.tensor(i) for i in (0, self.p.inputs[k])]
                step = np.prod([t.quant.scale[0] for t in units if t is not None and t.quant])
                parts.append(constant((n.const(places[k]) * step).astype(np.float32)))
            else:
                parts.append(v)
        if all(v.data is not None for v in parts):
            return constant(np.concatenate([v.data for v in parts]))
        made: Value = ops.concat(*parts, axis=0)
        return made

    # ---- the layer ----
    def run(self, x: Value) -> Value:
        """The stored outputs for stored x [time, batch, inputs], time first; updates the states."""
        t = self.n.tensor(0)
        assert t is not None
        given = real(x, t.quant)
        plain = not (self.coupled or self.normed or self.projected or self.integer)
        if plain and not self.cell_clip and self.activation == TANH:
            return self._plain(given)
        bias = None if self.normed else self.bias()
        flat = ops.reshape(given, shape=(x.shape[0] * x.shape[1], x.shape[2]))
        parts = ops.gemm(flat, self.rows(self.p.inputs), bias, trans_b=True)
        if self.integer:
            parts = WORD.store(self._product(parts, t.quant, self.p.inputs))
        parts = ops.reshape(parts, shape=(*x.shape[:2], len(self.gates) * self.hidden))
        h, c, y = ops.scan(
            self.kept_h.value,
            self.kept_c.value,
            parts,
            body=self._body(parts),
            states=2,
            scans=1,
            reverse_in=int(self.p.backward),
            reverse_out=int(self.p.backward),
        )
        self.kept_h.value, self.kept_c.value = h, c
        made: Value = y
        return made

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
        made: Value = ops.reshape(y, shape=(y.shape[0], *y.shape[2:]))
        return made

    # ---- one step ----
    def _body(self, parts: Value) -> Graph:
        old_h, old_c = (
            Value(Type(s.input.dtype, s.input.shape), name)
            for s, name in ((self.kept_h, "h"), (self.kept_c, "c"))
        )
        given = Value(Type(parts.dtype, parts.shape[1:]), "gates")
        z = ops.gemm(self.h.real(old_h), self.rows(self.p.recurrent), None, trans_b=True)
        z = self._product(z, self.h.quant, self.p.recurrent)
        z = self._word(ops.add(z, WORD.real(given) if self.integer else given))
        c = self.c.real(old_c)
        split = {
            k: ops.part(z, i * self.hidden, (i + 1) * self.hidden, axis=1)
            for i, k in enumerate(self.gates)
        }
        forget = self._sigmoid(self._gate(split[1], 1, c))
        if self.coupled:
            whole = 1 - 2.0**-15 if self.integer else 1.0  # largest value of a gate output
            let_in = ops.sub(constant(whole, dtype="f32"), forget)
        else:
            let_in = self._sigmoid(self._gate(split[0], 0, c))
        new = self._act(self._gate(split[2], 2, None), GATE)
        c = ops.add(self._times(forget, c, self.c), self._times(let_in, new, self.c))
        c = self._cell(c)
        if self.cell_clip > 0:
            most = self.cell_clip
            if self.c.quant:
                unit = self.c.quant.scale[0]
                most = min(round(most / unit), HIGH) * unit
            c = ops.clip(c, lo=-most, hi=most)
        let_out = self._sigmoid(self._gate(split[3], 3, c))
        h = self._times(let_out, self._act(c, self.c.quant), self._hidden())
        stored = self._projected(h) if self.projected else self._hidden().store(h)
        return Graph(
            [old_h, old_c, given], [stored, self.c.store(c), stored], ["h", "c", "y"]
        ).copy()

    def _projected(self, h: Value) -> Value:
        n, (weights, bias) = self.n, self.p.projection
        inner = self._hidden()
        b = None
        if n.input(bias) is not None:
            b, t, u = n.required(bias), n.tensor(weights), inner.quant
            if b.dtype == "i32" and t is not None and t.quant and u:
                step = t.quant.scale[0] * u.scale[0]
                b = constant((n.const(bias) * step).astype(np.float32))
        y = ops.gemm(inner.real(inner.store(h)), n.real(weights), b, trans_b=True)
        if self.projection_clip > 0:
            y = ops.clip(y, lo=-self.projection_clip, hi=self.projection_clip)
        return self.h.store(y)

    def _hidden(self) -> Stored:
        """Round the hidden state as it is stored before the projection, or as the result."""
        inside = self.n.op.intermediates
        t = self.n.tensors[inside[4]] if self.integer and len(inside) > 4 else None
        if t is None or t.quant is None or not self.projected:
            return self.h
        return Stored("i8", t.quant)

    def _gate(self, z: Value, k: int, c: Value | None) -> Value:
        """The input of the activation of gate k."""
        n = self.n
        place = {0: 0, 1: 1, 3: 2}.get(k)
        if c is not None and place is not None and n.input(self.p.peepholes[place]) is not None:
            seen = ops.mul(c, n.real(self.p.peepholes[place]))
            z = self._word(ops.add(z, self._word(seen)))
        if not self.normed:
            return z
        mean = ops.reduce_mean(z, axes=(1,), keepdims=True)
        apart = ops.sub(z, mean)
        spread = ops.reduce_mean(ops.mul(apart, apart), axes=(1,), keepdims=True)
        least = constant(EPSILON, dtype="f32")
        z = ops.mul(ops.div(apart, ops.sqrt(ops.add(spread, least))), n.real(self.p.norms[k]))
        b = n.real(self.p.biases[k])
        return self._word(z if b is None else ops.add(z, b))

    def _sigmoid(self, v: Value) -> Value:
        made: Value = _by_table(v, GATE, sigmoid_table()) if self.integer else ops.sigmoid(v)
        return made

    def _act(self, v: Value, unit: Quant | None) -> Value:
        """The activation; for integers in units of 2^(n-15), bit-exact with LiteRT."""
        if self.integer:
            bits = math.log2(unit.scale[0]) + 15 if unit else -1.0
            if self.activation != TANH or bits not in range(7) or unit is None:
                self.n.unsupported(
                    f"activation {self.activation} of integers in steps of {unit} is not supported"
                )
            return _by_table(v, unit, tanh_table(int(bits)))
        if self.activation in (0, 1, 3):
            ends = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 3: (0.0, 6.0)}[self.activation]
            return v if self.activation == 0 else ops.clip(v, lo=ends[0], hi=ends[1])
        if self.activation != TANH:
            self.n.unsupported(f"activation {self.activation} of the schema is not supported")
        made: Value = ops.tanh(v)
        return made

    # ---- where integers are rounded ----
    def _product(self, z: Value, x: Quant | None, places: Sequence[int]) -> Value:
        """Sums of products in units of 2^-12, rounded twice as in LiteRT: after the product with a
        31-bit multiplier below 1, and after the shift, which rounds ties away from zero."""
        if not self.integer or x is None:
            return z
        tensors = [self.n.tensor(places[k]) for k in self.gates]
        units = [x.scale[0] * t.quant.scale[0] for t in tensors if t and t.quant]
        parts = [math.frexp(u / GATE.scale[0]) for u in units]
        fine = [2.0 ** max(-e, 0) for _, e in parts]  # resolution before the shift
        by = [round(m * 2**31) * 2.0 ** (e - 31) * f for (m, e), f in zip(parts, fine, strict=True)]
        total = ops.round(ops.div(z, self._columns(units, "f32")))  # the integer accumulators
        scaled = _rounded(ops.mul(ops.cast(total, dtype="f64"), self._columns(by, "f64")))
        return _clamped_steps(_rounded(ops.div(scaled, self._columns(fine, "f64"))), "i16", GATE)

    def _columns(self, values: Sequence[float], dtype: str) -> Value:
        """One number per gate, repeated for its columns."""
        return constant(np.repeat(values, self.hidden), dtype=dtype)

    def _times(self, a: Value, b: Value, kind: Stored) -> Value:
        """The product; for integers rounded to `unit`, ties away from zero."""
        if not self.integer or kind.quant is None:
            made: Value = ops.mul(a, b)
            return made
        exact = ops.mul(ops.cast(a, dtype="f64"), ops.cast(b, dtype="f64"))
        unit = constant(kind.quant.scale[0], dtype="f64")
        return _clamped_steps(_rounded(ops.div(exact, unit)), kind.dtype, kind.quant)

    def _word(self, v: Value) -> Value:
        return WORD.real(WORD.store(v)) if self.integer else v

    def _cell(self, v: Value) -> Value:
        return self.c.real(self.c.store(v)) if self.integer else v


def _rounded(v: Value) -> Value:
    """Round to integers, ties away from zero."""
    made: Value = ops.mul(ops.sign(v), ops.floor(ops.add(ops.abs(v), constant(0.5, dtype="f64"))))
    return made


def _clamped_steps(whole: Value, dtype: str, q: Quant) -> Value:
    """Steps * unit, with the steps clamped to the element type."""
    low, high = (end - q.zero[0] for end in dtypes.limits(dtype))
    made = ops.cast(ops.clip(whole, lo=float(low), hi=float(high)), dtype="f32")
    made = ops.mul(made, constant(q.scale[0], dtype="f32"))
    return made


def _by_table(v: Value, unit: Quant, table: Array) -> Value:
    """A function of multiples of `unit`, as a lookup in a table of all 16-bit numbers."""
    at = ops.add(
        ops.cast(Stored("i16", unit).store(v), dtype="i32"), constant(1 << 15, dtype="i32")
    )
    return real(ops.gather(constant(table), at, axis=0), SHARE)


def _stored(t: Tensor) -> Stored:
    return Stored(t.dtype, t.quant if dtypes.is_integer(t.dtype) else None)


def _spread(values: Sequence[float], rows: int) -> Sequence[float]:
    return values if len(values) == rows else tuple(values) * rows
