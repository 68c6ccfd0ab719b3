"""Pooling: channel-last pooling of every kind, and max_pool with indices."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check

import intaglio.targets.cpu.pool  # noqa: F401
from intaglio import native
from intaglio.errors import RunError

rng = np.random.default_rng(3)
CASES: list[dict[str, Any]] = [
    {"image": (1, 8, 9, 20), "kernel": (2, 2), "stride": (2, 2)},
    {"image": (2, 7, 7, 16), "kernel": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)},
    {"image": (1, 7, 6, 3), "kernel": (3, 2), "pad": (2, 0, 1, 1), "stride": (3, 1)},
    {"image": (1, 9, 9, 33), "kernel": (3, 3), "dilation": (2, 3), "pad": (1, 2, 1, 2)},
    {"image": (1, 7, 7, 64), "kernel": (7, 7)},
    {"image": (2, 13, 5), "kernel": (4,), "stride": (5,), "pad": (1, 3)},
    {"image": (1, 3, 4, 5, 6), "kernel": (2, 2, 3), "stride": (1, 2, 1), "pad": (1, 0, 1, 0, 1, 1)},
    {"image": (0, 4, 4, 3), "kernel": (2, 2)},
]


def attrs_of(case: dict[str, Any]) -> dict[str, Any]:
    axes = len(case["kernel"])
    return {
        "kernel": case["kernel"],
        "stride": case.get("stride", (1,) * axes),
        "pad": case.get("pad", (0,) * 2 * axes),
        "dilation": case.get("dilation", (1,) * axes),
    }


def name(case: dict[str, Any]) -> str:
    return "-".join(str(v) for v in case.values())


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_pool(case: dict[str, Any], dtype: Any) -> None:
    x = rng.standard_normal(case["image"]).astype(dtype)
    check("cpu.pool", x, kind="max", **attrs_of(case))
    for include in (False, True):
        check("cpu.pool", x, kind="avg", count_include_pad=include, **attrs_of(case))
    for p in (1, 2, 3):
        check("cpu.pool", x, kind="lp", p=p, **attrs_of(case))


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_max_of_integers(case: dict[str, Any], dtype: Any) -> None:
    x = rng.integers(-100, 100, case["image"]).astype(dtype)
    check("cpu.pool", x, kind="max", **attrs_of(case))


def test_max_keeps_nan() -> None:
    x = np.zeros((1, 4, 4, 20), np.float32)
    x[0, 0, 0] = np.nan
    (y,) = check("cpu.pool", x, kind="max", **attrs_of(CASES[0]))
    assert np.isnan(y[0, 0, 0]).all()


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.float16])
@pytest.mark.parametrize("order", [0, 1])
def test_max_pool_with_indices(case: dict[str, Any], dtype: Any, order: int) -> None:
    image = case["image"]
    x = rng.integers(0, 50, (image[0], image[-1], *image[1:-1])).astype(dtype)
    check("max_pool", x, storage_order=order, with_indices=True, **attrs_of(case))
    check("max_pool", x, **attrs_of(case))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": (0, 1)}, "at least 1"),
        ({"kernel": (9, 9)}, "does not fit"),
        ({"pad": (0, 0, 0, -1)}, "negative"),
        ({"p": 0}, "p must be"),
        ({"count_include_pad": 3}, "count_include_pad"),
    ],
)
def test_refusals(change: dict[str, Any], words: str) -> None:
    kernel = native.find_kernel("cpu.pool", "f32", native.machine())
    assert kernel is not None
    good = {**attrs_of(CASES[0]), "kind": "avg", "count_include_pad": False, "p": 2}
    x = np.zeros((1, 4, 4, 3), np.float32)
    native.run_kernel(kernel, [x], good)
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, [x], {**good, **change})
