"""Darknet's rnn, crnn, lstm and gru: rows (or images) of the batch are the steps of a sequence.

A state starts with zeros, or is an input and an output of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported, option
from intaglio.frontends.darknet.file import Section
from intaglio.frontends.darknet.layers import Net, activate, dense_weights, layer, weights_of
from intaglio.ir import Array, Value

MAX_UNROLLED_STEPS = 512
PJREDDIE = 0  # revision of files of the original Darknet, which orders matrices differently
FILES = {
    ("lstm", True): "wi wf wo wg ui uf uo ug",
    ("lstm", False): "wf wi wg wo uf ui ug uo",
    ("gru", True): "wz wr wh uz ur uh",
    ("gru", False): "uz ur uh wz wr wh",
}  # by section and revision 0: u for inputs, w for states


def _units(section: Section, key: str = "output", default: int | None = None) -> int:
    count = section.whole(key, default)
    if not 1 <= count <= 1 << 20:
        raise BadFile(f"darknet: {section}: {key}={count} is out of range")
    return count


def _rows(x: Value) -> Value:
    return ops.reshape(x, shape=(x.shape[0], x.type.size // x.shape[0]))


def _unrolled(
    net: Net, section: Section, parts: Value, remember: Callable[[Value], Value]
) -> Value:
    """The state after each step, unrolled: from the step's input and the previous state."""
    steps = parts.shape[0]
    if steps > MAX_UNROLLED_STEPS:
        raise Unsupported(
            f"darknet: {section}: {steps} steps; at most {MAX_UNROLLED_STEPS} are supported; give "
            "fewer "
            f"rows with {option('shapes', {'data': ...})}"
        )
    before = net.initial_state(section, "h", (1, *parts.shape[1:]))
    keeps, found = section.whole("shortcut", 0), []
    for t in range(steps):
        now = ops.add(ops.part(parts, t, t + 1, axis=0), remember(before))
        before = ops.add(before, now) if keeps else now
        found.append(before)
    net.record_state(section, "h", before)
    return found[0] if len(found) == 1 else ops.concat(*found, axis=0)


@layer("rnn")
def rnn(net: Net, section: Section, x: Value) -> Value:
    out = _units(section)
    hidden, x = _units(section, "hidden", out), _rows(x)
    first, own, last = (
        dense_weights(net, section, *shape)
        for shape in ((x.shape[1], hidden), (hidden, hidden), (hidden, out))
    )
    kinds = {0: section.text("activation", "logistic"), 1: "logistic", 2: "loggy"}
    kind = kinds.get(section.whole("logistic", 0), "")

    def dense(v: Value, numbers: tuple[Array, Array], kind: str = "") -> Value:
        result = ops.gemm(v, *numbers, trans_b=True)
        return activate(result, section, kind=kind or section.text("activation", "logistic"))

    states = _unrolled(net, section, dense(x, first), lambda h: dense(h, own, kind))
    return dense(states, last)


@layer("crnn")
def crnn(net: Net, section: Section, x: Value) -> Value:
    """rnn with convolutions instead of matrix products."""
    if x.type.rank == 2:
        x = ops.reshape(x, shape=(*x.shape, 1, 1))
    out, size = _units(section), section.whole("size", 3)
    hidden, groups = _units(section, "hidden", out), section.whole("groups", 1)
    dilation, stride = section.whole("dilation", 1), section.whole("stride", 1)
    asked = section.whole("pad", int("size" not in section.settings))
    pad = size // 2 if asked else section.whole("padding", 0)
    channels = x.shape[1]
    if stride != 1 or not 1 <= size <= 99 or groups < 1 or dilation < 1 or x.type.rank != 4:
        raise BadFile(f"darknet: {section}: size={size} stride={stride} does not fit {x.type}")
    if any(n % groups for n in (channels, hidden, out)) or 2 * pad != (size - 1):
        raise BadFile(
            f"darknet: {section}: {groups} groups or {pad} pixels of padding are not supported "
            f"for size {size}"
        )

    def numbers(ins: int, outs: int) -> tuple[Array, Array]:
        return weights_of(net, section, outs, (outs, ins // groups, size, size))

    every = [numbers(channels, hidden), numbers(hidden, hidden), numbers(hidden, out)]
    how: dict[str, Any] = {
        "stride": (1, 1),
        "pad": (pad * dilation,) * 4,
        "groups": groups,
        "dilation": (dilation, dilation),
    }

    def convolved(v: Value, which: int) -> Value:
        return activate(ops.conv(v, *every[which], **how), section)

    return convolved(_unrolled(net, section, convolved(x, 0), lambda h: convolved(h, 1)), 2)


def _gates(
    net: Net, section: Section, width: int, out: int, ours: str
) -> tuple[Array, Array, Array]:
    """Matrices of inputs and of states in the gate order `ours`, and their biases concatenated."""
    found = {}
    for name in FILES[section.name, net.weights.revision == PJREDDIE].split():
        found[name] = dense_weights(net, section, width if name[0] == "u" else out, out)
    u, w = (np.concatenate([found[g + k][0] for k in ours]) for g in "uw")
    bias = np.concatenate([found[g + k][1] for g in "uw" for k in ours])
    return u[None], w[None], bias[None]


@layer("lstm")
def lstm(net: Net, section: Section, x: Value) -> Value:
    out, x = _units(section), _rows(x)
    u, w, bias = _gates(net, section, x.shape[1], out, "iofg")
    states = [net.initial_state(section, k, (1, 1, out)) for k in "hc"]
    steps = ops.reshape(x, shape=(x.shape[0], 1, x.shape[1]))
    y, h, c = ops.lstm(steps, u, w, bias, None, *states, hidden_size=out)
    net.record_state(section, "h", h)
    net.record_state(section, "c", c)
    return ops.reshape(y, shape=(x.shape[0], out))


@layer("gru")
def gru(net: Net, section: Section, x: Value) -> Value:
    out, x = _units(section), _rows(x)
    u, w, bias = _gates(net, section, x.shape[1], out, "zrh")
    state = net.initial_state(section, "h", (1, 1, out))
    steps = ops.reshape(x, shape=(x.shape[0], 1, x.shape[1]))
    last = "Tanh" if section.whole("tanh", 0) else "Sigmoid"
    y, h = ops.gru(steps, u, w, bias, None, state, hidden_size=out, activations=("Sigmoid", last))
    net.record_state(section, "h", h)
    return ops.reshape(y, shape=(x.shape[0], out))
