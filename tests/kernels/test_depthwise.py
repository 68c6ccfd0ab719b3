"""Depthwise convolution of channel-last images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError

rng = np.random.default_rng(2)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


CASES: list[dict[str, Any]] = [
    {"image": (1, 9, 11, 32), "kernel": (3, 3), "pad": (1, 1, 1, 1)},
    {"image": (2, 7, 7, 48), "kernel": (3, 3), "pad": (1, 1, 1, 1)},
    {"image": (2, 15, 14, 20), "kernel": (3, 3), "stride": (2, 2), "pad": (0, 0, 1, 1)},
    {"image": (1, 9, 9, 7), "kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)},
    {"image": (1, 8, 9, 24), "kernel": (5, 5), "pad": (2, 2, 2, 2)},
    {"image": (1, 13, 12, 16), "kernel": (5, 5), "stride": (2, 2), "pad": (2, 1, 2, 2)},
    {"image": (1, 9, 9, 40), "kernel": (7, 7), "pad": (3, 3, 3, 3)},
    {"image": (1, 12, 12, 17), "kernel": (3, 3), "dilation": (2, 2), "pad": (2, 2, 2, 2)},
    {"image": (1, 9, 10, 5), "kernel": (2, 4), "stride": (3, 1), "pad": (0, 3, 1, 0)},
    {"image": (1, 2, 2, 19), "kernel": (3, 3), "pad": (1, 1, 1, 1)},
    {"image": (1, 1, 1, 33), "kernel": (3, 3), "stride": (1, 2), "pad": (4, 4, 4, 4)},
    {"image": (1, 5, 5, 16), "kernel": (1, 1), "stride": (2, 2)},
    {"image": (1, 4, 30, 16), "kernel": (1, 3), "stride": (1, 3), "pad": (0, 1, 0, 1)},
    {"image": (2, 20, 12), "kernel": (5,), "pad": (4, 0)},
    {"image": (1, 33, 16), "kernel": (3,), "stride": (2,), "pad": (1, 1)},
    {
        "image": (1, 4, 5, 6, 18),
        "kernel": (3, 3, 3),
        "pad": (1, 1, 1, 1, 1, 1),
        "stride": (1, 2, 1),
    },
    {"image": (1, 8, 8, 48), "kernel": (7, 7), "pad": (3, 3, 3, 3)},
    {"image": (1, 9, 33, 20), "kernel": (7, 7), "pad": (3, 0, 3, 3)},
    {"image": (2, 16, 26, 16), "kernel": (7, 7), "stride": (2, 2), "pad": (3, 3, 3, 3)},
    {"image": (1, 9, 3, 17), "kernel": (3, 7), "stride": (1, 2), "pad": (1, 5, 1, 2)},
    {"image": (1, 20, 20, 40), "kernel": (5, 5), "dilation": (2, 2), "pad": (4, 4, 4, 4)},
    {"image": (1, 9, 31, 16), "kernel": (3, 3), "dilation": (1, 3), "pad": (0, 5, 0, 1)},
    {"image": (1, 12, 9, 18), "kernel": (7, 7), "dilation": (2, 4), "pad": (6, 12, 6, 12)},
    {"image": (1, 7, 2, 16), "kernel": (3, 3), "dilation": (3, 4), "pad": (3, 4, 3, 4)},
    {"image": (1, 9, 12, 8), "kernel": (3, 3), "stride": (1, 2), "dilation": (1, 2)},
    {"image": (2, 9, 10, 512), "kernel": (3, 3), "pad": (1, 1, 1, 1)},  # down the image
    {"image": (1, 4, 8, 1024), "kernel": (3, 3), "pad": (0, 2, 2, 0)},
    {"image": (1, 1, 2, 512), "kernel": (3, 3), "pad": (3, 1, 1, 1)},
    {"image": (0, 4, 4, 3), "kernel": (3, 3)},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_depthwise(case: dict[str, Any]) -> None:
    image, kernel = case["image"], case["kernel"]
    axes, channels = len(kernel), case["image"][-1]
    attrs = {
        "stride": case.get("stride", (1,) * axes),
        "pad": case.get("pad", (0,) * 2 * axes),
        "dilation": case.get("dilation", (1,) * axes),
    }
    x, w, bias = floats(*image), floats(*kernel, channels), floats(channels)
    (y,) = check("cpu.depthwise", x, w, **attrs)
    residual = floats(*y.shape)
    check("cpu.depthwise", x, w, bias, residual, **attrs)
    check("cpu.depthwise", x, w, bias, None, act="clip", act_args=(0.0, 6.0), **attrs)
    check("cpu.depthwise", x, w, bias, residual, act="relu", add_last=True, **attrs)
    check(
        "cpu.depthwise",
        x,
        w,
        bias,
        residual,
        act="swish",
        act_args=(1.0,),
        add_last=True,
        tolerance=1e-4,
        **attrs,
    )
    check("cpu.depthwise", x, w, None, residual, act="hardswish", tolerance=1e-4, **attrs)
    check("cpu.depthwise", x, w, bias, residual, -bias, act="prelu", add_last=True, **attrs)


@pytest.mark.parametrize(
    ("weights", "change", "words"),
    [
        ((3, 3, 5), {}, "channels"),
        ((3, 4), {}, "weights"),
        ((7, 7, 4), {}, "does not fit"),
        ((3, 3, 4), {"stride": (0, 1)}, "at least 1"),
        ((3, 3, 4), {"pad": (0, -1, 0, 0)}, "negative"),
    ],
)
def test_refusals(weights: tuple[int, ...], change: dict[str, Any], words: str) -> None:
    kernel = native.find_kernel("cpu.depthwise", "f32", native.machine())
    assert kernel is not None
    good = {
        "stride": (1, 1),
        "pad": (0, 0, 0, 0),
        "dilation": (1, 1),
        "act": "none",
        "act_args": (),
        "add_last": False,
        "made": "same",
    }
    native.run_kernel(kernel, [floats(1, 5, 5, 4), floats(3, 3, 4)], good)
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, [floats(1, 5, 5, 4), floats(*weights)], {**good, **change})
