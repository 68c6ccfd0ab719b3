"""Convolution and transposed convolution of channel-last images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import RunError
from intaglio.targets.cpu import packing
from intaglio.targets.cpu.packing import PANEL

rng = np.random.default_rng(1)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def weights(
    groups: int, window: tuple[int, ...], deep: int, per: int, dtype: Any = np.float32
) -> np.ndarray:
    w = floats(groups, int(np.prod(window)) * deep, per) / np.sqrt(np.prod(window) * deep)
    return packing.pack.body(w.astype(dtype), tile=PANEL)


def conv(
    image: tuple[int, ...],
    channels: int,
    kernel: tuple[int, ...],
    *,
    stride: Any = None,
    pad: Any = None,
    dilation: Any = None,
    groups: int = 1,
    dtype: Any = np.float32,
    op: str = "cpu.conv",
    output_pad: Any = None,
    **rest: Any,
) -> None:
    axes = len(kernel)
    attrs = {
        "channels": channels,
        "kernel": kernel,
        "stride": stride or (1,) * axes,
        "pad": pad or (0,) * 2 * axes,
        "dilation": dilation or (1,) * axes,
        "groups": groups,
    }
    if op == "cpu.conv_transpose":
        attrs["output_pad"] = output_pad or (0,) * axes
    x = floats(*image, dtype=dtype)
    w = weights(groups, kernel, image[-1] // groups, channels // groups, dtype)
    (y,) = check(op, x, w, **attrs, **rest)
    bias, residual = floats(channels, dtype=dtype), floats(*y.shape, dtype=dtype)
    check(op, x, w, bias, residual, **attrs, **rest)
    if dtype is np.float32:
        check(op, x, w, bias, None, **attrs, act="clip", act_args=(0.0, 6.0))
        check(op, x, w, bias, residual, **attrs, act="swish", act_args=(1.0,), add_last=True)
        check(op, x, w, bias, residual, floats(channels), **attrs, act="prelu")


def case(
    image: tuple[int, ...], channels: int, kernel: tuple[int, ...], **rest: Any
) -> dict[str, Any]:
    return {"image": image, "channels": channels, "kernel": kernel, **rest}


CASES = [
    case((1, 7, 9, 5), 20, (1, 1)),
    case((2, 6, 5, 16), 64, (1, 1)),
    case((2, 7, 5, 8), 33, (1, 1), stride=(2, 2)),
    case((1, 11, 13, 3), 16, (3, 3), stride=(2, 2), pad=(1, 1, 1, 1)),
    case((2, 9, 8, 3), 24, (7, 7), stride=(2, 2), pad=(3, 3, 3, 3)),
    case((1, 5, 6, 1), 4, (3, 5), pad=(2, 2, 2, 2)),
    case((1, 4, 3, 2), 4, (2, 5), pad=(1, 3, 0, 2)),
    case((1, 7, 7, 40), 70, (3, 3), pad=(1, 1, 1, 1)),
    case((3, 7, 6, 24), 16, (3, 2), pad=(0, 1, 2, 0), stride=(3, 1)),
    case((1, 12, 13, 23), 8, (3, 3), dilation=(2, 3), pad=(2, 1, 3, 2)),
    case((1, 9, 9, 30), 2, (2, 2), stride=(4, 5)),
    case((1, 6, 6, 12), 18, (3, 3), groups=3, pad=(1, 1, 1, 1)),
    case((1, 6, 6, 8), 40, (3, 3), groups=2, stride=(2, 2)),
    case((2, 5, 5, 6), 12, (3, 3), groups=6, pad=(1, 1, 1, 1)),
    case((1, 9, 200, 64), 64, (3, 3), groups=4, pad=(1, 1, 1, 1)),  # bytes are kept in two parts
    case((1, 1, 1, 6), 3, (3, 3), pad=(5, 5, 5, 5)),
    case((1, 40, 10), 17, (5,), pad=(2, 2)),
    case((2, 21, 3), 32, (4,), stride=(3,), dilation=(2,)),
    case((1, 4, 5, 6, 3), 9, (3, 2, 3), pad=(1, 0, 1, 1, 1, 1)),
    case((1, 3, 4, 5, 20), 16, (2, 2, 2), stride=(1, 2, 1), dilation=(2, 1, 1)),
    case((0, 5, 5, 4), 8, (3, 3)),
    case((1, 7, 14, 128), 144, (3, 3), pad=(1, 1, 1, 1), tolerance=0.0001),
    case((1, 5, 5, 600), 300, (1, 1), tolerance=0.0001),
]


def name(case: dict[str, Any]) -> str:
    return "-".join(str(v).replace(" ", "") for v in case.values())


@pytest.mark.parametrize("case", CASES, ids=name)
def test_conv(case: dict[str, Any]) -> None:
    conv(**{**case, "tolerance": case.get("tolerance", 5e-5)})


@pytest.mark.parametrize("case", [CASES[i] for i in (0, 4, 9, 11, 16, 17)], ids=name)
def test_conv_of_f64(case: dict[str, Any]) -> None:
    conv(**case, dtype=np.float64)


TRANSPOSED = [
    case((1, 4, 5, 6), 20, (3, 3)),
    case((2, 4, 5, 6), 16, (2, 2), stride=(2, 2)),
    case((1, 4, 5, 3), 5, (4, 4), stride=(2, 2), pad=(1, 1, 1, 1)),
    case((1, 3, 3, 8), 70, (3, 3), stride=(2, 2), pad=(1, 1, 1, 1), output_pad=(1, 1)),
    case((1, 3, 4, 8), 6, (2, 3), stride=(3, 4), output_pad=(2, 3)),
    case((1, 3, 4, 8), 6, (3, 3), stride=(2, 3), dilation=(2, 2), pad=(1, 0, 0, 2)),
    case((1, 4, 4, 12), 18, (3, 3), groups=3, stride=(2, 1)),
    case((2, 9, 7), 4, (5,), stride=(3,), pad=(2, 1)),
    case((1, 2, 3, 4, 5), 3, (2, 3, 2), stride=(2, 1, 3), pad=(1, 0, 1, 0, 1, 1)),
    case((0, 3, 3, 2), 3, (2, 2)),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=name)
def test_conv_transpose(case: dict[str, Any]) -> None:
    conv(**case, op="cpu.conv_transpose", tolerance=5e-5)


@pytest.mark.parametrize("case", [TRANSPOSED[i] for i in (3, 5, 6, 8)], ids=name)
def test_conv_transpose_of_f64(case: dict[str, Any]) -> None:
    conv(**case, op="cpu.conv_transpose", dtype=np.float64)


GOOD = {
    "channels": 8,
    "kernel": (3, 3),
    "stride": (1, 1),
    "pad": (1, 1, 1, 1),
    "dilation": (1, 1),
    "groups": 1,
    "act": "none",
    "act_args": (),
    "add_last": False,
    "made": "same",
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": 17}, "not packed"),
        ({"kernel": (3, 5)}, "not packed"),
        ({"stride": (0, 1)}, "at least 1"),
        ({"dilation": (1, -1)}, "at least 1"),
        ({"dilation": (9, 9)}, "does not fit"),
        ({"pad": (-1, 0, 0, 0)}, "negative"),
        ({"pad": (1 << 40, 0, 0, 0)}, "absurdly"),
        ({"stride": (1 << 62, 1)}, "absurdly"),
        ({"kernel": (1 << 30, 1 << 30)}, "absurdly"),
        ({"groups": 0}, "groups"),
        ({"groups": 3}, "groups"),
        ({"add_last": 2}, "add_last"),
    ],
)
@pytest.mark.parametrize("op", ["cpu.conv", "cpu.conv_transpose"])
def test_refusals(change: dict[str, Any], words: str, op: str) -> None:
    if op == "cpu.conv_transpose" and words == "does not fit":
        pytest.skip("a transposed window always fits")
    kernel = native.find_kernel(op, "f32", native.machine())
    assert kernel is not None
    ins = [floats(1, 5, 5, 4), weights(1, (3, 3), 4, 8)]
    native.run_kernel(kernel, ins, {**GOOD, "output_pad": (0, 0)})
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, ins, {**GOOD, "output_pad": (0, 0), **change})
