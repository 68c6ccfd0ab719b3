"""`intaglio run` on pictures: text, JSON, drawings, sources and messages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.vision.test_predict import adder, detector

import intaglio
from intaglio.cli import cli

Image = pytest.importorskip("PIL.Image")


def run(*args: object) -> Result:
    return CliRunner().invoke(cli, ["run", *map(str, args)])


def words(*args: object) -> str:
    """The error message of a run that fails."""
    done = run(*args)
    assert done.exit_code
    return str(done.exception)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of a detector, of a model that no decoder fits, and pictures."""
    folder = tmp_path_factory.mktemp("pictures")
    intaglio.compile(detector({"names": "['cat', 'dog']"}), resize="letterbox").save(
        folder / "detector.itg"
    )
    intaglio.compile(adder()).save(folder / "adder.itg")
    (folder / "frames").mkdir()
    for name in ("picture.png", "frames/f10.png", "frames/f9.jpg"):
        Image.fromarray(np.zeros((64, 128, 3), np.uint8)).save(folder / name)
    return folder


def test_one_picture(files: Path, tmp_path: Path):
    picture = files / "picture.png"
    done = run(files / "detector.itg", picture, "--draw", tmp_path / "out.png")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        f"{files}/detector.itg: read as yolov8, 2 classes; pictures: letterbox to 64x64, RGB",
        f"{picture} (128x64): 1 object",
        "  dog              0.90  48,24 to 80,40",
        f"wrote {tmp_path}/out.png",
    ]
    assert Image.open(tmp_path / "out.png").size == (128, 64)


def test_a_folder_in_natural_order(files: Path, tmp_path: Path):
    done = run(files / "detector.itg", files / "frames", "--json", "--draw", tmp_path / "drawn")
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [Path(line["picture"]).name for line in lines] == ["f9.jpg", "f10.png"]
    assert lines[0]["detections"][0]["box"] == [48, 24, 80, 40]
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["f10.png", "f9.jpg"]
    some = run(files / "detector.itg", files / "frames/f*", "--json", "--frames", 1)
    assert [json.loads(line)["picture"] for line in some.output.splitlines()] == [
        f"{files}/frames/f9.jpg"
    ]
    assert "give a folder" in words(
        files / "detector.itg", files / "frames", "--draw", tmp_path / "out.png"
    )


def test_drawings_overwrite_nothing(files: Path, tmp_path: Path):
    """Pictures of one name get numbers, and no picture is replaced by its drawing."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.zeros((64, 128, 3), np.uint8)).save(tmp_path / name / "f.png")
    run(files / "detector.itg", tmp_path / "a", tmp_path / "b", "--draw", tmp_path / "drawn")
    assert sorted(p.name for p in (tmp_path / "drawn").iterdir()) == ["f.png", "f_2.png"]
    for where in (tmp_path / "a", tmp_path / "a" / "f.png"):
        error = words(files / "detector.itg", tmp_path / "a" / "f.png", "--draw", where)
        assert "is the picture itself" in error
    assert not np.asarray(Image.open(tmp_path / "a" / "f.png")).any()


def test_without_pillow(files: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "needs Pillow" in words(files / "detector.itg", files / "picture.png")


def test_a_video_and_a_camera(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cv2 = pytest.importorskip("cv2")
    path = str(tmp_path / "video.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 10, (128, 64))
    for level in (0, 100, 200):
        writer.write(np.full((64, 128, 3), level, np.uint8))
    writer.release()
    done = run(files / "detector.itg", path, "--frames", 2, "--draw", tmp_path / "drawn")
    assert done.exit_code == 0, done.output
    names = sorted(p.name for p in (tmp_path / "drawn").iterdir())
    assert names == ["video_000000.png", "video_000001.png"]
    level = np.asarray(Image.open(tmp_path / "drawn" / names[1]))[2, 2, 0]
    assert level == pytest.approx(100, abs=3)
    monkeypatch.setitem(sys.modules, "cv2", None)
    monkeypatch.chdir(tmp_path)
    assert "camera 0: cameras and videos need OpenCV" in words(files / "detector.itg", "0")


def test_outputs_that_no_decoder_fits(files: Path, tmp_path: Path):
    adder_model, picture = files / "adder.itg", files / "picture.png"
    done = run(adder_model, picture, "-o", tmp_path / "out.npz")
    assert done.exit_code == 0, done.output
    assert "outputs are not decoded" in done.output
    assert "y: float32[1, 3, 16, 24] min 1, mean 1, max 1" in done.output
    with np.load(tmp_path / "out.npz") as saved:
        assert saved["y"].shape == (1, 3, 16, 24)
    error = words(adder_model, picture, "--draw", tmp_path / "out.png")
    assert "'y' f32[1x3x16x24] fit no known detector" in error
    assert "--decode ...: one of yolov8, yolov5, yolox" in error
    assert "did you mean yolov8?" in words(adder_model, picture, "--decode", "yolo8")
    assert "are not those of yolov5" in words(adder_model, picture, "--decode", "yolov5")


def test_a_package_without_preprocessing_warns_and_takes_options(files: Path):
    done = run(files / "adder.itg", files / "picture.png")
    assert "does not say how pictures are prepared" in done.stderr
    assert "give --mean, --std and --resize" in done.stderr
    done = run(files / "adder.itg", files / "picture.png", "--mean", "1,2,3", "--std", "10")
    assert "stretch to 24x16, RGB, mean 1,2,3, std 10" in done.output
    assert "min 0.7, mean 0.8, max 0.9" in done.output


def test_what_does_not_go_together(files: Path, tmp_path: Path):
    model, picture = files / "detector.itg", files / "picture.png"
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 64, 64), np.float32))
    assert "x.npy is no picture" in words(model, picture, tmp_path / "x.npy")
    assert "--draw is for pictures" in words(model, tmp_path / "x.npy", "--draw", "out.png")
    assert "--fill is for arrays" in words(model, picture, "--fill", "zeros")
    assert "-o holds the outputs of one picture" in words(
        model, files / "frames", "-o", tmp_path / "o.npz"
    )
    assert "no such file" in words(model, tmp_path / "none.png")
    assert "no pictures in it" in words(model, tmp_path)


def test_top_names_the_classes_of_an_array(tmp_path: Path):
    """No numpy in the text, softmax for logits alone."""
    intaglio.compile(adder((1, 3, 1, 1))).save(tmp_path / "m.itg")
    np.save(tmp_path / "x.npy", np.array([0, 1, 3], np.float32).reshape(1, 3, 1, 1))
    (tmp_path / "names.txt").write_text("cat\ndog\nbird\n")
    done = run(tmp_path / "m.itg", tmp_path / "x.npy", "--top", 2, "--labels",
               tmp_path / "names.txt")  # fmt: skip
    assert done.output.splitlines() == [
        "y: float32[1, 3, 1, 1] 1 2 4",
        "  top 2 (softmax of logits)",
        "  bird             0.843795",
        "  dog              0.114195",
    ]
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1))
    intaglio.compile(adder((1, 3, 2, 1))).save(tmp_path / "n.itg")
    np.save(tmp_path / "z.npy", np.arange(6, dtype=np.float32).reshape(1, 3, 2, 1))
    done = run(tmp_path / "n.itg", tmp_path / "z.npy", "--top", 1)
    assert done.output.splitlines()[1] == "  [0,2,1,0]  6"


def test_an_npu_package(tmp_path: Path):
    """A package of a chip runs in the simulator, with the same preprocessing."""
    from tests.vision.test_predict import convolution, samples

    (tmp_path / "samples").mkdir()
    graph = intaglio.quantize(
        convolution(), samples(tmp_path / "samples"), std=255, target="rk3588"
    )
    intaglio.compile(graph, target="rk3588").save(tmp_path / "npu.itg")
    Image.fromarray(np.full((16, 24, 3), 255, np.uint8)).save(tmp_path / "white.png")
    done = run(tmp_path / "npu.itg", tmp_path / "white.png")
    assert "stretch to 24x16, RGB, std 255" in done.output
    assert "y: float32[1, 3, 16, 24] min 0.9" in done.output or "min 1" in done.output
