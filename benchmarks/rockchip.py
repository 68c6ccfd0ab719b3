"""Networks from register commands: bits, times of compiling and simulating, sizes.

python -m benchmarks.rockchip [NETWORK ...] [--chip NAME] [--save FOLDER] [--board BUILD]
python -m benchmarks.rockchip --times benchmarks/npu_published.csv

Architectures are rebuilt by benchmarks.npu_nets; weights, scales and tables are random numbers. A
job is written, read back and executed from its words. All bytes are compared with the interpreter.
With `--save` the .rkjob, its inputs and expected outputs are written, for intaglio-rk on a board.
With `--board` the intaglio-rk of a build folder runs them on its device in user space, by the
ioctls of both drivers. `--times` compares the times of the words with published ones.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import intaglio
from benchmarks import npu_fit, npu_nets
from intaglio.errors import IntaglioError, Unsupported
from intaglio.ir import Array, Graph, Node, Value, constant
from intaglio.npu.chips.file_part import Port
from intaglio.npu.chips.rockchip import job, limits, timing
from intaglio.npu.chips.rockchip.compile import CHIPS, Compiled, compile_layers
from intaglio.npu.chips.rockchip.geometry import DESIGNS
from intaglio.npu.chips.rockchip.lower import Lowered, meaning
from intaglio.npu.chips.rockchip.run_job import JobMachine
from intaglio.targets import chip as chips

SPREAD = 40.0  # standard deviation of a layer's bytes
CHIP = "rk3588"
DRIVERS = ("rocket", "rknpu")
SECONDS = 600  # of a run on the device in user space
NETWORKS: dict[str, Callable[[], Graph]] = {
    "mobilenet_v1": npu_nets.mobilenet_v1,
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


def compiled(graph: Graph, chip: str = CHIP) -> Compiled:
    """The job of a graph of NPU ops."""
    design = DESIGNS[chip]
    for node in graph.nodes():
        if why := limits.why_not(node, design):
            raise Unsupported(f"{node.op}: {why}")
    inputs = [Port(v.name or f"x{i}", v.dtype, v.shape) for i, v in enumerate(graph.inputs)]
    named = zip(graph.outputs, graph.output_names, strict=True)
    outputs = [Port(n, v.dtype, v.shape) for v, n in named]
    return compile_layers(Lowered(meaning(graph, design), inputs, outputs), chips.load(chip))


def save(folder: Path, name: str, made: Compiled, tensors: dict[str, Array]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    made.save(folder / f"{name}.rkjob")
    for tensor, value in tensors.items():
        value.tofile(folder / f"{name}.{tensor}.bin")


def on_board(build: Path, name: str, made: Compiled, tensors: dict[str, Array]) -> bool:
    """Run a job by intaglio-rk on the device in user space; whether all bytes are equal."""
    with tempfile.TemporaryDirectory() as made_in:
        folder, equal = Path(made_in), True
        save(folder, name, made, tensors)
        words = [str(build / "intaglio-rk"), "run", str(folder / f"{name}.rkjob")]
        words += ["--timeout", str(SECONDS * 1000)]
        for port in made.job.ports:
            option = "--expect" if port.is_output else "--input"
            words += [option, f"{port.name}={folder}/{name}.{port.name}.bin"]
        for driver in DRIVERS:
            log = folder / "log"
            own = {"LD_PRELOAD": str(build.absolute() / "libfake_rockchip.so")}
            own |= {"INTAGLIO_RK_FAKE": driver, "INTAGLIO_RK_FAKE_LOG": str(log)}
            own |= {"INTAGLIO_RK_FAKE_CHIP": made.job.chip}
            given = {"env": os.environ | own, "timeout": SECONDS}
            done = subprocess.run(words, capture_output=True, text=True, **given)  # type: ignore[call-overload]
            said = [line for line in done.stdout.splitlines() if "bytes differ" in line]
            said += done.stderr.splitlines() + log.read_text().splitlines()
            print(f"{'':14} {driver}: {'; '.join(said)}", flush=True)
            equal &= not done.returncode
        return equal


def on_npu(graph: Graph) -> Graph:
    """The network without what its CPU does behind the last layers."""
    outputs: list[Value] = []
    todo = list(graph.outputs)
    while todo:
        v = todo.pop(0)
        made = v.producer
        if made is not None and not made.op.startswith("npu."):
            todo += [x for x in made.inputs if x is not None and x.data is None]
        elif v not in outputs:
            outputs.append(v)
    return Graph(graph.inputs, outputs, [f"y{i}" for i in range(len(outputs))], graph.name)


def published(path: Path, chip: str) -> bool:
    """Print predicted beside published times; whether all are within 15 %."""
    mine = [r for r in npu_fit.read(path) if (r.chip, r.dtype, r.cores) == (chip, "i8", 1)]
    rows = [r for r in mine if r.net in npu_nets.MAKERS]
    fit = npu_fit.Fit(chip, rows, None)
    worst = other = 0.0
    for row in rows:
        try:
            made = compiled(on_npu(npu_nets.MAKERS[row.net]()), chip)
        except IntaglioError as e:
            print(
                f"{row.net:16} published {row.milliseconds:7.3f} ms, no commands: {e}", flush=True
            )
            continue
        found = timing.of_job(made.job).microseconds / 1e3
        before = fit.predict(row, {})
        off, off_before = (abs(ms / row.milliseconds - 1) for ms in (found, before))
        worst, other = max(worst, off), max(other, off_before)
        print(
            f"{row.net:16} published {row.milliseconds:7.3f} ms, of the words {found:7.3f} "
            f"({off:.1%} off), of the chip's model {before:7.3f} ({off_before:.1%} off)",
            flush=True,
        )
    print(f"worst: {worst:.1%} by the words, {other:.1%} by the chip's model")
    return worst <= 0.15


def measure(name: str, chip: str, folder: Path | None, build: Path | None) -> bool:
    """Print a row; whether all bytes are equal."""
    start = time.process_time()
    made = compiled(randomised(NETWORKS[name]()), chip)
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
    equal = not wrong
    if build is not None:
        equal &= on_board(build, name, made, feeds | found)
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(NETWORKS))
    parser.add_argument("--chip", choices=CHIPS, default=CHIP)
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--board", type=Path, metavar="BUILD", help="folder of make build")
    parser.add_argument("--times", type=Path, metavar="CSV", help="table of published speeds")
    given = parser.parse_args()
    if given.times:
        return 0 if published(given.times, given.chip) else 1
    unknown = [n for n in given.networks if n not in NETWORKS]
    if unknown:
        parser.error(f"unknown: {unknown[0]}; known are {', '.join(NETWORKS)}")
    equal = [measure(n, given.chip, given.save, given.board) for n in given.networks]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    raise SystemExit(main())
