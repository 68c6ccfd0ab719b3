"""TensorFlow models, written by the tests: functions, loops, checkpoints; and invalid files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.test_tensorflow_control import detections, frames, tf1_cond, tf2_loop
from tests.frontends.tf_build import Call, GraphDef, Kind, Shape, node, normal, run, saved_model
from tests.test_cli import intaglio as command

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported
from intaglio.frontends.tensorflow import scope
from intaglio.frontends.tensorflow.checksum import crc32c

F32, I32 = Kind("float32"), Kind("int32")


# ---- SavedModels ---------------------------------------------------------------------------------
def dense(folder: Path, **variables: np.ndarray) -> Path:
    """tanh(x w) as TensorFlow 2 saves it: a function of handles, restored by another one."""
    g = GraphDef()
    inner = g.function(
        "inner",
        {"x": "float32", "h": "resource"},
        {"out": ("t:y:0", "float32")},
        [
            node("r", "ReadVariableOp", "h", dtype=F32),
            node("m", "MatMul", "x r:value:0", T=F32),
            node("t", "Tanh", "m:product:0", T=F32),
        ],
    )
    outer = g.function(
        "outer",
        {"a": "float32", "handle": "resource"},
        {"result": ("call:output:0", "float32")},
        [node("call", "StatefulPartitionedCall", "a handle", f=inner)],
    )
    keys = ["_CHECKPOINTABLE_OBJECT_GRAPH", "layer/w/.ATTRIBUTES/VARIABLE_VALUE"]
    restore = g.function(
        "restore",
        {"file": "string", "v": "resource"},
        {"done": ("file", "string")},
        [
            node("names", "Const", dtype=Kind("string"), value=keys),
            node("all", "RestoreV2", "file names:output:0 names:output:0"),
            node("one", "Identity", "all:tensors:1", T=F32),
            node("set", "AssignVariableOp", "v one:output:0", dtype=F32),
        ],
    )
    g.placeholder("serving_default_x", (-1, 3))
    g.add("w", "VarHandleOp", dtype=F32, shape=Shape((3, 2)), shared_name="w:0")
    g.add("call", "StatefulPartitionedCall", "serving_default_x w", f=outer)
    g.const("saver_filename", ["model"])
    g.add("restored", "StatefulPartitionedCall", "saver_filename w", f=restore)
    ports = {"x": ("serving_default_x:0", "float32", (-1, 3))}
    twice = g.add("twice", "AddV2", "call call", T=F32)
    signatures = {
        "serving_default": (ports, {"y": ("call:0", "float32", (-1, 2))}),
        "double": (ports, {"z": (f"{twice}:0", "float32", (-1, 2))}),
        "__saved_model_init_op": ({}, {"op": ("none", "float32", None)}),
    }
    held = variables or {"layer/w/.ATTRIBUTES/VARIABLE_VALUE": normal(3, 2)}
    return saved_model(folder, g, signatures, {**held, "layer/a": normal(7), "zz": normal(2, 2)})


def test_saved_models(tmp_path: Path):
    folder = dense(tmp_path / "dense")
    x = normal(4, 3, seed=1)
    got = run(folder, {"x": x}, shapes={"x": (4, 3)})
    np.testing.assert_allclose(got["y"], np.tanh(x @ normal(3, 2)), atol=1e-6)
    twice = run(folder / "saved_model.pb", {"x": x[:1]}, signature="double")
    np.testing.assert_allclose(twice["z"], 2 * got["y"][:1], atol=1e-6)
    named = intaglio.load(folder, inputs=["serving_default_x"], outputs=["twice", "call"])
    assert named.output_names == ["twice", "call"]
    assert named.inputs[0].shape == (1, 3)


def test_what_is_wrong_with_saved_models(tmp_path: Path):
    folder = dense(tmp_path / "dense")
    with pytest.raises(BadInput, match=r"no signature 'other'; it has serving_default, double;"):
        intaglio.load(folder, signature="other")
    with pytest.raises(BadInput, match=r"has shape \(\?, 3\); \(4,\) has another rank"):
        intaglio.load(folder, shapes={"x": (4,)})
    with pytest.raises(BadInput, match="no input is called 'q'; inputs are x"):
        intaglio.load(folder, shapes={"q": (4,)})
    with pytest.raises(BadInput, match="only SavedModel folders and TFLite files have signatures"):
        intaglio.load(tf1_cond(tmp_path, True), signature="a")
    shard = folder / "variables" / "variables.data-00000-of-00001"
    good = shard.read_bytes()
    shard.write_bytes(good[:-9])
    intaglio.load(folder)  # the last variable does not belong to this signature
    shard.write_bytes(good[:10])
    with pytest.raises(BadFile, match="is truncated: variable 'layer/w/"):
        intaglio.load(folder)
    shard.write_bytes(good[:28] + bytes(24) + good[52:])
    with pytest.raises(BadFile, match=r"the bytes of variable 'layer/w/.* are damaged"):
        intaglio.load(folder)
    (folder / "variables" / "variables.index").unlink()
    with pytest.raises(Unsupported, match="variable 'w' has no value in this file; freeze"):
        intaglio.load(folder)
    with pytest.raises(BadFile, match="variable 'w' is not in the checkpoint"):
        intaglio.load(dense(tmp_path / "other", other=normal(3, 2)))
    (folder / "saved_model.pb").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(BadFile, match="is a Git LFS pointer"):
        intaglio.load(folder)


def test_long_checksums():
    assert crc32c(b"123456789") == 0xE3069283  # the check value of RFC 3720's polynomial
    data = np.random.default_rng(0).integers(0, 256, 300_007, np.uint8).tobytes()
    short = 0
    for size in (4095, 4096, 70_001, 300_007):  # as one strip, and as many strips
        short = crc32c(data[:size])
        assert short == _by_bits(data[:size])


def _by_bits(data: bytes) -> int:
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def streaming(folder: Path) -> Path:
    """y = x + v; v = y; and a counter of calls, which is read after its increment."""
    g = GraphDef()
    f = g.function(
        "step",
        {"x": "float32", "h": "resource", "c": "resource"},
        {"out": ("s:z:0", "float32"), "count": ("rc:value:0", "float32")},
        [
            node("r", "ReadVariableOp", "h", dtype=F32),
            node("s", "AddV2", "x r:value:0", T=F32),
            node("w", "AssignVariableOp", "h s:z:0 ^r", dtype=F32),
            node("one", "Const", dtype=F32, value=np.float32(1)),
            node("up", "AssignAddVariableOp", "c one:output:0", dtype=F32),
            node("rc", "ReadVariableOp", "c ^up", dtype=F32),
        ],
    )
    outer = g.function(
        "outer",
        {"x": "float32", "h": "resource", "c": "resource"},
        {"out": ("call:output:0", "float32"), "count": ("call:output:1", "float32")},
        [node("call", "StatefulPartitionedCall", "x h c", f=f)],
    )
    g.placeholder("x", (3,))
    g.add("v", "VarHandleOp", dtype=F32, shape=Shape((3,)), shared_name="sum")
    g.add("calls", "VarHandleOp", dtype=F32, shape=Shape(()))
    g.add("y", "StatefulPartitionedCall", "x v calls", f=outer)
    ports = (
        {"x": ("x:0", "float32", (3,))},
        {"y": ("y:0", "float32", (3,)), "n": ("y:1", "float32", ())},
    )
    held = {"v": normal(3), "calls": np.float32(5)}
    return saved_model(folder / "m", g, {"serving_default": ports}, held)


def test_state_between_runs(tmp_path: Path):
    graph = intaglio.load(streaming(tmp_path))
    assert list(graph.state) == ["state.sum", "state.calls"]
    total = normal(3)
    with intaglio.open(intaglio.compile(graph)) as session:
        assert list(session.inputs) == ["x"]
        for i in range(50):
            x = normal(3, seed=i)
            total = total + x
            got = session.run({"x": x})
            np.testing.assert_allclose(got["y"], total, rtol=1e-5, atol=1e-5)
            assert got["n"] == 6 + i


# ---- imported graphs -----------------------------------------------------------------------------
def test_dilated_convolutions_are_one(tmp_path: Path):
    g, w = GraphDef(), normal(3, 3, 4, 6)
    g.placeholder("x", (1, 9, 10, 4))
    g.const("w", w)
    g.const("block", np.array([2, 2], np.int32))
    g.const("pads", np.array([[2, 3], [2, 2]], np.int32))
    g.const("crops", np.array([[0, 1], [0, 0]], np.int32))
    g.add("in", "SpaceToBatchND", "x block pads", T=F32)
    g.add("conv", "Conv2D", "in w", T=F32, strides=[1, 1, 1, 1], padding="VALID")
    g.add("y", "BatchToSpaceND", "conv block crops", T=F32)
    g.add(
        "plain",
        "Conv2D",
        "x w",
        T=F32,
        strides=[1, 1, 1, 1],
        padding="SAME",
        dilations=[1, 2, 2, 1],
    )
    path = g.save(tmp_path / "dilated.pb")
    got = run(path, {"x": normal(1, 9, 10, 4, seed=5)})
    np.testing.assert_allclose(got["y"], got["plain"], atol=1e-5)
    graph = intaglio.load(path, outputs=["y"])
    assert sorted(n.op for n in graph.nodes()) == ["conv", "transpose", "transpose"]


def test_channels_first(tmp_path: Path):
    g = GraphDef()
    x = normal(1, 4, 8, 8)
    g.placeholder("x", x.shape)
    g.const("w", normal(3, 3, 4, 6))
    g.const("s", np.abs(normal(6)) + 1)
    first = {"data_format": "NCHW", "T": F32}
    g.add("a", "Conv2D", "x w", strides=[1, 1, 2, 2], padding="SAME", **first)
    g.add("b", "FusedBatchNorm", "a s s s s", is_training=False, **first)
    g.add("c", "BiasAdd", "b s", **first)
    g.add("y", "MaxPool", "c", ksize=[1, 1, 2, 2], strides=[1, 1, 2, 2], padding="VALID", **first)
    last = {**first, "data_format": "NHWC"}
    g.const("perm", np.array([0, 2, 3, 1], np.int32))
    g.add("x2", "Transpose", "x perm", T=F32, Tperm=I32)
    g.add("a2", "Conv2D", "x2 w", strides=[1, 2, 2, 1], padding="SAME", **last)
    g.add("b2", "FusedBatchNorm", "a2 s s s s", is_training=False, **last)
    g.add("c2", "BiasAdd", "b2 s", **last)
    g.add("y2", "MaxPool", "c2", ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID", **last)
    path = g.save(tmp_path / "first.pb")
    got = run(path, {"x": x})
    np.testing.assert_allclose(got["y"], got["y2"].transpose(0, 3, 1, 2), atol=1e-5)
    assert "transpose" not in {n.op for n in intaglio.load(path, outputs=["y"]).nodes()}


def test_simulated_quantisation_becomes_integers(tmp_path: Path):
    g = GraphDef()
    g.placeholder("x", (1, 8, 8, 4))
    g.const("w", normal(3, 3, 4, 6))
    g.add("qx", "FakeQuantWithMinMaxArgs", "x", min=-3.0, max=3.0)
    g.const("low", np.full(6, -2, np.float32))
    g.const("high", np.full(6, 2, np.float32))
    g.add("qw", "FakeQuantWithMinMaxVarsPerChannel", "w low high", narrow_range=True)
    g.add("conv", "Conv2D", "qx qw", T=F32, strides=[1, 1, 1, 1], padding="SAME")
    g.add("relu", "Relu6", "conv", T=F32)
    g.add("y", "FakeQuantWithMinMaxArgs", "relu", min=0.0, max=6.0)
    path = g.save(tmp_path / "qat.pb")
    graph = intaglio.load(path)
    x = {"x": normal(1, 8, 8, 4, seed=4)}
    want = intaglio.interpret(graph, x)["y"]
    package = intaglio.compile(graph)
    assert any(
        "quantized" in s.op or "qconv" in s.op or "integer" in s.op or "s8" in s.op
        for s in package.plan.steps
    ), [s.op for s in package.plan.steps]
    with intaglio.open(package) as session:
        got = np.array(session.run(x)["y"])
    assert np.abs(got - want).max() <= 6 / 255 * 1.01  # a step, where rounding was close
    assert (np.abs(got - want) < 1e-4).mean() > 0.99


# ---- error messages ------------------------------------------------------------------------------
def test_unknown_ops_are_listed_together(tmp_path: Path):
    g = GraphDef()
    g.placeholder("x", (4,))
    g.add("a", "Alpha", "x")
    g.add("b", "Beta", "a")
    g.add("c", "Alpha", "b")
    g.add("d", "Tanh", "x", T=F32)
    path = g.save(tmp_path / "unknown.pb")
    with pytest.raises(Unsupported, match=r"Alpha \(2 times, 'a'\), Beta \('b'\); cut the graph"):
        intaglio.load(path)
    assert intaglio.load(path, outputs=["d"]).output_names == ["d"]
    cut = intaglio.load(path, inputs=["c"], outputs=["c"], shapes={"c": (2,)}, dtypes={"c": "i32"})
    assert cut.inputs[0].dtype == "i32"


def test_names_and_shapes(tmp_path: Path):
    g = GraphDef()
    g.placeholder("x", None)
    g.add("y", "Relu", "x", T=F32)
    path = g.save(tmp_path / "open.pb")
    with pytest.raises(BadInput, match="input 'x' has shape unknown; give its extents, as in"):
        intaglio.load(path)
    with pytest.raises(BadInput, match="no node is called 'z'; outputs are y"):
        intaglio.load(path, outputs=["z"])
    with pytest.raises(BadInput, match="no node is called 'z'; inputs are x"):
        intaglio.load(path, inputs=["z"])
    with pytest.raises(BadInput, match="dims is for ONNX"):
        intaglio.load(path, dims={"n": 1})
    assert intaglio.load(path, shapes={"x": (2, 5)}).outputs[0].shape == (2, 5)


def test_the_command_line_reads_folders(tmp_path: Path):
    folder = dense(tmp_path / "dense")
    shown = command("inspect", folder, "--signature", "double", "--shape", "x=2x3")
    assert shown.returncode == 0, shown.stderr
    assert "tanh" in shown.stdout
    assert "2x2" in shown.stdout
    wrong = command("compile", folder, "--signature", "none")
    assert wrong.returncode == 2
    assert "has no signature 'none'" in wrong.stderr


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("y", "Relu", "ghost", T=F32)], "'ghost' is read, but the graph has no such node"),
        (
            [node("y", "Relu", "z", T=F32), node("z", "Relu", "y", T=F32), node("o", "Relu", "y")],
            "depends on its own result",
        ),
        ([node("y", "Relu", "x:3", T=F32)], "'x' has no output 3"),
        ([node("y", "PartitionedCall", "x", f=Shape(()))], "does not name a function"),
        ([node("y", "Conv2D", "x x", strides=[1, 1, 1, 1], padding="SAME")], "images of rank 4"),
        ([node("y", "MatMul", "x", T=F32)], "operand 1 is missing"),
        ([node("y", "Exit", "x", T=F32)], "is an Exit without a loop"),
        ([node("y", "Const", dtype=F32)], "has no outputs"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, nodes: list[bytes], words: str):
    g = GraphDef()
    g.placeholder("x", (4,))
    g.nodes += nodes
    with pytest.raises(IntaglioError, match=words):
        intaglio.load(g.save(tmp_path / "wrong.pb"))


def test_functions_that_call_themselves(tmp_path: Path):
    g = GraphDef()
    f = g.function(
        "f",
        {"x": "float32"},
        {"r": ("c:output:0", "float32")},
        [node("c", "PartitionedCall", "x", f=Call("f"))],
    )
    g.placeholder("x", (4,))
    g.add("y", "PartitionedCall", "x", f=f)
    with pytest.raises(Unsupported, match="calls are nested more than"):
        intaglio.load(g.save(tmp_path / "deep.pb"))


def test_functions_that_call_each_other_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Every function calls the next one twice, sixty deep: an error before it explodes."""
    monkeypatch.setattr(scope, "MAX_NODES", 1 << 12)
    g = GraphDef()
    args = {"x": "float32", "h": "resource"}
    inner = g.function("f0", args, {"r": ("x", "float32")}, [])
    for i in range(1, 60):
        calls = [
            node("a", "PartitionedCall", "x h", f=inner),
            node("b", "PartitionedCall", "a:output:0 h", f=inner),
        ]
        inner = g.function(f"f{i}", args, {"r": ("b:output:0", "float32")}, calls)
    g.placeholder("x", (4,))
    g.add("v", "VarHandleOp", dtype=F32, shape=Shape((3,)))
    g.add("y", "PartitionedCall", "x v", f=inner)
    with pytest.raises(Unsupported, match="nodes after inlining functions"):
        intaglio.load(g.save(tmp_path / "often.pb"))


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    folder = dense(tmp_path / "dense")
    test_channels_first(tmp_path)
    files = [
        folder / "saved_model.pb",
        folder / "variables" / "variables.index",
        tf2_loop(tmp_path, 4),
        tf1_cond(tmp_path, None),
        frames(tmp_path),
        tmp_path / "first.pb",
        detections(tmp_path),
    ]
    for path in (folder, *files[2:]):
        intaglio.load(path)  # mutants of a file that does not load would test nothing
    random = np.random.default_rng(count)
    for i in range(count):
        path = files[i % len(files)]
        good = path.read_bytes()
        bad = bytearray(good)
        for _ in range(random.integers(1, 5)):
            bad[random.integers(len(bad))] = random.integers(256)
        if not random.integers(8):
            bad = bad[: random.integers(len(bad))]
        path.write_bytes(bad)
        try:
            intaglio.load(folder if i % len(files) < 2 else path)
        except IntaglioError as e:
            assert "\n" not in str(e)  # noqa: PT017
        path.write_bytes(good)
