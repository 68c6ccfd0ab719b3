"""Small files that ask for much memory or time are refused in one line, quickly."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy
from onnx import ModelProto, TensorProto, helper, numpy_helper

import intaglio
from intaglio.array_files import read_npy, read_npz
from intaglio.errors import BadFile, BadInput, IntaglioError
from intaglio.frontends.caffe.file import parse_text
from intaglio.frontends.limits import MAX_TENSOR_BYTES

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def _model(nodes: list, shape: list[int] | None, weights: dict | None = None, **rest) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, k) for k, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9, **rest)


def _functions(depth: int) -> ModelProto:
    """A function calls the one before it twice: 2^depth nodes."""
    made = []
    for i in range(depth):
        op, domain = (f"F{i - 1}", "f") if i else ("Relu", "")
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        made.append(helper.make_function("f", f"F{i}", ["a"], ["c"], nodes, OPSETS))
    call = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="f")
    return _model([call], [4], functions=made)


def _concats(depth: int, first: str) -> ModelProto:
    """Each concat doubles the tensor before it."""
    nodes = []
    for i in range(depth):
        before = f"t{i - 1}" if i else first
        nodes.append(helper.make_node("Concat", [before, before], [f"t{i}"], axis=0))
    nodes.append(helper.make_node("Add", [nodes[-1].output[0], "x"], ["y"]))
    return _model(nodes, [1], {"c": np.ones(4, np.float32)})


RELU = [helper.make_node("Relu", ["x"], ["y"])]
EXPAND = [helper.make_node("Expand", ["x", "s"], ["y"])]
BOMBS: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "functions": (lambda: _functions(40), "functions expand to 1099511627776 nodes"),
    "concats": (lambda: _concats(31, "x"), "takes 4.0 GiB; the limit is 2 GiB"),
    "concats of constants": (lambda: _concats(31, "c"), "takes 4.0 GiB; the limit is 2 GiB"),
    "input": (lambda: _model(RELU, [1 << 31]), "input 'x' .* takes 8.0 GiB"),
    "expand": (lambda: _model(EXPAND, [1], {"s": np.array([1 << 34])}), "takes 64.0 GiB"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_cannot_ask_for_much(bomb: str):
    make, words = BOMBS[bomb]
    with pytest.raises(BadInput, match=f"{words}.*allow_large=True"):
        intaglio.load(make().SerializeToString())


def test_all_inputs_count_together():
    size = MAX_TENSOR_BYTES // 4 // 4
    names = [f"x{i}" for i in range(5)]
    ins = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [size]) for n in names]
    nodes = [helper.make_node("Sum", names, ["y"])]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])
    graph = helper.make_graph(nodes, "g", ins, [out])
    model = helper.make_model(graph, opset_imports=OPSETS[:1], ir_version=8)
    with pytest.raises(BadInput, match=r"the inputs together takes? 2\.5 GiB"):
        intaglio.load(model.SerializeToString())


def test_the_user_may_allow_it():
    large = _model(RELU, [1 << 31]).SerializeToString()
    assert intaglio.load(large, allow_large=True).inputs[0].shape == (1 << 31,)
    assert intaglio.compile(large, allow_large=True)
    deep = _functions(10)
    assert len(list(intaglio.load(deep).nodes())) == 1 << 10


def test_many_nested_concats_compile():
    package = intaglio.compile(_concats(16, "x").SerializeToString())
    with intaglio.open(package) as session:
        assert session.run({"x": np.ones(1, np.float32)})["y"].sum() == 2 << 16


# ---- files ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("m.onnx", b""),
        ("m.tflite", b"\0\0\0\0TFL3"),
        ("m.pb", b"\x0a\x0a\x0a\x01x"),
        ("m.pt", b"PK\x03\x04"),
    ],
)
def test_a_huge_file_is_not_read_whole(tmp_path: Path, name: str, head: bytes):
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(head)
        file.truncate(1 << 40)  # sparse: it takes no space on the disk
    with pytest.raises(BadFile, match=name):
        intaglio.load(path)


def test_a_pipe_is_no_model(tmp_path: Path):
    os.mkfifo(tmp_path / "m.onnx")
    with pytest.raises(BadFile, match="it is a pipe, not a file"):
        intaglio.load(tmp_path / "m.onnx")


def test_a_pipe_is_no_external_data(tmp_path: Path):
    os.mkfifo(tmp_path / "w.bin")
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], [4])
    w = model.graph.initializer.add(name="w", data_type=1, dims=[4], data_location=1)
    w.external_data.add(key="location", value="w.bin")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BadFile, match=r"'w\.bin': it is a pipe"):
        intaglio.load(tmp_path / "m.onnx")


def test_a_long_string_in_a_prototxt_takes_little_memory():
    import tracemalloc

    text = f'name: "{"a" * (4 << 20)}" other: "b\\"c"'
    tracemalloc.start()
    try:
        found = parse_text(text, "it")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.one("other") == 'b\\"c'
    assert peak < 64 << 20


def _lying_npy() -> bytes:
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 36,)}
    npy.write_array_header_1_0(file, header)
    return file.getvalue() + b"1234"


def test_a_lying_header_of_an_array_is_refused(tmp_path: Path):
    one, several = tmp_path / "a.npy", tmp_path / "a.npz"
    one.write_bytes(_lying_npy())
    with zipfile.ZipFile(several, "w") as archive:
        archive.writestr("a.npy", _lying_npy())
    with pytest.raises(BadFile, match=r"a\.npy: not an array that numpy can read"):
        read_npy(one)
    with pytest.raises(BadFile, match=r"'a\.npy' claims 274877906944 bytes and has"):
        read_npz(several)


def test_arrays_are_read(tmp_path: Path):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", x)
    np.savez_compressed(tmp_path / "a.npz", x=x, y=x.astype(">i2"))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), x)
    assert {k: a.tolist() for k, a in read_npz(tmp_path / "a.npz").items()} == {
        "x": x.tolist(),
        "y": x.tolist(),
    }
    for read, name in ((read_npy, "b.npy"), (read_npz, "b.npz"), (read_npy, "a.npz")):
        with pytest.raises(IntaglioError, match=name):
            read(tmp_path / name)
