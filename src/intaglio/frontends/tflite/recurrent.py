"""Importers of LSTM, RNN and SVDF, whose states outlive a call."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio import dtypes, ops
from intaglio.frontends.tflite.integer_lstm import IntegerLstm
from intaglio.frontends.tflite.lstm import Lstm, OperandIndices
from intaglio.frontends.tflite.node import TfliteNode, importer, parameters, real, stored
from intaglio.ir import Graph, Quant, Type, Value

SWAP_BATCH_TIME = (1, 0, 2)


def _layer(n: TfliteNode, x: Value, p: OperandIndices) -> Value:
    """An LSTM over x [time, batch, inputs], in integers if its state is stored in integers."""
    t = n.tensor(p.states[0])
    whole = t is not None and dtypes.is_integer(t.dtype)
    return (IntegerLstm(n, p) if whole else Lstm(n, p)).run(x)


@importer("UNIDIRECTIONAL_SEQUENCE_LSTM", stored=True)
def sequence_lstm(n: TfliteNode) -> Value:
    x, early = n.required(0), bool(n.option("TimeMajor", False))
    if x.type.rank != 3:
        n.unsupported(f"its input is {x.type}; batch, time and features are needed")
    y = _layer(n, x if early else ops.transpose(x, perm=SWAP_BATCH_TIME), OperandIndices())
    result: Value = y if early else ops.transpose(y, perm=SWAP_BATCH_TIME)
    return result


@importer("LSTM", stored=True)
def lstm(n: TfliteNode) -> Value | list[Value]:
    """One LSTM step; the BASIC kernel has all gates in one matrix."""
    if n.option("KernelType", 0) == 1:
        return _basic(n)
    x = n.required(0)
    y = _layer(n, ops.reshape(x, shape=(1, *x.shape)), OperandIndices())
    result: Value = ops.reshape(y, shape=y.shape[1:])
    return result


def _basic(n: TfliteNode) -> list[Value]:
    x, h, w, b, c = (n.real(i) for i in range(5))
    if x is None or h is None or w is None or c is None or n.option("CellClip", 0.0):
        n.unsupported("an operand is missing, or cell clipping is set; neither is supported")
    z = ops.gemm(ops.concat(x, h, axis=1), w, b, trans_b=True)
    d = z.shape[1] // 4
    let_in, new, forget, let_out = (ops.part(z, k * d, (k + 1) * d, axis=1) for k in range(4))
    c = ops.add(ops.mul(ops.sigmoid(forget), c), ops.mul(ops.sigmoid(let_in), ops.tanh(new)))
    h = ops.mul(ops.sigmoid(let_out), ops.tanh(c))
    ends = [h, c, ops.concat(x, n.real(1), axis=1), z]
    return [stored(v, n.out(i)) for i, v in enumerate(ends[: len(n.op.outputs)])]


@importer("BIDIRECTIONAL_SEQUENCE_LSTM", stored=True)
def bidirectional_lstm(n: TfliteNode) -> list[Value]:
    x, early = n.required(0), bool(n.option("TimeMajor", True))
    if x.type.rank != 3 or any(n.input(i) is not None for i in range(39, 48)):
        n.unsupported(
            "it has an auxiliary input; only one input [batch, time, features] is supported"
        )
    turned = x if early else ops.transpose(x, perm=SWAP_BATCH_TIME)
    there = OperandIndices(states=(35, 36), norms=())
    back = replace(
        there,
        inputs=(18, 19, 20, 21),
        recurrent=(22, 23, 24, 25),
        peepholes=(26, 27, 28),
        biases=(29, 30, 31, 32),
        projection=(33, 34),
        states=(37, 38),
        backward=True,
    )
    results = [_layer(n, turned, p) for p in (there, back)]
    results = [v if early else ops.transpose(v, perm=SWAP_BATCH_TIME) for v in results]
    return [ops.concat(*results, axis=2)] if n.option("MergeOutputs", False) else results


# ---- rnn -----------------------------------------------------------------------------------------
def _rnn(n: TfliteNode, x: Value) -> Value:
    """y = activation(x·Wᵀ + y·Rᵀ + b) for every step of real x [time, batch, inputs]."""
    w, r, b, kept = n.real(1), n.real(2), n.real(3), n.state(4)
    if w is None or r is None or kept.input.dtype != "f32":
        n.unsupported("its weights are missing, or its state is not f32; float RNNs are supported")
    flat = ops.reshape(x, shape=(x.shape[0] * x.shape[1], x.shape[2]))
    parts = ops.reshape(ops.gemm(flat, w, b, trans_b=True), shape=(*x.shape[:2], w.shape[0]))
    h, part = Value(Type("f32", kept.input.shape), "h"), Value(Type("f32", parts.shape[1:]), "part")
    if n.required(2).data is None:
        n.unsupported("its recurrent weights are not constant; they must be")
    new = n.activated(ops.add(part, ops.gemm(h, r, None, trans_b=True)))
    body = Graph([h, part], [new, new], ["h", "y"]).copy()
    kept.value, y = ops.scan(kept.value, parts, body=body, states=1, scans=1)
    result: Value = y
    return result


@importer("UNIDIRECTIONAL_SEQUENCE_RNN", stored=True)
def sequence_rnn(n: TfliteNode) -> Value:
    x, early = n.required(0), bool(n.option("TimeMajor", False))
    y = _rnn(n, x if early else ops.transpose(x, perm=SWAP_BATCH_TIME))
    result: Value = y if early else ops.transpose(y, perm=SWAP_BATCH_TIME)
    return result


@importer("RNN", stored=True)
def rnn(n: TfliteNode) -> Value:
    x = n.required(0)
    y = _rnn(n, ops.reshape(x, shape=(1, *x.shape)))
    result: Value = ops.reshape(y, shape=y.shape[1:])
    return result


# ---- svdf ----------------------------------------------------------------------------------------
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
        result: Value = ops.quantize_linear(v, scale, zero, dtype=self.dtype, **attrs)
        return result


@importer("SVDF", stored=True)
def svdf(n: TfliteNode) -> Value:
    """SVDF: a filter over features, then one over the last results in time, of rank `rank`."""
    x, features, time, bias, kept = n.real(0), n.real(1), n.real(2), n.input(3), n.state(4)
    rank = n.option("Rank", 0)
    if x is None or features is None or time is None or x.type.rank != 2:
        n.unsupported("an operand is missing, or its input is not [batch, features]")
    filters, memory = time.shape
    batch = x.shape[0]
    if rank < 1 or filters % rank or kept.input.type.size != batch * filters * memory:
        n.unsupported(f"{filters} filters of rank {rank} do not fit the state {kept.input.type}")
    t = n.tensor(4)
    assert t is not None
    kind = Stored(t.dtype, t.quant)
    new = kind.store(ops.gemm(x, features, None, trans_b=True))
    held = ops.reshape(kept.value, shape=(batch, filters, memory))
    late = ops.concat(
        ops.part(held, 1, memory, axis=2), ops.reshape(new, shape=(batch, filters, 1)), axis=2
    )
    kept.value = ops.reshape(late, shape=kept.input.shape)
    y = ops.reduce_sum(ops.mul(kind.real(late), time), axes=(2,), keepdims=False)
    y = ops.reshape(y, shape=(batch, filters // rank, rank))
    y = ops.reduce_sum(y, axes=(2,), keepdims=False)
    if bias is not None:
        b = n.real(3)
        if bias.dtype == "i32":
            b = n.bias(3, 4, 2)
        y = ops.add(y, b)
    result: Value = stored(n.activated(y), n.out())
    return result
