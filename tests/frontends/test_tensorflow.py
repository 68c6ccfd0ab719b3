"""TensorFlow models, built here: functions, loops, branches, checkpoints; and wrong files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.tf_build import (
    Call,
    GraphDef,
    Kind,
    Shape,
    node,
    saved_model,
)  # fmt: skip
from tests.test_cli import intaglio as command

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError, Unsupported
from intaglio.frontends.tensorflow.checksum import crc32c

F32, I32, BOOL, RES = Kind("float32"), Kind("int32"), Kind("bool"), Kind("resource")


def normal(*dims: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=dims).astype(np.float32)


def run(path: Path, feeds: dict[str, np.ndarray], **load: object) -> dict[str, np.ndarray]:
    graph = intaglio.load(path, **load)
    want = intaglio.interpret(graph, feeds)
    with intaglio.open(intaglio.compile(graph)) as session:
        got = {k: np.array(v) for k, v in session.run(feeds).items()}
    for name, a in want.items():
        np.testing.assert_allclose(got[name], a, atol=1e-5)
    return got


# ---- SavedModels ---------------------------------------------------------------------------------
def dense(folder: Path, **variables: np.ndarray) -> Path:
    """tanh(x w) as TensorFlow 2 saves it: a function of handles, restored by another one."""
    g = GraphDef()
    inner = g.function(
        "inner", {"x": "float32", "h": "resource"}, {"out": ("t:y:0", "float32")},
        [node("r", "ReadVariableOp", "h", dtype=F32), node("m", "MatMul", "x r:value:0", T=F32),
         node("t", "Tanh", "m:product:0", T=F32)],
    )  # fmt: skip
    outer = g.function(
        "outer", {"a": "float32", "handle": "resource"}, {"result": ("call:output:0", "float32")},
        [node("call", "StatefulPartitionedCall", "a handle", f=inner)],
    )  # fmt: skip
    keys = ["_CHECKPOINTABLE_OBJECT_GRAPH", "layer/w/.ATTRIBUTES/VARIABLE_VALUE"]
    restore = g.function(
        "restore", {"file": "string", "v": "resource"}, {"done": ("file", "string")},
        [node("names", "Const", dtype=Kind("string"), value=keys),
         node("all", "RestoreV2", "file names:output:0 names:output:0"),
         node("one", "Identity", "all:tensors:1", T=F32),
         node("set", "AssignVariableOp", "v one:output:0", dtype=F32)],
    )  # fmt: skip
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
    with pytest.raises(BadInput, match=r"has shape \(\?, 3\), not \(4,\)"):
        intaglio.load(folder, shapes={"x": (4,)})
    with pytest.raises(BadInput, match="no input is called 'q'; inputs are x"):
        intaglio.load(folder, shapes={"q": (4,)})
    with pytest.raises(BadInput, match="signature is for SavedModels"):
        intaglio.load(tf1_cond(tmp_path, True), signature="a")
    shard = folder / "variables" / "variables.data-00000-of-00001"
    good = shard.read_bytes()
    shard.write_bytes(good[:-9])
    intaglio.load(folder)  # the last variable is not of this signature
    shard.write_bytes(good[:10])
    with pytest.raises(BadFile, match="is cut off: variable 'layer/w/"):
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
    for size in (4095, 4096, 70_001, 300_007):  # as one strip, and as many
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
    """y = x + v; v = y; and a count of the calls, which is read after it is raised."""
    g = GraphDef()
    f = g.function(
        "step", {"x": "float32", "h": "resource", "c": "resource"},
        {"out": ("s:z:0", "float32"), "count": ("rc:value:0", "float32")},
        [node("r", "ReadVariableOp", "h", dtype=F32), node("s", "AddV2", "x r:value:0", T=F32),
         node("w", "AssignVariableOp", "h s:z:0 ^r", dtype=F32),
         node("one", "Const", dtype=F32, value=np.float32(1)),
         node("up", "AssignAddVariableOp", "c one:output:0", dtype=F32),
         node("rc", "ReadVariableOp", "c ^up", dtype=F32)],
    )  # fmt: skip
    outer = g.function(
        "outer", {"x": "float32", "h": "resource", "c": "resource"},
        {"out": ("call:output:0", "float32"), "count": ("call:output:1", "float32")},
        [node("call", "StatefulPartitionedCall", "x h c", f=f)],
    )  # fmt: skip
    g.placeholder("x", (3,))
    g.add("v", "VarHandleOp", dtype=F32, shape=Shape((3,)), shared_name="sum")
    g.add("calls", "VarHandleOp", dtype=F32, shape=Shape(()))
    g.add("y", "StatefulPartitionedCall", "x v calls", f=outer)
    ports = ({"x": ("x:0", "float32", (3,))},
             {"y": ("y:0", "float32", (3,)), "n": ("y:1", "float32", ())})  # fmt: skip
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


# ---- branches and loops --------------------------------------------------------------------------
def tf1_cond(folder: Path, training: bool | None) -> Path:
    """tf.cond(training, x * 2, x + 1) of TensorFlow 1; None: a placeholder decides."""
    g = GraphDef()
    g.placeholder("x", (2, 3))
    if training is None:
        g.placeholder("p", (), "bool")
    else:
        g.const("default", np.array(training))
        g.add("p", "PlaceholderWithDefault", "default", dtype=BOOL, shape=Shape(()))
    g.add("switch", "Switch", "p p", T=BOOL)
    g.add("t", "Identity", "switch:1", T=BOOL)
    g.add("f", "Identity", "switch", T=BOOL)
    g.add("xs", "Switch", "x p", T=F32)
    g.nodes.append(node("two", "Const", "^t", dtype=F32, value=np.float32(2)))
    g.nodes.append(node("one", "Const", "^f", dtype=F32, value=np.float32(1)))
    g.add("then", "Mul", "xs:1 two", T=F32)
    g.add("else", "Add", "xs one", T=F32)
    g.add("y", "Merge", "else then", T=F32, N=2)
    g.add("which", "Merge", "one two", T=F32, N=2)
    return g.save(folder / "cond.pb")


@pytest.mark.parametrize("training", [True, False])
def test_branches_known_beforehand(tmp_path: Path, training: bool):
    x = normal(2, 3)
    path = tf1_cond(tmp_path, training)
    got = run(path, {"x": x})
    np.testing.assert_allclose(got["y"], x * 2 if training else x + 1)
    assert got["which"] == (2 if training else 1)
    assert len(list(intaglio.load(path, outputs=["y"]).nodes())) == 1


def test_branches_at_run_time(tmp_path: Path):
    x, path = normal(2, 3), tf1_cond(tmp_path, None)
    for training in (True, False):
        got = run(path, {"x": x, "p": np.array(training)}, outputs=["y"])
        np.testing.assert_allclose(got["y"], x * 2 if training else x + 1)
        fixed = run(path, {"x": x}, outputs=["y"], values={"p": training})
        np.testing.assert_allclose(fixed["y"], got["y"])


def test_functions_as_branches(tmp_path: Path):
    g = GraphDef()
    args = {"a": "float32", "b": "float32"}
    then = g.function("then", args, {"r": ("m:z:0", "float32")},
                      [node("m", "Mul", "a b", T=F32)])  # fmt: skip
    other = g.function("other", args, {"r": ("s:z:0", "float32")},
                       [node("c", "Const", dtype=F32, value=np.float32(5)),
                        node("s", "Sub", "a c:output:0", T=F32)])  # fmt: skip
    g.placeholder("x", (4,))
    g.placeholder("p", (), "bool")
    g.add("x2", "AddV2", "x x", T=F32)
    g.add("y", "If", "p x x2", Tcond=BOOL, then_branch=then, else_branch=other)
    path, x = g.save(tmp_path / "if.pb"), normal(4)
    for p in (True, False):
        got = run(path, {"x": x, "p": np.array(p)})
        np.testing.assert_allclose(got["y"], 2 * x * x if p else x - 5, rtol=1e-6)


def tf2_loop(folder: Path, limit: int | None) -> Path:
    """Sums of the rows of a list into another list; None: an input says how many."""
    g = GraphDef()
    args = {"i": "int32", "n": "int32", "rows": "variant", "out": "variant", "sum": "float32"}
    go = g.function("go", args, {"r": ("l:z:0", "bool")}, [node("l", "Less", "i n", T=I32)])
    step = g.function(
        "step", args,
        {"i2": ("add:z:0", "int32"), "n2": ("n", "int32"), "rows2": ("rows", "variant"),
         "out2": ("set:output_handle:0", "variant"), "sum2": ("new:z:0", "float32")},
        [node("one", "Const", dtype=I32, value=np.int32(1)),
         node("add", "AddV2", "i one:output:0", T=I32),
         node("none", "Const", dtype=I32, value=np.array([-1], np.int32)),
         node("get", "TensorListGetItem", "rows i none:output:0", element_dtype=F32),
         node("new", "AddV2", "get:item:0 sum", T=F32),
         node("set", "TensorListSetItem", "out i new:z:0", element_dtype=F32)],
    )  # fmt: skip
    g.placeholder("x", (6, 3))
    g.const("open", np.array([-1], np.int32))
    g.const("zero", np.int32(0))
    g.const("count", np.int32(6))
    if limit is None:
        g.placeholder("n", (), "int32")
    else:
        g.const("n", np.int32(limit))
    g.add("rows", "TensorListFromTensor", "x open", element_dtype=F32, shape_type=I32)
    g.add("out", "TensorListReserve", "open count", element_dtype=F32, shape_type=I32)
    g.const("sum", np.zeros(3, np.float32))
    g.add("loop", "StatelessWhile", "zero n rows out sum", cond=go, body=step)
    g.add("y", "TensorListStack", "loop:3 open", element_dtype=F32)
    g.add("last", "Identity", "loop:4", T=F32)
    return g.save(folder / "loop.pb")


@pytest.mark.parametrize("limit", [None, 0, 1, 4, 6])
def test_loops(tmp_path: Path, limit: int | None):
    x, path = normal(6, 3), tf2_loop(tmp_path, limit)
    trips = 5 if limit is None else limit
    feeds = {"x": x} if limit is not None else {"x": x, "n": np.array(trips, np.int32)}
    got = run(path, feeds)
    want = x.cumsum(0)
    want[trips:] = 0
    np.testing.assert_allclose(got["y"], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got["last"], x[:trips].sum(0), rtol=1e-5, atol=1e-6)


def test_frames(tmp_path: Path):
    """A loop of TensorFlow 1 over a TensorArray, with weights from outside."""
    g = GraphDef()
    x, w = normal(5, 2, 3), normal(3, 3, seed=1)
    g.placeholder("x", (5, 2, 3))
    g.const("w", w)
    g.const("zero", np.int32(0))
    g.const("one", np.int32(1))
    g.const("n", np.int32(5))
    g.const("order", np.arange(5, dtype=np.int32))
    g.const("start", np.zeros((2, 3), np.float32))
    g.add("ta", "TensorArrayV3", "n", dtype=F32)
    g.add("fill", "TensorArrayScatterV3", "ta order x ta:1", T=F32)
    for name, of, kind in (("i", "zero", I32), ("h", "start", F32)):
        g.add(f"e{name}", "Enter", of, T=kind, frame_name="f")
        g.add(f"m{name}", "Merge", f"e{name} next{name}", T=kind, N=2)
        g.add(f"s{name}", "Switch", f"m{name} cond", T=kind)
        g.add(f"b{name}", "Identity", f"s{name}:1", T=kind)
    for name, of, kind in (("en", "n", I32), ("ew", "w", F32), ("et", "ta", RES),
                           ("ef", "fill", F32)):  # fmt: skip
        g.add(name, "Enter", of, T=kind, frame_name="f", is_constant=True)
    g.add("less", "Less", "mi en", T=I32)
    g.add("cond", "LoopCond", "less")
    g.nodes.append(node("inc", "Const", "^bi", dtype=I32, value=np.int32(1)))
    g.add("add", "Add", "bi inc", T=I32)
    g.add("nexti", "NextIteration", "add", T=I32)
    g.add("read", "TensorArrayReadV3", "et bi ef", dtype=F32)
    g.add("product", "MatMul", "bh ew", T=F32)
    g.add("sum", "Add", "read product", T=F32)
    g.add("new", "Tanh", "sum", T=F32)
    g.add("nexth", "NextIteration", "new", T=F32)
    g.add("y", "Exit", "sh", T=F32)
    got = run(g.save(tmp_path / "frames.pb"), {"x": x})
    h = np.zeros((2, 3), np.float32)
    for row in x:
        h = np.tanh(row + h @ w)
    np.testing.assert_allclose(got["y"], h, atol=1e-5)


# ---- what graphs become --------------------------------------------------------------------------
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
    g.add("plain", "Conv2D", "x w", T=F32, strides=[1, 1, 1, 1], padding="SAME",
          dilations=[1, 2, 2, 1])  # fmt: skip
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
    assert any("quantized" in s.op or "qconv" in s.op or "integer" in s.op or "s8" in s.op
               for s in package.plan.steps), [s.op for s in package.plan.steps]  # fmt: skip
    with intaglio.open(package) as session:
        got = np.array(session.run(x)["y"])
    assert np.abs(got - want).max() <= 6 / 255 * 1.01  # a step, where rounding was close
    assert (np.abs(got - want) < 1e-4).mean() > 0.99


def detections(folder: Path) -> Path:
    """As TensorFlow's detectors end: what is good enough, suppressed, sorted, padded to six."""
    g = GraphDef()
    g.placeholder("boxes", (8, 4))
    g.placeholder("scores", (8,))
    for name, value in {"half": np.float32(0.5), "none": np.float32(0), "five": np.int32(5),
                        "four": np.int32(4), "six": np.int32(6), "zero": np.int32(0),
                        "one": np.int32(1), "first": np.int32([0]), "next": np.int32([1]),
                        "flat": np.int32([-1]), "wide": np.int32([4])}.items():  # fmt: skip
        g.const(name, value)
    cut = {"T": I32, "Index": I32, "shrink_axis_mask": 1}
    g.add("good", "Greater", "scores half", T=F32)
    g.add("where", "Where", "good", T=BOOL)
    g.add("which", "Reshape", "where flat", T=Kind("int64"), Tshape=I32)
    for name in ("boxes", "scores"):
        g.add(f"some_{name}", "GatherV2", f"{name} which zero")
    g.add("shape", "Shape", "some_scores", T=F32)
    g.add("count", "StridedSlice", "shape first next next", **cut)
    g.add("most", "Minimum", "five count", T=I32)
    g.add("kept", "NonMaxSuppressionV3", "some_boxes some_scores most half none", T=F32)
    for name in ("boxes", "scores"):
        g.add(f"kept_{name}", "GatherV2", f"some_{name} kept zero")
    g.add("shape2", "Shape", "kept_scores", T=F32)
    g.add("count2", "StridedSlice", "shape2 first next next", **cut)
    g.add("best", "Minimum", "four count2", T=I32)
    g.add("top", "TopKV2", "kept_scores best", T=F32)
    g.add("order", "GatherV2", "kept_boxes top:1 zero")
    g.add("shape3", "Shape", "top", T=F32)
    g.add("count3", "StridedSlice", "shape3 first next next", **cut)
    g.add("lack", "Sub", "six count3", T=I32)
    g.add("around", "Pack", "zero lack", T=I32, N=2)
    g.add("pads", "ExpandDims", "around zero", T=I32, Tdim=I32)
    g.add("result_scores", "Pad", "top pads", T=F32)
    g.add("shape4", "Shape", "order", T=F32)
    g.add("count4", "StridedSlice", "shape4 first next next", **cut)
    g.add("lack4", "Sub", "six count4", T=I32)
    g.add("rows", "Pack", "lack4 four", T=I32, N=2)
    g.add("zeros", "Fill", "rows none", T=F32)
    g.add("result_boxes", "ConcatV2", "order zeros zero", T=F32, N=2)
    g.add("found", "Identity", "count3", T=I32)
    g.add("numbers", "Range", "zero count3 one", Tidx=I32)
    g.add("blank", "ZerosLike", "top", T=F32)
    return g.save(folder / "detections.pb")


@pytest.mark.parametrize("least", [0.0, 0.4, 0.6, 0.9])
def test_detectors_to_their_ends(tmp_path: Path, least: float):
    random = np.random.default_rng(7)
    corner = random.random((8, 2)) * 3
    boxes = np.concatenate([corner, corner + 1], 1).astype(np.float32)
    scores = (random.permutation(8) / 16 + 0.55 - least / 2).astype(np.float32)
    got = run(detections(tmp_path), {"boxes": boxes, "scores": scores})
    left = [i for i in np.argsort(-scores) if scores[i] > 0.5]
    kept: list[int] = []
    for i in left:
        if len(kept) < 5 and all(overlap(boxes[i], boxes[k]) <= 0.5 for k in kept):
            kept.append(int(i))
    kept = kept[:4]
    assert got["found"] == len(kept)
    assert got["result_scores"].shape == (6,)
    np.testing.assert_array_equal(got["result_scores"][: len(kept)], scores[kept])
    np.testing.assert_array_equal(got["result_boxes"][: len(kept)], boxes[kept])
    assert not got["result_scores"][len(kept) :].any()
    assert not got["result_boxes"][len(kept) :].any()
    np.testing.assert_array_equal(got["numbers"], np.arange(len(kept)))
    np.testing.assert_array_equal(got["blank"], np.zeros(len(kept)))


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / (2 - shared)


# ---- what is said --------------------------------------------------------------------------------
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
        ([node("y", "Relu", "ghost", T=F32)], "'ghost' is read, but there is no such node"),
        ([node("y", "Relu", "z", T=F32), node("z", "Relu", "y", T=F32), node("o", "Relu", "y")],
         "needs its own result"),
        ([node("y", "Relu", "x:3", T=F32)], "'x' has no output 3, it makes 1"),
        ([node("y", "PartitionedCall", "x", f=Shape(()))], "names no function"),
        ([node("y", "Conv2D", "x x", strides=[1, 1, 1, 1], padding="SAME")], "images of rank 4"),
        ([node("y", "MatMul", "x", T=F32)], "operand 1 is missing"),
        ([node("y", "Exit", "x", T=F32)], "leaves no loop"),
        ([node("y", "Const", dtype=F32)], "computes nothing"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, nodes: list[bytes], words: str):
    g = GraphDef()
    g.placeholder("x", (4,))
    g.nodes += nodes
    with pytest.raises(IntaglioError, match=words):
        intaglio.load(g.save(tmp_path / "wrong.pb"))


def test_functions_that_call_themselves(tmp_path: Path):
    g = GraphDef()
    f = g.function("f", {"x": "float32"}, {"r": ("c:output:0", "float32")},
                   [node("c", "PartitionedCall", "x", f=Call("f"))])  # fmt: skip
    g.placeholder("x", (4,))
    g.add("y", "PartitionedCall", "x", f=f)
    with pytest.raises(Unsupported, match="call each other more than"):
        intaglio.load(g.save(tmp_path / "deep.pb"))


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, count: int):
    folder = dense(tmp_path / "dense")
    test_frames(tmp_path)
    test_channels_first(tmp_path)
    files = [folder / "saved_model.pb", folder / "variables" / "variables.index",
             tf2_loop(tmp_path, 4), tf1_cond(tmp_path, None), tmp_path / "frames.pb",
             tmp_path / "first.pb"]  # fmt: skip
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
