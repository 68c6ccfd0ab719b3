"""`intaglio weights`, `intaglio update`, and the options for weight files of other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.package.networks import network
from tests.test_weight_update import X, outputs, retrained

import intaglio
from intaglio.cli import cli, key_options

onnx = pytest.importorskip("onnx")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "a.onnx")
    onnx.save(retrained(network()), "b.onnx")
    np.save("x.npy", X)
    return tmp_path


def run(*arguments: str, fails: bool = False) -> Result:
    result = CliRunner().invoke(cli, arguments)
    if fails:
        assert isinstance(result.exception, intaglio.IntaglioError), result.output
    else:
        assert result.exit_code == 0, f"{result.output} {result.exception}"
    return result


def shown(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").output)


def test_a_package_without_weights_is_compiled_run_and_shown(folder):
    made = run("compile", "a.onnx", "--weights-file", "a.weights")
    assert "constants in a.weights, content" in made.output
    assert Path("a.itg").stat().st_size < 10_000
    run("run", "a.itg", "x.npy", "-o", "out.npz")
    np.testing.assert_array_equal(np.load("out.npz")["y"], outputs(intaglio.compile("a.onnx")))
    run("bench", "a.itg", "--seconds", "0.01")
    facts = shown("inspect", "a.itg")["weight_files"]
    assert facts == shown("weights", "a.itg")
    assert (facts[0]["name"], facts[0]["swappable"]) == ("a.weights", False)
    assert "mapped from weight files" in run("inspect", "a.itg").output
    Path("a.weights").rename("elsewhere")
    words = str(run("run", "a.itg", "x.npy", fails=True).exception)
    assert words.endswith("put it there, or give --weights")
    run("run", "a.itg", "x.npy", "--weights", "elsewhere")
    words = str(run("run", "a.onnx", "x.npy", "--weights", "elsewhere", fails=True).exception)
    assert words == "a.onnx is a model; --weights is for packages; leave it out"


def test_weights_are_shared_split_and_joined(folder):
    run("compile", "a.onnx", "--weights-file", "a.weights")
    run("compile", "a.onnx", "--batch", "2", "-o", "b.itg", "--weights-from", "a.itg")
    facts = shown("weights", "b.itg")
    assert [f["name"] for f in facts] == ["a.weights"]
    run("weights", "b.itg", "--inline", "-o", "whole.itg")
    assert shown("weights", "whole.itg") == []
    assert "in the package; no constant" in run("weights", "whole.itg").output
    two = np.concatenate([X, X])
    np.testing.assert_array_equal(outputs("whole.itg", two), outputs("b.itg", two))
    run("weights", "whole.itg", "--weights-file", "w.weights", "--swappable")
    assert shown("weights", "whole.itg")[0]["swappable"]
    np.testing.assert_array_equal(outputs("whole.itg", two), outputs("b.itg", two))


def test_update_writes_a_weight_file_or_a_package(folder):
    run("compile", "a.onnx", "--weights-file", "a.weights", "--swappable")
    package = Path("a.itg").read_bytes()
    made = run("update", "a.itg", "--weights", "b.onnx")
    assert "constants changed, the plan is the same\na.itg stays as it is" in made.output
    assert Path("a.itg").read_bytes() == package
    want = outputs(intaglio.compile("b.onnx"))
    np.testing.assert_array_equal(outputs("a.itg"), want)
    run("update", "a.itg", "--weights", "a.onnx", "-o", "old.weights")
    np.testing.assert_array_equal(outputs("a.itg"), want)
    run("update", "a.itg", "--weights", "b.onnx", "-o", "b.itg")
    np.testing.assert_array_equal(outputs("b.itg"), want)
    run("compile", "a.onnx", "-o", "whole.itg")
    run("update", "whole.itg", "--weights", "b.onnx")
    np.testing.assert_array_equal(outputs("whole.itg"), want)
    run("compile", "a.onnx", "-o", "p.itg", "--weights-file", "p.weights")
    words = str(run("update", "p.itg", "--weights", "b.onnx", fails=True).exception)
    assert "takes exactly the contents of 'p.weights'" in words


def test_wrong_uses_are_one_line(folder, monkeypatch):
    def words(*arguments: str) -> str:
        return str(run(*arguments, fails=True).exception)

    assert "name that file" in words("compile", "a.onnx", "--swappable")
    assert "does not lie beside" in words("compile", "a.onnx", "--weights-file", "/tmp/x/w")
    assert "cannot read no.itg" in words("compile", "a.onnx", "--weights-from", "no.itg")
    assert "is no package" in words("weights", "a.onnx")
    assert "is no package" in words("update", "a.onnx", "--weights", "b.onnx")
    run("compile", "a.onnx")
    assert "give one" in words("weights", "a.itg", "--inline", "--swappable")
    assert "nothing to do" in words("weights", "a.itg", "-o", "b.itg")
    assert "intaglio weights a.itg --weights-file a.weights" in words(
        "compile", "b.onnx", "--weights-from", "a.itg"
    )
    pytest.importorskip("cryptography")
    monkeypatch.setattr(key_options, "_write_no_core_dumps", lambda: None)
    run("keygen", "k")
    key = ("--encrypt", "all", "--key-file", "k")
    assert "holds its own weights" in words("compile", "a.onnx", *key, "--weights-file", "w")
