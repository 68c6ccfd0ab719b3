"""Twins: parity with the interpreter and with native sessions, gradients, bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compress.small_nets import NETS, build, pictures, samples, with_softmax

import intaglio
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph

torch = pytest.importorskip("torch", reason="needs torch: pip install .[train]")

from intaglio.compress.qat import inner, quantized_twin  # noqa: E402
from intaglio.compress.twin import Twin, differences, on_chip, verify  # noqa: E402
from intaglio.compress.twin.rounding import METHODS  # noqa: E402
from intaglio.compress.twin.write_back import to_graph  # noqa: E402
from intaglio.quant.prepare import prepare  # noqa: E402

torch.set_num_threads(1)


def stepped(twin: Twin, steps: int = 3) -> Twin:
    """Trained a little, so that every parameter differs from where it began."""
    twin.train()
    optimizer = torch.optim.SGD(twin.parameter_groups(0.02), momentum=0.9)
    for i in range(steps):
        x = torch.from_numpy(pictures(8, i))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(twin.scores(x).flatten(1), torch.arange(8)).backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 1.0)
        optimizer.step()
        twin.constrain()
    return twin


def native(graph: Graph, feeds: dict) -> dict:
    with intaglio.open(intaglio.compile(graph)) as session:
        return session.run(feeds)


@pytest.mark.parametrize("name", NETS)
def test_a_float_twin_computes_the_graph(name: str):
    graph = prepare(build(name))
    twin = Twin(graph).eval()
    x = pictures(3)
    with torch.enable_grad():
        made = twin(torch.from_numpy(x)).detach().numpy()
    want = np.concatenate([intaglio.interpret(graph, {"input": p[None]})["logits"] for p in x])
    assert np.allclose(made, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("weights", "activations"), [(8, 8), (4, 8), (4, 4), (2, 2)])
def test_trained_is_deployed(name: str, weights: int, activations: int):
    graph = with_softmax(build(name))
    twin = quantized_twin(graph, samples(8), weights=weights, activations=activations, fast=True)
    start = to_graph(twin)
    assert differences(twin, start, samples(2, 5)) == {"scores": 0}
    result = to_graph(stepped(twin))
    feeds = samples(2, 7)
    assert verify(twin, result, feeds) > 0
    for one in feeds:
        want = intaglio.interpret(result, one)["scores"]
        assert np.allclose(native(result, one)["scores"], want, atol=1e-6)
        assert not np.array_equal(intaglio.interpret(start, one)["scores"], want)


def test_native_sessions_have_the_same_integers():
    twin = stepped(quantized_twin(build("residual"), samples(8), weights=4, fast=True))
    graph = to_graph(twin)
    kept: dict[str, np.ndarray] = {}
    one = samples(1, 4)[0]
    intaglio.interpret(graph, one, kept)
    integers = [v for v in graph.values() if v.producer and v.dtype == "i8" and v.name in kept]
    cut = Graph(graph.inputs, integers, [v.name for v in integers])
    for name, array in native(cut, one).items():
        assert array.tobytes() == kept[name].tobytes(), name
    assert len(integers) > 4


@pytest.mark.parametrize("method", METHODS)
def test_methods(method: str):
    twin = quantized_twin(
        build("residual"), samples(8), weights=4, activations=4, method=method, fast=True
    )
    scales = [float(r.scale) for r in inner(twin)]
    graph = to_graph(stepped(twin))
    assert verify(twin, graph, samples(1, 3)) > 0
    assert [float(r.scale) for r in inner(twin)] != scales


def test_bits_bound_the_stored_integers():
    twin = quantized_twin(build("residual"), samples(8), weights=4, activations=4, fast=True)
    graph = to_graph(twin)
    kept: dict[str, np.ndarray] = {}
    intaglio.interpret(graph, samples(1)[0], kept)
    layers = [n for n in graph.nodes() if n.op == "qlinear_conv"]
    for n in layers[1:-1]:
        assert len(np.unique(n.inputs[3].data)) <= 16
    narrow = [n.outputs[0].name for n in graph.nodes() if n.op == "clip"]
    clipped = {n.inputs[0].producer for n in graph.nodes() if n.op == "clip"}
    assert len(narrow) >= len(inner(twin)) - 1 > 2
    assert all(n.attrs["hi"] - n.attrs["lo"] <= 15 for n in graph.nodes() if n.op == "clip")
    assert clipped


def test_ternary_weights_are_deployed_as_three_values():
    twin = quantized_twin(build("residual"), samples(8), weights="ternary", fast=True)
    graph = to_graph(stepped(twin))
    assert verify(twin, graph, samples(1, 3)) > 0
    layers = [n.inputs[3].data for n in graph.nodes() if n.op == "qlinear_conv"]
    assert all(set(np.unique(w)) <= {-1, 0, 1} for w in layers[1:-1])
    assert len(layers) > 3


def test_learned_scales_have_the_gradients_of_lsq():
    from intaglio.compress.twin.rounding import Rounding

    r = Rounding(0.5, 0, (-8, 7), "lsq", True, "x")
    x = torch.tensor([0.3, 1.1, 10.0, -10.0], requires_grad=True)
    y = r(x / r.scale) * r.scale
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 0, 0]
    v = np.array([0.3, 1.1]) / 0.5
    inside = (np.round(v) - v).sum()
    assert float(r.ratio.grad) == pytest.approx(0.5 * (inside + 7 - 8), abs=1e-5)


def test_zeros_stay_zeros():
    from intaglio.compress import sparsify

    twin = quantized_twin(sparsify(build("residual"), "2:4 in").graph, samples(8), fast=True)
    twin.hold_zeros()
    graph = to_graph(stepped(twin))
    weights = [n.inputs[3].data for n in graph.nodes() if n.op == "qlinear_conv"]
    sparse = [w for w in weights if w.ndim == 4 and w.shape[1] % 4 == 0]
    assert sparse
    for w in sparse:
        lines = np.moveaxis(w, 1, -1).reshape(-1, 4)
        assert np.count_nonzero(lines, axis=1).max() <= 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weights": 9}, "weights is 9; give a number of bits from 2 to 8"),
        ({"method": "lsq2"}, "method is 'lsq2'; known are lsq, lsq+, pact, minmax"),
        ({"weights": 4, "target": "k210"}, "k210 has no products of fewer than 8 bits"),
    ],
)
def test_mistakes_are_one_line(options: dict, words: str):
    with pytest.raises(BadInput) as e:
        quantized_twin(build("residual"), samples(4), fast=True, **options)
    assert words in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("name", NETS)
def test_chips_that_round_in_their_own_way_are_evaluated_by_their_simulator(name: str):
    twin = quantized_twin(with_softmax(build(name)), samples(8), target="cv181x", fast=True)
    for _ in range(2):  # a package of weights that have changed is compiled anew
        graph = to_graph(stepped(twin, 1))
        x = pictures(3, 5)
        with torch.no_grad():
            mine = twin.eval()(torch.from_numpy(x)).numpy()
        with intaglio.open(intaglio.compile(graph.copy(), target="cv181x")) as session:
            theirs = np.concatenate([session.run({"input": p[None]})["scores"] for p in x])
        assert mine.tobytes() == theirs.tobytes()
        assert verify(twin, graph, samples(2, 5)) > 0


def test_a_twin_that_differs_from_the_chip_is_refused(monkeypatch: pytest.MonkeyPatch):
    twin = quantized_twin(build("plain"), samples(8), target="cv181x", fast=True)
    monkeypatch.setattr(on_chip, "meaning", lambda graph, _: graph)  # the arithmetic of CPUs
    with pytest.raises(RunError, match="the commands for cv181x differ"):
        verify(twin, to_graph(stepped(twin)), samples(16, 5))
