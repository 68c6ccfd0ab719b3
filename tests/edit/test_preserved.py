"""What edits keep: metadata, functions, sub-graphs, external data, old and odd files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.edit.models import classifier, close, image, ops, run
from tests.frontends.onnx_text import model

import intaglio
from intaglio.errors import BadFile, BadInput

X = {"image": image()}


def test_an_edit_leaves_the_rest_of_the_file_as_it_is():
    before = onnx.shape_inference.infer_shapes(classifier())
    before.producer_name, before.doc_string, before.model_version = "torch", "mine", 7
    before.graph.doc_string = "graph"
    helper.set_model_props(before, {"labels": "a,b"})
    before.graph.node[0].doc_string = "first"
    before.graph.input[0].doc_string = "picture"
    before.opset_import.add(domain="com.microsoft", version=1)
    before.graph.quantization_annotation.add(tensor_name="c1").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="b3"
    )
    made = intaglio.edit(before).rename("c2", "second").rename("b3", "bias").to_onnx()
    (note,) = made.graph.quantization_annotation
    assert note.quant_parameter_tensor_names[0].value == "bias"
    back = intaglio.edit(made).rename("second", "c2").rename("bias", "b3").to_onnx()
    assert back == before


def test_the_original_is_not_changed():
    before = classifier()
    copy = onnx.ModelProto()
    copy.CopyFrom(before)
    intaglio.edit(before).remove("relu1").set_constant("w3", 0).change_input("image", "uint8")
    assert before == copy


def test_unused_nodes_and_constants_of_the_file_stay():
    before = model("""(float[2] x) => (float[2] y) <float spare = {1}, float read = {2}> {
        unused = Neg(x)
        a = Add(x, read)
        y = Relu(a)
    }""")
    made = intaglio.edit(before).remove("Add_1")
    assert ops(made) == ["Neg", "Relu"]
    assert [t.name for t in made.to_onnx().graph.initializer] == ["spare"]
    made = intaglio.edit(before).insert_after("y", "Neg").cut(inputs=["a"])
    assert ops(made) == ["Relu", "Neg"], "a cut removes them"


# ---- sub-graphs and functions ----
BRANCH = """(float[2] x, bool c) => (float[2] y) {
    t = Neg(x)
    y = If(c) <
        then_branch = one () => (float[2] a) { a = Relu(t) },
        else_branch = two () => (float[2] b) { u = Neg(t) b = Abs(u) }
    >
}"""


def test_readers_inside_of_sub_graphs_are_edited():
    before = model(BRANCH)
    x = np.float32([-1, 2])
    for yes, want in ((True, [1, 0]), (False, [1, 2])):
        made = intaglio.edit(before).rename("t", "negated").rename("x", "given")
        close(run(made, {"given": x, "c": np.array(yes)})["y"], np.float32(want))
    made = intaglio.edit(before).insert_after("t", "Mul(3)")
    close(run(made, {"x": x, "c": np.array(True)})["y"], np.float32([3, 0]))
    made = intaglio.edit(before).remove("Neg_0").change_input("x", "float16")
    close(run(made, {"x": x.astype(np.float16), "c": np.array(True)})["y"], np.float32([0, 2]))
    assert made.check().ran


def test_names_inside_of_sub_graphs_hide_outer_ones():
    before = model(BRANCH.replace("u = Neg(t) b = Abs(u)", "t2 = Neg(t) b = Abs(t2)"))
    with pytest.raises(BadInput, match="'t2' exists already"):
        intaglio.edit(before).rename("t", "t2")
    with pytest.raises(BadInput, match="tensor 't2' is inside of a sub-graph of If 'If_1'"):
        intaglio.edit(before).insert_after("t2", "Relu")
    with pytest.raises(BadInput, match="node 't2' is inside of a sub-graph of If 'If_1'"):
        intaglio.edit(before).remove("t2")


def test_a_cut_keeps_what_sub_graphs_read():
    made = intaglio.edit(model(BRANCH)).cut(inputs=["t", "c"])
    assert ops(made) == ["If"]
    close(run(made, {"t": np.float32([1, -2]), "c": np.array(True)})["y"], np.float32([1, 0]))
    assert made.check().ok


def test_functions_stay():
    before = model(
        "(float[2] x) => (float[2] y) { a = own.Twice(x)  y = Relu(a) }",
        functions='<domain: "own", opset_import: ["": 18]> Twice (a) => (b) { b = Add(a, a) }',
        more=', "own": 1',
    )
    made = intaglio.edit(before).change_input("x", "a->1,a").insert_after("a", "Neg")
    assert made.to_onnx().functions == before.functions
    close(run(made, {"x": np.float32([[-1, 2]])})["y"], np.float32([2, 0]))


# ---- files ----
def external(folder: Path) -> Path:
    """A model whose weights are in another file."""
    path = folder / "model.onnx"
    onnx.save(
        classifier(), path, save_as_external_data=True, location="weights.bin", size_threshold=64
    )
    return path


def test_external_data_is_copied_beside_the_edited_model(tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    source = external(tmp_path / "in")
    made = intaglio.edit(source).cut(outputs=["c2"]).change_input("image", "NHWC")
    assert made.check().outputs[0].difference == 0
    out = tmp_path / "out" / "edited.onnx"
    made.save(out)
    assert sorted(p.name for p in out.parent.iterdir()) == ["edited.onnx", "edited.onnx.data"]
    found = run(str(out), {"image": X["image"].transpose(0, 2, 3, 1)})
    want = run(intaglio.edit(classifier()).cut(outputs=["c2"]), X)
    close(found["c2"], want["c2"])
    stored = onnx.load(out, load_external_data=False).graph.initializer
    assert {e.value for t in stored for e in t.external_data if e.key == "location"} == {
        "edited.onnx.data"
    }
    size = (tmp_path / "out" / "edited.onnx.data").stat().st_size
    assert size < 4096 * 2 + 4 * 4 * 9 * 4, "w3 is no part of it"
    close(run(made.to_onnx(), {"image": X["image"].transpose(0, 2, 3, 1)})["c2"], want["c2"])


def test_external_data_of_the_original_is_not_overwritten(tmp_path: Path):
    source = tmp_path / "model.onnx"
    onnx.save(
        classifier(), source, save_as_external_data=True, location="e.onnx.data", size_threshold=64
    )
    with pytest.raises(BadInput, match=r"its data would go to 'e.onnx.data', which the original"):
        intaglio.edit(source).remove("dropout").save(tmp_path / "e.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["e.onnx.data", "model.onnx"]
    (tmp_path / "e.onnx.data").unlink()
    with pytest.raises(BadFile, match="needs the external file"):
        intaglio.edit(source).remove("dropout").save(tmp_path / "f.onnx", check=False)


def test_the_original_is_never_overwritten(tmp_path: Path):
    source = tmp_path / "model.onnx"
    onnx.save(classifier(), source)
    link = tmp_path / "link.onnx"
    link.symlink_to(source)
    for path in (source, link, tmp_path / "." / "model.onnx"):
        with pytest.raises(BadInput, match="it is the original model; give another name"):
            intaglio.edit(source).remove("relu1").save(path)
    with pytest.raises(BadInput, match=r"give a name that ends in \.onnx"):
        intaglio.edit(source).remove("relu1").save(tmp_path / "a.itg")
    with pytest.raises(BadInput, match="there is no folder"):
        intaglio.edit(source).remove("relu1").save(tmp_path / "no" / "a.onnx")
    assert onnx.load(source) == classifier()


def test_large_files_keep_their_weights(tmp_path: Path):
    """Weights of files from 4 MiB on are mapped by the importer."""
    weights = np.random.default_rng(0).normal(size=(1200, 1000)).astype(np.float32)
    before = model("(float[1,1200] x) => (float[1,1000] y) { m = MatMul(x, w)  y = Relu(m) }")
    before.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(before, tmp_path / "model.onnx")
    made = intaglio.edit(tmp_path / "model.onnx").remove("y")
    x = np.ones((1, 1200), np.float32)
    np.testing.assert_allclose(run(made, {"x": x})["y"], x @ weights, 1e-3, 1e-3)


def test_old_files_list_initialisers_among_the_inputs():
    before = classifier()
    before.ir_version = 3
    for t in before.graph.initializer:
        before.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    before.opset_import[0].version = 8
    made = intaglio.edit(before).insert_after("c1", "Mul(2)").remove("add", keep="r1")
    listed = {i.name for i in made.to_onnx().graph.input}
    assert listed == {"image", "w1", "w3", "b3", "c1_Mul_B"}
    onnx.checker.check_model(made.to_onnx())
    session = onnxruntime.InferenceSession(made.to_onnx().SerializeToString())
    assert session.run(None, X)[0].shape == (1, 5)
    assert intaglio.edit(before).cut(inputs=["c1"]).check().ok


def test_sparse_initialisers_stay_while_they_are_read():
    dense = model("(float[2,2] x) => (float[2,2] y) { m = MatMul(x, w)  y = Relu(m) }")
    values = numpy_helper.from_array(np.float32([5]), "w")
    at = numpy_helper.from_array(np.int64([3]), "")
    dense.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [2, 2]))
    made = intaglio.edit(dense).rename("w", "weights").insert_after("m", "Neg")
    assert made.to_onnx().graph.sparse_initializer[0].values.name == "weights"
    assert made.check().ran
    assert not intaglio.edit(dense).remove("m", keep="x").to_onnx().graph.sparse_initializer
    with pytest.raises(BadInput, match="is a sparse constant"):
        intaglio.edit(dense).set_constant("w", 0)


def test_nodes_in_any_order_and_unknown_operators():
    """Files that onnx's checker refuses can still be edited."""
    before = classifier()
    nodes = list(before.graph.node)[::-1]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del before.graph.node[:]
    before.graph.node.extend(copies)
    made = intaglio.edit(before).insert_after("c1", "Relu")
    close(run(made, X)["scores"], run(classifier(), X)["scores"])
    unknown = helper.make_node("Fancy", ["x"], ["t"], "fancy", domain="my.ops")
    relu = helper.make_node("Relu", ["t"], ["y"], "relu")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    inner = helper.make_tensor_value_info("t", TensorProto.FLOAT, [2])
    graph = helper.make_graph([unknown, relu], "g", ends[:1], ends[1:], value_info=[inner])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    odd = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    made = intaglio.edit(odd).insert_after("t", "Add", 1.0).add_output("t")
    check = made.check()
    assert not check.ran
    assert "my.ops.Fancy" in str(check)
    assert made.to_onnx().graph.output[1].type == inner.type
    assert intaglio.edit(odd).cut(inputs=["t"]).check().ok


# ---- other formats and sources ----
def test_bytes_graphs_and_other_formats(tmp_path: Path):
    before = classifier()
    assert ops(intaglio.edit(before.SerializeToString())) == [n.op_type for n in before.graph.node]
    made = intaglio.edit(intaglio.load(before)).change_input("image", "NHWC")
    assert made.source.format == "Graph"
    assert made.check().ok
    from tests.frontends.tf_build import GraphDef, Kind

    frozen = GraphDef()
    frozen.placeholder("x", (1, 4))
    frozen.add("y", "Relu", "x", T=Kind("float32"))
    frozen.save(tmp_path / "frozen.pb")
    made = intaglio.edit(tmp_path / "frozen.pb").change_input("x", "a,b->b,a")
    assert made.source.format == "TensorFlow"
    made.save(tmp_path / "y.onnx")
    close(
        run(str(tmp_path / "y.onnx"), {"x": np.ones((4, 1), np.float32)})["y"],
        np.ones((1, 4), np.float32),
    )


def test_what_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(BadFile, match="is empty"):
        intaglio.edit(tmp_path / "empty.onnx")
    with pytest.raises(BadFile, match="no such file"):
        intaglio.edit(tmp_path / "none.onnx")
    with pytest.raises(BadInput, match="the model is 3"):
        intaglio.edit(3)
