"""TFLite RESIZE_NEAREST_NEIGHBOR, equal to LiteRT in every pixel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from tests.frontends.tflite_build import T, model, op
from tests.frontends.tflite_oracle import litert

import intaglio
from intaglio.frontends.tflite import load_tflite

# heights and widths before and after: up, down, odd, by a whole factor, equal, and single pixels
SIZES = [
    ((5, 7), (10, 14)),
    ((9, 8), (4, 3)),
    ((7, 13), (13, 29)),
    ((6, 6), (3, 2)),
    ((1, 4), (5, 1)),
    ((4, 4), (4, 4)),
    ((20, 29), (31, 57)),
]


def resize(kind: type, before: tuple[int, int], after: tuple[int, int], **options: bool) -> bytes:
    quant = {} if kind is np.float32 else {"scale": 0.05, "zero": np.iinfo(kind).min + 100}
    tensors = [
        T((1, *before, 3), kind, **quant),
        T(data=np.int32(after)),
        T((1, *after, 3), kind, **quant),
    ]
    step = op("RESIZE_NEAREST_NEIGHBOR", [0, 1], [2], "ResizeNearestNeighborOptions", **options)
    return model(tensors, [step], [0], [2])


@pytest.mark.parametrize("kind", [np.float32, np.int8, np.uint8])
@pytest.mark.parametrize(("corners", "half"), list(itertools.product([False, True], repeat=2)))
def test_nearest_takes_the_pixels_that_litert_takes(kind, corners, half):
    rng = np.random.default_rng(7)
    for before, after in SIZES:
        data = resize(kind, before, after, AlignCorners=corners, HalfPixelCenters=half)
        x = rng.integers(0, 127, (1, *before, 3)).astype(kind)
        with intaglio.open(intaglio.compile(load_tflite(data)), threads=1) as session:
            (got,) = session.run({"t0": x}).values()
        for reference in (True, False):
            np.testing.assert_array_equal(got, litert(data, [x], reference=reference)[0][0])


def test_a_usual_nearest_resize_stays_one_operation():
    """Later passes and NPUs know `resize`; only unusual tables are copied pixel by pixel."""
    data = resize(np.float32, (5, 7), (10, 14), HalfPixelCenters=True)
    assert "resize" in [n.op for n in load_tflite(data).nodes()]
