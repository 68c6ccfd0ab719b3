"""Sessions of model files: resident memory with several shapes, and the cost of a call.

    python -m benchmarks.sessions [memory] [calls] [imports]

`memory` runs eight shapes of two networks with 20 MB of weights, each in a process of its own, with
plans that share weights and with plans that do not. `calls` runs a model of one addition in turns:
a package, a model file, intaglio.ort and onnxruntime. `imports` times `import` in new processes.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import intaglio
from benchmarks.native import in_turns
from intaglio.shared_weights import SharedWeights

CALLS = 500  # in one measurement
SHAPES = 8
NETWORKS = {"products": "5 of 1024x1024", "convolutions": "9 of 3x3 with 256 channels"}


def network(kind: str) -> onnx.ModelProto:
    """A network with 20 MB of weights and open dimensions."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    shapes = [(1024, 1024)] * 5 if kind == "products" else [(256, 3, 3, 3), *[(256, 256, 3, 3)] * 9]
    for i, shape in enumerate(shapes):
        values = rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{i}"))
        op = "MatMul" if kind == "products" else "Conv"
        given: dict[str, Any] = {} if kind == "products" else {"pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node(op, [last, f"w{i}"], [f"m{i}"], **given))
        nodes.append(helper.make_node("Relu", [f"m{i}"], [f"r{i}"]))
        last = f"r{i}"
    axes = (["batch", 1024], ["batch", 1024])
    if kind == "convolutions":
        axes = ([1, 3, "height", "width"], [1, 256, "height", "width"])
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in zip(("x", last), axes, strict=True)
    ]
    graph = helper.make_graph(nodes, kind, ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def resident() -> float:
    """Megabytes of anonymous memory of this process."""
    with open("/proc/self/status") as file:
        facts = dict(line.split(":", 1) for line in file)
    return int(facts["RssAnon"].split()[0]) / 1024


def measure(kind: str, shared: bool) -> None:
    """Print the memory that eight shapes take; run in a process of its own."""
    if not shared:
        SharedWeights.adopt = lambda self, package: package  # type: ignore[method-assign]
    model = network(kind)
    warm = intaglio.Session(network("products"), threads=1)  # imports everything
    warm.run({"x": np.ones((1, 1024), np.float32)})
    warm.close()
    del warm
    gc.collect()
    before, after = resident(), []
    session = intaglio.Session(model, threads=1, background=False)
    for n in range(1, SHAPES + 1):
        shape = (n, 1024) if kind == "products" else (1, 3, 8 * n, 8 * n)
        session.run({"x": np.ones(shape, np.float32)})
        gc.collect()
        after.append(resident() - before)
    print(f"{after[0]:8.0f} {after[-1]:8.0f}")


def memory() -> None:
    print(f"{'network':14} {'plans':10} {'1 shape':>8} {SHAPES:2} shapes (MB)")
    for kind in NETWORKS:
        for shared in (True, False):
            code = f"from benchmarks.sessions import measure; measure({kind!r}, {shared})"
            made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            shown = made.stdout.rstrip() or made.stderr
            print(f"{kind:14} {'shared' if shared else 'apart':10} {shown}", flush=True)


def calls() -> None:
    import onnxruntime

    import intaglio.ort

    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in "xyz"]
    nodes = [helper.make_node("Add", ["x", "y"], ["z"])]
    graph = helper.make_graph(nodes, "add", ends[:2], ends[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [{n: np.ones((rows, 3), np.float32) for n in "xy"} for rows in (2, 3)]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    package = intaglio.open(intaglio.compile(model, dims={"n": 2}), threads=1)
    session = intaglio.Session(model, threads=1, background=False)
    alike = intaglio.ort.InferenceSession(model, threads=1, background=False)
    peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
    single = {
        "intaglio.open": lambda: package.run(feeds[0]),
        "intaglio.Session": lambda: session.run(feeds[0]),
        "intaglio.ort": lambda: alike.run(None, feeds[0]),
        "onnxruntime": lambda: peer.run(None, feeds[0]),
    }
    changing = {
        "intaglio.Session": lambda: [session.run(f) for f in feeds],
        "intaglio.ort": lambda: [alike.run(None, f) for f in feeds],
        "onnxruntime": lambda: [peer.run(None, f) for f in feeds],
    }
    for title, runs, each in (("one shape", single, 1), ("two shapes in turn", changing, 2)):
        print(f"\n{title:20} {'min us':>8} {'median':>8}")
        many = {n: lambda run=run: [run() for _ in range(CALLS)] for n, run in runs.items()}
        for name, times in in_turns(many, 4.0).items():  # milliseconds
            one = [1e3 * t / CALLS / each for t in times]
            print(f"{name:20} {min(one):8.2f} {statistics.median(one):8.2f}")


def imports() -> None:
    names = ("numpy", "intaglio", "intaglio.ort", "onnxruntime")
    times: dict[str, list[float]] = {n: [] for n in names}
    for _ in range(7):
        for name in names:
            code = (
                f"import resource; import {name}; u = resource.getrusage(resource.RUSAGE_SELF); "
                "print(1e3 * (u.ru_utime + u.ru_stime))"
            )
            made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            times[name].append(float(made.stdout))
    print(f"\n{'import':20} {'CPU ms of the process, least':>28}")
    for name, found in times.items():
        print(f"{name:20} {min(found):28.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sessions", description=__doc__)
    parts = {"memory": memory, "calls": calls, "imports": imports}
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    for name in parser.parse_args(arguments).parts or parts:
        parts[name]()


if __name__ == "__main__":
    main()
