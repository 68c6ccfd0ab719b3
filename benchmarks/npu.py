"""NPU targets on real networks: bit-exactness, compile and simulation time, memory, DDR traffic.

python -m benchmarks.npu [MODEL ...] [--chips rk3588,rk3566,k230,bm1684x] [--json FILE]
                         [--precision int8|int16|fp16]

A model is a name of the zoo or of ../shared, or the path of an ONNX file. A float model is
quantised first, from a few random samples and without accuracy checks, because only bits matter.
With `--precision fp16` it stays in float, and its layers compute in f16 on chips that have it.

Every program runs in the simulator, from the bytes of a package. Its results are compared bit by
bit with the interpreter's. Times are CPU times, which other processes hardly change; one thread
simulates. `traffic` is the bytes to and from DDR of all programs, divided by a lower bound: each
weight, input and output once, and each feature map that does not fit on chip written and read once.
For MobileNets on rk3588, sizes are shown beside those that Rockchip prints.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import intaglio
from benchmarks.models import LIST, Case, available, case
from intaglio import passes, targets
from intaglio.errors import IntaglioError
from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.compile import Compiled, build
from intaglio.npu.simulate.run import npu_run
from intaglio.quant import Options
from intaglio.targets import chip as chips
from intaglio.targets.chip import Chip

CHIPS = ("rk3588", "rk3566", "k230", "bm1684x")
SAMPLES = 2
# Bytes of weights and internal memory in Rockchip's guide (SDK 2.3.2), and the section.
PRINTED = {
    "mobilenet_v2": (int(3.53 * 2**20), int(1.53 * 2**20), "4.1.3.3"),
    "mobilenet_v1": (4_260_864, 2_157_568, "5.7.3.4"),
}


@dataclass
class Row:
    """One model on one chip."""

    model: str
    chip: str
    modules: int = 0
    on_npu: float = 0.0  # share of the products
    exact: bool = False
    compile: float = 0.0  # seconds of CPU time, from the quantised graph to the package
    simulate: float = 0.0  # milliseconds of CPU time, the fastest of a few runs
    predict: float = 0.0  # the same for predicting its speed
    instructions: int = 0
    weights: int = 0
    internal: int = 0
    traffic: float = 0.0  # divided by its lower bound
    by_layer: float = 0.0  # the same if each layer runs alone
    failed: str = ""

    @property
    def ok(self) -> bool:
        return self.exact and not self.failed


def quantized(one: Case, per: str | None = None, activations: str = "int8") -> Graph:
    """The model in integers; a model that is quantised already stays as it is.

    `per` is "channel" or "tensor": the granularity of weight scales. `activations` "fp16" keeps
    the model in float.
    """
    graph = intaglio.load(one.path, dims=one.dims)
    if activations == "fp16" or any(
        n.op.startswith(("quantize", "dequantize", "qlinear")) for n in graph.nodes()
    ):
        return graph
    how = Options(
        method="minmax",
        accuracy=None,
        rounding="nearest",
        bias_correction=False,
        per=per,
        activations=activations,
    )
    return intaglio.quantize(graph, one.samples(SAMPLES), target=CHIPS[0], options=how)


def offloaded(graph: Graph, name: str, precision: str) -> Graph:
    """The graph with each NPU program as one node."""
    graph = graph.copy()
    target = targets.find(name, precision=precision)
    passes.run(graph, [*passes.neutral(target.cost), *passes.offload(target)])
    return graph


def values_of(graph: Graph, feeds: dict[str, Array], wanted: list[Value]) -> dict[Value, Array]:
    """The interpreter's results for any values of a graph."""
    names = [f"v{i}" for i in range(len(wanted))]
    found = intaglio.interpret(Graph(graph.inputs, wanted, names), feeds)
    return dict(zip(wanted, found.values(), strict=True))


def simulated(module: Node, made: Compiled, given: dict[Value, Array]) -> list[Array]:
    """The results of an NPU program in the simulator, from the bytes of a package."""
    inputs = [Value(v.type, f"x{i}") for i, v in enumerate(module.inputs) if v is not None]
    results = npu_run.node(made.program.encode(), made.weights, *inputs).outputs
    names = [f"y{i}" for i in range(len(results))]
    package = intaglio.compile(Graph(inputs, list(results), names))
    with intaglio.open(package) as session:
        feeds = {x.name: given[v] for x, v in zip(inputs, module.inputs, strict=True) if v}
        return list(session.run(feeds).values())


def lower_bound(made: Compiled, chip: Chip) -> int:
    """The lower bound of DDR traffic for these layers."""
    on_chip = chip.sram + chip.shared
    large = [
        s for s in made.net.maps if s.input_slot < 0 and s.sram_bytes(s.height) * s.images > on_chip
    ]
    return made.least_traffic + sum(2 * s.ddr_bytes(s.height) * s.images for s in large)


def measure(one: Case, graph: Graph, name: str, precision: str = "f32") -> Row:
    """Compile for a chip, simulate, compare."""
    row = Row(one.name, name)
    try:
        start = time.process_time()
        package = intaglio.compile(graph, target=name, precision=precision, npu_code="own")
        row.compile = time.process_time() - start
        with intaglio.open(package, threads=1) as session:
            row.simulate = min(_timed(lambda: session.run(one.feeds)) for _ in range(3))
        row.predict = min(_timed(package.performance) for _ in range(3))
        split, chip = offloaded(graph, name, precision), targets.find(name).chip
        assert chip is not None
        modules = [n for n in split.nodes() if n.op == "npu.program"]
        wanted = dict.fromkeys(v for n in modules for v in [*n.inputs, *n.outputs] if v is not None)
        known = values_of(split, one.feeds, [v for v in wanted if v not in split.inputs])
        known |= {v: one.feeds[v.name] for v in split.inputs}
        row.modules, row.exact = len(modules), True
        moved = by_layer = bound = 0
        for module in modules:
            body = module.attrs["body"]
            made, alone = build(body, chip), build(body, chip, grouped=False)
            row.instructions += len(made.program.instructions)
            row.weights += made.program.weights
            row.internal = max(row.internal, made.program.internal)
            moved += made.traffic
            by_layer += alone.traffic
            bound += lower_bound(made, chip)
            for v, got in zip(module.outputs, simulated(module, made, known), strict=True):
                row.exact &= bool(np.array_equal(known[v], got))
        if bound:
            row.traffic, row.by_layer = moved / bound, by_layer / bound
        row.on_npu = _share(split)
    except IntaglioError as e:
        row.failed = str(e)
    return row


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)


def _share(graph: Graph) -> float:
    from intaglio.ops.registry import REGISTRY

    every = {n: REGISTRY[n.op].macs(n) for n in graph.nodes()}
    npu = sum(m for n, m in every.items() if n.op == "npu.program")
    return npu / max(sum(every.values()), 1)


HEAD = (
    "| model | chip | modules | products on NPU | bits | compile s | simulate ms | predict ms "
    "| instructions | weights | internal | traffic | layer by layer |"
)


def line(r: Row) -> str:
    if r.failed:
        return f"| {r.model} | {r.chip} | {r.failed} |" + " |" * 10
    bits = "**DIFFER**" if not r.exact else "equal" if r.modules else "no program"
    return (
        f"| {r.model} | {r.chip} | {r.modules} | {r.on_npu:.1%} | {bits} | {r.compile:.2f} | "
        f"{r.simulate:.1f} | {r.predict:.1f} | {r.instructions} | {r.weights} | {r.internal} | "
        f"{r.traffic:.2f} | {r.by_layer:.2f} |"
    )


def sizes(rows: list[Row]) -> Iterator[str]:
    """The sizes of weights and feature maps of the MobileNets, beside those in the guide."""
    rows = [r for r in rows if r.ok and r.chip == "rk3588" and r.model in PRINTED]
    if not rows:
        return
    yield "| network on rk3588 | scales | weights | printed | internal | printed | guide |"
    yield "|" + "---|" * 7
    for row in rows:
        weights, internal, where = PRINTED[row.model]
        shared = intaglio.compile(quantized(case(row.model), "tensor"), target=row.chip)
        modules = shared.memory().modules
        one = sum(m.weights for m in modules), max(m.internal for m in modules)
        found = {"channel": (row.weights, row.internal), "tensor": one}
        for per, (w, i) in found.items():
            yield (
                f"| {row.model} | one per {per} | {w:,} | {weights:,} | {i:,} | {internal:,} "
                f"| {where} |"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.npu",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the zoo and ../shared")
    parser.add_argument("--chips", default=",".join(CHIPS))
    parser.add_argument("--precision", choices=("int8", "int16", "fp16"), default="int8")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    listed = given.chips.split(",")
    kind = {"int8": "i8", "int16": "i16", "fp16": "f16"}[given.precision]
    chosen = [name for name in listed if kind in chips.load(name).types]
    names = given.models or [*LIST, *(str(p) for p in available())]
    rows: list[Row] = []
    print(HEAD + "\n|" + "---|" * 13, flush=True)
    for name in names:
        one = case(name)
        try:
            graph = quantized(one, activations=given.precision)
        except IntaglioError as e:
            rows.append(Row(one.name, "-", failed=f"not quantised: {e}"))
            print(line(rows[-1]), flush=True)
            continue
        for chip in chosen:
            floats = "fp16" if given.precision == "fp16" else "f32"
            rows.append(measure(one, graph, chip, floats))
            print(line(rows[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    if without := [name for name in listed if name not in chosen]:
        print(f"\nwithout {given.precision}: {', '.join(without)}")
    for words in sizes(rows) if given.precision == "int8" else ():
        print(words, flush=True)
    if slow := max((r for r in rows if r.ok), key=lambda r: r.predict, default=None):
        print(
            f"\npredicting the speed of a compiled model takes at most {slow.predict:.0f} ms "
            f"({slow.model} on {slow.chip}, {slow.instructions} instructions)"
        )
    return sum(not r.ok for r in rows) > 0


if __name__ == "__main__":
    sys.exit(main())
