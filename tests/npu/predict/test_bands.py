"""Bands around predictions: the file is what the benchmark derives, and 80 % lie inside."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks import npu_bands
from intaglio.npu.predict import bands

ROWS = npu_bands.read()


def test_the_file_is_derived_from_left_out_rows():
    assert bands.ranges() == npu_bands.derived(ROWS)
    assert bands.FILE.read_text() == npu_bands.toml(npu_bands.derived(ROWS))


def test_four_of_five_left_out_rows_lie_inside_their_band():
    inside = rows = 0
    for r in ROWS:
        if (found := bands.band(r.family, r.kind, 1.0)).calibrated:
            inside += found.low <= math.exp(r.ratio) <= found.high
            rows += 1
    assert 0.8 <= inside / rows < 0.95  # not by being so wide that it says nothing
    assert rows > 0.85 * len(ROWS)


def test_bands_derived_without_a_network_hold_four_of_five_of_its_rows():
    assert all(0.8 <= r.inside < 0.95 for r in bands.ranges().values())


def test_one_network_does_not_set_a_band():
    alone = [r for r in ROWS if r.net in ("lprnet", "openpose")]
    assert npu_bands.derived(alone) == {}


def test_a_band_follows_the_rows():
    """Twice as far off: a band that is at least as much wider."""
    usual = npu_bands.derived(ROWS)["any.any"]
    wide = [npu_bands.Row(r.family, r.kind, r.net, 2 * r.ratio) for r in ROWS]
    far = npu_bands.derived(wide)["any.any"]
    assert math.log(far.high) == pytest.approx(2 * math.log(usual.high), rel=0.02)
    assert math.log(far.low) == pytest.approx(2 * math.log(usual.low), rel=0.02)


@pytest.mark.parametrize(
    ("ops", "moved", "kind"),
    [
        (["conv", "conv+lut", "softmax"], 1000, "cnn"),
        (["conv", "depthwise"], 67_200, "detector"),
        (["conv", "matmul"], 0, "cnn"),  # one attention in a detector
        (["npu.matmul", "npu.conv"] * 6, 100_000, "transformer"),
        (["attention", "conv"] * 3, 0, "transformer"),
    ],
)
def test_kinds_of_networks(ops, moved, kind):
    assert bands.kind(ops, moved) == kind


def test_groups_without_rows_take_others():
    assert bands.band("kpu", "cnn", 1.0).group == "any.cnn"
    assert bands.band("rknpu", "detector", 1.0).group == "rknpu.detector"
    assert bands.band("rknpu", "transformer", 1.0).group == "any.transformer"
    guess = bands.Band(5.0, 20.0, "", 0)
    assert not guess.calibrated
    assert str(guess) == "(5.00–20.0, a guess)"
    assert str(bands.Band(10.94, 13.8, "any.any", 9)) == "(10.9–13.8)"
    assert json.dumps(bands.band("kpu", "cnn", 1.0).low)
