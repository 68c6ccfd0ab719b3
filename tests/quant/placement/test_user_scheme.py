"""A user's scheme is followed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.quant.test_pipeline import SAMPLES, net

import intaglio
from intaglio.errors import BadInput
from intaglio.ir import Graph
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.scheme import Override, Scheme, TensorScheme
from intaglio.quant.result import Quantized


def quantized(scheme: Scheme | str | Path | None = None) -> Quantized:
    return calibrate(net(), SAMPLES, scheme=scheme, warn=lambda words: pytest.fail(words))


def parameters(graph: Graph, name: str) -> tuple[str, float, int]:
    """Type, scale and zero point from which the tensor of that name is dequantised."""
    (node,) = [n for n in graph.nodes() if n.outputs[0].name == name]
    assert node.op == "dequantize_linear"
    stored, scale, zero = node.inputs
    return stored.dtype, float(scale.data), int(zero.data)  # type: ignore[union-attr, arg-type]


def test_an_exported_scheme_reproduces_the_model(tmp_path: Path):
    made = quantized()
    made.scheme.save(tmp_path / "scheme.yaml")
    again = quantized(Scheme.load(tmp_path / "scheme.yaml", strict=True))
    assert str(again.graph) == str(made.graph)
    assert again.scheme.tensors == made.scheme.tensors
    constants = [
        [v.data for v in g.values() if v.data is not None] for g in (made.graph, again.graph)
    ]
    for a, b in zip(*constants, strict=True):
        np.testing.assert_array_equal(a, b)


def test_layers_by_op_are_left_in_floats():
    made = quantized(Scheme(rules=[Override("f32", op="gemm")]))
    gemm = next(n for n in made.float_graph.nodes() if n.op == "matmul").outputs[0].name
    assert made.floats == {gemm: "f32 was asked for"}
    assert made.scheme.layers[gemm] == "f32"
    assert set(made.scheme.layers.values()) == {"int8", "f32"}


def test_a_tensor_follows_the_scheme(tmp_path: Path):
    path = tmp_path / "scheme.yaml"
    path.write_text("tensors: {x: {type: u8, range: [0, 2.55]}}")
    dtype, scale, zero = parameters(quantized(path).graph, "x_dequantized")
    assert (dtype, zero) == ("u8", 0)
    assert scale == pytest.approx(0.01)


def test_a_tensor_can_stay_in_floats():
    made = quantized(Scheme({"x": TensorScheme("f32")}))
    (x,) = made.graph.inputs
    assert [n.op for n in x.uses] == ["conv"]
    assert made.scheme.tensors["x"] == TensorScheme("f32")


def test_weights_follow_the_scheme():
    names = quantized().scheme.tensors
    weights = next(n for n, t in names.items() if t.axis is not None)
    whole = TensorScheme("i8", (0.5,), (0,))
    node = next(
        n for n in quantized(Scheme({weights: whole})).graph.nodes() if n.outputs[0].name == weights
    )
    assert node.inputs[1].data == np.float32(0.5)  # type: ignore[union-attr]
    made = quantized(Scheme({weights: TensorScheme("f32")}))
    assert list(made.floats.values()) == ["f32 was asked for"]


def test_unknown_names_are_reported(tmp_path: Path):
    path = tmp_path / "scheme.yaml"
    path.write_text("layers: {nothing: f32}")
    with pytest.warns(UserWarning, match="no layer is called 'nothing'"):
        intaglio.quantize(net(), SAMPLES, scheme=path)
    with pytest.raises(BadInput, match="no layer is called 'nothing'"):
        intaglio.quantize(net(), SAMPLES, scheme=Scheme.load(path, strict=True))


def test_wider_integers():
    scheme = quantized(Scheme(rules=[Override("int16", op="conv")])).scheme
    assert {"int16", "int8"} == set(scheme.layers.values())
    assert scheme.tensors["x"].dtype == "i16"
