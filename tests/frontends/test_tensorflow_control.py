"""Branches and loops of TensorFlow 1 and 2; results with data-dependent extents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.tf_build import GraphDef, Kind, Shape, node, normal, run

import intaglio

F32, I32, BOOL, RES = Kind("float32"), Kind("int32"), Kind("bool"), Kind("resource")


# ---- branches and loops --------------------------------------------------------------------------
def tf1_cond(folder: Path, training: bool | None) -> Path:
    """tf.cond(training, x * 2, x + 1) of TensorFlow 1; None: the condition is a placeholder."""
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
    then = g.function("then", args, {"r": ("m:z:0", "float32")}, [node("m", "Mul", "a b", T=F32)])
    other = g.function(
        "other",
        args,
        {"r": ("s:z:0", "float32")},
        [
            node("c", "Const", dtype=F32, value=np.float32(5)),
            node("s", "Sub", "a c:output:0", T=F32),
        ],
    )
    g.placeholder("x", (4,))
    g.placeholder("p", (), "bool")
    g.add("x2", "AddV2", "x x", T=F32)
    g.add("y", "If", "p x x2", Tcond=BOOL, then_branch=then, else_branch=other)
    path, x = g.save(tmp_path / "if.pb"), normal(4)
    for p in (True, False):
        got = run(path, {"x": x, "p": np.array(p)})
        np.testing.assert_allclose(got["y"], 2 * x * x if p else x - 5, rtol=1e-6)


def tf2_loop(folder: Path, limit: int | None) -> Path:
    """Sums of the rows of a list into another list; None: the trip count is an input."""
    g = GraphDef()
    args = {"i": "int32", "n": "int32", "rows": "variant", "out": "variant", "sum": "float32"}
    go = g.function("go", args, {"r": ("l:z:0", "bool")}, [node("l", "Less", "i n", T=I32)])
    step = g.function(
        "step",
        args,
        {
            "i2": ("add:z:0", "int32"),
            "n2": ("n", "int32"),
            "rows2": ("rows", "variant"),
            "out2": ("set:output_handle:0", "variant"),
            "sum2": ("new:z:0", "float32"),
        },
        [
            node("one", "Const", dtype=I32, value=np.int32(1)),
            node("add", "AddV2", "i one:output:0", T=I32),
            node("none", "Const", dtype=I32, value=np.array([-1], np.int32)),
            node("get", "TensorListGetItem", "rows i none:output:0", element_dtype=F32),
            node("new", "AddV2", "get:item:0 sum", T=F32),
            node("set", "TensorListSetItem", "out i new:z:0", element_dtype=F32),
        ],
    )
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


def frames(folder: Path) -> Path:
    """A loop of TensorFlow 1 over a TensorArray, with weights from outside."""
    g, w = GraphDef(), normal(3, 3, seed=1)
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
    for name, of, kind in (
        ("en", "n", I32),
        ("ew", "w", F32),
        ("et", "ta", RES),
        ("ef", "fill", F32),
    ):
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
    return g.save(folder / "frames.pb")


def test_frames(tmp_path: Path):
    x, w = normal(5, 2, 3), normal(3, 3, seed=1)
    got = run(frames(tmp_path), {"x": x})
    h = np.zeros((2, 3), np.float32)
    for row in x:
        h = np.tanh(row + h @ w)
    np.testing.assert_allclose(got["y"], h, atol=1e-5)


def detections(folder: Path) -> Path:
    """The end of TensorFlow's detectors: threshold, NMS, sort, pad to six."""
    g = GraphDef()
    g.placeholder("boxes", (8, 4))
    g.placeholder("scores", (8,))
    for name, value in {
        "half": np.float32(0.5),
        "none": np.float32(0),
        "five": np.int32(5),
        "four": np.int32(4),
        "six": np.int32(6),
        "zero": np.int32(0),
        "one": np.int32(1),
        "first": np.int32([0]),
        "next": np.int32([1]),
        "flat": np.int32([-1]),
        "wide": np.int32([4]),
    }.items():
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
