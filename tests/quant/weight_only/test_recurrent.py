"""LSTMs and GRUs of calibrated models: dynamic int8 unless the outputs suffer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intaglio
from intaglio import native, ops, targets
from intaglio.cpu_isa import bits_of
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.options import Options
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.scheme import Override, Scheme
from intaglio.quant.result import Quantized
from intaglio.quant.search.output_error import Reference
from intaglio.quant.weight_only.recurrent import COARSE

RNG = np.random.default_rng(8)
SAMPLES = [{"x": RNG.standard_normal((12, 1, 20)).astype(np.float32)} for _ in range(6)]
HIDDEN = 24


def numbers(*shape: int, scale: float = 0.3) -> Value:
    return constant(
        (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(np.float32)
    )


def net(op: str = "lstm", linear: bool = True, direction: str = "forward") -> Graph:
    x = Value(Type("f32", (12, 1, 20)), "x")
    d, gates = 2 if direction == "bidirectional" else 1, 4 if op == "lstm" else 3
    functions = ("Sigmoid", "Tanh", "Tanh")[: gates - 1] * d
    more = {} if op == "lstm" else {"linear_before_reset": True}
    rows = gates * HIDDEN
    y, *_ = getattr(ops, op)(
        x,
        numbers(d, rows, 20),
        numbers(d, rows, HIDDEN),
        numbers(d, 2 * rows),
        hidden_size=HIDDEN,
        direction=direction,
        activations=functions,
        activation_alpha=(0.0,) * len(functions),
        activation_beta=(0.0,) * len(functions),
        **more,
    )
    y.name = "states"
    flat = ops.reshape(ops.transpose(y, perm=(0, 2, 1, 3)), shape=(12, d * HIDDEN))
    return Graph([x], [ops.matmul(flat, numbers(d * HIDDEN, 16)) if linear else flat], ["y"])


def cosine(made: Quantized) -> float:
    return min(m.cosine for m in Reference.of(made.float_graph, SAMPLES).compare(made.graph))


@pytest.mark.parametrize("linear", [True, False])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op", ["lstm", "gru"])
def test_recurrent_layers_become_dynamic_int8(op, direction, linear):
    made = calibrate(net(op, linear, direction), SAMPLES)
    assert f"dynamic_{op}" in {n.op for n in made.graph.nodes()}
    assert made.scheme.layers["states"] == "int8"
    assert not made.floats
    assert 0.999 < cosine(made) < 1
    assert op in {n.op for n in made.float_graph.nodes()}, "the yardstick stays as it was"


def test_a_layer_that_costs_too_much_stays_in_floats():
    made = calibrate(net(linear=False), SAMPLES, options=Options(accuracy=0.9999999))
    assert made.floats == {"states": COARSE}
    assert made.scheme.layers["states"] == "f32"
    assert {n.op for n in made.graph.nodes()} >= {"lstm"}


def test_only_the_layer_with_a_small_error_is_quantised():
    graph = net(linear=False)
    (first,) = [n for n in graph.nodes() if n.op == "lstm"]
    small = ops.mul(first.outputs[0], constant(1e-4, dtype="f32"))
    second, *_ = ops.lstm(
        ops.reshape(small, shape=(12, 1, HIDDEN)),
        numbers(1, 96, HIDDEN),
        numbers(1, 96, HIDDEN),
        None,
        hidden_size=HIDDEN,
    )
    second.name = "quiet"
    # The second layer hardly changes the output.
    whole = ops.add(first.outputs[0], ops.mul(second, constant(1e-6, dtype="f32")))
    both = Graph(graph.inputs, [whole], ["y"])
    made = calibrate(both, SAMPLES, options=Options(accuracy=0.9999999))
    assert made.scheme.layers["quiet"] == "int8"
    assert made.scheme.layers["states"] == "f32"


def test_schemes_can_keep_floats_and_round_trip(tmp_path: Path):
    made = calibrate(net(), SAMPLES, scheme=Scheme(rules=[Override("f32", op="lstm")]))
    assert "lstm" in {n.op for n in made.graph.nodes()}
    made = calibrate(net(), SAMPLES)
    made.scheme.save(tmp_path / "s.yaml")
    again = calibrate(net(), SAMPLES, scheme=tmp_path / "s.yaml", options=Options(accuracy=0.99999))
    assert again.scheme.layers["states"] == "int8", "what is asked for is done"
    assert str(again.graph) == str(made.graph)


def test_a_target_without_dynamic_int8_keeps_floats():
    chip = replace(targets.find("cpu"), dynamic=())
    made = calibrate(net(), SAMPLES, target=chip)
    assert "lstm" in {n.op for n in made.graph.nodes()}
    with pytest.raises(BadInput, match="nothing to quantise"):
        calibrate(net(linear=False), SAMPLES, target=chip)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", ["lstm", "gru"])
def test_onnx_gets_the_stored_weights(op, direction, tmp_path: Path):
    made = calibrate(net(op, direction=direction), SAMPLES)
    path = tmp_path / "q.onnx"
    intaglio.save_onnx(made.graph, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with intaglio.open(intaglio.compile(made.graph)) as ours:
        for sample in SAMPLES:
            want, got = ours.run(sample)["y"], session.run(None, sample)[0]
            assert np.abs(want - got).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize("op", ["lstm", "gru"])
def test_states_are_the_same_on_every_vector_unit(op):
    """Sums are exact integers; gates are f32, and plain C rounds their last bit differently."""
    made = calibrate(net(op, linear=False), SAMPLES)
    found = {}
    for isa in ("scalar", "avx2", "avx512", "avx512vnni"):
        if bits_of(isa) & ~native.machine():
            continue
        with intaglio.open(intaglio.compile(made.graph, isa=isa)) as session:
            found[isa] = [session.run(s)["y"] for s in SAMPLES]
    plain = found.pop("scalar")
    for others in found.values():
        for first, other, exact in zip(next(iter(found.values())), others, plain, strict=True):
            np.testing.assert_array_equal(first, other)
            np.testing.assert_allclose(other, exact, atol=1e-2)  # a state's byte may turn over
