"""Importers of fused recurrent cells: LSTMBlockCell, BlockLSTM, GRUBlockCell."""

from __future__ import annotations

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.frontends.tensorflow.node import TfNode, importer
from intaglio.ir import Graph, Type, Value, constant

Weights = list[Value]  # w, peepholes (input, forget, output), bias


def _cell(n: TfNode, x: Value, c: Value, h: Value, weights: Weights) -> list[Value]:
    """One LSTM step: input gate, state, forget gate, output gate, candidate, its tanh, output."""
    w, wci, wcf, wco, b = weights
    size, peep, limit = c.shape[-1], n.attr("use_peephole", False), n.attr("cell_clip", 3.0)
    if w.type.rank != 2 or w.shape[1] != 4 * size:
        raise BadInput(f"weights {w.type} do not fit a state of {size}")
    gates = ops.add(ops.matmul(ops.concat(x, h, axis=1), w), b)
    parts = [ops.part(gates, k * size, (k + 1) * size, axis=1) for k in range(4)]
    if n.op == "BlockLSTMV2":  # input, forget, candidate, output
        parts = [parts[0], parts[2], parts[1], parts[3]]
    else:
        forget = constant(n.attr("forget_bias", 1.0), dtype=x.dtype)
        parts[2] = ops.add(parts[2], forget)
    i, candidate, f, o = parts
    if peep:
        i, f = ops.add(i, ops.mul(wci, c)), ops.add(f, ops.mul(wcf, c))
    i, f, candidate = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(candidate)
    state = ops.add(ops.mul(candidate, i), ops.mul(c, f))
    if limit > 0:
        state = ops.clip(state, lo=-limit, hi=limit)
    o = ops.sigmoid(ops.add(o, ops.mul(wco, state)) if peep else o)
    bent = ops.tanh(state)
    return [i, state, f, o, candidate, bent, ops.mul(bent, o)]


@importer("LSTMBlockCell")
def lstm_block_cell(n: TfNode) -> list[Value]:
    x, c, h, *weights = n.values()
    if len(weights) != 5:
        raise BadInput(f"{len(n.inputs)} operands; 8 are needed")
    return _cell(n, x, c, h, weights)


@importer("BlockLSTM", "BlockLSTMV2")
def block_lstm(n: TfNode) -> list[Value]:
    """LSTM over [time, batch, features]; gates and outputs of every step are results."""
    x, c, h, *weights = n.values()[1:]
    if len(weights) != 5 or x.type.rank != 3 or c.type.rank != 2:
        n.unsupported(f"{len(n.inputs)} operands and an input {x.type}; 9 and rank 3 are needed")
    if n.whole(0) < x.shape[0]:
        n.unsupported(f"seq_len_max is {n.whole(0)}; only all {x.shape[0]} steps are supported")
    outer = [v for v in weights if v.data is None]
    taken = {v: Value(v.type, v.name, v.data) for v in weights}
    before, out = Value(c.type, "state"), Value(h.type, "output")
    row = Value(Type(x.dtype, x.shape[1:]), "row")
    results = _cell(n, row, before, out, [taken[v] for v in weights])
    names = ["state", "output", *(f"step_{k}" for k in range(7))]
    body = Graph(
        [before, out, row, *(taken[v] for v in outer)],
        [results[1], results[6], *results],
        names,
        n.origin,
    )
    found = ops.scan(c, h, x, *outer, body=body, states=2, scans=1)
    return list(found[2:])


@importer("GRUBlockCell")
def gru_block_cell(n: TfNode) -> list[Value]:
    """One GRU step: reset gate, update gate, candidate, output."""
    x, h, w, wc, b, bc = n.values()
    size = h.shape[-1]
    gates = ops.sigmoid(ops.add(ops.matmul(ops.concat(x, h, axis=1), w), b))
    r, u = (ops.part(gates, k * size, (k + 1) * size, axis=1) for k in range(2))
    inner = ops.concat(x, ops.mul(r, h), axis=1)
    candidate = ops.tanh(ops.add(ops.matmul(inner, wc), bc))
    one = constant(1.0, dtype=x.dtype)
    new = ops.add(ops.mul(u, h), ops.mul(ops.sub(one, u), candidate))
    return [r, u, candidate, new]
