"""Extras that are missing: the command in the message installs what is missing."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import intaglio
from intaglio import extras

DECLARED = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("extra", ["onnx", "tflite", "images", "torch", "secrets"])
def test_the_command_names_the_packages(extra: str):
    if not extras.requirements(extra):
        pytest.skip("intaglio is not installed here, only importable")
    wanted = DECLARED["optional-dependencies"][extra]
    assert extras.install_command(extra) == "pip install " + " ".join(f'"{w}"' for w in wanted)


def test_without_an_installation_the_command_is_for_the_checkout(monkeypatch: pytest.MonkeyPatch):
    def requires(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "requires", requires)
    assert extras.install_command("onnx") == 'pip install ".[onnx]"'


@pytest.mark.parametrize(
    ("module", "name", "data"),
    [("onnx", "m.onnx", b"\x08\x08:\x00"), ("tflite", "m.tflite", b"\0\0\0\0TFL3\0\0\0\0")],
)
def test_a_model_whose_reader_is_missing(
    module: str, name: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / name).write_bytes(data)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(intaglio.IntaglioError, match=f"{module} package, which is missing; pip"):
        intaglio.load(tmp_path / name)
