"""kmodels on the command line: compile, inspect, run, and the words of refusals."""

import json

import numpy as np
import pytest
from tests.test_cli import intaglio as command_line

import intaglio
from intaglio.ir import Graph, Type, Value, constant


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small network, quantised for the K210, as an ONNX file."""
    pytest.importorskip("onnx")
    from intaglio import ops

    rng = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 16, 16)), "input")
    w = constant(rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32))
    window = {"stride": (2, 2), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}
    y = ops.relu(ops.conv(x, w, constant(np.zeros(8, np.float32)), **window))
    graph = Graph([x], [y], ["y"])
    samples = [{"input": rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    made = intaglio.quantize(graph, samples, target="k210")
    path = tmp_path_factory.mktemp("k210") / "small.int8.onnx"
    intaglio.save_onnx(made, path)
    return path


class Done:
    """What a command printed, and its exit code."""

    def __init__(self, *words):
        ran = command_line(*words)
        self.output, self.exit_code = ran.stdout + ran.stderr, ran.returncode


invoke = Done


def test_compile_inspect_and_run(model, tmp_path):
    path = tmp_path / "small.kmodel"
    done = invoke("compile", model, "--target", "k210", "-o", path)
    assert done.exit_code == 0, done.output
    assert "kmodel 5" in done.output
    assert "input   input  u8 [1x3x16x16]; real = " in done.output
    shown = invoke("inspect", path)
    assert "conv      3x16x16 -> 8x8x8  3x3, top left of 2x2 /2" in shown.output
    assert "in_channels=3 out_channels=8" in invoke("inspect", path, "--asm").output
    facts = json.loads(invoke("inspect", path, "--json").output)
    assert facts["version"] == 5
    assert len(facts["modules"][0]["functions"][0]["commands"]) == 2
    x = np.arange(768, dtype=np.uint8).reshape(1, 3, 16, 16)
    np.save(tmp_path / "x.npy", x)
    ran = invoke("run", path, tmp_path / "x.npy", "-o", tmp_path / "y.npz")
    assert ran.exit_code == 0, ran.output
    assert "uint8[1, 8, 8, 8]" in ran.output


def test_version_3(model, tmp_path):
    path = tmp_path / "small.kmodel"
    done = invoke("compile", model, "--target", "k210", "--kmodel", 3, "-o", path, "--json")
    assert json.loads(done.output)["version"] == 3
    assert "version 3" in invoke("inspect", path).output
    assert "float32" in invoke("run", path, "--fill", "random").output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "rk3588", "-o", "m.kmodel"], "give --target k210"),
        (["--target", "k210", "--kmodel", "3", "-o", "m.itg"], "name it *.kmodel"),
        (["--target", "k210", "-o", "m.kmodel", "--isa", "avx2"], "--isa is for packages"),
        (["--target", "k210", "-o", "m.kmodel", "--tune"], "--tune is for packages"),
    ],
)
def test_wrong_options_are_refused(model, words, message):
    done = invoke("compile", model, *words)
    assert done.exit_code == 2
    assert message in done.output


def test_wrong_files_are_refused(model, tmp_path):
    path = tmp_path / "bad.kmodel"
    path.write_bytes(b"something else")
    for command in ("inspect", "run"):
        done = invoke(command, path)
        assert done.exit_code == 2
        assert "not a kmodel of version 3 or 5" in done.output
    assert "cannot read" in invoke("inspect", tmp_path / "none.kmodel").output
