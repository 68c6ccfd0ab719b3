"""examples/custom_op: a deformable convolution in Python and in C, beside onnxruntime's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.custom.models import model, node

import intaglio
from intaglio import custom

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_op"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The plug-in, built by the Makefile of the example."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("needs gcc and make")
    folder = tmp_path_factory.mktemp("example") / "custom_op"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command = ["make", "-C", folder, f"PYTHON={sys.executable}", "CC=gcc", "CFLAGS=-O3 -Werror"]
    subprocess.run(command, check=True, env={**os.environ}, stdout=subprocess.DEVNULL)
    return folder / "libdeform_conv.so"


def case(n, channels, size, filters, kernel, stride, pad, bias):
    """Feeds, the model with the operator of the example, and the same with ONNX's own."""
    import onnx

    rng = np.random.default_rng(channels)
    w = rng.standard_normal((filters, channels, *kernel)).astype(np.float32)
    out = [(size[i] + 2 * pad[i] - kernel[i]) // stride[i] + 1 for i in range(2)]
    shapes = {"x": (n, channels, *size), "offset": (n, 2 * kernel[0] * kernel[1], *out)}
    feeds = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    feeds["offset"] *= 3
    constants = {"w": w, **({"b": rng.standard_normal(filters).astype(np.float32)} if bias else {})}
    reads = ["x", "w", "offset", *(["b"] if bias else [])]
    mine = node("example.ops::DeformConv", reads, ["y"], stride=stride, pad=pad)
    theirs = node("DeformConv", reads, ["y"], strides=stride, pads=[*pad, *pad])
    models = [model([one], shapes, ["y"], constants) for one in (mine, theirs)]
    models[1].opset_import[0].version = 19
    models[1].graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (n, filters, *out))
    )
    return feeds, *models


CASES = [
    (1, 3, (8, 9), 4, (3, 3), (1, 1), (1, 1), False),
    (2, 8, (17, 20), 5, (3, 3), (2, 1), (1, 0), True),
    (1, 1, (5, 5), 1, (1, 1), (1, 1), (0, 0), True),
    (1, 16, (40, 33), 24, (5, 2), (1, 3), (2, 2), False),
]


@pytest.mark.parametrize("given", CASES, ids=str)
def test_python_c_and_onnxruntime_agree(library, given):
    ort = pytest.importorskip("onnxruntime")
    feeds, mine, theirs = case(*given)
    (want,) = ort.InferenceSession(theirs.SerializeToString()).run(None, feeds)
    near = {"rtol": 1e-4, "atol": 1e-4 * float(np.abs(want).max())}
    custom.load(EXAMPLE / "deform_conv.py")
    graph = intaglio.load(mine)
    np.testing.assert_allclose(intaglio.interpret(graph, feeds)["y"], want, **near)
    package = intaglio.compile(graph)
    assert [s.op for s in package.plan.steps] == ["python.example.deform_conv"]
    np.testing.assert_allclose(intaglio.open(package).run(feeds)["y"], want, **near)
    custom.load(library)
    results = []
    for isa in ("scalar", None):
        package = intaglio.compile(graph, isa=isa)
        assert [s.op for s in package.plan.steps] == ["example.deform_conv"]
        for threads in (1, 3):
            results.append(intaglio.open(package, threads=threads).run(feeds)["y"])
    np.testing.assert_allclose(results[0], want, **near)
    for other in results[1:]:  # every kernel, however it is split, gives the same bits
        np.testing.assert_array_equal(other, results[0])


def test_wrong_shapes_are_refused_by_both(library):
    _, mine, _ = case(*CASES[0])
    mine.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 17
    custom.load(EXAMPLE / "deform_conv.py")
    with pytest.raises(
        intaglio.BadInput, match=r"raised ValueError: offset is \(1, 17, 8, 9\), no"
    ):
        intaglio.load(mine)
    custom.unregister("example.deform_conv")
    custom.load(library)
    with pytest.raises(intaglio.BadInput, match="the offsets do not fit the result"):
        intaglio.load(mine)


def test_offsets_that_are_no_numbers_read_nothing_outside(library):
    feeds, mine, _ = case(*CASES[1])
    feeds["offset"][:, ::3] = np.nan
    feeds["offset"][:, 1::3] = 1e30
    feeds["offset"][:, 2::3] = -np.inf
    custom.load(library)
    got = intaglio.open(intaglio.compile(mine)).run(feeds)["y"]
    assert np.isfinite(got).all()


def test_the_demo(library):
    done = subprocess.run(
        [sys.executable, library.with_name("demo.py")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("in Python ")
