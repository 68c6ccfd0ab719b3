"""The calibration benchmark: its report, and one small run."""

import pytest

from benchmarks import calibration, models, peers


def found(ours, theirs, memory=500):
    return {
        "machine": {"cpus": 2},
        "model": "a",
        "images": 100,
        "taken": {
            peers.OURS: [{"seconds": s, "cpu": 2 * s, "megabytes": memory} for s in ours],
            calibration.ORT: [{"seconds": s, "cpu": s, "megabytes": 900} for s in theirs],
        },
    }


def test_the_least_time_and_the_largest_memory_count():
    said = calibration.report(found([12.0, 10.0], [40.0, 50.0]))
    assert "| intaglio | 10.0 | 20.0 | 10.0 | 500 |" in said
    assert "0.25 of onnxruntime's time (allowed 0.33): met" in said
    assert "500 MB at the peak (allowed 1024): met" in said


def test_missed_goals_are_reported():
    said = calibration.report(found([20.0], [40.0], 2000))
    assert "0.50 of onnxruntime's time (allowed 0.33): NOT MET" in said
    assert "2000 MB at the peak (allowed 1024): NOT MET" in said
    failed = found([], [1.0])
    failed["taken"][peers.OURS] = [{"failed": "no such op"}]
    assert "- intaglio: no such op" in calibration.report(failed)


def test_detectors_have_a_limit_in_seconds():
    for seconds, verdict in ((20.0, "met"), (40.0, "NOT MET")):
        said = calibration.report(found([seconds], [10.0]) | {"model": "nudenet"})
        assert f"{seconds:.1f} s (allowed 30 on two quiet cores): {verdict}" in said
        assert "of onnxruntime's time" not in said


def test_pictures_are_the_same_every_time(tmp_path):
    pytest.importorskip("PIL")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        calibration.draw(tmp_path / name, 2, 32)
    a, b = (sorted((tmp_path / n).iterdir()) for n in ("a", "b"))
    assert [f.read_bytes() for f in a] == [f.read_bytes() for f in b]
    assert a[0].read_bytes() != a[1].read_bytes()


@pytest.mark.slow
def test_a_model_is_calibrated_by_both():
    if (
        peers.missing(calibration.ORT, "int8")
        or not (models.SHARED / "models" / "onnx" / "mobilenet_v2_fp32.onnx").exists()
    ):
        pytest.skip("needs onnxruntime and ../shared")
    made = calibration.run("mobilenet_v2_fp32", count=4)
    assert set(made["taken"]) == {peers.OURS, calibration.ORT}
    for runs in made["taken"].values():
        assert runs[0]["seconds"] > 0
        assert runs[0]["megabytes"] > 10
