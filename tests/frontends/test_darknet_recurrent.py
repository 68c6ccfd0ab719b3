"""Darknet's recurrent, local and cropping layers, against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported

T, D, H = 5, 3, 4
NET = f"[net]\ninputs={D}\ntime_steps={T}\n"
Numbers = list[np.ndarray]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) / 2).astype("<f4")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def leaky(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.1 * x)


def write(folder: Path, cfg: str, numbers: Numbers, revision: int = 5) -> Path:
    (folder / "net.cfg").write_text(cfg)
    head = np.array([0, 2, revision, 0, 0], "<i4").tobytes()
    (folder / "net.weights").write_bytes(
        head + b"".join(n.astype("<f4").tobytes() for n in numbers)
    )
    return folder / "net.cfg"


def run(cfg: Path, x: np.ndarray, **more: np.ndarray) -> list[np.ndarray]:
    """Outputs of the compiled model, which must equal those of the interpreter."""
    with pytest.warns(UserWarning, match="starts with zeros"):
        graph = intaglio.load(cfg)
    meant = intaglio.interpret(graph, {"data": x})
    with intaglio.open(intaglio.compile(graph)) as session:
        got = session.run({"data": x})
        for name, want in meant.items():
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-5)
    return list(meant.values())


def dense(ins: int, outs: int, seed: int) -> Numbers:
    """Bias and weights of a dense layer."""
    return [normal(outs, seed=seed), normal(outs, ins, seed=seed + 50)]


def apply(numbers: Numbers, x: np.ndarray) -> np.ndarray:
    return x @ numbers[1].T + numbers[0]


X = normal(T, D, seed=9)


@pytest.mark.parametrize(
    ("more", "act"), [("shortcut=1", leaky), ("logistic=1", sigmoid), ("", leaky)]
)
def test_rnn(tmp_path: Path, more: str, act):
    hidden = H + 1
    first, own, last = dense(D, hidden, 1), dense(hidden, hidden, 2), dense(hidden, H, 3)
    cfg = f"{NET}[rnn]\noutput={H}\nhidden={hidden}\nactivation=leaky\n{more}\n"
    (got,) = run(write(tmp_path, cfg, [*first, *own, *last]), X)
    h, want = np.zeros((1, hidden)), []
    for row in X:
        h = h * ("shortcut" in more) + leaky(apply(first, row[None])) + act(apply(own, h))
        want.append(leaky(apply(last, h)))
    np.testing.assert_allclose(got, np.concatenate(want), rtol=1e-4, atol=1e-5)


def gates(order: str) -> tuple[dict[str, Numbers], Numbers]:
    made = {k: dense(D if k[0] == "u" else H, H, i) for i, k in enumerate(sorted(order.split()))}
    return made, [n for k in order.split() for n in made[k]]


@pytest.mark.parametrize(
    ("order", "revision"), [("wi wf wo wg ui uf uo ug", 0), ("wf wi wg wo uf ui ug uo", 5)]
)
def test_lstm(tmp_path: Path, order: str, revision: int):
    g, numbers = gates(order)
    cfg = write(tmp_path, f"{NET}[lstm]\noutput={H}\n", numbers, revision)
    (got,) = run(cfg, X)
    h = c = np.zeros((1, H))
    for t, row in enumerate(X):
        f, i, o, cell = (apply(g["w" + k], h) + apply(g["u" + k], row[None]) for k in "fiog")
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(cell)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(got[t], h[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("order", "revision"), [("wz wr wh uz ur uh", 0), ("uz ur uh wz wr wh", 5)]
)
@pytest.mark.parametrize("tanh", [0, 1])
def test_gru(tmp_path: Path, order: str, revision: int, tanh: int):
    g, numbers = gates(order)
    cfg = write(tmp_path, f"{NET}[gru]\noutput={H}\ntanh={tanh}\n", numbers, revision)
    (got,) = run(cfg, X)
    h = np.zeros((1, H))
    for t, row in enumerate(X):
        z, r = (sigmoid(apply(g["u" + k], row[None]) + apply(g["w" + k], h)) for k in "zr")
        new = apply(g["uh"], row[None]) + apply(g["wh"], h * r)
        h = z * h + (1 - z) * (np.tanh(new) if tanh else sigmoid(new))
        np.testing.assert_allclose(got[t], h[0], rtol=1e-4, atol=1e-5)


def convolved(numbers: Numbers, x: np.ndarray) -> np.ndarray:
    bias, w = numbers
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w) + bias.reshape(1, -1, 1, 1)


def test_crnn(tmp_path: Path):
    def numbers(ins: int, outs: int, seed: int) -> Numbers:
        return [normal(outs, seed=seed), normal(outs, ins, 3, 3, seed=seed + 50)]

    first, own, last = numbers(2, 4, 1), numbers(4, 4, 2), numbers(4, 3, 3)
    cfg = "[net]\nwidth=5\nheight=6\nchannels=2\ntime_steps=3\n[crnn]\noutput=3\nhidden=4\n"
    cfg += "size=3\npad=1\nactivation=leaky\n"
    x = normal(3, 2, 6, 5, seed=4)
    (got,) = run(write(tmp_path, cfg, [*first, *own, *last]), x)
    h = np.zeros((1, 4, 6, 5))
    for t in range(3):
        h = leaky(convolved(first, x[t : t + 1])) + leaky(convolved(own, h))
        want = leaky(convolved(last, h))
        np.testing.assert_allclose(got[t], want[0], rtol=1e-4, atol=1e-5)


def test_norms_go_into_every_matrix(tmp_path: Path):
    def normed(ins: int, outs: int, seed: int) -> Numbers:
        rest = [normal(outs, seed=seed + k) for k in (7, 8)] + [np.abs(normal(outs, seed=seed)) + 1]
        return [*dense(ins, outs, seed), *rest]

    def norm(numbers: Numbers, x: np.ndarray) -> np.ndarray:
        bias, w, scale, mean, var = numbers
        return (x @ w.T - mean) / np.sqrt(var + 1e-5) * scale + bias

    first, own, last = normed(D, H, 1), normed(H, H, 2), normed(H, H, 3)
    cfg = f"{NET}[rnn]\noutput={H}\nactivation=tanh\nbatch_normalize=1\n"
    (got,) = run(write(tmp_path, cfg, [*first, *own, *last]), X)
    h = np.zeros((1, H))
    for t, row in enumerate(X):
        h = np.tanh(norm(first, row[None])) + np.tanh(norm(own, h))
        np.testing.assert_allclose(got[t], np.tanh(norm(last, h))[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
def test_state_is_carried_by_who_asks(tmp_path: Path, kind: str):
    """Rows one by one with carried state equal all rows at once."""
    gate = {"gru": "uz ur uh wz wr wh", "lstm": "wf wi wg wo uf ui ug uo"}
    numbers = (
        gates(gate[kind])[1]
        if kind in gate
        else [*dense(D, H, 1), *dense(H, H, 2), *dense(H, H, 3)]
    )
    cfg = write(tmp_path, f"{NET}[{kind}]\noutput={H}\n[softmax]\n", numbers)
    (want,) = run(cfg, X)
    graph = intaglio.load(cfg, state=True, shapes={"data": (1, D)})
    assert graph.output_names[1:] == [v.name for v in graph.inputs[1:]]
    assert graph.inputs[1].name == f"state.{kind}_0.h"
    assert list(graph.state) == graph.output_names[1:]
    with intaglio.open(intaglio.compile(graph)) as session:
        for _ in range(2):
            for row, each in zip(X, want, strict=True):
                made = session.run({"data": row[None]})["softmax_1"]
                np.testing.assert_allclose(made[0], each, rtol=1e-4, atol=1e-5)
            session.reset()


def test_local_and_crop(tmp_path: Path):
    cfg = "[net]\nwidth=9\nheight=8\nchannels=2\n[crop]\ncrop_width=7\ncrop_height=6\n"
    cfg += "[local]\nfilters=3\nsize=3\nstride=2\npad=1\nactivation=leaky\n"
    bias, w = normal(3, 3, 4, seed=1), normal(12, 3, 2 * 9, seed=2)
    x = normal(1, 2, 8, 9, seed=3)
    net = write(tmp_path, cfg, [bias, w])
    graph = intaglio.load(net)
    with intaglio.open(intaglio.compile(graph)) as session:
        got = next(iter(session.run({"data": x}).values()))
    wide = np.pad(x[0, :, 1:7, 1:8] * 2 - 1, ((0, 0), (1, 1), (1, 1)))
    want = np.zeros((3, 3, 4))
    for k in range(12):
        y, i = divmod(k, 4)
        want[:, y, i] = w[k] @ wide[:, 2 * y : 2 * y + 3, 2 * i : 2 * i + 3].ravel()
    np.testing.assert_allclose(got[0], leaky(want + bias), rtol=1e-4, atol=1e-5)


def test_what_is_wrong_is_named(tmp_path: Path):
    numbers = [*dense(D, H, 1), *dense(H, H, 2), *dense(H, H, 3)]
    cfg = write(tmp_path, f"{NET}[rnn]\noutput={H}\n", numbers)
    with pytest.raises(BadInput, match="steps, inputs"):
        intaglio.load(cfg, shapes={"data": (1, 3, 8, 8)})
    with pytest.raises(Unsupported, match="600 steps; at most 512"):
        intaglio.load(cfg, shapes={"data": (600, D)})
    cfg.write_text(f"{NET}[lstm]\noutput=0\n")
    with pytest.raises(BadFile, match="output=0"):
        intaglio.load(cfg)


@pytest.mark.filterwarnings("ignore:darknet")
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    rnn, lstm = f"[rnn]\noutput={H}\nactivation=leaky\n", f"[lstm]\noutput={H}\n"
    sizes = [(D, H), *[(H, H)] * 10]  # three matrices of the RNN, eight of the LSTM
    numbers = [n for i, size in enumerate(sizes) for n in dense(*size, i)]
    cfg = write(tmp_path, NET + rnn + lstm, numbers)
    intaglio.load(cfg)  # mutants of a file that does not load would test nothing
    text, random = cfg.read_bytes(), np.random.default_rng(count)
    for _ in range(count):
        bad = bytearray(text)
        for _ in range(random.integers(1, 4)):
            bad[random.integers(len(bad))] = random.choice(list(b"0123456789-=[]\nabx,"))
        cfg.write_bytes(bad)
        try:
            intaglio.load(cfg)
        except IntaglioError as e:
            assert "\n" not in str(e)  # noqa: PT017
