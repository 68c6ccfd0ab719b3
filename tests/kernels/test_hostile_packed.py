"""The packed kernels against calls that are almost right: refused with words or computed.

Random calls hardly ever carry weights of the right size, so these start from right ones. They run
in a process of their own: with a library built with sanitizers it sees more.
"""

from __future__ import annotations

import ctypes
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from intaglio import dtypes, native
from intaglio.errors import BadInput
from intaglio.native import CTensor
from intaglio.targets.cpu import qconv_packing
from intaglio.targets.cpu.depthwise_packing import tap_packing

EXTREMES = [2**63 - 1, -(2**63), 2**62, 2**40, 2**31, 2**23, -1, 0, 1, 2, 3, 4, 5, 7, 16, 17, 33]
SECONDS = 3.0
UNCHANGED = (
    "act",
    "kind",
    "act_args",
    "dtype",
    "taps_act",
    "taps_args",
    "expand_act",
    "expand_args",
)
Call = tuple[str, list[np.ndarray | None], dict[str, Any]]


@pytest.mark.parametrize("seed", range(2))  # another one runs on the sanitized library
def test_nearly_valid_calls(seed: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.test_hostile_packed", str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    accepted, refused = map(int, done.stdout.splitlines()[-1].split())
    assert accepted > 50
    assert refused > 50


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def image(r: random.Random, axes: int, channels: int) -> np.ndarray:
    return ones(r.randint(0, 2), *(r.randint(0, 9) for _ in range(axes)), channels)


def window(r: random.Random, axes: int) -> dict[str, Any]:
    return {
        "stride": tuple(r.randint(1, 3) for _ in range(axes)),
        "pad": tuple(r.randint(0, 3) for _ in range(2 * axes)),
        "dilation": tuple(r.randint(1, 2) for _ in range(axes)),
    }


def epilogue(r: random.Random) -> dict[str, Any]:
    act = r.choice(["none", "relu", "clip", "swish", "gelu", "prelu"])
    made = r.choice(["same", "same", "f32", "bf16", "f16"])
    return {"act": act, "act_args": (0.5, 1.0), "add_last": r.random() < 0.3, "made": made}


def gemm(r: random.Random) -> Call:
    m, n, k = r.randint(0, 20), r.randint(0, 70), r.randint(0, 20)
    a = ones(*[r.randint(1, 3)] * r.randint(0, 2), m, k)
    return "cpu.gemm", [a, ones(-(-n // 16), k, 16), ones(n)], {"n": n, **epilogue(r)}


def in_bf16(r: random.Random) -> Call:
    """A product in bf16, whose packed weights are pairs of rows."""
    name, (x, w, bias), attrs = r.choice([gemm, conv, depthwise])(r)
    assert x is not None
    assert w is not None
    if name != "cpu.depthwise":
        w = np.resize(w, (*w.shape[:-2], w.shape[-2] // 2, 32)).astype(ml_dtypes.bfloat16)
    return name, [x.astype(ml_dtypes.bfloat16), w, bias], attrs


def in_f16(r: random.Random) -> Call:
    name, (x, w, bias), attrs = r.choice([gemm, conv, depthwise])(r)
    assert x is not None
    assert w is not None
    small = w if name == "cpu.depthwise" else w.astype(np.float16)
    return name, [x.astype(np.float16), small, bias], attrs


def conv(r: random.Random) -> Call:
    axes, groups = r.randint(1, 3), r.choice([1, 1, 2, 3])
    deep, per = r.randint(1, 20), r.randint(0, 40)
    kernel = tuple(r.randint(1, 4) for _ in range(axes))
    w = ones(groups, -(-per // 16), math.prod(kernel) * deep, 16)
    attrs = {
        "channels": groups * per,
        "kernel": kernel,
        "groups": groups,
        "output_pad": (1,) * axes,
    }
    name = r.choice(["cpu.conv", "cpu.conv_transpose"])
    x = image(r, axes, groups * deep)
    return name, [x, w, ones(groups * per)], {**attrs, **window(r, axes), **epilogue(r)}


def int8_conv(r: random.Random) -> Call:
    """A convolution of bytes, with one channel per group or with packed weights."""
    dtype = r.choice(["u8", "i8"])
    attrs: dict[str, Any] = {"x_zero": 3, "y_zero": 5, "lo": 0, "hi": 127, "dtype": dtype}
    axes, groups = r.randint(1, 3), r.choice([1, 1, 2, 3])
    attrs |= window(r, axes)
    kind = r.choice([np.uint8, np.int8])
    if r.random() < 0.4:
        channels = r.randint(0, 140)
        attrs["kernel"] = tuple(r.randint(1, 5) for _ in range(axes))
        taps_order = tap_packing(attrs["kernel"], attrs["stride"], attrs["dilation"])
        most = r.choice([1, 130])  # 130 needs two parts
        w = taps_order.packed(ones(*attrs["kernel"], channels).astype(np.int16) * most)
        arrays = [image(r, axes, channels).astype(kind), w]
        return "cpu.qdepthwise", [*arrays, ones(channels).astype(np.int32), ones(channels)], attrs
    deep, per = r.randint(1, 20), r.randint(0, 70)
    kernel = tuple(r.randint(1, 4) for _ in range(axes))
    run = r.choice(["tap", "line", "window"]) if groups == 1 else "tap"
    if run != "tap":
        attrs["dilation"] = (*attrs["dilation"][:-1], 1)
    w = qconv_packing.packed(ones(groups, per, deep, *kernel).astype(np.int8), run)
    attrs |= {"channels": groups * per, "kernel": kernel, "groups": groups, "run": run}
    attrs |= {"r_zero": 0, "r_scale": 1.0}
    x, channels = image(r, axes, groups * deep).astype(kind), groups * per
    entries = ones(attrs["hi"] - attrs["lo"] + 1).astype(np.uint8 if dtype == "u8" else np.int8)
    table = entries if r.random() < 0.3 else None
    zeros = ones(channels).astype(np.int32) if r.random() < 0.3 else None
    more = [None, table, zeros]
    if zeros is None and r.random() < 0.4:
        count = r.randint(0, 3)
        w = np.concatenate([w, w[:, :, :1].repeat(count, 2)], 2)
        more.append(np.array([r.randint(-1, w.shape[2]) for _ in range(count)], np.int32))
    if table is None and r.random() < 0.3:  # zero points and scales known at run time
        attrs["dtype"] = "f32"
        now = [ones(len(x)).astype(kind), ones(len(x)), ones(channels).astype(np.int32)]
        more += [*[None] * (4 - len(more)), *now]
    return "cpu.qconv", [x, w, ones(channels).astype(np.int32), ones(channels), *more], attrs


def qgemm(r: random.Random) -> Call:
    m, n, k = r.randint(0, 20), r.randint(0, 70), 4 * r.randint(0, 9)
    x = ones(m, k).astype(r.choice([np.uint8, np.int8]))
    w, whole = ones(-(-n // 16), k // 4, 64).astype(np.int8), -(-n // 16) * 16
    arrays = [x, w, ones(n), ones(m, n), ones(n), ones(whole), ones(whole).astype(np.int32)]
    attrs = {"n": n, "x_zero": 3, **epilogue(r), "act": "prelu"}
    zero = x.reshape(-1)[:1] if r.random() < 0.5 else ones(m).astype(x.dtype)
    return "cpu.qgemm", [*arrays, ones(m), zero], attrs


def slices(r: random.Random) -> Call:
    x = ones(*(r.randint(0, 9) for _ in range(r.randint(1, 4))))
    return "dynamic_fake_quantize", [x], {"axis": r.randint(-1, 4)}


def wgemm(r: random.Random) -> Call:
    m, n, k, bits = r.randint(0, 9), r.randint(0, 70), r.randint(1, 40), r.choice([4, 8])
    block = r.choice([k, 2, 8, 32])
    w = ones(-(-n // 16), k if bits == 8 else -(-k // 2), 16).astype([np.uint8, np.int8][bits // 8])
    each = ones(-(-n // 16), -(-k // block), 16)
    arrays = [ones(m, k), w, ones(n), ones(m, n), ones(n), each, each]
    attrs = {"n": n, "bits": bits, "block": block, **epilogue(r), "act": "prelu"}
    return "cpu.wgemm", arrays, attrs


def winograd(r: random.Random) -> Call:
    tile, deep, channels = r.choice([2, 4, 6]), r.randint(1, 20), r.randint(0, 70)
    w = ones((tile + 2) ** 2, -(-channels // 16), deep, 16)
    attrs = {"tile": tile, "channels": channels, "pad": tuple(r.randint(0, 3) for _ in range(4))}
    return "cpu.winograd", [image(r, 2, deep), w, ones(channels)], {**attrs, **epilogue(r)}


def qwinograd(r: random.Random) -> Call:
    deep, channels, second = r.randint(1, 40), r.randint(0, 70), r.choice([0, 0, r.randint(1, 20)])
    first = 16 * r.randint(1, 2) if second else deep
    deep, square = first + second, (r.choice([1, 2]), r.choice([1, 2]))
    pairs = r.choice([-(-deep // 2), -(-deep // 4) * 2 + 1])  # the latter with a head
    w = ones(36, -(-channels // 16), pairs, 32).astype(np.int16)
    attrs = {
        "channels": channels,
        "pad": tuple(r.randint(0, 3) for _ in range(4)),
        "x_zero": 3,
        "y_zero": 5,
        "lo": 0,
        "hi": 127,
        "dtype": "u8",
        "r_zero": 0,
        "r_scale": 1.0,
        "square": square,
    }
    table = ones(128).astype(np.uint8) if r.random() < 0.3 else None
    n, high, wide = r.randint(0, 2), 2 * r.randint(0, 9), 2 * r.randint(0, 9)
    shapes = [
        (n, high // k, wide // k, c * k * k) for c, k in zip((first, second), square, strict=True)
    ]
    x, more = (ones(*shape).astype(np.uint8) for shape in shapes)
    ends = [ones(channels).astype(np.int32), ones(channels), None, table]
    return "cpu.qwinograd", [x, w, *ends, *([more] if second else [])], attrs


def depthwise(r: random.Random) -> Call:
    axes, channels = r.randint(1, 3), r.randint(0, 40)
    w = ones(*(r.randint(1, 6) for _ in range(axes)), channels)
    arrays = [image(r, axes, channels), w, ones(channels)]
    return "cpu.depthwise", arrays, {**window(r, axes), **epilogue(r)}


def separable(r: random.Random) -> Call:
    deep, wide, channels = r.randint(1, 20), r.randint(1, 40), r.randint(0, 40)
    expand = ones(1, -(-wide // 16), deep, 16) if r.random() < 0.7 else None
    wide = deep if expand is None else wide
    taps = ones(r.randint(1, 5), r.randint(1, 5), wide)
    arrays = [image(r, 2, deep), ones(1, -(-channels // 16), wide, 16), ones(channels), None, None]
    bias = None if expand is None else ones(wide)
    attrs = {k: v for k, v in window(r, 2).items() if k != "dilation"}
    inner = {"taps_act": "clip", "taps_args": (0.5, 1.0), "expand_act": "swish"}
    attrs |= {"channels": channels, **epilogue(r), **inner, "expand_args": (1.0,)}
    return "cpu.separable", [*arrays, taps, ones(wide), expand, bias], attrs


def pool(r: random.Random) -> Call:
    axes = r.randint(1, 3)
    attrs = {"kernel": tuple(r.randint(1, 5) for _ in range(axes)), **window(r, axes)}
    if r.random() < 0.3:
        return "max_pool", [image(r, axes, 5)], {**attrs, "storage_order": 0, "with_indices": False}
    kind = {"kind": r.choice(["max", "avg", "lp"]), "count_include_pad": r.random() < 0.5, "p": 2}
    return "cpu.pool", [image(r, axes, r.randint(0, 40))], {**attrs, **kind}


def interpolate(r: random.Random) -> Call:
    x = ones(r.randint(0, 3), r.randint(1, 9), r.randint(0, 40))
    index = np.array([[r.randint(0, 9) for _ in range(2)] for _ in range(6)], np.int32)
    return "interpolate", [x, index, ones(6, 2)], {"axis": r.randint(-3, 2)}


def pack(r: random.Random) -> Call:
    b = ones(r.randint(0, 3), r.randint(0, 20), r.randint(0, 40))
    return "cpu.pack", [b], {"tile": r.choice([1, 16, 16, 5]), "transposed": r.random() < 0.5}


def chain(r: random.Random) -> Call:
    shape = [r.randint(0, 9) for _ in range(3)] + [r.choice([1, 3, 16, 600])]
    n = r.randint(1, 8)
    xs: list[Any] = [ones(*(r.choice([1, d]) for d in shape[r.randint(0, 4) :])) for _ in range(n)]
    length = r.randint(1, 16)
    names = tuple(r.choice(["add", "pow", "swish", "clip", "gelu_tanh"]) for _ in range(length))
    args = tuple(r.randrange(n + i) for i in range(length) for _ in range(2))
    return "cpu.chain", xs, {"ops": names, "args": args, "params": (0.5,) * 2 * length}


def attention(r: random.Random) -> Call:
    batch, kv, rows, keys = r.randint(1, 2), r.randint(1, 2), r.randint(0, 20), r.randint(0, 40)
    heads, size, value_size = kv * r.randint(1, 2), r.randint(0, 20), r.randint(0, 40)
    arrays, attrs = [], {}
    sides = (("q", heads, rows, size), ("k", kv, keys, size), ("v", kv, keys, value_size))
    for name, n, length, width in sides:
        row = n * width + r.randint(0, 2)
        arrays.append(ones(batch, length, row))
        attrs[f"{name}_view"] = (0, length * row, width, row)
    mask = r.choice([ones(rows, keys), ones(batch, 1, 1, keys) > 0, ones(heads, rows, 1)])
    extents = {"batch": batch, "heads": heads, "kv_heads": kv, "rows": rows, "keys": keys}
    extents |= {"size": size, "value_size": value_size}
    softcap = r.choice([0.0, 2.0])
    attrs |= {**extents, "scale": 0.5, "softcap": softcap}
    return "cpu.attention", [*arrays, mask], attrs


def mutated(r: random.Random, call: Call) -> Call:
    """The call, mostly with a changed attribute, a changed extent or a missing operand."""
    name, arrays, attrs = call
    attrs, arrays = dict(attrs), list(arrays)
    if r.random() < 0.5:
        key = r.choice([k for k in attrs if k not in UNCHANGED])
        value, odd = attrs[key], r.choice(EXTREMES)
        at = r.randrange(len(value)) if isinstance(value, tuple) else 0
        attrs[key] = (*value[:at], odd, *value[at + 1 :]) if isinstance(value, tuple) else odd
    if r.random() < 0.3:
        i, a = r.choice([(i, a) for i, a in enumerate(arrays) if a is not None])
        cut = [slice(0, max(d - r.choice([0, 0, 1, 2]), 0)) for d in a.shape]
        arrays[i] = np.ascontiguousarray(a[tuple(cut)])
    if r.random() < 0.1:
        arrays[r.randrange(len(arrays))] = None
    return name, arrays, attrs


def run(call: Call, parts: int) -> bool:
    """Infer the call; if it is accepted, run every kernel and return True."""
    name, arrays, attrs = call
    accepted = False
    types = {"any"} if arrays[0] is None else {"any", dtypes.name_of(arrays[0].dtype)}
    for kernel in native.kernels():
        if kernel.op.name != name or kernel.needs & ~native.machine() or kernel.types not in types:
            continue
        try:
            blob = kernel.op.pack_attrs(attrs)
        except (BadInput, OverflowError):
            return False
        tensors = [None if a is None else native._tensor(a) for a in arrays]
        call_, inferred, _keep = native.call_of(tensors, blob, 1)
        if kernel.op.infer(ctypes.byref(call_), inferred):
            return False
        accepted = True
        shape = tuple(inferred[0].shape[: inferred[0].rank])
        if math.prod(max(d, 1) for d in shape) > 300_000:
            return True
        out = np.zeros(shape, dtypes.BY_CODE[inferred[0].dtype].numpy)
        result = native._tensor(out)
        call_.outputs = (ctypes.POINTER(CTensor) * 1)(ctypes.pointer(result))
        size = kernel.op.scratch(ctypes.byref(call_), parts) if kernel.op.scratch else 0
        scratch = np.zeros(size + 64, np.uint8)
        call_.scratch = -(-scratch.ctypes.data // 64) * 64
        derived = native.prepare(name, call_)
        for part in range(parts):
            kernel.run(ctypes.byref(call_), part, parts)
        del derived
    return accepted


def main(seed: int) -> None:
    makers: list[Callable[[random.Random], Call]] = [
        gemm,
        conv,
        conv,
        in_bf16,
        in_bf16,
        in_f16,
        in_f16,
        int8_conv,
        int8_conv,
        winograd,
        depthwise,
        qwinograd,
        separable,
        pool,
        interpolate,
        pack,
        chain,
        attention,
        slices,
        qgemm,
        wgemm,
    ]
    seeds, count, end = random.Random(seed), [0, 0], time.monotonic() + SECONDS
    while time.monotonic() < end:
        number = seeds.getrandbits(64)
        print(number, flush=True)  # what to look at if the next call crashes
        r = random.Random(number)
        count[run(mutated(r, r.choice(makers)(r)), r.randint(1, 3))] += 1
    print(count[1], count[0])


if __name__ == "__main__":
    main(int(sys.argv[1]))
