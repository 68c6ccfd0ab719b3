"""Networks on the RK3588 from register commands: bits, times of compiling and simulating, sizes.

python -m benchmarks.rockchip [NETWORK ...] [--save FOLDER]

Architectures are rebuilt by benchmarks.npu_nets; weights, scales and tables are random numbers. A
job is written, read back and executed from its words. All bytes are compared with the interpreter.
With `--save` the .rkjob, its inputs and expected outputs are written, for intaglio-rk on a board.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import intaglio
from benchmarks import npu_nets
from intaglio.ir import Array, Graph, Node, constant
from intaglio.npu.chips.file_part import Port
from intaglio.npu.chips.rockchip import job, limits
from intaglio.npu.chips.rockchip.compile import Compiled, compile_layers
from intaglio.npu.chips.rockchip.lower import Lowered, meaning
from intaglio.npu.chips.rockchip.run_job import JobMachine
from intaglio.targets import chip as chips

SPREAD = 40.0  # standard deviation of a layer's bytes
NETWORKS: dict[str, Callable[[], Graph]] = {
    "mobilenet_v2": npu_nets.mobilenet_v2,
    "resnet50": npu_nets.resnet50,
    "yolov5s_relu": lambda: npu_nets.yolov5(0.5, "relu"),
    "yolov5s": lambda: npu_nets.yolov5(0.5),
    "yolov8n": lambda: npu_nets.yolov8(0.25),
}


def randomised(graph: Graph, seed: int = 0) -> Graph:
    """The network with random constants, such that bytes neither saturate nor vanish."""
    chance = np.random.default_rng(seed)
    for node in graph.nodes():
        if node.op in ("npu.conv", "npu.depthwise"):
            _weights(node, chance)
        elif node.op == "npu.eltwise":
            node.attrs.update(a_factor=0.6, b_factor=0.7, a_zero=3, b_zero=-2, y_zero=1)
        elif node.op == "npu.lut":
            node.inputs[1] = constant(chance.integers(-128, 128, 256).astype(np.int8))
    return graph


def _weights(node: Node, chance: np.random.Generator) -> None:
    shape = node.inputs[1].shape  # type: ignore[union-attr]
    products = int(np.prod(shape[1:]))
    w = chance.integers(-127, 128, shape).astype(np.int8)
    scale = chance.uniform(0.7, 1.4, shape[0]) * SPREAD / (73 * SPREAD * np.sqrt(products))
    node.inputs[1] = constant(w)
    node.inputs[2] = constant(scale.astype(np.float32))
    node.inputs[3] = constant(chance.integers(-3000, 3000, shape[0]).astype(np.int32))
    node.attrs.update(x_zero=int(chance.integers(-9, 9)), y_zero=int(chance.integers(-9, 9)))
    if node.inputs[4] is not None:
        node.attrs.update(r_factor=0.6, r_zero=4)
    if node.inputs[5] is not None:
        x = (np.arange(256) - 128) / 32
        node.inputs[5] = constant(np.rint(x / (1 + np.exp(-x)) * 30).astype(np.int8))
        node.attrs.update(y_zero=0)


def compiled(graph: Graph) -> Compiled:
    """The job of a graph of NPU ops."""
    for node in graph.nodes():
        if why := limits.why_not(node):
            raise SystemExit(f"{node.op}: {why}")
    inputs = [Port(v.name or f"x{i}", v.dtype, v.shape) for i, v in enumerate(graph.inputs)]
    named = zip(graph.outputs, graph.output_names, strict=True)
    outputs = [Port(n, v.dtype, v.shape) for v, n in named]
    return compile_layers(Lowered(meaning(graph), inputs, outputs), chips.load("rk3588"))


def save(folder: Path, name: str, made: Compiled, tensors: dict[str, Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made.save(folder / f"{name}.rkjob")
    for tensor, value in tensors.items():
        value.tofile(folder / f"{name}.{tensor}.bin")


def measure(name: str, folder: Path | None) -> bool:
    """Print a row; whether all bytes are equal."""
    start = time.process_time()
    made = compiled(randomised(NETWORKS[name]()))
    spent = time.process_time() - start
    read = job.read(made.data)
    chance = np.random.default_rng(1)
    feeds = {p.name: chance.integers(-128, 128, p.shape).astype(np.int8) for p in read.inputs}
    machine = JobMachine(read)
    start = time.process_time()
    found = machine.run(feeds)
    simulated = time.process_time() - start
    wanted = intaglio.interpret(made.graph, feeds)
    pairs = zip(found.values(), wanted.values(), strict=True)
    wrong = sum(int((a != b).sum()) for a, b in pairs)
    total = sum(v.size for v in found.values())
    distinct = min(len(np.unique(v)) for v in found.values())
    print(
        f"{name:14} {len(read.tasks):5} tasks {sum(len(t.words) for t in read.tasks):8,} words "
        f"{len(made.data) / 1e6:6.2f} MB, maps {read.internal / 1e6:6.2f} MB; compiled in "
        f"{spent:.1f} s, simulated in {simulated:.2f} s; {wrong} of {total:,} bytes differ "
        f"(at least {distinct} values in each output)",
        flush=True,
    )
    if folder is not None:
        save(folder, name, made, feeds | found)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(NETWORKS))
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    unknown = [n for n in given.networks if n not in NETWORKS]
    if unknown:
        parser.error(f"unknown: {unknown[0]}; known are {', '.join(NETWORKS)}")
    equal = [measure(n, given.save) for n in given.networks]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    raise SystemExit(main())
