"""`python -m benchmarks.bytes [isa ...]`: the bandwidth of arithmetic on quantised tensors."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from benchmarks.kernels import fastest
from intaglio import native
from intaglio.cpu_isa import NAMES, bits_of
from intaglio.ops.quantized import power_table
from intaglio.ops.registry import REGISTRY

RNG = np.random.default_rng(1)
SHAPES = {"in cache": (1, 14, 14, 96), "beyond": (1, 112, 112, 96)}


def some(*shape: int) -> np.ndarray:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def cases(shape: tuple[int, ...]) -> list[tuple[str, str, list[Any], dict[str, Any]]]:
    """A name, an op, its operands and attributes."""
    x, of = some(*shape), [np.float32(0.5), np.int8(3)]
    few = x.reshape(1, -1, 24)
    at = np.arange(2 * shape[1], dtype=np.int32)[:, None]
    mixed = [
        np.minimum(at // 2 + np.array([0, 1], np.int32), shape[1] - 1).astype(np.int32),
        np.full((len(at), 2), 1024, np.int32),
    ]
    window = {"kernel": (3, 3), "stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1)}
    return [
        ("lookup, bytes", "lookup", [x, some(256)], {}),
        ("lookup, f32", "lookup", [x, some(256).astype(np.float32)], {}),
        ("add", "qlinear_add", [x, *of, some(*shape), *of, *of], {}),
        ("mul", "qlinear_mul", [x, *of, some(*shape), *of, *of], {}),
        ("mul, per channel", "qlinear_mul", [x, *of, some(1, 1, 1, shape[-1]), *of, *of], {}),
        ("mul, 24 channels", "qlinear_mul", [few, *of, some(1, 1, 24), *of, *of], {}),
        ("mean", "qlinear_mean", [x, *of, *of], {"axes": (1, 2)}),
        ("avg_pool 3x3", "cpu.qpool", [x, *of, *of], window),
        ("max_pool 3x3", "cpu.pool", [x], {**window, "kind": "max"}),
        ("resize, linear", "qlinear_resize", [x, *of, *of, *mixed, *mixed], {"axis": 1}),
        ("clip", "clip", [x], {"lo": -5.0, "hi": 90.0}),
        ("softmax", "qlinear_softmax", [x, power_table(0.1), *of], {}),
    ]


def run_time(op: str, isa: str, arrays: list[Any], given: dict[str, Any]) -> tuple[float, int]:
    """Seconds of one call, and the bytes that it must read and write."""
    keyword = [p for p in REGISTRY[op].signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    attrs = {**{p.name: p.default for p in keyword}, **given}
    kernel = native.find_kernel(op, "i8", bits_of(isa))
    assert kernel is not None
    ready = native.Prepared(kernel, [None if a is None else np.asarray(a) for a in arrays], attrs)
    call = ctypes.byref(ready.call)
    moved = sum(np.asarray(a).nbytes for a in arrays if a is not None)
    seconds = fastest(lambda: kernel.run(call, 0, 1), 0.1)
    return seconds, moved + sum(a.nbytes for a in ready.outs)


def main() -> None:
    known = [i for i in NAMES if not bits_of(i) & ~native.machine()]
    isas = sys.argv[1:] or [i for i in known if i != "avx512bf16"]
    print(f"{'GB/s, read and written':32}" + "".join(f"{i:>12}" for i in isas))
    for where, shape in SHAPES.items():
        for name, op, arrays, attrs in cases(shape):
            row = f"{name + ', ' + where:32}"
            for isa in isas:
                seconds, moved = run_time(op, isa, arrays, attrs)
                row += f"{moved / seconds / 1e9:12.1f}"
            print(row)


if __name__ == "__main__":
    main()
