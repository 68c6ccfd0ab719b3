"""Products, convolutions and pools of f16 and bf16: stored in 16 bits, summed in f32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.check import check
from tests.kernels.test_conv import CASES, TRANSPOSED, name

from intaglio import native
from intaglio.errors import BadInput
from intaglio.targets.cpu import gemm as cpu_gemm
from intaglio.targets.cpu import packing

RNG = np.random.default_rng(6)
F32, F16, BF16 = np.float32, np.float16, ml_dtypes.bfloat16
HALVES = pytest.mark.parametrize("half", [F16, BF16], ids=["f16", "bf16"])
PRODUCTS = {"cpu.gemm", "cpu.conv", "cpu.conv_transpose", "cpu.depthwise"}
EPILOGUES: list[dict[str, Any]] = [
    {},
    {"act": "clip", "act_args": (0.0, 6.0)},
    {"act": "swish", "act_args": (1.0,)},
    {"act": "hardswish", "act_args": (), "add_last": True},
]


def floats(*shape: int, dtype: Any = F32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(F32).astype(dtype)


def packed(w: np.ndarray, dtype: Any) -> np.ndarray:
    """Weights in panels; bf16 instructions multiply pairs of rows, so these are interleaved."""
    panels = packing.pack.body(w.astype(dtype), tile=packing.PANEL)
    if dtype is not BF16:
        return panels
    *lead, k, tile = panels.shape
    pairs = panels.reshape(*lead, k // 2, 2, tile).swapaxes(-1, -2)
    return np.ascontiguousarray(pairs).reshape(*lead, k // 2, 2 * tile)


@HALVES
@pytest.mark.parametrize(
    "size", [(m, n, k) for m in (1, 6, 15) for n in (1, 16, 33, 81) for k in (2, 20, 130)]
)
def test_gemm(size, half):
    m, n, k = size
    a, b = floats(m, k, dtype=half), packed(floats(k, n) / np.sqrt(k), half)
    for epilogue in EPILOGUES:
        check("cpu.gemm", a, b, floats(n), floats(m, n, dtype=half), n=n, **epilogue)
    check("cpu.gemm", a, b, n=n)


def even(case: dict[str, Any]) -> bool:
    return case["image"][-1] // case.get("groups", 1) % 2 == 0


@HALVES
@pytest.mark.parametrize(
    ("op", "case"),
    [("cpu.conv", c) for c in CASES if even(c)]
    + [("cpu.conv_transpose", c) for c in TRANSPOSED if even(c)],
    ids=lambda v: v if isinstance(v, str) else name(v),
)
def test_conv(op, case, half):
    image, channels, kernel = case["image"], case["channels"], case["kernel"]
    axes, groups = len(kernel), case.get("groups", 1)
    deep = int(np.prod(kernel)) * image[-1] // groups
    attrs = {
        "channels": channels,
        "kernel": kernel,
        "groups": groups,
        "stride": case.get("stride") or (1,) * axes,
        "pad": case.get("pad") or (0,) * 2 * axes,
        "dilation": case.get("dilation") or (1,) * axes,
    }
    if op == "cpu.conv_transpose":
        attrs["output_pad"] = case.get("output_pad") or (0,) * axes
    x = floats(*image, dtype=half)
    w = packed(floats(groups, deep, channels // groups) / np.sqrt(deep), half)
    (y,) = check(op, x, w, **attrs)
    for epilogue in EPILOGUES:
        rest = floats(*y.shape, dtype=half)
        check(op, x, w, floats(channels), rest, **attrs, **epilogue)


@HALVES
@pytest.mark.parametrize("channels", [1, 16, 40])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 2), (7, 1)])
def test_depthwise(channels, kernel, stride, half):
    x, w = floats(2, 9, 11, channels, dtype=half), floats(kernel, kernel, channels)
    attrs = {"stride": (stride, stride), "pad": (kernel // 2,) * 4, "dilation": (1, 1)}
    (y,) = check("cpu.depthwise", x, w, **attrs)
    for epilogue in EPILOGUES:
        rest = floats(*y.shape, dtype=half)
        check("cpu.depthwise", x, w, floats(channels), rest, **attrs, **epilogue)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool_of_f16(kind):
    window = {"stride": (2, 2), "pad": (1,) * 4, "dilation": (1, 1)}
    for channels in (1, 16, 37):
        x = floats(2, 9, 11, channels, dtype=F16)
        check("cpu.pool", x, kind=kind, kernel=(3, 3), **window)


@HALVES
@pytest.mark.parametrize("op", ["cpu.gemm", "cpu.conv", "cpu.depthwise"])
@pytest.mark.parametrize("wider", [True, False], ids=["to f32", "from f32"])
def test_outputs_of_the_other_width(op, half, wider):
    """Outputs of f32 from 16-bit inputs and vice versa; whole and half panels, single columns."""
    of, to = (half, F32) if wider else (F32, half)
    made = np.dtype(to).name.replace("bfloat", "bf").replace("float", "f")
    window = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1)}
    for n in (1, 12, 24, 64, 81):
        x = floats(2, 5, 9, n if op == "cpu.depthwise" else 6, dtype=of)
        if op == "cpu.depthwise":
            w, attrs = floats(3, 3, n), window
        else:
            plain = floats(1, 6 * (1 if op == "cpu.gemm" else 9), n) / 6
            w = packed(plain[0] if op == "cpu.gemm" else plain, of)
            attrs = {"n": n} if op == "cpu.gemm" else {"channels": n, "kernel": (3, 3), **window}
        (y,) = check(op, x, w, made=made, **attrs)
        assert y.dtype == to
        bias, rest = floats(n), floats(*y.shape, dtype=to)
        for epilogue in EPILOGUES:
            check(op, x, w, bias, rest, made=made, **attrs, **epilogue)
        check(op, x, w, bias, rest, floats(n), made=made, act="prelu", **attrs)


def test_refusals():
    with pytest.raises(BadInput, match="pairs along k"):
        cpu_gemm.gemm(floats(2, 3, dtype=F16), floats(1, 3, 16, dtype=F16), n=16)
    with pytest.raises(BadInput, match="pairs along k"):
        cpu_gemm.gemm(floats(2, 3, dtype=BF16), floats(1, 2, 32, dtype=BF16), n=16)
    with pytest.raises(BadInput, match="f32 mixes with bf16 or f16"):
        cpu_gemm.gemm(floats(2, 4, dtype=F16), floats(1, 4, 16, dtype=F16), n=16, made="bf16")
    with pytest.raises(BadInput, match="f32 mixes with bf16 or f16"):
        cpu_gemm.gemm(np.ones((2, 2)), packing.pack.body(np.ones((2, 3)), tile=16), n=3, made="f32")


def test_every_instruction_set_has_the_kernels():
    forms = [("f16", isa) for isa in ("scalar", "avx2", "avx512")] + [("bf16", "avx512bf16")]
    for types, isa in forms:
        names = {k.op.name for k in native.kernels() if (k.types, k.isa) == (types, isa)}
        assert names >= PRODUCTS, (types, isa)
