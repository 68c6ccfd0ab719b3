"""Custom operators: what a call in Python costs over its numpy body, and the speed of a plug-in.

python -m benchmarks.custom_ops [--rounds 1000] [--json FILE]

In Python: a session of one operator `x + y` in Python, its numpy body alone, and a session of the
built-in `add`, in turns. The overhead is the first less the second; less the third as well, it is
that of the callback alone. In C: the source of the built-in kernel of deform_conv, built as a
plug-in, beside the built-in kernel: the same code, called through both tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks.models import ROOT
from benchmarks.table import grid
from intaglio import custom, native, ops
from intaglio.cpu_isa import BITS
from intaglio.ir import Graph, Type, Value
from intaglio.ops.registry import REGISTRY

LIMIT_US = 20.0  # of a call in Python, over its numpy body
SHAPES: list[tuple[int, ...]] = [(1, 8), (64, 64), (256, 1024)]
CALLS = 5  # timed together
ISA_FLAGS = {  # as in CMakeLists.txt
    "avx512": "-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl",
    "avx2": "-mavx2 -mfma -mf16c",
    "scalar": "",
}
TABLE = """#include "kernel.h"
itg_words itg_deform_conv_f32_{isa}(const itg_call *, uint32_t, uint32_t);
static const itg_op op = {{.name = "bench.deform_conv",
                          .fields = "stride:i2 pad:i4 dilation:i2 groups:i1 offset_groups:i1",
                          .attrs_size = sizeof(itg_attrs_deform_conv),
                          .infer = itg_infer_deform_conv,
                          .scratch = itg_scratch_deform_conv}};
static const itg_kernel kernels[] = {{{{.op = &op, .types = "f32", .isa = "{isa}",
                                      .run = itg_deform_conv_f32_{isa}}}}};
static const itg_plugin plugin = {{.abi = ITG_PLUGIN_ABI, .name = "bench", .version = "1",
                                  .kernels = kernels, .n_kernels = 1}};
ITG_EXPORT_PLUGIN(plugin)
"""


class Sum:
    """x + y, as the user would write it."""

    name = "bench.sum"

    def shape(self, x: Any, y: Any) -> Any:
        return x.shape

    def compute(self, x: Any, y: Any) -> Any:
        return x + y


class SumInPlace(Sum):
    """The same, which writes where the session wants the result."""

    name = "bench.sum_out"

    def compute(self, x: Any, y: Any, *, out: Any = None) -> Any:
        return np.add(x, y, out)


def in_turns(runs: Sequence[Callable[[], Any]], rounds: int, calls: int) -> list[list[float]]:
    """Microseconds of a call of each function, `rounds` times in turns."""
    found: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, times in zip(runs, found, strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                run()
            times.append((time.perf_counter() - start) / calls * 1e6)
    return found


def python_overhead(made: type[Sum], shape: tuple[int, ...], rounds: int) -> dict[str, float]:
    """Least and median microseconds of a Python operator over its body, and of the callback."""
    rng = np.random.default_rng(0)
    x, y = (Value(Type("f32", shape), n) for n in "xy")
    feeds = {n: rng.standard_normal(shape).astype(np.float32) for n in "xy"}
    body = made().compute
    graphs = [Graph([x, y], [op(x, y)], ["z"]) for op in (REGISTRY[made.name], ops.add)]
    mine, built_in = (intaglio.open(intaglio.compile(g), threads=1) for g in graphs)
    runs = [
        lambda: mine.run(feeds),
        lambda: body(feeds["x"], feeds["y"]),
        lambda: built_in.run(feeds),
    ]
    in_turns(runs, 20, CALLS)
    session, numpy, add = in_turns(runs, rounds, CALLS)
    median = statistics.median
    return {
        "session": min(session),
        "session_median": median(session),
        "body": min(numpy),
        "body_median": median(numpy),
        "overhead": min(session) - min(numpy),
        "overhead_median": median(session) - median(numpy),
        "callback": min(session) - min(numpy) - min(add),
        "callback_median": median(session) - median(numpy) - median(add),
    }


def build(folder: Path) -> Path:
    """The built-in kernel of deform_conv for this machine, as a plug-in."""
    isa = next(n for n in ISA_FLAGS if not BITS.get(n, 0) & ~native.machine())
    (folder / "table.c").write_text(TABLE.format(isa=isa))
    kernels = ROOT / "csrc" / "kernels" / "conv"
    include = [f"-I{ROOT / 'csrc' / part}" for part in (".", "include", "kernels")]
    usual = ["-std=gnu11", "-O3", "-fPIC", "-fno-math-errno", "-ffp-contract=off", *include]
    objects = []
    for source, flags in (
        (folder / "table.c", []),
        (kernels / "deform_conv_any.c", []),
        (kernels / "deform_conv.c", [f"-DISA={isa}", f"-DISA_{isa}", *ISA_FLAGS[isa].split()]),
    ):
        objects.append(folder / f"{source.stem}.o")
        subprocess.run(["cc", *usual, *flags, "-c", source, "-o", objects[-1]], check=True)
    made = folder / "libbench.so"
    subprocess.run(["cc", "-shared", *objects, "-lm", "-o", made], check=True)
    return made


def plugin_ratio(rounds: int, threads: int = 1) -> dict[str, float]:
    """Least and median microseconds of the kernel as a plug-in and built in, and their ratios."""
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 64, 40, 40), "offset": (1, 18, 40, 40)}
    x, offset = (Value(Type("f32", s), n) for n, s in shapes.items())
    w = (rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)
    attrs = {"stride": (1, 1), "pad": (1,) * 4, "dilation": (1, 1), "groups": 1}
    both = (REGISTRY["bench.deform_conv"], ops.deform_conv)
    graphs = [
        Graph([x, offset], [op(x, w, offset, **attrs, offset_groups=1)], ["y"]) for op in both
    ]
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    sessions = [intaglio.open(intaglio.compile(g), threads=threads) for g in graphs]
    results = [s.run(feeds)["y"] for s in sessions]
    assert np.array_equal(*results)
    plugged, built_in = in_turns([lambda s=s: s.run(feeds) for s in sessions], rounds, 1)  # type: ignore[misc]
    pairs = [a / b for a, b in zip(plugged, built_in, strict=True)]
    return {
        "plugin": min(plugged),
        "built_in": min(built_in),
        "ratio": min(plugged) / min(built_in),
        "ratio_median": statistics.median(pairs),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="custom operators: overhead and speed")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--json", help="write all figures to this file")
    args = parser.parse_args()
    found: dict[str, Any] = {}
    rows = []
    for made in (Sum, SumInPlace):
        custom.register(made)
        for shape in SHAPES:
            what = f"{'x'.join(map(str, shape))}{' out=' * (made is SumInPlace)}"
            figures = found[what] = python_overhead(made, shape, args.rounds)
            rows.append([what, *(f"{v:.1f}" for v in figures.values())])
    heads = ["session", "median", "body", "median", "over body", "median", "callback", "median"]
    print("A Python operator, microseconds a call:\n")
    print(grid([["shape", *heads], *rows]))
    with tempfile.TemporaryDirectory() as folder:
        custom.load(build(Path(folder)))
    found["plugin"] = figures = plugin_ratio(max(args.rounds // 10, 20))
    print("\nThe kernel of deform_conv as a plug-in and built in, microseconds a run:\n")
    print(grid([list(figures), [f"{v:.3f}" for v in figures.values()]]))
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1))
    return int(any(figures.get("overhead", 0) > LIMIT_US for figures in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
