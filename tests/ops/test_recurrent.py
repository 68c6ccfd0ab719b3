from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.body import FLOATS, close, run

from intaglio.errors import BadInput, RunError
from intaglio.ir import Type, Value
from intaglio.ops.registry import REGISTRY

R = np.random.default_rng(5)
T, B, WIDTH, H = 4, 3, 2, 5
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def layer(op: str, d: int = 1, layout: int = 0, dtype: Any = np.float32) -> list[Any]:
    g = GATES[op] * H
    shapes = [(T, B, WIDTH), (d, g, WIDTH), (d, g, H), (d, 2 * g), None, (d, B, H)]
    shapes += [(d, B, H), (d, 3 * H)] if op == "lstm" else []
    arrays = [None if s is None else R.standard_normal(s).astype(dtype) for s in shapes]
    if layout:
        for i in (0, 5, 6):
            if i < len(arrays):
                arrays[i] = arrays[i].swapaxes(0, 1)
    return arrays


def functions(op: str, d: int) -> dict[str, Any]:
    names = {"rnn": ("Tanh",), "gru": ("Sigmoid", "Tanh"), "lstm": ("Sigmoid", "Tanh", "Tanh")}[op]
    zeros = (0.0,) * (len(names) * d)
    return {"activations": names * d, "activation_alpha": zeros, "activation_beta": zeros}


@pytest.mark.parametrize("op", GATES)
def test_both_directions_are_two_layers(op: str) -> None:
    x, w, r, b, _, *states = layer(op, 2)
    how = {"hidden_size": H, "declines": True, **functions(op, 2)}
    y, *last = run(op, x, w, r, b, None, *states, direction="bidirectional", **how)
    for d, direction in enumerate(("forward", "reverse")):
        half = [s[d : d + 1] for s in (w, r, b)]
        rest = [s[d : d + 1] for s in states]
        attrs = {"hidden_size": H, "direction": direction}
        z, *end = run(op, x, *half, None, *rest, declines=True, **attrs)
        close(y[:, d : d + 1], z)
        for both, one in zip(last, end, strict=True):
            close(both[d : d + 1], one)


@pytest.mark.parametrize("op", GATES)
def test_short_sequences(op: str) -> None:
    """A sequence that ends early gives what it would give alone, then zeros."""
    x, w, r, b, _, *states = layer(op)
    lens = np.array([4, 2, 0], np.int32)
    for direction in ("forward", "reverse"):
        how = {"hidden_size": H, "direction": direction, "declines": True}
        y, *last = run(op, x, w, r, b, lens, *states, **how)
        alone = run(op, x[:2], w, r, b, None, *states, **how)
        close(y[:2, :, 1], alone[0][:, :, 1])
        assert not y[2:, :, 1].any()
        close(last[0][:, 1], alone[1][:, 1])
        close(last[0][:, 2], states[0][:, 2])
    with pytest.raises(RunError, match=r"must lie in \[0, 4\]"):
        run(op, x, w, r, b, lens + 1, *states, hidden_size=H)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_first_lowers(op: str, dtype: Any) -> None:
    run(op, *layer(op, layout=1, dtype=dtype), hidden_size=H, layout=1, tolerance=FLOATS[dtype])


def test_lstm_by_hand() -> None:
    one = np.ones((1, 1, 1), np.float32)
    w = np.array([[[1], [2], [3], [4]]], np.float32)
    r = np.zeros((1, 4, 1), np.float32)
    y, h, c = run("lstm", one, w, r, None, None, one, one, hidden_size=1, declines=True)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    cell = sigmoid(3) + sigmoid(1) * np.tanh(4)
    close(c.item(), cell)
    close(h.item(), sigmoid(2) * np.tanh(cell))
    close(y, h[None])


def test_macs() -> None:
    values = [None if a is None else Value(Type("f32", a.shape)) for a in layer("gru", 2)]
    how = {"hidden_size": H, "direction": "bidirectional", **functions("gru", 2)}
    op = REGISTRY["gru"]
    assert op.macs(op.node(*values, **how)) == T * B * 2 * 3 * H * (WIDTH + H)


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"hidden_size": 4}, "w is f32[1x5x2], its shape must be (1, 4, 2)"),
        ({"activations": ("Gelu",)}, "activation 'Gelu' is none of"),
        ({"direction": "backward"}, "direction 'backward'"),
        ({"activations": ("Tanh", "Tanh")}, "1 of each"),
    ],
)
def test_refusals(attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as e:
        run("rnn", *layer("rnn"), **{"hidden_size": H, **attrs})
    assert words in str(e.value)
