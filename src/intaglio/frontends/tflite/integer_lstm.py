"""Importer of LSTMs in integers: i8 inputs, weights and outputs, i16 cells, bit-exact with LiteRT.

Gate inputs are i16 in units of 2^-12, gate outputs i16 in units of 2^-15. The values inside of a
step are i64. A gate saturates to 16 bits after the input's product, after the recurrent product is
added, and after the peephole is added (`LstmStepInteger` of tensorflow/lite/kernels/lstm_eval.cc).
Only the layer norm of gates is computed in floats, so that it may differ by one step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput
from intaglio.frontends.tflite.file import Tensor
from intaglio.frontends.tflite.fixed_point import HIGH, LOW, sigmoid_table, tanh_table
from intaglio.frontends.tflite.integer_arithmetic import clamped, divided_by_power, multiplied
from intaglio.frontends.tflite.lstm import TANH, LstmLayer
from intaglio.frontends.tflite.node import TfliteNode
from intaglio.ir import Array, Graph, Quant, Type, Value, constant

GATE = np.float32(2.0**-12)  # unit of gate inputs
GATE_BITS, SHARE_BITS = 12, 15  # fractional bits of gate inputs and outputs
NORM_UNIT = 1024  # normalised gate inputs have ten more bits


@dataclass
class IntegerLstm(LstmLayer):
    """An LSTM over stored x [time, batch, inputs], in integers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        n, p = self.n, self.p
        self.h, self.c = (_quantized(n, i) for i in p.states)
        self.bits = math.log2(_quant(self.c).scale[0]) + SHARE_BITS  # integer bits of a cell
        if self.c.dtype != "i16" or self.bits not in range(7):
            n.unsupported(
                f"its cells are {self.c.dtype} in steps of {_quant(self.c).scale[0]}; only i16 in "
                "steps of a power of two is supported"
            )
        if n.option("FusedActivationFunction", TANH) != TANH:
            n.unsupported("its activation is not tanh; integers need tanh")
        if len(n.op.intermediates) > 5:
            n.unsupported("its gates are quantised to 8 bits; only gates of 16 bits are supported")

    # ---- the layer ----
    def run(self, x: Value) -> Value:
        """The stored outputs for stored x [time, batch, inputs], time first; updates the states."""
        flat = ops.reshape(x, shape=(x.shape[0] * x.shape[1], x.shape[2]))
        sums = self._sums(flat, _quantized(self.n, 0), self.p.inputs)
        if not self.normed and self.n.input(self.p.biases[1]) is not None:
            bias = np.concatenate([self.n.const(self.p.biases[k]) for k in self.gates])
            sums = ops.add(sums, constant(bias, dtype="i64"))
        gates = self._gate_inputs(sums, _quantized(self.n, 0), self.p.inputs)
        gates = ops.cast(clamped(gates, LOW, HIGH), dtype="i16")
        gates = ops.reshape(gates, shape=(*x.shape[:2], len(self.gates) * self.hidden))
        return self.scan(gates)

    def _sums(self, x: Value, t: Tensor, places: Sequence[int]) -> Value:
        """Sums of products with the weights of all gates, as i64."""
        rows = np.concatenate([self.n.const(places[k]) for k in self.gates])
        return _product(x, t, rows)

    def _gate_inputs(self, sums: Value, t: Tensor, places: Sequence[int]) -> Value:
        """Sums in the units of gate inputs, not yet saturated; LiteRT has the factors in f32."""
        scale = np.float32(_quant(t).scale[0])
        factors = [
            float(
                np.float32(_quant(_quantized(self.n, places[k])).scale[0]) * scale / self._unit(k)
            )
            for k in self.gates
        ]
        return multiplied(sums, factors, self.hidden)

    def _unit(self, k: int) -> np.float32:
        """The unit of the input of gate k; the file has that of a layer norm's input."""
        inside = self.n.op.intermediates
        if not self.normed or k >= len(inside) or inside[k] < 0:
            return GATE
        return np.float32(_quant(self.n.tensors[inside[k]]).scale[0])

    # ---- one step ----
    def body(self, gates: Value) -> Graph:
        old_h, old_c = (
            Value(Type(s.input.dtype, s.input.shape), name)
            for s, name in ((self.kept_h, "h"), (self.kept_c, "c"))
        )
        given = Value(Type("i16", gates.shape[1:]), "gates")
        z = self._gate_inputs(self._sums(old_h, self.h, self.p.recurrent), self.h, self.p.recurrent)
        z = clamped(ops.add(z, _wide(given)), LOW, HIGH)
        each = {
            k: ops.part(z, i * self.hidden, (i + 1) * self.hidden, axis=1)
            for i, k in enumerate(self.gates)
        }
        c = self._cell(each, _wide(old_c))
        let_out = _looked_up(self._gate(each[3], 3, c), sigmoid_table())
        h = self._result(ops.mul(let_out, _looked_up(c, tanh_table(int(self.bits)))))
        new_h = ops.cast(h, dtype=self.h.dtype)
        new_c = ops.cast(c, dtype="i16")
        return Graph([old_h, old_c, given], [new_h, new_c, new_h], ["h", "c", "y"]).copy()

    def _cell(self, each: dict[int, Value], c: Value) -> Value:
        forget = _looked_up(self._gate(each[1], 1, c), sigmoid_table())
        if self.coupled:
            let_in = ops.sub(constant(HIGH, dtype="i64"), forget)
        else:
            let_in = _looked_up(self._gate(each[0], 0, c), sigmoid_table())
        new = _looked_up(self._gate(each[2], 2, None), tanh_table(SHARE_BITS - GATE_BITS))
        kept = divided_by_power(ops.mul(forget, c), [SHARE_BITS])
        added = divided_by_power(ops.mul(let_in, new), [SHARE_BITS + int(self.bits)])
        c = clamped(ops.add(kept, added), LOW, HIGH)
        clip = self._clip("CellClip", self.c, HIGH)
        return clamped(c, -clip, clip) if clip > 0 else c

    def _clip(self, option: str, t: Tensor, most: int) -> int:
        """A clip of the options in steps of `t`, rounded towards zero; 0 without a clip."""
        bound = np.float32(self.n.option(option, 0.0)) / np.float32(_quant(t).scale[0])
        return int(min(float(bound), float(most)))

    def _gate(self, z: Value, k: int, c: Value | None) -> Value:
        """The input of the activation of gate k."""
        place = {0: 0, 1: 1, 3: 2}.get(k)
        if c is not None and place is not None:
            index = self.p.peepholes[place]
            if self.n.input(index) is not None:
                unit = 2.0 ** (self.bits - SHARE_BITS) * _quant(_quantized(self.n, index)).scale[0]
                seen = ops.mul(c, constant(self.n.const(index), dtype="i64"))
                seen = multiplied(seen, [float(np.float32(unit / self._unit(k)))])
                z = clamped(ops.add(z, seen), LOW, HIGH)
        return self._normalized(z, k) if self.normed else z

    def _normalized(self, z: Value, k: int) -> Value:
        """Layer norm of a gate's input, in f64."""
        unit = _quant(_quantized(self.n, self.p.norms[k])).scale[0]
        factor = self.n.const(self.p.norms[k]) * unit
        shift = self.n.const(self.p.biases[k]) * (unit / NORM_UNIT)
        real = ops.cast(z, dtype="f64")
        centred = ops.sub(real, ops.reduce_mean(real, axes=(1,), keepdims=True))
        variance = ops.reduce_mean(ops.mul(centred, centred), axes=(1,), keepdims=True)
        variance = ops.maximum(variance, constant(1.0, dtype="f64"))
        y = ops.add(
            ops.mul(ops.div(centred, ops.sqrt(variance)), constant(factor, dtype="f64")),
            constant(shift, dtype="f64"),
        )
        steps = ops.round(ops.mul(y, constant(float(1 << GATE_BITS), dtype="f64")))
        return clamped(ops.cast(steps, dtype="i64"), LOW, HIGH)

    def _result(self, product: Value) -> Value:
        """The hidden state from the product of two gates, projected if the layer has weights."""
        inside = self.n.op.intermediates
        t = self.n.tensors[inside[4]] if len(inside) > 4 else self.h
        t = t if t.quant is not None else self.h
        factor = np.float32(2.0**-30 / np.float32(_quant(t).scale[0]))
        h = ops.add(multiplied(product, [float(factor)]), _zero(t))
        h = clamped(h, *dtypes.limits(self.h.dtype))
        return self._projected(ops.cast(h, dtype=self.h.dtype), t) if self.projected else h

    def _projected(self, h: Value, t: Tensor) -> Value:
        weights, bias = self.p.projection
        w = _quantized(self.n, weights)
        sums = _product(h, t, self.n.const(weights))
        if self.n.input(bias) is not None:
            sums = ops.add(sums, constant(self.n.const(bias), dtype="i64"))
        scale = np.float32(_quant(w).scale[0]) * np.float32(_quant(t).scale[0])
        factor = scale / np.float32(_quant(self.h).scale[0])
        y = ops.add(multiplied(sums, [float(factor)]), _zero(self.h))
        low, high = dtypes.limits(self.h.dtype)
        y = clamped(y, low, high)
        clip = self._clip("ProjClip", self.h, high)
        return clamped(y, -clip, clip) if clip > 0 else y


def _product(x: Value, t: Tensor, rows: Array) -> Value:
    """(x - zero point) · rowsᵀ as i64."""
    zero, turned = _quant(t).zero[0], np.ascontiguousarray(rows.T)
    if x.dtype == "i8":
        return _wide(ops.matmul_integer(x, constant(turned), constant(zero, dtype="i8")))
    centred = ops.sub(_wide(x), constant(zero, dtype="i64"))
    result: Value = ops.matmul(centred, constant(turned, dtype="i64"))
    return result


def _looked_up(v: Value, table: Array) -> Value:
    """A function of 16-bit numbers by a table of all of them."""
    at = ops.add(v, constant(-LOW, dtype="i64"))
    return _wide(ops.gather(constant(table), at, axis=0))


def _wide(v: Value) -> Value:
    result: Value = ops.cast(v, dtype="i64")
    return result


def _quantized(n: TfliteNode, i: int) -> Tensor:
    t = n.tensor(i)
    if t is None or t.quant is None:
        n.unsupported(f"operand {i} is not quantised; all operands of an integer LSTM must be")
    return t


def _quant(t: Tensor) -> Quant:
    if t.quant is None:
        raise BadInput(f"'{t.name}' is not quantised; all tensors of an integer LSTM must be")
    return t.quant


def _zero(t: Tensor) -> Value:
    return constant(_quant(t).zero[0], dtype="i64")
