"""Packages with the chip's files on the command line: compile, inspect, extract, run, refusals."""

import json

import numpy as np
import pytest
from tests.test_cli import intaglio as command_line

import intaglio
from intaglio.ir import Graph, Type, Value, constant


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Convolutions with a softmax between them and at the end, quantised, as an ONNX file."""
    pytest.importorskip("onnx")
    from intaglio import ops

    rng = np.random.default_rng(0)
    x = Value(Type("f32", (1, 3, 32, 32)), "input")
    window = {"stride": (1, 1), "pad": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1}

    def conv(v: Value, outputs: int) -> Value:
        w = rng.normal(0, 0.3, (outputs, v.shape[1], 3, 3)).astype(np.float32)
        return ops.conv(v, constant(w), constant(np.zeros(outputs, np.float32)), **window)

    y = ops.relu(conv(ops.relu(conv(x, 24)), 24))
    y = conv(ops.mul(y, ops.softmax(y, axis=1)), 10)
    graph = Graph([x], [ops.softmax(y, axis=1)], ["scores"])
    samples = [{"input": rng.normal(0, 1, x.shape).astype(np.float32)} for _ in range(4)]
    path = tmp_path_factory.mktemp("mixed") / "mixed.int8.onnx"
    intaglio.save_onnx(intaglio.quantize(graph, samples, target="cv181x"), path)
    return path


@pytest.fixture(scope="module")
def package(model):
    path = model.with_name("m.itg")
    done = command_line("compile", model, "--target", "cv181x", "-o", path)
    assert done.returncode == 0, done.stderr
    assert "2 NPU programs" in done.stdout
    assert f"next: intaglio run {path}" in done.stdout
    return path


def test_inspect_names_the_files(package):
    done = command_line("inspect", package)
    assert done.returncode == 0, done.stderr
    assert "chip files  npu0.cvimodel  " in done.stdout
    assert "bytes, for cv181x; see --extract" in done.stdout
    facts = json.loads(command_line("inspect", package, "--json").stdout)
    assert list(facts["vendor_files"]) == ["npu0.cvimodel", "npu1.cvimodel"]
    assert {row["chip"] for row in facts["vendor_files"].values()} == {"cv181x"}


def test_extract_writes_the_files(package, tmp_path):
    done = command_line("inspect", package, "--extract", tmp_path / "files")
    assert done.returncode == 0, done.stderr
    files = intaglio.Package.load(package).vendor_files()
    assert {p.name: p.read_bytes() for p in (tmp_path / "files").iterdir()} == files
    done = command_line("inspect", tmp_path / "files" / "npu1.cvimodel")
    assert done.returncode == 0, done.stderr


def test_perf_and_memory_read_the_files(package):
    done = command_line("perf", package)
    assert done.returncode == 0, done.stderr
    assert "times come from the commands of the cvimodel" in done.stdout
    done = command_line("memory", package)
    assert done.returncode == 0, done.stderr
    assert "npu1" in done.stdout


def test_run_simulates_the_chip(package):
    done = command_line("run", package, "--fill", "random")
    assert done.returncode == 0, done.stderr
    assert "scores" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compile", "{model}", "--target", "k210", "--npu-code", "chip"), "the target is k210"),
        (("compile", "{model}", "--npu-code", "chip"), "is for chips with an NPU"),
        (
            ("compile", "{model}", "--target", "cv181x", "--npu-code", "chip", "-o", "m.cvimodel"),
            "--npu-code is for packages",
        ),
        (("inspect", "{model}", "--extract", "files"), "--extract is for packages"),
        (("inspect", "{package}", "--asm"), "take the chip's files out with --extract"),
        (("perf", "{package}", "--core-mask", "0"), "is for programs of Intaglio's own"),
        (("--plugin", "missing.so", "run", "{package}"), "there is no such file"),
    ],
)
def test_refusals_are_one_line(words, said, model, package):
    done = command_line(*(w.format(model=model, package=package) for w in words))
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
