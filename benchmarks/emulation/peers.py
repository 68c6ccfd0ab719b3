"""Instructions and cycles per inference of LiteRT and onnxruntime on an emulated Cortex-A76.

    python -m benchmarks.emulation.peers ROOT MODEL...

ROOT is a folder with an aarch64 Python 3.11 (Debian's packages, unpacked), in `site` the unpacked
wheels of numpy, ai-edge-litert and onnxruntime, and in `proc` and `sys` what these read of a
machine: proc/cpuinfo of an A76, sys/devices/system/cpu/possible and present. One thread; inputs are
zeros; LiteRT uses XNNPACK, its default. Python's own work is part of each inference.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path

import intaglio
from benchmarks.emulation import Count, _blocks, count, cycles, plugin
from benchmarks.emulation.machines import MACHINES, Linux

FEW, MORE = 2, 10  # inferences of the two counts whose difference is taken
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
model, runs = sys.argv[2], int(sys.argv[3])
if model.endswith(".tflite"):
    from ai_edge_litert.interpreter import Interpreter
    made = Interpreter(model_path=model, num_threads=1)
    made.allocate_tensors()
    for d in made.get_input_details():
        made.set_tensor(d["index"], np.zeros(d["shape"], d["dtype"]))
    for _ in range(runs):
        made.invoke()
else:
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    made = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    types = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}
    feeds = {}
    for x in made.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in x.shape]
        feeds[x.name] = np.zeros(shape, types[x.type])
    for _ in range(runs):
        made.run(None, feeds)
"""


def peer(root: Path, model: Path, cpu: str, so: Path) -> Count:
    """What one inference of the model's own runtime executes."""
    os.environ["PYTHONHASHSEED"] = "0"  # so that both runs of Python do the same
    start = ["qemu-aarch64", "-cpu", cpu, "-L", str(root), str(root / "usr/bin/python3.11"), "-S"]
    start += ["-c", RUN, str(root / "site"), str(model)]
    less, found = (_blocks([*start, str(n)], so) for n in (FEW, MORE))
    found.subtract(less)
    runs = MORE - FEW
    all_of_it = sum(n * instructions for (instructions, _), n in found.items())
    blocks = Counter({block: n // runs for block, n in found.items() if n >= runs})
    return Count(all_of_it // runs, blocks)


def main() -> None:
    """Print one line for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", type=Path)
    parser.add_argument("model", type=Path, nargs="+")
    args = parser.parse_args()
    print("| model | runtime | M instructions | M cycles |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        so = plugin(Path(made))
        for model in args.model:
            dims = {"batch_size": 1} if model.name.endswith("-qdq.onnx") else {}
            machine = MACHINES["neon-dotprod"]
            assert isinstance(machine, Linux)
            ours = count(machine.prepare(intaglio.load(model, dims=dims), Path(made)), so)
            name = "LiteRT" if model.suffix == ".tflite" else "onnxruntime"
            theirs = peer(args.root, model, machine.cpu, so)
            for runtime, found in (("Intaglio", ours), (name, theirs)):
                spent = ", ".join(f"{c.name} {cycles(found, c) / 1e6:.2f}" for c in machine.cores)
                millions = f"{found.instructions / 1e6:.2f}"
                print(f"| {model.name} | {runtime} | {millions} | {spent} |", flush=True)


if __name__ == "__main__":
    main()
