"""`eval`: top-k, boxes, masks, texts and own metrics on small models; bad input."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import intaglio
from intaglio.cli import cli
from intaglio.errors import BadFile, BadInput
from intaglio.evaluation import evaluate
from intaglio.evaluation.measures import class_map, ctc_text, edit_distance, mean_iou
from intaglio.evaluation.truth import read_truth
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.linear import matmul
from intaglio.ops.reduce import reduce_mean
from intaglio.ops.shape import reshape

COLOURS = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]


def classifier():
    """The mean of each channel is the score of its class."""
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    y = reshape(reduce_mean(x, axes=(2, 3), keepdims=False), shape=(1, 3))
    return Graph([x], [matmul(y, constant(np.eye(3, dtype=np.float32)))], ["scores"])


def segmenter():
    """The channel of a pixel is its class."""
    x = Value(Type("f32", (1, 3, 8, 8)), "x")
    w = constant(np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1))
    from intaglio.ops.conv import conv

    attrs = {"stride": (1, 1), "pad": (0,) * 4, "dilation": (1, 1), "groups": 1}
    return Graph([x], [conv(x, w, None, **attrs)], ["map"])


@pytest.fixture
def data(tmp_path):
    """Nine pictures of three classes; one has a wrong label."""
    folder = tmp_path / "data"
    folder.mkdir()
    lines = []
    for i in range(9):
        label = i % 3
        Image.new("RGB", (20, 10), COLOURS[label]).save(folder / f"p{i}.png")
        lines.append(f"p{i}.png,{label if i else 1}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def test_top_k_and_several_models(data):
    package = intaglio.compile(classifier())
    found = evaluate([package, package], data, "top1", std=255.0)
    assert [s.figures["top1"] for s in found.scores] == [8 / 9, 8 / 9]
    low, high = found.scores[0].intervals["top1"]
    assert 0.5 < low < 8 / 9 <= high <= 1
    assert "change" in str(found)
    assert found.scores[0].change is None
    assert found.scores[1].change == (0.0, 0.0)  # the same model on the same pictures
    assert evaluate(package, data, "top2", std=255.0).scores[0].figures["top2"] >= 8 / 9
    with pytest.raises(BadInput, match="the model has 3 classes"):
        evaluate(package, data, "top99", std=255.0)
    assert found.to_dict()["models"][0]["pictures"] == 9


def test_models_of_one_name_have_their_own_rows_and_pictures(data, tmp_path):
    paths = [tmp_path / folder / "m.itg" for folder in "ab"]
    for path in paths:
        path.parent.mkdir()
        intaglio.compile(classifier()).save(path)
    found = evaluate(paths, data, "top1", std=255.0, limit=2, draw=tmp_path / "drawn")
    assert [s.model for s in found.scores] == ["m.itg", "m.itg 2"]
    drawn = tmp_path / "drawn"
    assert sorted(p.name for p in drawn.iterdir()) == ["m.itg", "m.itg 2"]
    assert all(len(list(p.iterdir())) == 2 for p in drawn.iterdir())


def test_folders_of_classes(data, tmp_path):
    for i in range(9):
        target = tmp_path / "folders" / "abc"[i % 3]
        target.mkdir(parents=True, exist_ok=True)
        (data / f"p{i}.png").rename(target / f"p{i}.png")
    found = evaluate(intaglio.compile(classifier()), tmp_path / "folders", std=255.0)
    assert found.scores[0].figures["top1"] == 1


def test_masks(tmp_path):
    images, masks = tmp_path / "images", tmp_path / "masks"
    images.mkdir()
    masks.mkdir()
    truth = np.zeros((10, 20), np.uint8)
    truth[:, 10:] = 2
    Image.fromarray(np.array(COLOURS, np.uint8)[truth]).save(images / "a.png")
    wrong = truth.copy()
    wrong[:5] = 255  # ignored
    Image.fromarray(wrong).save(masks / "a.png")
    found = evaluate(
        intaglio.compile(segmenter()),
        images,
        "iou",
        truth=masks,
        draw=tmp_path / "drawn",
        std=255.0,
    )
    assert found.scores[0].figures["mIoU"] == pytest.approx(1.0)
    assert (tmp_path / "drawn" / "a.png").exists()


def test_measures():
    assert edit_distance("kitten", "sitting") == 3
    logits = np.eye(4)[[0, 1, 1, 0, 1, 2, 0, 3]][None]
    assert ctc_text(logits, "abc") == "aabc"
    assert ctc_text(np.eye(4)[[0, 3, 1]][None], "abc", blank=3) == "ab"
    assert (
        class_map(np.zeros((1, 3, 4, 5))).shape == class_map(np.zeros((1, 4, 5, 3))).shape == (4, 5)
    )
    assert mean_iou(np.array([[4, 0], [2, 2]])) == pytest.approx((4 / 6 + 2 / 4) / 2)


def test_own_metric_and_command(data, tmp_path):
    (tmp_path / "mine.py").write_text("def score(p, label):\n    return p.classes[0].score\n")
    model = tmp_path / "m.itg"
    intaglio.compile(classifier()).save(model)
    run = CliRunner().invoke
    args = ["eval", str(model), "--data", str(data), "--std", "255"]
    plain = json.loads(run(cli, [*args, "--metric", f"{tmp_path}/mine.py:score", "--json"]).output)
    assert plain["models"][0]["figures"]["score"] > 0.5
    (tmp_path / "bad.py").write_text("def score(:\n")
    (tmp_path / "lost.py").write_text("import no_such_module_anywhere\n")
    empty = tmp_path / "empty"
    empty.mkdir()
    (data / "labels.csv").rename(tmp_path / "other.csv")
    for more, words in (
        (["--metric", "topp1"], "no metric is called 'topp1'; did you mean 'top"),
        (["--metric", "map"], "no picture has a label"),
        (["--metric", "top1"], "add labels.csv"),
        (["--truth", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--data", str(empty)], "no pictures in it"),
        (["--metric", f"{tmp_path}/mine.py:other"], "has no function 'other'"),
        (
            ["--metric", f"{tmp_path}/bad.py:score"],
            "bad.py, line 1 cannot be imported: SyntaxError",
        ),
        (["--metric", f"{tmp_path}/lost.py:score"], "cannot be imported: ModuleNotFoundError"),
    ):
        with pytest.raises(BadInput, match=words):
            run(cli, [*args, *more], catch_exceptions=False, standalone_mode=False)


def test_labels_of_yolo_may_be_polygons_and_may_be_missing(tmp_path):
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    for i in range(3):
        Image.new("RGB", (20, 10)).save(tmp_path / "images" / f"p{i}.png")
    (tmp_path / "labels" / "p0.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (tmp_path / "labels" / "p1.txt").write_text("2 0.125 0.25 0.5 0.125 0.5 0.75\n\n")
    found = read_truth("boxes", tmp_path, None).labels
    p0, p1, p2 = found.values()
    assert p0.rows == [(1, (0.25, 0.25, 0.75, 0.75))]
    assert p1.rows == [(2, (0.125, 0.125, 0.5, 0.75))]
    assert p2.rows == []  # a picture without objects: what is found there is wrong
    (tmp_path / "labels" / "p1.txt").write_text("2 0.1 0.2\n")
    with pytest.raises(BadFile, match=r"p1\.txt, line 1: '2 0\.1 0\.2'; a line has class"):
        read_truth("boxes", tmp_path, None)
