"""`python -m benchmarks.elementwise [isa]`: activations, and fused chains against single ops."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.kernels import fastest, floats
from intaglio import native
from intaglio.cpu_isa import bits_of
from intaglio.ops.registry import REGISTRY

COUNT = 3072  # floats: input and output stay in the first-level cache
ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    ("relu", {}),
    ("hardswish", {}),
    ("exp", {}),
    ("log", {}),
    ("sigmoid", {}),
    ("swish", {}),
    ("tanh", {}),
    ("elu", {}),
    ("softplus", {}),
    ("mish", {}),
    ("erf", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("sin", {}),
]
SHAPES = [(16384,), (1 << 22,), (1, 56, 56, 64), (8, 14, 14, 480), (1, 3, 80, 80, 2)]


def runner(op: str, isa: str, arrays: list[np.ndarray], **given: Any) -> tuple[Any, np.ndarray]:
    """A function that only runs the kernel, and its output array."""
    keyword = [p for p in REGISTRY[op].signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    attrs = {**{p.name: p.default for p in keyword}, **given}
    kernel = native.find_kernel(op, "f32", bits_of(isa))
    assert kernel is not None
    ready = native.Prepared(kernel, arrays, attrs)
    call = ctypes.byref(ready.call)

    def run(ready: Any = ready) -> None:  # keeps the operands alive
        kernel.run(call, 0, 1)

    return run, ready.outs[0]


def gate(isa: str, shape: tuple[int, ...]) -> tuple[list[Callable[[], None]], Callable[[], None]]:
    """clip(swish(x) * (y + g) + r, 0, 6), g per channel: five steps, and one chain."""
    x, y, r = (floats(*shape) for _ in range(3))
    g = floats(*(1,) * (len(shape) - 1), shape[-1]) if len(shape) > 1 else floats(1)
    swish, a = runner("swish", isa, [x])
    shift, b = runner("add", isa, [y, g])
    scale, c = runner("mul", isa, [a, b])
    add, d = runner("add", isa, [c, r])
    clip, e = runner("clip", isa, [d], lo=0.0, hi=6.0)
    chain, f = runner(
        "cpu.chain",
        isa,
        [x, y, g, r],
        ops=("swish", "add", "mul", "add", "clip"),
        args=(0, 0, 1, 2, 4, 5, 6, 3, 7, 0),
        params=(1.0, 0, 0, 0, 0, 0, 0, 0, 0, 6.0),
    )
    steps = [swish, shift, scale, add, clip]
    for step in [*steps, chain]:
        step()
    np.testing.assert_array_equal(e, f)
    return steps, chain


def main() -> None:
    isa = sys.argv[1] if len(sys.argv) > 1 else "avx512" if native.machine() & 2 else "avx2"
    nothing = fastest(runner("relu", isa, [floats(0)])[0])  # overhead of a call from Python
    print(f"{isa}, one thread\n{'activation':28}{'ns/element':>12}")
    for op, attrs in ACTIVATIONS:
        t = (
            fastest(
                runner(
                    op, isa, [4 * floats(COUNT) if op != "log" else floats(COUNT) ** 2], **attrs
                )[0]
            )
            - nothing
        )
        print(f"{' '.join([op, *attrs.values()]):28}{t / COUNT * 1e9:12.3f}")
    print(f"\n{'five ops, one fused chain':28}{'us':>10}{'us':>10}{'faster':>9}")
    for shape in SHAPES:
        steps, chain = gate(isa, shape)

        def one_by_one(steps: list[Callable[[], None]] = steps) -> None:
            for step in steps:
                step()

        many = fastest(one_by_one, 0.3) - len(steps) * nothing
        one = fastest(chain, 0.3) - nothing
        print(f"{'x'.join(map(str, shape)):28}{many * 1e6:10.1f}{one * 1e6:10.1f}{many / one:9.2f}")


if __name__ == "__main__":
    main()
