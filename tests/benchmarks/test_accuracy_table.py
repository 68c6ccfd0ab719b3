"""Metrics on cases that can be counted by hand, and the bundled model through every step."""

import dataclasses
import json

import numpy as np
import pytest
from benchmarks.accuracy import (
    Score,
    Task,
    data,
    detect,
    engines,
    files,
    one,
    printed,
    report,
    tiny,
    vision,
)

from benchmarks import accuracy, models


def boxes(*rows):
    return np.array(rows, float).reshape(-1, 6)


def test_overlap_is_intersection_over_union():
    a, b = np.array([[0, 0, 2, 2.0]]), np.array([[1, 1, 3, 3.0], [0, 0, 2, 2], [5, 5, 6, 6]])
    np.testing.assert_allclose(detect.overlap(a, b), [[1 / 7, 1, 0]])


def test_only_the_best_of_overlapping_boxes_of_a_class_stays():
    found = boxes((0, 0.5, 0, 0, 10, 10), (0, 0.9, 0, 0, 10, 9), (1, 0.4, 0, 0, 10, 10))
    kept = detect.suppress(found, 0.5)
    assert kept[:, :2].tolist() == [[0, 0.9], [1, 0.4]]


def test_average_precision_of_a_perfect_and_of_an_empty_answer():
    truth = [np.array([[3, 0, 0, 10, 10.0], [5, 20, 20, 30, 30]]), np.array([[3, 5, 5, 9, 9.0]])]
    found = [np.insert(t, 1, 0.8, axis=1) for t in truth]
    assert detect.average_precision(found, truth) == pytest.approx((100, 100))
    assert detect.average_precision([boxes(), boxes()], truth) == (0, 0)


def test_average_precision_counts_misses_doubles_and_loose_boxes():
    truth = [np.array([[0, 0, 0, 10, 10.0], [0, 20, 0, 30, 10]])]
    # a hit, the same box again, and nothing on the second: half of the recall, at full precision
    twice = boxes((0, 0.9, 0, 0, 10, 10), (0, 0.8, 0, 0, 10, 10))
    assert detect.average_precision([twice], truth)[1] == pytest.approx(100 * 51 / 101)
    # the first detection is wrong: both hits come behind it, at precisions of 1/2 and 2/3
    late = boxes((0, 0.9, 50, 50, 60, 60), (0, 0.8, 0, 0, 10, 10), (0, 0.7, 20, 0, 30, 10))
    assert detect.average_precision([late], truth)[1] == pytest.approx(100 * 2 / 3)
    # an overlap of 0.82 counts at 7 of the 10 thresholds
    loose = boxes((0, 0.9, 0, 0, 10, 8.2), (0, 0.8, 20, 0, 30, 8.2))
    ap, ap50 = detect.average_precision([loose], truth)
    assert (ap, ap50) == (pytest.approx(70), pytest.approx(100))


def test_pseudo_values_of_average_precision():
    """Equal pictures have equal pseudo-values of AP; a picture with a miss has a smaller one."""
    truth = [np.array([[0, 0, 0, 10, 10.0]])] * 5
    hit, miss = boxes((0, 0.9, 0, 0, 10, 10)), boxes((0, 0.8, 50, 50, 60, 60))
    assert detect.by_picture([hit] * 5, truth) == pytest.approx([100] * 5)
    parts = detect.by_picture([hit] * 4 + [miss], truth, only50=True)
    whole = detect.average_precision([hit] * 4 + [miss], truth)[1]
    assert parts[4] < parts[0] == pytest.approx(parts[3])
    # without the picture that misses, AP is 100: the pseudo-value is 5 AP - 4 * 100
    assert parts[4] == pytest.approx(5 * whole - 400)


def test_a_class_that_only_the_left_out_picture_has_does_not_count():
    truth = [np.array([[0, 0, 0, 10, 10.0]]), np.array([[1, 0, 0, 10, 10.0]])]
    found = [np.insert(t, 1, 0.8, axis=1) for t in truth]
    assert detect.by_picture(found, truth) == pytest.approx([100, 100])


def test_views_of_a_sample_count_as_one():
    sure, wrong = [np.array([0, 1.0])], [np.array([1.0, 0])]
    made = vision.top1([1, 1], views=2)([sure, wrong, sure, sure], [])
    assert (made.value, made.parts) == (75, [50, 100])
    assert tiny.later(np.arange(4), 1).tolist() == [0, 0, 1, 2]
    assert tiny.later(np.arange(4), -2).tolist() == [2, 3, 3, 3]
    assert vision.mirrored(np.arange(6).reshape(1, 2, 3)).tolist() == [[[3, 4, 5], [0, 1, 2]]]


def test_detections_agree_within_a_tolerance():
    one_side = boxes((1, 0.60, 0, 0, 10, 10), (1, 0.31, 50, 50, 60, 60))
    other = boxes((1, 0.62, 0, 0, 10, 10), (1, 0.29, 50, 50, 60, 60))

    def same(a, b):
        return detect.agreement([((a, a), (b, b))], 0.3)

    assert same(one_side, other) == (3, 3)
    assert same(one_side, boxes((2, 0.6, 0, 0, 10, 10))) == (0, 3)
    assert same(one_side, boxes((1, 0.7, 0, 0, 10, 10))) == (0, 3)


def test_either_of_two_similar_boxes_may_survive_suppression():
    every = [
        boxes((1, a, 0, 0, 10, 10), (1, b, 0, 0, 10, 13)) for a, b in ((0.6, 0.59), (0.58, 0.6))
    ]
    kept = [detect.suppress(found, 0.5) for found in every]
    assert [len(k) for k in kept] == [1, 1]
    assert detect.agreement([((kept[0], every[0]), (kept[1], every[1]))], 0.3) == (2, 2)
    assert detect.agreement([((kept[0], kept[0]), (kept[1], kept[1]))], 0.3) == (0, 2)


def test_yolov8_boxes_are_centred_and_scores_follow_them():
    out = np.zeros((1, 6, 3), np.float32)
    out[0, :4, 1], out[0, 5, 1] = (10, 20, 4, 6), 0.8
    np.testing.assert_allclose(detect.yolov8([out], 0.5), [[1, 0.8, 8, 17, 12, 23]], rtol=1e-6)


def test_small_metrics():
    assert printed.edits("kitten", "sitting") == 3
    assert tiny.area_under_curve(np.array([1, 2, 3.0]), np.array([0, 1, 1])) == 1
    assert tiny.area_under_curve(np.array([2, 2, 1.0]), np.array([0, 1, 1])) == 0.25
    assert data.spread(list(range(10)), 3) == [0, 3, 6]
    square, factor = data.letterbox(np.full((2, 4, 3), 7.0), 8)
    assert factor == 2
    assert (square[:4] == 7).all()
    assert (square[4:] == 114).all()


def test_printed_lines_are_of_words_that_were_not_calibrated_with():
    assert printed.line(True, 3) != printed.line(False, 3)
    assert printed.line(False, 3) == printed.line(False, 3) != printed.line(False, 4)
    assert all(0 < len(printed.line(False, i)) <= printed.LETTERS for i in range(50))
    pytest.importorskip("PIL")
    strip = printed.cut("ink", 192, 48, 0)
    assert strip.shape == (48, 192, 3)
    assert (strip[:, -1] == 127.5).all()  # behind the line
    assert strip[:, :40].std() > 10
    image, (left, top, right, bottom) = printed.drawn("ink", 192, 48, 0)
    assert 0 <= left < right <= image.shape[1]
    assert 0 <= top < bottom <= image.shape[0]


def test_letters_are_read_without_repeats_and_outer_spaces():
    alphabet = ["", "a", "b", " "]
    assert printed.letters(np.array([3, 1, 1, 0, 1, 3, 2, 2, 3, 0]), alphabet) == "aa b"


def test_text_boxes_grow_by_the_published_ratio():
    pytest.importorskip("scipy")
    chances = np.zeros((60, 60))
    chances[20:30, 10:40] = 0.9
    chances[50:52, 50:58] = 0.9  # too thin
    chances[5:10, 50:58] = 0.4  # ink, but not sure
    grow = 1.5 * (10 * 30) / (2 * (10 + 30))
    np.testing.assert_allclose(
        printed.found(chances), [[10 - grow, 20 - grow, 40 + grow, 30 + grow]]
    )
    chances[29:35, 40:42] = 0.9  # hangs on by a corner
    assert len(printed.found(chances)) == 1


def test_a_line_and_a_box_have_one_partner_at_most():
    truth = np.array([[0, 0, 10, 10.0], [20, 0, 30, 10]])
    assert printed.matched(np.zeros((0, 4)), truth) == []
    assert printed.matched(truth[:1], truth) == [1]
    half = np.array([[0, 0, 10, 5.0], [0, 0, 10, 10]])
    assert printed.matched(half, truth) == [1]


def row(model, engine, value, parts=(), **more):
    return {
        "model": model,
        "metric": "top-1 %",
        "engine": engine,
        "value": value,
        "parts": list(parts),
        "more": more,
    }


def test_the_verdict_names_drops_and_better_peers():
    rows = [
        row("a", engines.FLOAT, 70.0),
        row("a", engines.OURS, 69.0),
        row("a", engines.STATIC, 60.0),
        row("b", engines.FLOAT, 50.0),
        row("b", engines.OURS, 48.5),
        row("b", engines.STATIC, 49.5),
        {"model": "c", "metric": "AP", "engine": engines.FLOAT, "missing": "no such file"},
    ]
    said = report.verdict(rows)
    assert said[0] == "intaglio: mean drop 1.25 (allowed 0.5): NOT MET"
    assert said[1] == "intaglio: worst drop 1.50 on b (allowed 1.0): NOT MET"
    assert said[2] == "intaglio: behind a peer: b 1.00 (onnxruntime)"
    shown = report.markdown(rows)
    assert "| a | top-1 % | 70.00 | 69.00 (-1.00) | 60.00 (-10.00) |" in shown
    assert "- c, float: no such file" in shown


def test_a_lead_within_its_standard_error_is_marked():
    ours, best = [100.0, 0, 100, 0], [100.0, 100, 0, 100]
    rows = [
        row("a", engines.FLOAT, 75.0, best),
        row("a", engines.OURS, 50.0, ours),
        row("a", engines.STATIC, 75.0, best),
    ]
    assert report.spread(rows[1], rows[2]) == pytest.approx(47.9, abs=0.1)
    said = report.verdict(rows)
    assert said[2] == "intaglio: behind a peer: a 25.00 ± 47.87 (onnxruntime)"
    assert said[3] == "intaglio: behind a peer by more than the standard error: nowhere"
    assert "| a | 4 | -25.00 ± 47.87 |" in report.markdown(rows)


def test_a_peer_above_float_is_named():
    rows = [
        row("a", engines.FLOAT, 75.0),
        row("a", engines.OURS, 74.0),
        row("a", engines.STATIC, 77.0),
    ]
    words = "a 3.00 (onnxruntime, which is 2.00 above float)"
    assert report.verdict(rows)[2:] == [
        f"intaglio: behind a peer: {words}",
        f"intaglio: behind a peer by more than the standard error: {words}",
    ]
    rows[1]["value"] = 77.0
    assert report.verdict(rows)[2] == "intaglio: behind a peer: nowhere"


@pytest.fixture
def digits(tmp_path, monkeypatch):
    """The bundled net on noise; labels are the float model's classes."""

    def same(answers, right):
        return vision.top1([int(r[0].argmax()) for r in right])(answers, right)

    monkeypatch.setattr(files, "KEPT", tmp_path)
    return Task(
        "same %",
        lambda: files.with_shapes(models.DIGITS, {"image": (1, 1, 8, 8)}),
        lambda n: [_noise(i) for i in range(n)],
        lambda n: (_noise(100 + i) for i in range(n)),
        same,
        samples=20,
        quick=5,
        calibrate=8,
        agreement=True,
    )


def _noise(seed):
    return {"image": np.random.default_rng(seed).random((1, 1, 8, 8), np.float32)}


@pytest.mark.parametrize("engine", [engines.FLOAT, engines.OURS, engines.STATIC])
def test_a_task_from_file_to_score(digits, engine):
    if why := engines.missing(engine) or engines.missing(engines.FLOAT):
        pytest.skip(why)
    found = one.evaluate(digits, engine, quick=False)
    assert len(found["parts"]) == 20
    assert found["value"] == 100 if engine == engines.FLOAT else found["value"] >= 80
    json.dumps(found)


def test_missing_files_are_reported(monkeypatch, tmp_path, capsys):
    from benchmarks.accuracy import __main__

    monkeypatch.setattr(files, "SHARED", tmp_path)
    with pytest.raises(accuracy.Missing, match="INTAGLIO_SHARED names the folder"):
        one.TASKS["mnist_cntk"].files()
    with pytest.raises(SystemExit):
        __main__.main(["no_such_model"])
    assert "there is no model 'no_such_model'" in capsys.readouterr().err
    assert Score(1.0).parts == []


def test_scores_of_other_pictures_are_not_reused(tmp_path, monkeypatch):
    model = tmp_path / "model.onnx"
    model.write_bytes(b"any")
    task = dataclasses.replace(one.TASKS["ultraface"], file=lambda: model)
    monkeypatch.setattr(engines, "PACKAGES", {"peer": ["numpy"]})
    monkeypatch.delenv("INTAGLIO_IMAGENET", raising=False)
    usual = one._kept("ultraface", task, "peer", False)
    assert usual == one._kept("ultraface", task, "peer", False)
    monkeypatch.setenv("INTAGLIO_IMAGENET", str(tmp_path))
    assert one._kept("ultraface", task, "peer", False) != usual
