"""Custom operators in model files: ONNX, TFLite, TorchScript; and back to ONNX."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.custom.models import SoftClip, clipped, model, node

import intaglio
from intaglio import custom
from intaglio.interpret import interpret

X = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)


def clip(x: np.ndarray, limit: float = 1.0) -> np.ndarray:
    return SoftClip().compute(x, limit=limit)


# ---- ONNX ----------------------------------------------------------------------------------------
def test_a_class_is_preferred_to_a_function_of_the_model():
    """The user says what an operator is; without a class the model's function does."""
    made = clipped()
    body = [node("Abs", ["v"], ["w"])]
    function = helper.make_function(
        "sample.ops", "SoftClip", ["v"], ["w"], body, [helper.make_opsetid("", 17)]
    )
    made.functions.append(function)
    np.testing.assert_array_equal(interpret(intaglio.load(made), {"x": X})["y"], -np.maximum(X, 0))
    custom.register(SoftClip)
    got = interpret(intaglio.load(made), {"x": X})["y"]
    np.testing.assert_array_equal(got, -clip(np.maximum(X, 0)))


def test_an_operator_of_onnx_itself_may_be_replaced():
    @custom.register
    class Bernoulli:
        name = "acme.bernoulli"
        onnx = "Bernoulli"

        def shape(self, x, *, seed=0.0):
            return x.shape

        def compute(self, x, *, seed=0.0):
            return (np.random.default_rng(int(seed)).random(x.shape) < x).astype(x.dtype)

    graph = intaglio.load(model([node("Bernoulli", ["x"], ["y"], seed=3.0)], {"x": (2, 8)}, ["y"]))
    got = interpret(graph, {"x": X})["y"]
    assert set(got.ravel()) == {0, 1}
    assert intaglio.to_onnx(graph).graph.node[0].domain == ""


def test_the_export_keeps_domain_and_attributes():
    @custom.register
    class Boxes:
        name = "acme.boxes"

        def shape(self, x, *, anchors=(), axes=(), mode="a", limit=1.0, flag=False):
            return x.shape

        def compute(self, x, *, anchors=(), axes=(), mode="a", limit=1.0, flag=False):
            return x * np.float32(limit) + np.float32(np.sum(anchors) + len(axes) + flag)

    table = helper.make_tensor("t", 1, (2, 2), [1, 2, 3, 4])
    made = node("acme::boxes", ["x"], ["y"], anchors=table, axes=[1, 2], limit=2.0, flag=1)
    graph = intaglio.load(model([made], {"x": (2, 8)}, ["y"]))
    written = intaglio.to_onnx(graph)
    (n,) = written.graph.node
    assert (n.domain, n.op_type, n.name) == ("acme", "boxes", "y")
    assert {(o.domain, o.version) for o in written.opset_import} >= {("acme", 1)}
    again = intaglio.load(written)
    assert [n.attrs for n in again.nodes()] == [n.attrs for n in graph.nodes()]
    np.testing.assert_array_equal(interpret(again, {"x": X})["y"], X * 2 + 10 + 2 + 1)


def test_the_optimiser_leaves_it_alone_and_removes_duplicates():
    custom.register(SoftClip)
    nodes = [
        node("sample.ops::SoftClip", ["x"], ["a"], limit=2.0),
        node("sample.ops::SoftClip", ["x"], ["b"], limit=2.0),
        node("sample.ops::SoftClip", ["x"], ["unused"], limit=3.0),
        node("Add", ["a", "b"], ["y"]),
    ]
    graph = intaglio.optimize(intaglio.load(model(nodes, {"x": (2, 8)}, ["y"])))
    assert [n.op for n in graph.nodes()].count("sample.soft_clip") == 1
    np.testing.assert_allclose(interpret(graph, {"x": X})["y"], 2 * clip(X, 2.0), rtol=1e-6)


def test_open_dimensions_are_kept_in_an_optimised_model(tmp_path):
    """`optimize` writes models with open dimensions by importing them at several sizes."""
    from intaglio.cli import main

    custom.register(SoftClip)
    onnx.save(clipped(("n", 8), limit=2.0), tmp_path / "a.onnx")
    main(["optimize", str(tmp_path / "a.onnx"), "-o", str(tmp_path / "b.onnx")])
    written = onnx.load(tmp_path / "b.onnx")
    assert "SoftClip" in [n.op_type for n in written.graph.node]
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)
        graph = intaglio.load(written, dims={"n": rows})
        np.testing.assert_allclose(
            interpret(graph, {"x": x})["y"], -clip(np.maximum(x, 0), 2.0), rtol=1e-6
        )


# ---- TFLite --------------------------------------------------------------------------------------
def test_tflite(tmp_path):
    pytest.importorskip("tflite", reason="the tflite package is missing")
    from flatbuffers import flexbuffers
    from tests.frontends import tflite_build as build

    custom.register(SoftClip)
    options = bytes(flexbuffers.Dumps({"limit": 2.0}))
    for given, limit in ((options, 2.0), (b"", 1.0)):
        step = build.Op("SoftClip", [0], [1], custom=given)
        data = build.model([build.T((2, 8)), build.T((2, 8))], [step], [0], [1])
        (tmp_path / "a.tflite").write_bytes(data)
        graph = intaglio.load(tmp_path / "a.tflite")
        (got,) = interpret(graph, {graph.inputs[0].name: X}).values()
        np.testing.assert_array_equal(got, clip(X, limit))
    bad = build.Op("SoftClip", [0], [1], custom=bytes(flexbuffers.Dumps({"least": 2.0})))
    data = build.model([build.T((2, 8)), build.T((2, 8))], [bad], [0], [1])
    (tmp_path / "a.tflite").write_bytes(data)
    with pytest.raises(intaglio.BadInput, match="'least' is no parameter of custom operator"):
        intaglio.load(tmp_path / "a.tflite")
    custom.unregister("sample.soft_clip")
    with pytest.raises(intaglio.Unsupported, match='register a class with tflite = "SoftClip"'):
        intaglio.load(tmp_path / "a.tflite")


# ---- PyTorch -------------------------------------------------------------------------------------
SCRIPT = """class Net(Module):
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    a = ops.sample.soft_clip(x, 2.)
    b = ops.sample.soft_clip(a, limit=0.5)
    return torch.neg(ops.sample.soft_clip(b))
"""


def test_torch_script(tmp_path):
    from tests.frontends.torch_build import Object, script

    data = script({"__torch__": SCRIPT}, Object("__torch__.Net", {}), (), [X])
    (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(intaglio.Unsupported, match='with torch = "sample::soft_clip"'):
        intaglio.load(tmp_path / "a.pt")
    custom.register(SoftClip)
    graph = intaglio.load(tmp_path / "a.pt")
    (got,) = interpret(graph, {graph.inputs[0].name: X}).values()
    np.testing.assert_array_equal(got, -clip(clip(clip(X, 2.0), 0.5)))


def test_torch_arguments_that_do_not_fit(tmp_path):
    from tests.frontends.torch_build import Object, script

    custom.register(SoftClip)
    for call, words in (("x, 1., 2.", "has 3 arguments"), ("x, least=1.", "'least' is no param")):
        code = SCRIPT.replace("x, 2.", call)
        data = script({"__torch__": code}, Object("__torch__.Net", {}), (), [X])
        (tmp_path / "a.pt").write_bytes(data)
        with pytest.raises(intaglio.BadInput, match=rf"sample::soft_clip .*{words}"):
            intaglio.load(tmp_path / "a.pt")


def test_torch_export(tmp_path):
    from tests.frontends.torch_build import exported

    custom.register(SoftClip)
    nodes = [("torch.ops.sample.soft_clip.default", ["x", 2.0], "y")]
    (tmp_path / "a.pt2").write_bytes(exported({"x": (2, 8)}, {}, nodes, ["y"]))
    graph = intaglio.load(tmp_path / "a.pt2")
    (got,) = interpret(graph, {graph.inputs[0].name: X}).values()
    np.testing.assert_array_equal(got, clip(X, 2.0))
