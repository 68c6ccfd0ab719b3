"""`python -m benchmarks.kernels [isa]`: f32 kernels on one thread, as a share of the peak."""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import native
from intaglio.cpu_isa import bits_of
from intaglio.interpret import interpret
from intaglio.ir import Graph, constant
from intaglio.ops.registry import REGISTRY
from intaglio.targets.cpu import packing
from intaglio.targets.cpu.packing import PANEL
from intaglio.targets.cpu.winograd import POINTS, winograd_weights
from intaglio.targets.cpu.winograd_choice import choose

LANES = {"scalar": 4, "avx2": 8, "avx512": 16}
# (height, width, channels in, channels out, kernel, stride), as often as the network has them
RESNET50 = [
    (224, 224, 3, 64, 7, 2, 1),
    (56, 56, 64, 64, 1, 1, 1),
    (56, 56, 64, 64, 3, 1, 3),
    (56, 56, 64, 256, 1, 1, 4),
    (56, 56, 256, 64, 1, 1, 2),
    (56, 56, 256, 128, 1, 1, 1),
    (56, 56, 128, 128, 3, 2, 1),
    (28, 28, 128, 512, 1, 1, 4),
    (56, 56, 256, 512, 1, 2, 1),
    (28, 28, 512, 128, 1, 1, 3),
    (28, 28, 128, 128, 3, 1, 3),
    (28, 28, 512, 256, 1, 1, 1),
    (28, 28, 256, 256, 3, 2, 1),
    (14, 14, 256, 1024, 1, 1, 6),
    (28, 28, 512, 1024, 1, 2, 1),
    (14, 14, 1024, 256, 1, 1, 5),
    (14, 14, 256, 256, 3, 1, 5),
    (14, 14, 1024, 512, 1, 1, 1),
    (14, 14, 512, 512, 3, 2, 1),
    (7, 7, 512, 2048, 1, 1, 3),
    (14, 14, 1024, 2048, 1, 2, 1),
    (7, 7, 2048, 512, 1, 1, 2),
    (7, 7, 512, 512, 3, 1, 2),
]
MOBILENET_V2 = [
    (224, 224, 3, 32, 3, 2, 1),
    (112, 112, 32, 16, 1, 1, 1),
    (112, 112, 16, 96, 1, 1, 1),
    (56, 56, 96, 24, 1, 1, 1),
    (56, 56, 24, 144, 1, 1, 2),
    (56, 56, 144, 24, 1, 1, 1),
    (28, 28, 144, 32, 1, 1, 1),
    (28, 28, 32, 192, 1, 1, 3),
    (28, 28, 192, 32, 1, 1, 2),
    (14, 14, 192, 64, 1, 1, 1),
    (14, 14, 64, 384, 1, 1, 4),
    (14, 14, 384, 64, 1, 1, 3),
    (14, 14, 384, 96, 1, 1, 1),
    (14, 14, 96, 576, 1, 1, 3),
    (14, 14, 576, 96, 1, 1, 2),
    (7, 7, 576, 160, 1, 1, 1),
    (7, 7, 160, 960, 1, 1, 3),
    (7, 7, 960, 160, 1, 1, 2),
    (7, 7, 960, 320, 1, 1, 1),
    (7, 7, 320, 1280, 1, 1, 1),
]
TILES = [  # 3x3 with stride 1: height, width, channels in and out; ResNets, SqueezeNet, YOLOv8n
    (56, 56, 64, 64),
    (28, 28, 128, 128),
    (14, 14, 256, 256),
    (7, 7, 512, 512),
    (55, 55, 16, 64),
    (27, 27, 32, 128),
    (13, 13, 64, 256),
    (80, 80, 16, 16),
    (40, 40, 32, 32),
    (40, 40, 64, 64),
    (20, 20, 128, 128),
    (10, 10, 256, 256),
]
STEMS = [  # first layers: MobileNetV1 and V2, V3, ShuffleNetV2, ResNet, YOLOv5
    (224, 224, 3, 32, 3, 2, 1),
    (224, 224, 3, 16, 3, 2, 1),
    (224, 224, 3, 24, 3, 2, 1),
    (224, 224, 3, 64, 7, 2, 1),
    (320, 320, 3, 32, 6, 2, 1),
]
DEPTHWISE = [  # height, width, channels, kernel, stride; MobileNetV2's, two of V3, two of V1
    (112, 112, 32, 3, 1, 1),
    (112, 112, 96, 3, 2, 1),
    (56, 56, 144, 3, 1, 1),
    (56, 56, 144, 3, 2, 1),
    (28, 28, 192, 3, 1, 2),
    (28, 28, 192, 3, 2, 1),
    (14, 14, 384, 3, 1, 4),
    (14, 14, 576, 3, 1, 2),
    (14, 14, 576, 3, 2, 1),
    (7, 7, 960, 3, 1, 3),
    (14, 14, 240, 5, 1, 1),
    (28, 28, 96, 5, 2, 1),
    (14, 14, 512, 3, 1, 0),
    (7, 7, 1024, 3, 1, 0),
]
GEMM = [
    (512, 512, 512),
    (128, 384, 384),
    (128, 1536, 384),
    (128, 384, 1536),
    (128, 128, 32),
    (128, 32, 128),
    (1, 1000, 1280),
    (1, 1024, 256),
    (16, 4096, 1024),
]

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


def fastest(run: Callable[[], Any], seconds: float = 0.15) -> float:
    """The minimum time of many runs, in seconds."""
    run()
    best, end = math.inf, time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return best


def peak_library() -> ctypes.CDLL:
    """The library of csrc/bench: loops of multiply-adds only."""
    return ctypes.CDLL(str(Path(native.library()._name).with_name("libintaglio_peak.so")))


def peak(isa: str) -> float:
    """Peak of one core in GFLOP/s."""
    fn = getattr(peak_library(), f"itg_peak_{isa}")
    rounds = 100_000
    return 2 * 12 * LANES[isa] * rounds / fastest(lambda: fn(ctypes.c_int64(rounds))) / 1e9


def measure(op: str, isa: str, arrays: list[np.ndarray | None], **attrs: Any) -> tuple[float, int]:
    """Seconds and multiply-accumulates of one call."""
    made = REGISTRY[op].node(*[None if a is None else constant(a) for a in arrays], **attrs)
    kernel = native.find_kernel(op, "f32", bits_of(isa))
    assert kernel is not None
    ready = native.Prepared(kernel, arrays, made.attrs)
    return fastest(ready.run), REGISTRY[op].macs(made)


def gemms(isa: str) -> Iterator[tuple[str, int, float, int]]:
    for m, n, k in GEMM:
        b = packing.pack.body(floats(k, n), tile=PANEL)
        yield f"{m} x {n} x {k}", 1, *measure("cpu.gemm", isa, [floats(m, k), b, floats(n)], n=n)


def convs(shapes: list[tuple[int, ...]], isa: str) -> Iterator[tuple[str, int, float, int]]:
    for h, w, c, m, k, s, times in shapes:
        weights = packing.pack.body(floats(1, k * k * c, m), tile=PANEL)
        yield (
            f"{h}x{w} {c} -> {m}, {k}x{k} /{s}",
            times,
            *measure(
                "cpu.conv",
                isa,
                [floats(1, h, w, c), weights, floats(m)],
                channels=m,
                kernel=(k, k),
                stride=(s, s),
                pad=(k // 2,) * 4,
                dilation=(1, 1),
                act="clip",
                act_args=(0.0, 6.0),
            ),
        )


def tiles(isa: str) -> Iterator[tuple[str, int, float, int]]:
    """Each layer with every Winograd tile size; a star marks the cost model's choice."""
    for h, w, c, m in TILES:
        chosen = choose((1, c, h, w), m)
        for tile in POINTS:
            made = winograd_weights(constant(floats(m, c, 3, 3)), tile)
            weights = interpret(Graph([], [made], ["w"]), {})["w"]
            yield (
                f"{h}x{w} {c} -> {m}, tile {tile}{'*' * (tile == chosen)}",
                int(tile == chosen),
                *measure(
                    "cpu.winograd",
                    isa,
                    [floats(1, h, w, c), weights, floats(m)],
                    tile=tile,
                    channels=m,
                    pad=(1, 1, 1, 1),
                    act="clip",
                    act_args=(0.0, 6.0),
                ),
            )


def depthwises(isa: str) -> Iterator[tuple[str, int, float, int]]:
    for h, w, c, k, s, times in DEPTHWISE:
        yield (
            f"{h}x{w} {c}, {k}x{k} /{s}",
            times,
            *measure(
                "cpu.depthwise",
                isa,
                [floats(1, h, w, c), floats(k, k, c), floats(c)],
                stride=(s, s),
                pad=(k // 2,) * 4,
                dilation=(1, 1),
                act="clip",
                act_args=(0.0, 6.0),
            ),
        )


def main() -> None:
    isa = sys.argv[1] if len(sys.argv) > 1 else "avx512" if native.machine() & 2 else "avx2"
    top = peak(isa)
    print(f"{isa}: peak {top:.1f} GFLOP/s on one thread")
    families = {
        "matrix product, m x n x k": gemms(isa),
        "first layers": convs(STEMS, isa),
        "MobileNetV2, convolutions": convs(MOBILENET_V2, isa),
        "MobileNetV2, depthwise": depthwises(isa),
        "ResNet-50, convolutions": convs(RESNET50, isa),
        "3x3 in tiles": tiles(isa),
    }
    for title, rows in families.items():
        print(f"\n{title:34}{'us':>9}{'GFLOP/s':>10}{'of peak':>9}")
        seconds = macs = 0.0
        for name, times, t, n in rows:
            print(f"{name:34}{t * 1e6:9.1f}{2 * n / t / 1e9:10.1f}{2 * n / t / 1e9 / top:9.0%}")
            seconds, macs = seconds + times * t, macs + times * n
        print(
            f"{'all, weighted by occurrence':34}{seconds * 1e6:9.0f}"
            f"{2 * macs / seconds / 1e9:10.1f}{2 * macs / seconds / 1e9 / top:9.0%}"
        )


if __name__ == "__main__":
    main()
