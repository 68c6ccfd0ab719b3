"""From `pip install` to a picture with boxes on it: the tutorial's commands, and what they find."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tests.test_docs import blocks, lines_of, run_line

import intaglio
from intaglio import vision
from intaglio.vision.boxes import overlap

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("onnx")

ROOT = Path(__file__).parents[1]
SHAPES = ROOT / "examples" / "shapes"
TUTORIAL = ROOT / "docs" / "tutorials" / "detector.md"
PICTURE_SEED = 243  # of examples/shapes/picture.jpg
MOST_COMMANDS = 10


@pytest.fixture(scope="module")
def truth() -> dict[str, tuple[float, ...]]:
    """The box of each shape in the picture, by its name."""
    sys.path.insert(0, str(SHAPES))
    try:
        from draw import NAMES, scene
    finally:
        sys.path.remove(str(SHAPES))
    image, boxes = scene(np.random.default_rng(PICTURE_SEED), 480, 360, 14)
    with Image.open(SHAPES / "picture.jpg") as shipped:
        apart = np.abs(np.asarray(shipped, np.float32) - np.asarray(image, np.float32))
    assert apart.mean() < 8  # the shipped picture is that scene, as JPEG
    return {NAMES[label]: tuple(box) for label, *box in boxes}


def test_the_walk(truth: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """At most ten commands; float and int8 find every shape; the drawing is the tutorial's."""
    commands = [
        line for b in blocks(TUTORIAL) if b["language"] == "sh" for line in lines_of(b["code"])
    ]
    assert commands[0].startswith("pip install")
    assert len(commands) <= MOST_COMMANDS
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for line in commands:
        run_line(line, str(TUTORIAL))
    for name in ("shapes", "shapes_int8"):
        with intaglio.open(f"{name}.itg") as session:
            found = vision.predict(session, SHAPES / "picture.jpg").detections
        assert sorted(d.name for d in found) == sorted(truth)
        for d in found:
            assert overlap(np.array([d.box]), np.array([truth[d.name]]))[0, 0] > 0.75, (name, d)
    assert len(list(Path("drawn").iterdir())) == 2
    drawn, shown = map(changed, (Path("found.png"), ROOT / "docs/assets/shapes-found.jpg"))
    assert (drawn & shown).sum() > 0.8 * (drawn | shown).sum()  # JPEG rounds, and fonts differ


def changed(path: Path) -> np.ndarray:
    """Which pixels differ from the picture: boxes and names."""
    plain, other = (
        np.asarray(Image.open(p).convert("RGB"), np.float32) for p in (SHAPES / "picture.jpg", path)
    )
    return np.abs(plain - other).max(-1) > 50


def test_the_names_are_in_the_model():
    graph = intaglio.load(SHAPES / "shapes.onnx")
    assert graph.metadata["names"].count("'") == 10
    assert (SHAPES / "shapes.onnx").stat().st_size < 300_000
