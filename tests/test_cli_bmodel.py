"""bmodels on the command line: compile, and the words of refusals."""

import json

import numpy as np
import pytest
from tests.test_cli import intaglio as command_line

import intaglio
from intaglio.ir import Graph, Type, Value, constant


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small network, quantised for BM1684X, as an ONNX file."""
    pytest.importorskip("onnx")
    from intaglio import ops

    rng = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 16, 16)), "input")
    w = constant(rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32))
    window = {"stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    y = ops.relu(ops.conv(x, w, constant(np.zeros(8, np.float32)), **window))
    graph = Graph([x], [y], ["y"])
    samples = [{"input": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    made = intaglio.quantize(graph, samples, target="bm1684x")
    path = tmp_path_factory.mktemp("bm1684x") / "small.int8.onnx"
    intaglio.save_onnx(made, path)
    return path


def test_compile(model, tmp_path):
    path = tmp_path / "small.bmodel"
    done = command_line("compile", model, "--target", "bm1684x", "-o", path)
    assert done.returncode == 0, done.stderr
    assert "bmodel for BM1684X" in done.stdout
    assert "input   input  i8 [1x3x16x16]; real = " in done.stdout
    assert path.read_bytes()[:4] == bytes.fromhex("eeaa55ff")
    done = command_line("compile", model, "--target", "bm1684x", "-o", path, "--json")
    facts = json.loads(done.stdout)
    assert facts["target"] == "bm1684x"
    assert facts["inputs"][0]["shape"] == [1, 3, 16, 16]
    assert facts["commands"]["tiu"] >= 2


def test_several_images_at_once(model, tmp_path):
    path = tmp_path / "four.bmodel"
    done = command_line("compile", model, "--target", "bm1684x", "--batch", 4, "-o", path)
    assert done.returncode == 0, done.stderr
    assert "input   input  i8 [4x3x16x16]; real = " in done.stdout


def test_run_gives_the_bytes_of_the_interpreter(model, tmp_path):
    from intaglio import targets
    from intaglio.npu.chips.bm1684x.compile import compile_bmodel

    path = tmp_path / "small.bmodel"
    command_line("compile", model, "--target", "bm1684x", "-o", path)
    assert command_line("run", path, "--fill", "random").returncode == 0
    x = np.random.default_rng(0).integers(-128, 128, (1, 3, 16, 16)).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    done = command_line("run", path, tmp_path / "x.npy", "-o", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr
    made = compile_bmodel(intaglio.load(model), targets.find("bm1684x").chip)
    (expected,) = intaglio.interpret(made.graph, {made.lowered.inputs[0].name: x}).values()
    with np.load(tmp_path / "y.npz") as found:
        assert np.array_equal(next(iter(found.values())), expected)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "rk3588", "-o", "m.bmodel"], "give --target bm1684, bm1684x, bm1688 or"),
        (["--target", "k210", "-o", "m.bmodel"], "give --target bm1684, bm1684x, bm1688 or"),
        (["--target", "bm1684x", "-o", "m.bmodel", "--tune"], "--tune is for packages"),
        (["--target", "bm1684x", "-o", "m.bmodel", "--batch", "1,4"], "a bmodel takes a number"),
        (["--target", "bm1684x", "--firmware", "f"], "--firmware is for bmodels"),
        (["--target", "sg2260", "-o", "m.bmodel", "--firmware", "none"], "cannot read none"),
    ],
)
def test_wrong_options_are_refused(model, words, message):
    done = command_line("compile", model, *words)
    assert done.returncode == 2
    assert message in done.stderr
