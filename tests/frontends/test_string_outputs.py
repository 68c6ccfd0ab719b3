"""Strings that reach no output of numbers, such as the names of classes, do not stop the import."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.onnx_text import model as onnx_model
from tests.frontends.tf_build import GraphDef, Kind

import intaglio
from intaglio.errors import Unsupported
from intaglio.frontends.onnx import load_onnx
from intaglio.frontends.options import ImportOptions

X = np.float32([[1, -2, 3]])
LEFT_OUT = "output '.*' holds strings, which are not supported; it is left out"

LABELS = """(float[1,3] x, string[3] names) => (float[1,3] y, string[1] label) {
    y = Relu(x)
    i = ArgMax <axis = 1, keepdims = 0> (x)
    label = Gather(names, i)
}"""


def test_onnx():
    proto = onnx_model(LABELS)
    with pytest.warns(UserWarning, match=LEFT_OUT):
        graph = load_onnx(proto)
    assert [v.name for v in graph.inputs] == ["x"]
    np.testing.assert_array_equal(intaglio.interpret(graph, {"x": X})["y"], np.maximum(X, 0))
    with pytest.raises(Unsupported, match="strings"):
        load_onnx(proto, ImportOptions(outputs=["label"]))


def test_tensorflow(tmp_path: Path):
    graph = GraphDef()
    graph.placeholder("x", (1, 3))
    graph.const("names", ["cat", "dog", "bird"])
    graph.const("axis", np.int32(1))
    graph.add("i", "ArgMax", "x axis", T=Kind("float32"), output_type=Kind("int32"))
    graph.const("zero", np.int32(0))
    graph.add("label", "GatherV2", "names i zero", Tparams=Kind("string"), Tindices=Kind("int32"))
    graph.add("y", "Relu", "x", T=Kind("float32"))
    with pytest.warns(UserWarning, match=LEFT_OUT):
        made = intaglio.load(graph.save(tmp_path / "labels.pb"))
    assert made.output_names == ["y"]


def test_tflite():
    pytest.importorskip("tflite", reason="the tflite package is missing")
    from tests.frontends.tflite_build import T, model, op

    from intaglio.frontends.tflite import load_tflite

    tensors = [
        T((1, 3)),
        T((3,), strings=True),
        T((1, 3)),
        T((1,), np.int64),
        T((1,), strings=True),
    ]
    tensors.append(T(data=np.int32(1)))
    steps = [
        op("RELU", [0], [2]),
        op("ARG_MAX", [0, 5], [3], "ArgMaxOptions", OutputType=4),
        op("GATHER", [1, 3], [4], "GatherOptions", Axis=0),
    ]
    data = model(tensors, steps, [0, 1], [2, 4])
    with pytest.warns(UserWarning, match=LEFT_OUT):
        graph = load_tflite(data)
    assert ([v.name for v in graph.inputs], graph.output_names) == (["t0"], ["t2"])
    np.testing.assert_array_equal(intaglio.interpret(graph, {"t0": X})["t2"], np.maximum(X, 0))
    with pytest.raises(Unsupported, match="holds elements of string"):
        load_tflite(data, ImportOptions(outputs=["t4"]))
