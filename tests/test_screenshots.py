"""The screenshots of the documentation are taken by a test, and the committed ones are alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chromium import needed

ASSETS = Path(__file__).parents[1] / "docs" / "assets"
LARGEST = 120_000  # bytes of an image
NAMES = ("report", "report-dark", "report-accuracy", "report-speed", "report-memory", "ui", "fits")


@pytest.mark.slow
@needed
def test_screenshots(tmp_path):
    from PIL import Image, ImageStat
    from tests.screenshots import take

    taken = take(tmp_path, tmp_path)
    assert [p.stem for p in taken] == list(NAMES)
    for path in taken:
        here, kept = Image.open(path), Image.open(ASSETS / path.name)
        assert here.size == kept.size
        means = [ImageStat.Stat(i.convert("L")) for i in (here, kept)]
        assert means[0].stddev[0] > 5  # not blank
        assert abs(means[0].mean[0] - means[1].mean[0]) < 12  # times differ from run to run


def test_the_committed_images_are_small():
    for name in NAMES:
        assert (ASSETS / f"{name}.png").stat().st_size < LARGEST
