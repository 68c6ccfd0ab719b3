"""Scaling: latency by batch, resolution, depth and threads, and compile time by graph size.

python -m benchmarks.growth [--seconds 1] [--threads 1,2] [--out docs]

Writes growth.svg and growth.md. Latency: a network of inverted residual blocks is built in growing
sizes. Compile time: transformer blocks, in the single operations that exporters write, are stacked
to 10,000 nodes. If the time per unit of work stays flat, larger sizes can be extrapolated.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from benchmarks import machine
from benchmarks.models import ROOT
from benchmarks.table import grid
from intaglio import ops
from intaglio.analysis.charts import Chart, Point, page
from intaglio.ir import Graph, Type, Value, constant

BATCHES = (1, 2, 4, 8, 16, 32, 64)
SIZES = (64, 96, 128, 192, 256)  # x 1 to x 4 along an edge
DEPTHS = (2, 4, 8, 16)  # blocks, x 1 to x 8
NODES = (100, 300, 1000, 3000, 10_000)
LIMIT = 10.0  # seconds in which the largest graph must be optimised
Row = dict[str, float]


# ---- graphs --------------------------------------------------------------------------------------
def network(batch: int = 1, size: int = 64, blocks: int = 4, width: int = 32) -> Graph:
    """A stem, `blocks` inverted residual blocks, pooling and a classifier."""
    rng = np.random.default_rng(0)

    def conv(x: Value, outputs: int, kernel: int, groups: int = 1, stride: int = 1) -> Value:
        inputs = x.shape[1] // groups
        scale = (inputs * kernel**2) ** -0.5
        w = rng.standard_normal((outputs, inputs, kernel, kernel), np.float32) * np.float32(scale)
        return ops.conv(
            x,
            constant(w),
            constant(np.zeros(outputs, np.float32)),
            stride=(stride, stride),
            pad=(kernel // 2,) * 4,
            dilation=(1, 1),
            groups=groups,
        )

    x = Value(Type("f32", (batch, 3, size, size)), "x")
    y = ops.relu(conv(x, width, 3, stride=2))
    for _ in range(blocks):
        wide = ops.relu(conv(y, 4 * width, 1))
        wide = ops.relu(conv(wide, 4 * width, 3, groups=4 * width))
        y = ops.add(y, conv(wide, width, 1))
    pooled = ops.reduce_mean(y, axes=(2, 3), keepdims=False)
    w = rng.standard_normal((width, 100), np.float32)
    return Graph([x], [ops.matmul(pooled, constant(w))], ["scores"])


def transformer(nodes: int, width: int = 32, length: int = 16) -> bytes:
    """An ONNX model of about `nodes` nodes: transformer blocks, norm and GELU in single ops."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    made: list[Any] = []
    weights: list[Any] = []

    def weight(*shape: int) -> str:
        array = rng.standard_normal(shape, np.float32) * np.float32(shape[0] ** -0.5)
        return keep(array)

    def keep(array: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(weights)}"))
        return str(weights[-1].name)

    def do(kind: str, *inputs: str, **attributes: Any) -> str:
        made.append(helper.make_node(kind, inputs, [f"t{len(made)}"], **attributes))
        return str(made[-1].output[0])

    def norm(x: str) -> str:
        centred = do("Sub", x, do("ReduceMean", x, axes=[-1]))
        variance = do("ReduceMean", do("Pow", centred, two), axes=[-1])
        unit = do("Div", centred, do("Sqrt", do("Add", variance, tiny)))
        return do("Add", do("Mul", unit, weight(width)), weight(width))

    def linear(x: str, inputs: int, outputs: int) -> str:
        return do("Add", do("MatMul", x, weight(inputs, outputs)), weight(outputs))

    def heads(x: str) -> str:
        return do("Transpose", do("Reshape", x, split), perm=[0, 2, 1, 3])

    def block(x: str) -> str:
        y = norm(x)
        q, k, v = (heads(linear(y, width, width)) for _ in range(3))
        scores = do("Div", do("MatMul", q, do("Transpose", k, perm=[0, 1, 3, 2])), root)
        mixed = do("MatMul", do("Softmax", scores, axis=-1), v)
        joined = do("Reshape", do("Transpose", mixed, perm=[0, 2, 1, 3]), join)
        x = do("Add", x, linear(joined, width, width))
        wide = linear(norm(x), width, 4 * width)
        bell = do("Add", do("Erf", do("Div", wide, root2)), one)
        return do("Add", x, linear(do("Mul", do("Mul", wide, bell), half), 4 * width, width))

    two, tiny, one, half = (keep(np.float32(v)) for v in (2, 1e-5, 1, 0.5))
    root, root2 = keep(np.float32((width / 4) ** 0.5)), keep(np.float32(2**0.5))
    split, join = keep(np.int64([1, length, 4, width // 4])), keep(np.int64([1, length, width]))
    last = "x"
    while len(made) < nodes:
        last = block(last)
    float32, shape = TensorProto.FLOAT, [1, length, width]
    graph = helper.make_graph(
        made,
        "stack",
        [helper.make_tensor_value_info("x", float32, shape)],
        [helper.make_tensor_value_info(last, float32, shape)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)])
    return bytes(model.SerializeToString())


# ---- measurement ---------------------------------------------------------------------------------
def latencies(
    graphs: dict[float, Graph], seconds: float, counts: Sequence[int] = (1, 2)
) -> dict[float, Row]:
    """Minimum milliseconds of each graph with each number of threads, measured in turns.

    One thread is timed in processor time, which other processes do not change.
    """
    sessions = {
        (at, threads): intaglio.open(intaglio.compile(graph), threads=threads)
        for at, graph in graphs.items()
        for threads in counts
    }
    rng = np.random.default_rng(0)
    feeds = {
        at: {"x": rng.standard_normal(g.inputs[0].shape, np.float32)} for at, g in graphs.items()
    }
    best: dict[tuple[float, int], float] = {}
    end = time.perf_counter() + seconds * len(sessions)
    while time.perf_counter() < end or len(best) < len(sessions):
        for key, session in sessions.items():
            feed = feeds[key[0]]
            now = time.process_time if key[1] == 1 else time.perf_counter
            session.run(feed)  # wakes the threads and warms the caches
            start = now()
            session.run(feed)
            best[key] = min(best.get(key, float("inf")), (now() - start) * 1e3)
    for session in sessions.values():
        session.close()
    return {at: {str(n): best[at, n] for n in counts} for at in graphs}


def compile_times(sizes: Sequence[int], times: int) -> dict[float, Row]:
    """Seconds to load, to optimise and to compile, by number of nodes in the file."""
    from onnx import load_from_string

    found: dict[float, Row] = {}
    for size in sizes:
        data = transformer(size)
        nodes = len(load_from_string(data).graph.node)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "stack.onnx"
            file.write_bytes(data)
            graph = intaglio.load(file)
            found[nodes] = {
                "load": _least(lambda f=file: intaglio.load(f), times),
                "optimise": _least(lambda g=graph: intaglio.optimize(g), times),
                "compile": _least(lambda f=file: intaglio.compile(f), times),
                "left": sum(1 for _ in intaglio.optimize(graph).nodes()),
            }
    return found


def _least(run: Callable[[], Any], times: int) -> float:
    """Processor seconds of the fastest of `times` calls, which use one thread."""
    taken = []
    for _ in range(times):
        gc.collect()
        start = time.process_time()
        run()
        taken.append(time.process_time() - start)
    return min(taken)


# ---- report --------------------------------------------------------------------------------------
def exponent(points: dict[float, float]) -> float:
    """The exponent of y as a power of x, by least squares; 1 is linear growth."""
    xs, ys = np.log(list(points)), np.log(list(points.values()))
    return float(np.polyfit(xs, ys, 1)[0])


def relative(rows: dict[float, Row], power: int = 1) -> dict[str, list[Point]]:
    """Time per unit of work, relative to the first row with one thread."""
    first = next(iter(rows))
    unit = rows[first]["1"]
    return {
        f"{threads} thread{'s' * (threads != '1')}": [
            (at / first, row[threads] / unit / (at / first) ** power) for at, row in rows.items()
        ]
        for threads in rows[first]
    }


def charts(found: dict[str, dict[float, Row]]) -> list[Chart]:
    made = [
        Chart(title, x, "share of the first point", relative(found[key], power))
        for key, title, x, power in (
            ("batch", "Batch: time per image", "images in a batch", 1),
            ("size", "Resolution: time per pixel", "times the edge length", 2),
            ("depth", "Depth: time per block", "times the blocks", 1),
        )
    ]
    graph = found["nodes"]
    small, large = min(graph), max(graph)
    line = graph[large]["optimise"] / large
    names = ("load", "optimise", "compile")
    made.append(
        Chart(
            "Graph size: seconds to compile",
            "nodes in the file",
            "processor seconds",
            {name: [(n, row[name]) for n, row in graph.items()] for name in names},
            log_y=True,
            dashed={"linear": [(small, small * line), (large, large * line)]},
        )
    )
    return made


def report(found: dict[str, dict[float, Row]], busy: machine.Busy) -> str:
    """The figures as Markdown."""
    parts = [
        "# How latency and compile time scale\n",
        "Written by `python -m benchmarks.growth`; the picture is [growth.svg](growth.svg).\n",
        "![growth](growth.svg)\n",
    ]
    about = machine.describe()
    parts.append(f"{about['cpu']}, {about['cpus']} CPUs, {about['isa']}. Minimum of many runs.")
    if busy.crowded:
        parts.append(
            f"Others used {busy.others:.1f} CPUs meanwhile, so that only one thread could be timed."
        )
    for key, head, power in (("batch", "images", 1), ("size", "edge", 2), ("depth", "blocks", 1)):
        rows = found[key]
        shares = relative(rows, power)
        columns = [f"{name}, {what}" for name in shares for what in ("ms", "per unit")]
        lines = [[head, *columns]]
        for i, (at, row) in enumerate(rows.items()):
            cells = zip(row.values(), shares.values(), strict=True)
            lines.append(
                [f"{at:g}", *(w for ms, s in cells for w in (f"{ms:.3f}", f"{s[i][1]:.2f}"))]
            )
        grows = exponent({at**power: row["1"] for at, row in rows.items()})
        words = f"\nOne thread's time grows with the power {grows:.2f} of the work."
        if all("2" in row for row in rows.values()):
            gains = [row["1"] / row["2"] for row in rows.values()]
            words += f" Two threads are {min(gains):.2f} to {max(gains):.2f} times as fast."
        parts += [f"\n## {key.capitalize()}\n", grid(lines), words]
    graph = found["nodes"]
    lines = [["nodes", "load s", "optimise s", "compile s", "optimise, ms per node", "nodes left"]]
    for n, row in graph.items():
        lines.append(
            [
                f"{n:,.0f}",
                f"{row['load']:.2f}",
                f"{row['optimise']:.2f}",
                f"{row['compile']:.2f}",
                f"{row['optimise'] / n * 1e3:.2f}",
                f"{row['left']:,.0f}",
            ]
        )
    big = max(graph)
    grows = exponent({n: row["optimise"] for n, row in graph.items() if n >= big / 12})
    verdict = "within" if graph[big]["optimise"] <= LIMIT else "ABOVE"
    parts += [
        "\n## Graph size\n",
        grid(lines),
        f"\nOptimising grows with the power {grows:.2f} over the last decade; {big:,.0f} nodes "
        f"take {graph[big]['optimise']:.1f} s, {verdict} the limit of {LIMIT:.0f} s.",
    ]
    return "\n".join(parts) + "\n"


def measure(seconds: float, counts: Sequence[int]) -> dict[str, dict[float, Row]]:
    """Measure latency by batch, edge length and blocks, and compile time by nodes."""
    return {
        "batch": latencies({b: network(batch=b) for b in BATCHES}, seconds, counts),
        "size": latencies({s: network(size=s) for s in SIZES}, seconds, counts),
        "depth": latencies({d: network(blocks=d) for d in DEPTHS}, seconds, counts),
        "nodes": compile_times(NODES, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each point")
    parser.add_argument("--threads", choices=("1", "1,2"), default="1,2")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    given = parser.parse_args(arguments)
    watch = machine.Watch(time.process_time)
    found = measure(given.seconds, [int(n) for n in given.threads.split(",")])
    busy = watch.read()
    if busy.crowded:  # two threads wait for each other, and so for other processes
        for key in ("batch", "size", "depth"):
            found[key] = {at: {"1": row["1"]} for at, row in found[key].items()}
    words = report(found, busy)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "growth.svg").write_text(page(charts(found)))
    (given.out / "growth.md").write_text(words)
    print(words, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
