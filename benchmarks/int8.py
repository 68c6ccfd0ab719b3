"""`python -m benchmarks.int8 [isa] [net..]`: int8 convolutions, as a share of a core's peak."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.kernels import MOBILENET_V2, RESNET50, peak_library
from intaglio import native, passes
from intaglio.cpu_isa import bits_of
from intaglio.ir import Graph, Value, constant
from intaglio.targets import cpu
from intaglio.targets.cpu import qconv_choice

LANES = {
    "avx2": 16,
    "avx512": 32,
    "avx512vnni": 64,
    "avx512vbmi": 64,
}  # multiply-adds per instruction
# (height, width, channels in, channels out, kernel, stride), as often as the network has them
RESNET18 = [
    (224, 224, 3, 64, 7, 2, 1),
    (56, 56, 64, 64, 3, 1, 4),
    (56, 56, 64, 128, 3, 2, 1),
    (56, 56, 64, 128, 1, 2, 1),
    (28, 28, 128, 128, 3, 1, 3),
    (28, 28, 128, 256, 3, 2, 1),
    (28, 28, 128, 256, 1, 2, 1),
    (14, 14, 256, 256, 3, 1, 3),
    (14, 14, 256, 512, 3, 2, 1),
    (14, 14, 256, 512, 1, 2, 1),
    (7, 7, 512, 512, 3, 1, 3),
    (1, 1, 512, 1000, 1, 1, 1),
]
SQUEEZENET = [
    (224, 224, 3, 64, 3, 2, 1),
    (55, 55, 64, 16, 1, 1, 1),
    (55, 55, 16, 64, 1, 1, 2),
    (55, 55, 16, 64, 3, 1, 2),
    (55, 55, 128, 16, 1, 1, 1),
    (27, 27, 128, 32, 1, 1, 1),
    (27, 27, 32, 128, 1, 1, 2),
    (27, 27, 32, 128, 3, 1, 2),
    (27, 27, 256, 32, 1, 1, 1),
    (13, 13, 256, 48, 1, 1, 1),
    (13, 13, 48, 192, 1, 1, 2),
    (13, 13, 48, 192, 3, 1, 2),
    (13, 13, 384, 48, 1, 1, 1),
    (13, 13, 384, 64, 1, 1, 1),
    (13, 13, 64, 256, 1, 1, 2),
    (13, 13, 64, 256, 3, 1, 2),
    (13, 13, 512, 64, 1, 1, 1),
    (13, 13, 512, 1000, 1, 1, 1),
]
YOLOV8N = [  # at 320 x 320
    (320, 320, 3, 16, 3, 2, 1),
    (160, 160, 16, 32, 3, 2, 1),
    (80, 80, 32, 32, 1, 1, 1),
    (80, 80, 16, 16, 3, 1, 2),
    (80, 80, 48, 32, 1, 1, 1),
    (80, 80, 32, 64, 3, 2, 1),
    (40, 40, 64, 64, 1, 1, 1),
    (40, 40, 32, 32, 3, 1, 6),
    (40, 40, 128, 64, 1, 1, 1),
    (40, 40, 64, 128, 3, 2, 1),
    (20, 20, 128, 128, 1, 1, 1),
    (20, 20, 64, 64, 3, 1, 8),
    (20, 20, 256, 128, 1, 1, 1),
    (20, 20, 128, 256, 3, 2, 1),
    (10, 10, 256, 256, 1, 1, 1),
    (10, 10, 128, 128, 3, 1, 4),
    (10, 10, 384, 256, 1, 1, 2),
    (10, 10, 256, 128, 1, 1, 1),
    (10, 10, 512, 256, 1, 1, 1),
    (20, 20, 384, 128, 1, 1, 1),
    (20, 20, 192, 128, 1, 1, 3),
    (40, 40, 192, 64, 1, 1, 1),
    (40, 40, 96, 64, 1, 1, 1),
    (40, 40, 64, 64, 3, 2, 1),
    (20, 20, 128, 128, 3, 2, 1),
    (40, 40, 64, 64, 3, 1, 2),
    (40, 40, 64, 80, 3, 1, 1),
    (40, 40, 80, 80, 3, 1, 1),
    (40, 40, 64, 64, 1, 1, 1),
    (40, 40, 80, 80, 1, 1, 1),
    (20, 20, 128, 64, 3, 1, 1),
    (20, 20, 128, 80, 3, 1, 1),
    (20, 20, 80, 80, 3, 1, 1),
    (10, 10, 256, 64, 3, 1, 1),
    (10, 10, 64, 64, 3, 1, 1),
    (10, 10, 256, 80, 3, 1, 1),
    (10, 10, 80, 80, 3, 1, 1),
]
YOLOV5S = [  # at 320 x 320
    (320, 320, 3, 32, 6, 2, 1),
    (160, 160, 32, 64, 3, 2, 1),
    (80, 80, 64, 32, 1, 1, 2),
    (80, 80, 32, 32, 1, 1, 1),
    (80, 80, 32, 32, 3, 1, 1),
    (80, 80, 64, 64, 1, 1, 1),
    (80, 80, 64, 128, 3, 2, 1),
    (40, 40, 128, 64, 1, 1, 4),
    (40, 40, 64, 64, 1, 1, 3),
    (40, 40, 64, 64, 3, 1, 3),
    (40, 40, 128, 128, 1, 1, 2),
    (40, 40, 128, 256, 3, 2, 1),
    (20, 20, 256, 128, 1, 1, 6),
    (20, 20, 128, 128, 1, 1, 5),
    (20, 20, 128, 128, 3, 1, 5),
    (20, 20, 256, 256, 1, 1, 3),
    (20, 20, 256, 512, 3, 2, 1),
    (10, 10, 512, 256, 1, 1, 6),
    (10, 10, 256, 256, 3, 1, 2),
    (10, 10, 512, 512, 1, 1, 2),
    (20, 20, 512, 128, 1, 1, 2),
    (40, 40, 256, 64, 1, 1, 2),
    (40, 40, 128, 128, 3, 2, 1),
    (20, 20, 256, 256, 3, 2, 1),
    (40, 40, 128, 255, 1, 1, 1),
    (20, 20, 256, 255, 1, 1, 1),
    (10, 10, 512, 255, 1, 1, 1),
]
PRODUCTS = [
    (1, 1, 1280, 1000, 1, 1, 1),
    (1, 1, 2048, 1000, 1, 1, 1),
    (1, 1, 512, 1000, 1, 1, 1),
    (1, 128, 384, 384, 1, 1, 1),
    (1, 128, 384, 1536, 1, 1, 1),
    (1, 128, 1536, 384, 1, 1, 1),
    (1, 512, 512, 512, 1, 1, 1),
]
NETS = {
    "resnet50": RESNET50,
    "resnet18": RESNET18,
    "mobilenet_v2": MOBILENET_V2,
    "squeezenet": SQUEEZENET,
    "yolov8n": YOLOV8N,
    "yolov5s": YOLOV5S,
    "products": PRODUCTS,
}

rng = np.random.default_rng(0)


def fastest(run: Callable[[], Any], seconds: float = 0.1) -> float:
    """The minimum processor time of many runs."""
    run()
    best, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.thread_time_ns()
        run()
        best = min(best, (time.thread_time_ns() - start) / 1e9)
    return best


def peak(isa: str) -> float:
    """Peak of one core in GOP/s; a multiply-add counts as two operations."""
    fn = getattr(peak_library(), f"itg_peak_bytes_{isa.replace('vbmi', 'vnni')}")
    rounds = 100_000
    return 2 * 12 * LANES[isa] * rounds / fastest(lambda: fn(ctypes.c_int64(rounds))) / 1e9


def macs(h: int, w: int, c: int, m: int, k: int, s: int) -> int:
    """Multiply-accumulates; taps on padding are not counted."""
    pad = k // 2 - (1 if k % 2 == 0 else 0)

    def seen(n: int) -> int:
        starts = range(-pad, n + pad - k + 1, s)
        return sum(min(i + k, n) - max(i, 0) for i in starts)

    return seen(h) * seen(w) * c * m


def prepared(isa: str, h: int, w: int, c: int, m: int, k: int, s: int) -> native.Prepared:
    """The convolution as the CPU target lowers it."""
    x = rng.integers(-128, 128, (1, h, w, c)).astype(np.int8)
    weights = rng.integers(-127, 128, (m, c, k, k)).astype(np.int8)
    pad = k // 2 - (1 if k % 2 == 0 else 0)
    made = qconv_choice.convolution(
        Value(constant(x).type, "x"),
        weights,
        constant(np.zeros(m, np.int32)),
        constant(np.full(m, 1e-4, np.float32)),
        groups=1,
        stride=(s, s),
        pad=(pad,) * 4,
        dilation=(1, 1),
        x_zero=-128,
        y_zero=-5,
        lo=-128,
        hi=127,
        dtype="i8",
    )
    graph = Graph([made.producer.inputs[0]], [made], ["y"])  # type: ignore[union-attr, list-item]
    passes.run(graph, [p for p in passes.lowering(cpu.target(isa)) if p.name == "fuse blocks"])
    node = graph.outputs[0].producer
    assert node is not None
    kernel = native.find_kernel(node.op, "i8", bits_of(isa))
    assert kernel is not None
    arrays = [x, *[v.data if v is not None else None for v in node.inputs[1:]]]
    return native.Prepared(kernel, arrays, node.attrs)


def layers(isa: str, shapes: list[tuple[int, ...]]) -> Iterator[tuple[str, int, float, int]]:
    for h, w, c, m, k, s, times in shapes:
        ready = prepared(isa, h, w, c, m, k, s)
        run = functools.partial(ready.kernel.run, ctypes.byref(ready.call), 0, 1)
        yield f"{h}x{w} {c} -> {m}, {k}x{k} /{s}", times, fastest(run), macs(h, w, c, m, k, s)


def main() -> None:
    isa = sys.argv[1] if len(sys.argv) > 1 else "avx512vnni"
    top = peak(isa)
    print(f"{isa}: peak {top:.1f} G operations/s on one thread")
    for net in sys.argv[2:] or NETS:
        print(f"\n{net:34}{'us':>9}{'GOP/s':>10}{'of peak':>9}")
        seconds = work = 0.0
        for name, times, t, n in layers(isa, NETS[net]):
            print(f"{name:34}{t * 1e6:9.1f}{2 * n / t / 1e9:10.1f}{2 * n / t / 1e9 / top:9.0%}")
            seconds, work = seconds + times * t, work + times * n
        print(
            f"{'all, weighted by occurrence':34}{seconds * 1e6:9.0f}"
            f"{2 * work / seconds / 1e9:10.1f}{2 * work / seconds / 1e9 / top:9.0%}"
        )


if __name__ == "__main__":
    main()
