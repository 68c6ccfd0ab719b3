"""Custom operators in quantised models, and beside an NPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.custom.models import model, node

import intaglio
from intaglio import custom

RNG = np.random.default_rng(0)
W = [RNG.standard_normal(s).astype(np.float32) * 0.2 for s in ((8, 3, 3, 3), (8, 8, 3, 3))]


def network(op: str) -> object:
    """Two convolutions with a custom operator between them."""
    nodes = [
        node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        node(op, ["a"], ["b"]),
        node("Conv", ["b", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    return model(nodes, {"x": (1, 3, 16, 16)}, ["y"], {"w0": W[0], "w1": W[1]})


def quantized(op: str) -> tuple[list[str], float]:
    """The steps of an int8 package, and its largest error as a share of the largest value."""
    graph = intaglio.load(network(op))
    data = {"x": RNG.standard_normal((8, 1, 3, 16, 16)).astype(np.float32)}
    package = intaglio.compile(intaglio.quantize(graph, data=data, accuracy=None))
    x = data["x"][0]
    want = intaglio.interpret(graph, {"x": x})["y"]
    got = intaglio.open(package).run({"x": x})["y"]
    return [s.op for s in package.plan.steps], float(np.abs(got - want).max() / np.abs(want).max())


def test_by_default_it_computes_in_floats():
    @custom.register
    class Swap:
        name = "sample.swap"

        def shape(self, x):
            assert x.dtype == "f32"
            return x.shape

        def compute(self, x):
            return x[:, ::-1]

    steps, error = quantized("sample::swap")
    at = steps.index("python.sample.swap")
    assert steps[at + 1] == "quantize_linear"
    assert error < 0.05


def test_one_that_selects_values_runs_on_integers():
    seen = []

    @custom.register
    class Swap:
        name = "sample.swap"
        quantize = "like input"

        def shape(self, x):
            return x

        def compute(self, x):
            seen.append(x.dtype)
            return x[:, ::-1]

    steps, error = quantized("sample::swap")
    assert steps[steps.index("python.sample.swap") + 1] != "quantize_linear"
    assert seen[-1] in (np.int8, np.uint8)
    assert error < 0.05


def test_an_elementwise_function_becomes_a_table():
    @custom.register
    class Bend:
        name = "sample.bend"
        elementwise = True

        def compute(self, x):
            return np.sign(x) * np.sqrt(np.abs(x))

    steps, error = quantized("sample::bend")
    assert "python.sample.bend" not in steps
    assert error < 0.1


@pytest.mark.parametrize("elementwise", [False, True])
def test_beside_an_npu_it_runs_on_the_cpu(elementwise):
    def compute(self, x):
        return np.abs(x)

    parts = {"name": "sample.abs", "elementwise": elementwise, "compute": compute}
    custom.register(type("Abs", (), {**parts, "shape": lambda self, x: x.shape}))
    package = intaglio.compile(network("sample::abs"), target="rk3588")
    (row,) = [r for r in package.meta["partition"]["on_cpu"] if r["op"] == "sample.abs"]
    assert row["why"] == "it is a custom operator, which has kernels for CPUs only"
    assert row["remedy"] == ""
    x = RNG.standard_normal((1, 3, 16, 16)).astype(np.float32)
    want = intaglio.interpret(intaglio.load(network("sample::abs")), {"x": x})["y"]
    np.testing.assert_allclose(
        intaglio.open(package).run({"x": x})["y"], want, rtol=1e-3, atol=1e-3
    )
