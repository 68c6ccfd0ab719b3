"""Products and convolutions of bf16, whose weights lie in pairs and whose sums are f32."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_conv import CASES, TRANSPOSED, name

from intaglio import native
from intaglio.errors import BadInput
from intaglio.targets.cpu import ops as cpu_ops

RNG = np.random.default_rng(2)
BF16 = ml_dtypes.bfloat16
EPILOGUES: list[dict[str, Any]] = [
    {},
    {"act": "clip", "act_args": (0.0, 6.0)},
    {"act": "swish", "act_args": (1.0,)},
    {"act": "hardswish", "act_args": (), "add_last": True},
]


def floats(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


def packed(w: np.ndarray) -> np.ndarray:
    panels = cpu_ops.pack.body(w, tile=cpu_ops.PANEL)
    *lead, k, tile = panels.shape
    pairs = panels.reshape(*lead, k // 2, 2, tile).swapaxes(-1, -2)
    return np.ascontiguousarray(pairs).reshape(*lead, k // 2, 2 * tile)


@pytest.mark.parametrize("size", [(m, n, k) for m in (1, 6, 15) for n in (1, 16, 33, 81)
                                  for k in (2, 20, 64)])  # fmt: skip
def test_gemm(size):
    m, n, k = size
    a, b = floats(m, k), packed((floats(k, n) / np.sqrt(k)).astype(BF16))
    for epilogue in EPILOGUES:
        check("cpu.gemm", a, b, floats(n, dtype=np.float32), floats(m, n), n=n, **epilogue)
    check("cpu.gemm", a, b, n=n)


def even(case: dict[str, Any]) -> bool:
    return case["image"][-1] // case.get("groups", 1) % 2 == 0


@pytest.mark.parametrize(("op", "case"),
                         [("cpu.conv", c) for c in CASES if even(c)]
                         + [("cpu.conv_transpose", c) for c in TRANSPOSED if even(c)],
                         ids=lambda v: v if isinstance(v, str) else name(v))  # fmt: skip
def test_conv(op, case):
    image, channels, kernel = case["image"], case["channels"], case["kernel"]
    axes, groups = len(kernel), case.get("groups", 1)
    deep = int(np.prod(kernel)) * image[-1] // groups
    attrs = {"channels": channels, "kernel": kernel, "groups": groups,
             "stride": case.get("stride") or (1,) * axes, "pad": case.get("pad") or (0,) * 2 * axes,
             "dilation": case.get("dilation") or (1,) * axes}  # fmt: skip
    if op == "cpu.conv_transpose":
        attrs["output_pad"] = case.get("output_pad") or (0,) * axes
    x = floats(*image)
    w = packed((floats(groups, deep, channels // groups) / np.sqrt(deep)).astype(BF16))
    (y,) = check(op, x, w, **attrs)
    for epilogue in EPILOGUES:
        check(op, x, w, floats(channels, dtype=np.float32), floats(*y.shape), **attrs, **epilogue)


@pytest.mark.parametrize("channels", [1, 16, 40])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (7, 1)])
def test_depthwise(channels, kernel, stride):
    x, w = floats(2, 9, 11, channels), floats(kernel, kernel, channels, dtype=np.float32)
    attrs = {"stride": (stride, stride), "pad": (kernel // 2,) * 4, "dilation": (1, 1)}
    (y,) = check("cpu.depthwise", x, w, **attrs)
    for epilogue in EPILOGUES:
        check("cpu.depthwise", x, w, floats(channels, dtype=np.float32), floats(*y.shape), **attrs,
              **epilogue)  # fmt: skip


@pytest.mark.parametrize("made", ["f32", "bf16"])
@pytest.mark.parametrize("op", ["cpu.gemm", "cpu.conv", "cpu.depthwise"])
def test_products_make_the_other_type(op, made):
    """f32 from bf16 and bf16 from f32, by whole panels, halves and single columns."""
    of, to = (BF16, np.float32) if made == "f32" else (np.float32, BF16)
    window = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1)}
    for n in (1, 12, 24, 64, 81):
        x = floats(2, 5, 9, n if op == "cpu.depthwise" else 6, dtype=of)
        if op == "cpu.depthwise":
            w, attrs = floats(3, 3, n, dtype=np.float32), window
        else:
            taps = 1 if op == "cpu.gemm" else 9
            plain = (floats(1, 6 * taps, n) / 6).astype(of)
            pack = packed if of is BF16 else functools.partial(cpu_ops.pack.body, tile=16)
            w = pack(plain[0] if op == "cpu.gemm" else plain)
            attrs = {"n": n} if op == "cpu.gemm" else {"channels": n, "kernel": (3, 3), **window}
        (y,) = check(op, x, w, made=made, **attrs)
        assert y.dtype == to
        bias, rest = floats(n, dtype=np.float32), floats(*y.shape, dtype=to)
        for epilogue in EPILOGUES:
            check(op, x, w, bias, rest, made=made, **attrs, **epilogue)
        slopes = floats(n, dtype=np.float32)
        check(op, x, w, bias, rest, slopes, made=made, act="prelu", **attrs)


def test_other_types_make_only_themselves():
    packed = cpu_ops.pack.body(np.ones((2, 3)), tile=16)
    with pytest.raises(BadInput, match="f32 mixes with bf16 or f16"):
        cpu_ops.gemm(np.ones((2, 2)), packed, n=3, made="f32")


def test_odd_depths_are_refused_in_words():
    with pytest.raises(BadInput, match="pairs along k"):
        cpu_ops.gemm(floats(2, 3), floats(1, 2, 32), n=16)


def test_the_machine_is_said():
    kernels = {k.op.name for k in native.kernels() if k.types == "bf16" and k.isa == "avx512bf16"}
    assert {"cpu.gemm", "cpu.conv", "cpu.conv_transpose", "cpu.depthwise"} <= kernels
