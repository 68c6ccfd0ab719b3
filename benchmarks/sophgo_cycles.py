"""Our bmodels beside those of tpu-mlir for the same networks, by cycles of commands.

    python -m benchmarks.sophgo_cycles [MODEL.onnx ...] [--chip bm1684x]    compile and compare
    python -m benchmarks.sophgo_cycles --measured TPU_MLIR                  check the cycles

tpu-mlir (INTAGLIO_SOPHGO names its Python) compiles each network to int8 with made-up ranges, which
do not change its commands. Both files are timed by intaglio.npu.chips.bm1684x.timing. The column
"by Sophgo" is the time that tpu-mlir's own cycle model prints while it compiles; it rates no files
of others: its tpu_profile needs times that a real chip has measured.

--measured compares our cycles with those that tpu-mlir publishes from real chips, in the folder
regression/profile of its repository.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import warnings
from pathlib import Path

import numpy as np

import intaglio
from benchmarks import sophgo_measured
from intaglio.analysis.agreement import usable_inputs
from intaglio.npu.chips.bm1684x import bmodel, steps
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.quant import Options
from intaglio.targets import chip as chips

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("INTAGLIO_SOPHGO", ROOT / ".venv-vendors" / "bin" / "python"))
RANGE = 4.0  # of every tensor in the made-up calibration table
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


def resnet(depth: int, path: Path) -> Path:
    """Write ResNet-18 or ResNet-50 with random weights."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng, nodes, constants = np.random.default_rng(0), [], []

    def add(op: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def given(shape: tuple[int, ...], scale: float) -> str:
        name = f"c{len(constants)}"
        values = (rng.standard_normal(shape) * scale).astype(np.float32)
        constants.append(numpy_helper.from_array(values, name))
        return name

    def conv(x: str, before: int, after: int, kernel: int, stride: int = 1) -> str:
        w = given((after, before, kernel, kernel), (2 / (before * kernel**2)) ** 0.5)
        shape = {"pads": [kernel // 2] * 4, "strides": [stride] * 2}
        return add("Conv", [x, w, given((after,), 0.1)], **shape)

    x = add("Relu", [conv("x", 3, 64, 7, 2)])
    x = add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, count in enumerate(BLOCKS[depth]):
        inner = 64 << stage
        outer = inner * (4 if depth == 50 else 1)
        for block in range(count):
            stride = 2 if stage and not block else 1
            if depth == 50:
                y = add("Relu", [conv(x, channels, inner, 1)])
                y = add("Relu", [conv(y, inner, inner, 3, stride)])
                y = conv(y, inner, outer, 1)
            else:
                y = add("Relu", [conv(x, channels, inner, 3, stride)])
                y = conv(y, inner, outer, 3)
            if channels != outer or stride > 1:
                x = conv(x, channels, outer, 1, stride)
            x, channels = add("Relu", [add("Add", [y, x])]), outer
    x = add("Flatten", [add("GlobalAveragePool", [x])])
    add("Gemm", [x, given((channels, 1000), 0.05), given((1000,), 0.1)])
    last = nodes[-1].output[0]
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
        for n, shape in (("x", [1, 3, 224, 224]), (last, [1, 1000]))
    ]
    graph = helper.make_graph(nodes, f"resnet{depth}", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    save(model, str(path))
    return path


def theirs(path: Path, chip: str, folder: Path, quantize: str = "INT8") -> tuple[bytes, str]:
    """tpu-mlir's file for a network, and the time that its own cycle model prints."""
    name = path.stem.replace("-", "_").replace(".", "_")
    shapes = [list(v.shape) for v in intaglio.load(str(path)).inputs]
    tool = PYTHON.parent
    env = os.environ | {"PATH": f"{tool}:{os.environ['PATH']}"}

    def run(*command: str | Path) -> None:
        done = subprocess.run(
            list(map(str, command)), cwd=folder, env=env, capture_output=True, text=True
        )
        if done.returncode:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise SystemExit(f"{name}: {command[0]}: {said[-1] if said else done.returncode}")

    words = str(shapes).replace(" ", "")
    start = ("--model_name", name, "--model_def", path.resolve(), "--input_shapes", words)
    run(tool / "model_transform", *start, "--mlir", f"{name}.mlir")
    tensors = re.findall(r'#loc\d* = loc\("([^"]+)"\)', (folder / f"{name}.mlir").read_text())
    rows = [f"{t} {RANGE} {0.0 if 'Relu' in t else -RANGE} {RANGE}" for t in tensors]
    table = folder / f"{name}.table"
    table.write_text("\n".join(["# op_name threshold min max", *rows]) + "\n")
    processor = {"sg2260": "bm1690"}.get(chip, chip)
    options = ("--quantize", quantize, "--processor", processor)
    options += ("--calibration_table", table) if quantize == "INT8" else ()
    made = f"{name}.bmodel"
    run(tool / "model_deploy", "--mlir", f"{name}.mlir", *options, "--model", made)
    printed = "".join(p.read_text(errors="replace") for p in folder.glob("compiler_profile_0.txt"))
    times = re.findall(r"runtime: ([0-9.]+)ms", printed)
    return (folder / made).read_bytes(), times[-1] if times else "-"


def ours(path: Path, chip: str) -> bytes:
    """Our file for a network, quantised with random samples."""
    graph = intaglio.load(str(path))
    samples = [usable_inputs(graph, seed)[0] for seed in (0, 1)]
    how = Options(method="minmax", accuracy=None, rounding="nearest", bias_correction=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = intaglio.quantize(graph, samples, target=chip, options=how)
    return compile_bmodel(made, chips.load(chip)).data


def row(title: str, data: bytes, said: str = "-") -> str:
    """One line of the table."""
    timed = steps.of_file(bmodel.read(data))
    engines = [
        sum(s.microseconds for s in timed.steps if s.engine == engine) for engine in ("TIU", "DMA")
    ]
    moved = sum(s.bytes for s in timed.steps) / 1e6
    total = timed.microseconds / 1e3
    counts = len(timed.steps)
    return (
        f"{title:34} {counts:>8} {moved:>8.2f} {engines[0] / 1e3:>8.3f} {engines[1] / 1e3:>8.3f} "
        f"{total:>8.3f} {said:>10}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, help="networks [default: ResNet-18, -50]")
    parser.add_argument("--chip", default="bm1684x", choices=("bm1684x", "bm1688", "sg2260"))
    parser.add_argument("--measured", type=Path, metavar="FOLDER", help="a checkout of tpu-mlir")
    given = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON} is missing; run `make test-vendors`, or set INTAGLIO_SOPHGO")
    if given.measured:
        sophgo_measured.compare(given.measured, PYTHON)
        return
    head = ("commands", "MB", "TIU ms", "DMA ms", "ms", "by Sophgo")
    print(f"{'file':34} {head[0]:>8} " + " ".join(f"{h:>8}" for h in head[1:5]) + f" {head[5]:>10}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        models = given.models or [resnet(d, root / f"resnet{d}.onnx") for d in BLOCKS]
        for path in models:
            print(row(f"{path.stem} by Intaglio", ours(path, given.chip)), flush=True)
            work = root / f"{path.stem}.work"
            work.mkdir()
            print(row(f"{path.stem} by tpu-mlir", *theirs(path, given.chip, work)), flush=True)


if __name__ == "__main__":
    main()
