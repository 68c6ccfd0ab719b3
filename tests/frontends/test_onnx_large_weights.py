"""Large weights are mapped from the file; the graph equals the one that protobuf gives."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import intaglio
from intaglio.errors import BadFile
from intaglio.frontends.onnx import large_weights


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(large_weights, "LARGE_FILE", 1 << 10)


def weights(name="w", shape=(40, 40), seed=0):
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(made, name)


def model(*initializers, nodes=None):
    nodes = nodes or [helper.make_node("MatMul", ["x", "w"], ["y"], doc_string="odd" * 7)]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 40]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def saved(tmp_path, proto):
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def constants(graph):
    return {v.name: v.data for v in graph.values() if v.data is not None}


def same(path):
    """Whether the file and its bytes give one graph; the bytes are parsed by protobuf alone."""
    a, b = intaglio.load(path), intaglio.load(path.read_bytes())
    assert str(a) == str(b)
    one, other = constants(a), constants(b)
    assert one.keys() == other.keys()
    for name, data in one.items():
        assert data.flags.aligned
        np.testing.assert_array_equal(data, other[name])


def test_weights_are_those_of_the_file(tmp_path):
    path = saved(tmp_path, model(weights()))
    data, raws, size = large_weights.read(path)
    assert list(raws) == ["w"]
    assert len(raws["w"]) == 6400
    assert len(data) < 1000 < size == path.stat().st_size
    same(path)


def test_a_graph_outlives_its_file(tmp_path):
    path = saved(tmp_path, model(weights()))
    graph = intaglio.load(path)
    path.write_bytes(b"")
    x = np.ones((3, 40), np.float32)
    wanted = x @ numpy_helper.to_array(weights())
    np.testing.assert_allclose(intaglio.interpret(graph, {"x": x})["y"], wanted, rtol=1e-5)


def test_what_is_small_or_typed_stays(tmp_path):
    typed = helper.make_tensor("w", TensorProto.FLOAT, [40, 40], list(range(1600)))
    small = weights("b", (40,))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    path = saved(tmp_path, model(typed, small, nodes=nodes))
    assert not large_weights.read(path)[1]
    same(path)


def test_a_branch_has_its_own_weights_of_the_same_name(tmp_path):
    def body(seed):
        out = helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 40])
        node = helper.make_node("MatMul", ["x", "v"], ["z"])
        return helper.make_graph([node], "b", [], [out], [weights("v", seed=seed)])

    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Greater", ["most", "zero"], ["cond"]),
        helper.make_node("If", ["cond"], ["a"], then_branch=body(1), else_branch=body(2)),
        helper.make_node("MatMul", ["a", "v"], ["y"]),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    same(saved(tmp_path, model(weights("v"), zero, nodes=nodes)))


def test_damaged_files_are_refused_in_words(tmp_path):
    whole = model(weights()).SerializeToString()
    path = tmp_path / "cut.onnx"
    for cut in (len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(BadFile, match="truncated or damaged"):
            intaglio.load(path)
    short = weights()
    short.raw_data = short.raw_data[:-4]
    with pytest.raises(BadFile, match="'w' holds 6396 bytes; f32"):
        intaglio.load(saved(tmp_path, model(short)))


def test_two_of_one_name_are_refused(tmp_path):
    with pytest.raises(intaglio.BadInput, match="two initialisers are called 'w'"):
        intaglio.load(saved(tmp_path, model(weights(), weights(seed=1))))
