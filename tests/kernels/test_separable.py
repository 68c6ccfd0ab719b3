"""Depthwise separable convolution: every kernel against numpy and against single layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.check import check

from intaglio import native
from intaglio.errors import BadInput, RunError
from intaglio.ir import constant
from intaglio.targets.cpu.packing import PANEL, pack
from intaglio.targets.cpu.separable import ONE, separable

rng = np.random.default_rng(12)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def packed(k: int, n: int) -> np.ndarray:
    w = (floats(1, k, n) / np.sqrt(k)).astype(np.float32)
    return np.asarray(pack.body(w, tile=PANEL))


CASES: list[dict[str, Any]] = [  # middle: channels between the products; 0: nothing expands
    {"image": (1, 12, 14, 16), "middle": 96, "channels": 24, "stride": (2, 2)},
    {"image": (2, 9, 11, 8), "middle": 40, "channels": 8},
    {"image": (1, 10, 12, 32), "middle": 0, "channels": 16},
    {"image": (1, 60, 70, 3), "middle": 20, "channels": 5},  # many bands
    {"image": (3, 7, 7, 12), "middle": 17, "channels": 33, "kernel": (5, 5), "pad": (2, 2, 2, 2)},
    {"image": (1, 13, 6, 5), "middle": 24, "channels": 16, "kernel": (5, 5), "stride": (2, 2)},
    {"image": (1, 9, 8, 7), "middle": 0, "channels": 70, "kernel": (7, 7), "pad": (3, 3, 3, 3)},
    {"image": (1, 15, 10, 4), "middle": 16, "channels": 4, "kernel": (1, 1), "stride": (3, 2)},
    {"image": (1, 11, 9, 4), "middle": 16, "channels": 4, "kernel": (2, 3), "stride": (4, 1)},
    {"image": (1, 2, 3, 6), "middle": 8, "channels": 9, "pad": (5, 3, 4, 6)},
    {"image": (2, 1, 1, 9), "middle": 33, "channels": 1, "pad": (1, 1, 1, 1)},
    {"image": (1, 4, 200, 2), "middle": 16, "channels": 3, "pad": (0, 1, 2, 0)},
    {"image": (0, 8, 8, 4), "middle": 8, "channels": 8},
    {"image": (1, 8, 8, 4), "middle": 8, "channels": 0},
]


def operands(case: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The inputs without bias, residual and slopes, and the window."""
    deep, kernel = case["image"][-1], case.get("kernel", (3, 3))
    middle = case["middle"] or deep
    ins = [
        floats(*case["image"]),
        packed(middle, case["channels"]),
        None,
        None,
        None,
        floats(*kernel, middle),
        None,
        packed(deep, middle) if case["middle"] else None,
        None,
    ]
    pad = case.get("pad", (1, 1, 1, 1) if kernel == (3, 3) else (0, 0, 0, 0))
    return ins, {"channels": case["channels"], "stride": case.get("stride", (1, 1)), "pad": pad}


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v) for v in c.values()))
def test_separable(case: dict[str, Any]) -> None:
    ins, attrs = operands(case)
    attrs["tolerance"] = 1e-4
    (y,) = check("cpu.separable", *ins, **attrs)
    middle = ins[5].shape[-1]
    ins[2], ins[3], ins[6] = floats(case["channels"]), floats(*y.shape), floats(middle)
    ins[8] = floats(middle) if case["middle"] else None
    relu6 = {"act": "clip", "act_args": (0.0, 6.0)}
    check(
        "cpu.separable",
        *ins,
        **attrs,
        taps_act="clip",
        taps_args=(0.0, 6.0),
        expand_act="clip",
        expand_args=(0.0, 6.0),
    )
    check("cpu.separable", *ins, **attrs, **relu6, taps_act="hardswish", expand_act="relu")
    check(
        "cpu.separable",
        *ins,
        **attrs,
        act="relu",
        add_last=True,
        taps_act="swish",
        taps_args=(1.0,),
        expand_act="hardswish",
    )
    ins[4] = -ins[2]
    check("cpu.separable", *ins, **attrs, act="prelu", add_last=True)


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512"])
@pytest.mark.parametrize("case", CASES[:6], ids=lambda c: "-".join(str(v) for v in c.values()))
def test_bits_equal_those_of_single_layers(case: dict[str, Any], isa: str) -> None:
    found = {k.op.name: k for k in native.kernels() if (k.types, k.isa) == ("f32", isa)}
    if found["cpu.separable"].needs & ~native.machine():
        pytest.skip(f"this machine has no {isa}")
    ins, attrs = operands(case)
    middle, made = ins[5].shape[-1], {"made": "same"}
    ins[2], ins[6], ins[8] = floats(case["channels"]), floats(middle), floats(middle)
    ins[8] = ins[8] if case["middle"] else None
    plain = {"act": "none", "act_args": (), "add_last": False}
    relu6, swish = {"act": "clip", "act_args": (0.0, 6.0)}, {"act": "hardswish", "act_args": ()}
    inner = {
        f"{part}_{k.removeprefix('act_')}": v
        for part, act in (("taps", relu6), ("expand", swish))
        for k, v in act.items()
    }
    for parts in (1, 2, 3):
        (got,) = native.run_kernel(
            found["cpu.separable"], ins, {**attrs, **plain, **inner}, 1, parts
        )
        x = ins[0]
        if case["middle"]:
            wide = {**ONE, "channels": middle, **plain, **swish, **made}
            (x,) = native.run_kernel(found["cpu.conv"], [x, ins[7], ins[8]], wide)
        window = {"stride": attrs["stride"], "pad": attrs["pad"], "dilation": (1, 1)}
        (x,) = native.run_kernel(
            found["cpu.depthwise"], [x, ins[5], ins[6]], {**window, **plain, **relu6, **made}
        )
        last = {**ONE, "channels": case["channels"], **plain, **made}
        (want,) = native.run_kernel(found["cpu.conv"], [x, ins[1], ins[2]], last)
        np.testing.assert_array_equal(got, want)


GOOD: dict[str, Any] = {
    "channels": 8,
    "stride": (1, 1),
    "pad": (1, 1, 1, 1),
    "act": "none",
    "act_args": (),
    "add_last": False,
    "taps_act": "none",
    "taps_args": (),
    "expand_act": "none",
    "expand_args": (),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"channels": 17}, "not packed"),
        ({"channels": -1}, "negative"),
        ({"stride": (0, 1)}, "at least 1"),
        ({"stride": (1 << 40, 1)}, "absurdly"),
        ({"pad": (-1, 0, 0, 0)}, "negative"),
        ({"pad": (1 << 40, 0, 0, 0)}, "absurdly"),
        ({"add_last": 2}, "add_last"),
        ({"taps_act": "prelu"}, "between the products"),
        ({"expand_act": "prelu"}, "between the products"),
    ],
)
def test_refusals(change: dict[str, Any], words: str) -> None:
    kernel = native.find_kernel("cpu.separable", "f32", native.machine())
    assert kernel is not None
    ins, _ = operands({"image": (1, 5, 5, 4), "middle": 16, "channels": 8})
    native.run_kernel(kernel, ins, GOOD)
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, ins, {**GOOD, **change})


@pytest.mark.parametrize(
    ("at", "array", "words"),
    [
        (0, floats(1, 5, 4), "two spatial axes"),
        (0, floats(1, 5, 5, 3), "not packed"),
        (0, floats(1, 0, 5, 4), "does not fit|empty"),
        (0, floats(1, 5, 5, 4).astype(np.float64), "f32 images"),
        (1, packed(15, 8), "not packed"),
        (2, floats(7), "one f32 per channel"),
        (3, floats(1, 5, 5, 7), "like the output"),
        (4, floats(8), "slopes"),
        (5, None, "taps"),
        (5, floats(3, 3, 15), "not packed"),
        (5, floats(9, 9, 16), "does not fit"),
        (6, floats(15), "one f32 per channel"),
        (7, None, "another number of channels"),
        (7, packed(4, 33), "not packed"),
        (8, floats(15), "one f32 per channel"),
    ],
)
def test_refusals_of_inputs(at: int, array: Any, words: str) -> None:
    kernel = native.find_kernel("cpu.separable", "f32", native.machine())
    assert kernel is not None
    ins, _ = operands({"image": (1, 5, 5, 4), "middle": 16, "channels": 8})
    ins[at] = array
    with pytest.raises(RunError, match=words):
        native.run_kernel(kernel, ins, GOOD)


def test_refusals_of_the_op() -> None:
    ins, _ = operands({"image": (1, 5, 5, 4), "middle": 16, "channels": 8})
    bad: dict[str, tuple[int, Any]] = {
        "and taps": (5, None),
        "is empty": (0, floats(1, 0, 5, 4)),
        "expand_bias needs expand": (7, None),
        "packed": (1, packed(3, 8)),
    }
    for words, (at, array) in bad.items():
        values = [None if a is None else constant(a) for a in ins]
        values[8] = constant(floats(16))
        values[at] = None if array is None else constant(array)
        with pytest.raises(BadInput, match=words):
            separable(*values, **GOOD)
    with pytest.raises(BadInput, match="not supported inside"):
        separable(
            *[None if a is None else constant(a) for a in ins], **{**GOOD, "taps_act": "prelu"}
        )
