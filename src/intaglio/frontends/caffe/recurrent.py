"""Caffe's LSTM and RNN: sequences [T, N, ...] and continuation indicators [T, N].

If the indicators are constant and every sequence starts at step 0, a layer is one op. If they are
data, the steps are unrolled, and each multiplies its state by its indicator.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.caffe.file import Layer
from intaglio.frontends.caffe.layers import blob, layer
from intaglio.ir import Array, Value, constant

MAX_UNROLLED_STEPS = 512
Step = Callable[[Value, list[Value]], list[Value]]  # (input of the step, states) -> new states


@layer("ContinuationIndicator")
def continuation(of: Layer, *xs: Value) -> Value:
    """ContinuationIndicator: 0 at the first step of a sequence, else 1."""
    p = of.settings.inner("continuation_indicator_param")
    time, batch = p.whole("time_step", 0), p.whole("batch_size", 0)
    if xs and not time:
        time, batch = xs[0].shape[:2]
    if not 0 < time * batch < 1 << 24:
        raise BadFile(f"caffe: {of}: {time} steps of {batch} sequences")
    result = np.ones((time, batch), np.float32)
    result[0] = 0
    return constant(result)


def _operands(
    of: Layer, xs: tuple[Value, ...], states: int
) -> tuple[int, Value, Value, list[Value]]:
    """Units, the sequence as [T, N, I], the indicators, and initial states if exposed."""
    p = of.settings.inner("recurrent_param")
    hidden, exposed = p.whole("num_output", 0), p.flag("expose_hidden", False)
    if hidden < 1 or len(xs) < 2 or xs[0].type.rank < 2:
        raise BadFile(f"caffe: {of}: {hidden} units over {len(xs)} operands")
    if len(xs) != 2 + (states if exposed else 0):
        raise Unsupported(
            f"caffe: {of} has a static input, which is not supported; "
            "repeat it along the sequence and concatenate it to the other input"
        )
    time, batch = xs[0].shape[:2]
    if xs[1].shape != (time, batch):
        raise BadFile(
            f"caffe: {of}: continuation indicators {xs[1].type} do not fit sequences {xs[0].type}"
        )
    x = ops.reshape(xs[0], shape=(time, batch, math.prod(xs[0].shape[2:])))
    given = [ops.reshape(s, shape=(1, batch, hidden)) for s in xs[2:]]
    return hidden, x, xs[1], given


def _starts_once(go_on: Value) -> bool:
    """Whether the indicators are constant and sequences start only at step 0."""
    return go_on.data is not None and not go_on.data[0].any() and bool((go_on.data[1:] == 1).all())


def _continues(go_on: Value) -> bool:
    """Whether the indicators are constant and sequences continue from the given states."""
    return go_on.data is not None and bool((go_on.data == 1).all())


def _unrolled(
    of: Layer, parts: Value, go_on: Value, states: list[Value], step: Step
) -> list[list[Value]]:
    """The states after each step, unrolled."""
    time, batch, _ = parts.shape
    if time > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"caffe: {of} has {time} steps and continuation indicators that are not constant; at "
            "most "
            f"{MAX_UNROLLED_STEPS} steps are supported; give a shorter sequence"
        )
    found = []
    for t in range(time):
        alive = ops.reshape(ops.part(go_on, t, t + 1, axis=0), shape=(batch, 1))
        part = ops.reshape(ops.part(parts, t, t + 1, axis=0), shape=parts.shape[1:])
        states = step(part, [ops.mul(alive, s) for s in states])
        found.append(states)
    return found


def _stacked(found: list[list[Value]], k: int) -> Value:
    rows = [ops.reshape(s[k], shape=(1, *s[k].shape)) for s in found]
    return rows[0] if len(rows) == 1 else ops.concat(*rows, axis=0)


def _zeros(batch: int, hidden: int) -> Value:
    return constant(np.zeros((batch, hidden), np.float32))


@layer("LSTM")
def lstm(of: Layer, *xs: Value) -> Value | list[Value]:
    """Gates in the order input, forget, output, cell."""
    h, x, go_on, given = _operands(of, xs, 2)
    _, batch, width = x.shape
    w, b, r = blob(of, 0, 4 * h, width), blob(of, 1, 4 * h), blob(of, 2, 4 * h, h)
    if _starts_once(go_on) or (given and _continues(go_on)):

        def ours(a: Array) -> Array:  # input, output, forget, cell
            i, f, o, c = np.split(a, 4)
            return np.concatenate([i, o, f, c])[None]

        bias = np.concatenate([ours(b), np.zeros((1, 4 * h), np.float32)], 1)
        first = given if _continues(go_on) else []
        y, last_h, last_c = ops.lstm(x, ours(w), ours(r), bias, None, *first, hidden_size=h)
        y = ops.reshape(y, shape=(x.shape[0], batch, h))
        return [y, last_h, last_c] if given else y

    def step(part: Value, states: list[Value]) -> list[Value]:
        sums = ops.add(part, ops.matmul(states[0], r.T.copy()))
        i, f, o, g = (ops.part(sums, k * h, (k + 1) * h, axis=1) for k in range(4))
        cell = ops.add(ops.mul(ops.sigmoid(f), states[1]), ops.mul(ops.sigmoid(i), ops.tanh(g)))
        return [ops.mul(ops.sigmoid(o), ops.tanh(cell)), cell]

    states = [ops.reshape(s, shape=(batch, h)) for s in given] or [_zeros(batch, h)] * 2
    found = _unrolled(of, ops.add(ops.matmul(x, w.T.copy()), b), go_on, states, step)
    y = _stacked(found, 0)
    ends = [ops.reshape(s, shape=(1, batch, h)) for s in found[-1]]
    return [y, *ends] if given else y


@layer("RNN")
def rnn(of: Layer, *xs: Value) -> Value | list[Value]:
    """A recurrent tanh layer followed by a dense tanh layer."""
    h, x, go_on, given = _operands(of, xs, 1)
    _, batch, width = x.shape
    w, b, r = blob(of, 0, h, width), blob(of, 1, h), blob(of, 2, h, h)
    out, shift = blob(of, 3, h, h), blob(of, 4, h)
    if _starts_once(go_on) or (given and _continues(go_on)):
        bias = np.concatenate([b, np.zeros(h, np.float32)])[None]
        first = given if _continues(go_on) else []
        hidden, last = ops.rnn(x, w[None], r[None], bias, None, *first, hidden_size=h)
        hidden = ops.reshape(hidden, shape=(x.shape[0], batch, h))
    else:
        states = [ops.reshape(s, shape=(batch, h)) for s in given] or [_zeros(batch, h)]
        found = _unrolled(
            of,
            ops.add(ops.matmul(x, w.T.copy()), b),
            go_on,
            states,
            lambda part, s: [ops.tanh(ops.add(part, ops.matmul(s[0], r.T.copy())))],
        )
        hidden = _stacked(found, 0)
        last = ops.reshape(found[-1][0], shape=(1, batch, h))
    y = ops.tanh(ops.add(ops.matmul(hidden, out.T.copy()), shift))
    return [y, last] if given else y
