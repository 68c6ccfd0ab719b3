"""`intaglio inspect` on models with open dimensions."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
from tests.frontends.onnx_text import model
from tests.test_cli import DIGITS, intaglio

PICTURE = """(float[n,3,h,w] x, float[batch,k] v) => (float[n,3,p,q] y, float[s] z) {
    y = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(x)
    f = Flatten<axis = 0>(v)  flat = Constant<value_ints = [-1]>()  z = Reshape(f, flat)
}"""


def saved(text: str, folder: Path) -> Path:
    path = folder / "m.onnx"
    onnx.save(model(text), path)
    return path


def test_open_dimensions_are_shown_by_name(tmp_path: Path):
    done = intaglio("inspect", DIGITS)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "inputs      image  f32[batch, 1, 8, 8]" in lines
    assert "outputs     probabilities  f32[batch, 10]" in lines
    assert "work        0.48 million multiply-accumulates per run at batch=1" in lines
    path = saved(PICTURE, tmp_path)
    done = intaglio("inspect", path, "--graph")
    assert done.returncode == 0, done.stderr
    assert "x  f32[n, 3, h, w]" in done.stdout
    assert "y  f32[n, 3, p, q]" in done.stdout
    assert "z  f32[s]" in done.stdout
    assert "at n=1, h=224, w=224, batch=1, k=128" in done.stdout
    facts = json.loads(intaglio("inspect", path, "--dim", "h=32", "--json").stdout)
    assert facts["inputs"]["x"]["shape"] == ["n", 3, 32, "w"]
    assert facts["outputs"]["y"]["shape"] == ["n", 3, 16, "q"]
    assert facts["open"] == {"n": 1, "w": 224, "batch": 1, "k": 128}


def test_dimensions_without_a_name(tmp_path: Path):
    source = model("(float[a,3] x) => (float[b,3] y) { y = Relu(x) }")
    for info in (*source.graph.input, *source.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "?"
    onnx.save(source, tmp_path / "m.onnx")
    done = intaglio("inspect", tmp_path / "m.onnx")
    assert "inputs      x  f32[?, 3]" in done.stdout
    assert "outputs     y  f32[?, 3]" in done.stdout


def test_a_model_that_is_valid_at_one_size_is_shown_from_its_file(tmp_path: Path):
    text = """(float[n,4] x) => (float[4] y) <float[4] c = {1,2,3,4}> {
        s = Constant<value_ints = [4]>()  r = Reshape(x, s)  y = Add(r, c) }"""
    path = saved(text, tmp_path)
    done = intaglio("inspect", path)
    assert done.returncode == 0, done.stderr
    assert "inputs      x  f32[n, 4]" in done.stdout
    assert "work        depends on open dimensions; bind them with --dim" in done.stdout
    assert "parameters  4 " in done.stdout
    assert "Reshape" in done.stdout
    done = intaglio("inspect", path, "--graph")
    assert done.returncode == 2
    assert "bind them with --dim" in done.stderr
    done = intaglio("inspect", path, "--dim", "n=1", "--graph")
    assert done.returncode == 0, done.stderr
    assert "inputs      x  f32[1x4]" in done.stdout


def test_several_sizes_are_shown_at_the_largest(tmp_path: Path):
    """As are the choices and the partition."""
    path = saved("(float[1,n] x) => (float[1,n] y) { y = Exp(x) }", tmp_path)
    made = tmp_path / "m.itg"
    intaglio("compile", path, "--dim", "n=3,40", "-o", made)
    facts = json.loads(intaglio("inspect", made, "--json").stdout)
    assert facts["inputs"]["x"]["shape"] == [1, 40]
