"""The programs, schemes and lists in docs/quantization.md work."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.quant.options import METHODS
from intaglio.quant.pipeline import calibrate
from intaglio.quant.placement.scheme import PRECISIONS, Scheme

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "quantization.md").read_text()
DIGITS = ROOT / "examples" / "digits"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def images() -> np.ndarray:
    with np.load(DIGITS / "digits_test.npz") as data:
        return (data["images"][:8] / 16).astype(np.float32)


def test_the_scheme_works(tmp_path: Path, images: np.ndarray):
    (text,) = blocks("yaml")
    path = tmp_path / "scheme.yaml"
    path.write_text(text)
    made = calibrate(
        DIGITS / "digits.onnx", images, scheme=Scheme.load(path, strict=True), dims={"batch": 1}
    )
    layers = made.scheme.layers
    assert layers["logits"] == "f32"
    assert {p for name, p in layers.items() if name.startswith("block2.norm")} == {"f32"}
    assert {p for name, p in layers.items() if name.startswith("block1.")} == {"int8"}
    assert made.scheme.tensors["image"].dtype == "u8"


@pytest.fixture
def folder(tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the programs of the page read."""
    whole = intaglio.load(DIGITS / "digits.onnx", dims={"batch": 1})
    intaglio.save_onnx(whole, tmp_path / "model.onnx")
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i, image in enumerate(images):
        pixels = (image[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_program_works(folder: Path):
    code, _ = blocks("python")
    code = re.sub(r"\[\d[^]]*\]", "[1.0]", code)  # the example's model has one channel
    exec(compile(code, "docs/quantization.md", "exec"), {})
    assert (folder / "model.itg").stat().st_size < (folder / "model.onnx").stat().st_size
    assert (folder / "model_qdq.onnx").exists()


def test_the_simulation_equals_the_runtime(folder: Path, images: np.ndarray):
    _, code = blocks("python")
    lines = code.replace('"input"', '"image"').splitlines()
    quantise, *ways = lines[lines.index("") + 2 :]  # without import and np.load
    names = {"intaglio": intaglio, "array": images[:1]}
    exec(quantise, names)
    numpy, native, floats = (next(iter(eval(way, names).values())) for way in ways)
    np.testing.assert_allclose(numpy, native, rtol=1e-5)  # the bytes are the same; softmax is f32
    assert np.abs(numpy - floats).max() < 0.05


def test_the_lists_are_complete():
    listed = re.findall(r"^\| `(\w+)` \|", TEXT.split("## Ranges")[1].split("## ")[0], re.MULTILINE)
    assert sorted(listed) == sorted(METHODS)
    words = TEXT.split("A **precision** is")[1].split(".")[0]
    assert re.findall(r"`(\w+)`", words) == list(PRECISIONS)
