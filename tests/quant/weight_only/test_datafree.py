"""Quantisation without samples: modes, groups, layers that stay in floats."""

from __future__ import annotations

import numpy as np
import pytest
from tests.quant.placement.test_place import conv, image

import intaglio
from intaglio import ops
from intaglio.analysis.quantized import facts
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.placement.scheme import Override, Scheme, TensorScheme
from intaglio.quant.weight_only.datafree import without_data

RNG = np.random.default_rng(3)


def net() -> Graph:
    x = Value(Type("f32", (4, 64)), "x")
    a, b = (constant(RNG.standard_normal((64, 64)).astype(np.float32) / 8) for _ in range(2))
    h = ops.matmul(x, a)
    h.name = "h"
    y = ops.matmul(ops.relu(h), b)
    y.name = "y"
    return Graph([x], [y])


def cosine(g: Graph, made: Graph) -> float:
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    a, b = (intaglio.interpret(m, {"x": x})["y"].ravel().astype(float) for m in (g, made))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ({"mode": "dynamic"}, 0.9995),
        ({"mode": "weights"}, 0.9999),
        ({"mode": "weights", "weights": "uint8"}, 0.9999),
        ({"mode": "weights", "weights": "int4"}, 0.99),
        ({"mode": "weights", "weights": "int4", "group": 16}, 0.992),
    ],
)
def test_outputs_stay_close(options: dict[str, object], least: float):
    g = net()
    made = intaglio.quantize(g, **options)  # type: ignore[arg-type]
    assert least < cosine(g, made) < 1


def test_four_bits_have_groups_by_default():
    def scales(**options: object) -> int:
        made = without_data(net(), "weights", weights="int4", **options)  # type: ignore[arg-type]
        node = next(n for n in made.graph.nodes() if n.op == "dequantize_linear")
        return node.inputs[1].type.size  # type: ignore[union-attr]

    assert (scales(), scales(group=64), scales(group=0)) == (2 * 64, 64, 64)


def test_weight_only_models_predict_no_speedup():
    said = facts(without_data(net(), "weights"))
    assert said["layers"] == {"int8 weights": 2}
    assert "predicted" not in said, "they compute in floats"
    assert facts(without_data(net(), "dynamic"))["predicted"] > 1


def test_layers_can_stay_in_floats():
    g = net()
    made = without_data(g, "dynamic", scheme=Scheme(rules=[Override("f32", tensor="y")]))
    assert made.scheme.layers == {"h": "int8"}
    assert made.floats == {"y": "f32 was asked for"}
    assert [n.op for n in made.graph.nodes() if n.op.endswith("matmul")] == [
        "dynamic_matmul",
        "matmul",
    ]
    with pytest.warns(UserWarning, match="for static quantisation and are ignored"):
        without_data(g, "dynamic", scheme=Scheme({"x": TensorScheme("f32")}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "guess"}, "mode is 'guess'; known are static, dynamic, weights"),
        ({"mode": "dynamic", "weights": "int4"}, "'int4'; known in mode=\"dynamic\" are int8"),
        ({"mode": "weights", "weights": "int3"}, "'int3'; known in mode=.* are int8, uint8, int4"),
        ({"mode": "dynamic", "group": 32}, 'group= has no meaning in mode="dynamic"'),
        ({"mode": "weights", "group": 3}, "a group of 3 weights"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], words: str):
    with pytest.raises(BadInput, match=words):
        intaglio.quantize(net(), **options)  # type: ignore[arg-type]


def test_nothing_to_quantise_is_refused():
    x = image()
    with pytest.raises(BadInput, match='nothing to quantise in mode="dynamic"'):
        intaglio.quantize(Graph([x], [conv(x)], ["y"]), mode="dynamic")
