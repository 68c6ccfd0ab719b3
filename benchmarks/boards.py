"""What inference costs on boards that are not here: instructions, and estimates of cycles.

    python -m benchmarks.boards [--shared FOLDER] [--cycles] [NETWORK ...]

A cross compiler builds the runtime, qemu runs each package once and twice with a plugin that counts
executed blocks, and the difference is one inference. Counts repeat to the last digit.

Cycles are llvm-mca's, block by block, each repeated with all its data in the first-level cache:
misses, mispredicted branches and what neighbouring blocks share are left out. An A76 has no model
there, that of the A57 stands for it. So cycles rank, they do not say how long an inference takes.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import intaglio
from benchmarks.emulation import ROOT, count, cycles, plugin
from intaglio.errors import BadInput

LEVELS = {  # instruction set -> the CPU that qemu plays
    "neon": "cortex-a72",
    "neon-dotprod": "cortex-a76",
    "neon-i8mm": "max",
}
MODELS = {"A55": "cortex-a55", "A76": "cortex-a57"}  # CPU -> llvm-mca's model
TFLITE, ONNX = "models/tflite", "models/onnx"
NETWORKS = {  # name -> file, levels
    "ResNet-8 int8": (f"{TFLITE}/pretrainedResnet_quant.tflite", tuple(LEVELS)),
    "DS-CNN int8": (f"{TFLITE}/kws_ref_model.tflite", tuple(LEVELS)),
    "VWW int8": (f"{TFLITE}/vww_96_int8.tflite", tuple(LEVELS)),
    "AD int8": (f"{TFLITE}/ad01_int8.tflite", tuple(LEVELS)),
    "MobileNetV2 f32": (f"{ONNX}/mobilenet_v2_fp32.onnx", ("neon",)),
    "MobileNetV2 int8": (f"{ONNX}/mobilenetv2-12-qdq.onnx", ("neon-dotprod", "neon-i8mm")),
}
# Millions of instructions of other runtimes, counted in the same way: their aarch64 wheels from
# PyPI under qemu 7.2 (November 2026).
PEERS = {
    ("ResNet-8 int8", "neon-dotprod"): ("LiteRT 2.3.0", 1.62),
    ("DS-CNN int8", "neon-dotprod"): ("LiteRT 2.3.0", 0.97),
    ("VWW int8", "neon-dotprod"): ("LiteRT 2.3.0", 1.48),
    ("AD int8", "neon-dotprod"): ("LiteRT 2.3.0", 0.33),
    ("ResNet-8 int8", "neon-i8mm"): ("LiteRT 2.3.0", 1.10),
    ("DS-CNN int8", "neon-i8mm"): ("LiteRT 2.3.0", 0.77),
    ("VWW int8", "neon-i8mm"): ("LiteRT 2.3.0", 1.00),
    ("AD int8", "neon-i8mm"): ("LiteRT 2.3.0", 0.18),
    ("MobileNetV2 f32", "neon"): ("onnxruntime 1.31.1", 181.4),
    ("MobileNetV2 int8", "neon-dotprod"): ("onnxruntime 1.31.1", 63.7),
}
TOOLS = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "qemu-aarch64": "qemu-user",
    "cmake": "cmake",
    "cc": "gcc",
}


def built() -> Path:
    """The runtime for aarch64, as users build it."""
    folder = ROOT / "build-boards-aarch64"
    toolchain = ROOT / "cmake/toolchains/aarch64-linux-gnu.cmake"
    options = (f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", "-DINTAGLIO_COMPILER=OFF")
    set_up = ["cmake", "-S", ROOT, "-B", folder, *options, "-DINTAGLIO_COMPAT=OFF"]
    subprocess.run(set_up, check=True, stdout=subprocess.DEVNULL)
    make = ["cmake", "--build", folder, "--parallel", "--target", "bench_repeat"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return folder


def rows(shared: Path, names: list[str], estimate: bool) -> None:
    """Print one line for each network and instruction set."""
    program = built() / "bench_repeat"
    print("| network | instruction set | M instructions | peer | M cycles |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        so, package = plugin(Path(made)), Path(made) / "model.itg"
        for name in names:
            file, levels = NETWORKS[name]
            dims = {"batch_size": 1} if file.endswith("-qdq.onnx") else {}
            graph = intaglio.load(shared / file, dims=dims)
            for isa in levels:
                intaglio.compile(graph, isa=isa).save(package)
                root = ["-L", "/usr/aarch64-linux-gnu"]
                command = ["qemu-aarch64", "-cpu", LEVELS[isa], *root, str(program)]
                found = count(command, so, package)
                peer, other = PEERS.get((name, isa), ("", 0.0))
                beside = f"{peer} {other:g}" if peer else ""
                models = MODELS.items() if estimate else ()
                spent = ", ".join(f"{c} {cycles(found, m) / 1e6:.2f}" for c, m in models)
                print(f"| {name} | {isa} | {found.instructions / 1e6:.2f} | {beside} | {spent} |")
                sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    """Count the networks that are named, or all."""
    parser = argparse.ArgumentParser(prog="benchmarks.boards", description=__doc__)
    parser.add_argument("network", nargs="*", help=f"of {', '.join(NETWORKS)}; all if left out")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", metavar="FOLDER")
    parser.add_argument("--cycles", action="store_true", help="estimate cycles by llvm-mca-19")
    args = parser.parse_args(argv)
    try:
        unknown = [n for n in args.network if n not in NETWORKS]
        if unknown:
            raise BadInput(f"no network '{unknown[0]}'; known are {', '.join(NETWORKS)}")
        tools = {**TOOLS, **({"llvm-mca-19": "llvm-19"} if args.cycles else {})}
        absent = [tool for tool in tools if not shutil.which(tool)]
        if absent:
            raise BadInput(f"no {absent[0]}; apt-get install {tools[absent[0]]}")
        rows(args.shared, args.network or list(NETWORKS), args.cycles)
    except intaglio.IntaglioError as e:
        print(f"benchmarks.boards: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
