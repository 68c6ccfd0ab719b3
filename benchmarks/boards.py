"""What inference costs on boards that are not here: instructions, and estimates of cycles.

    python -m benchmarks.boards [--shared FOLDER] [--cycles] [--machine NAME]... [NETWORK ...]

Cross compilers build the runtime, or a project of `intaglio deploy` for a microcontroller. qemu
runs each network once and twice with a plugin that counts executed blocks, and the difference is
one inference. Counts repeat to the last digit.
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
from benchmarks.emulation.machines import MACHINES, Bare
from intaglio.errors import BadInput, did_you_mean

LEFT_OUT = """
Cycles are llvm-mca 19's, block by block, each repeated with its data in the first-level cache.
Left out: cache misses and memory bandwidth, waits for flash, mispredicted branches, and what
neighbouring blocks share. An A76 has no model there; that of the A57 stands for it. Instructions of
RVV before the vsetvli of their block are taken as of one register. So cycles rank programs; they do
not say how long an inference takes."""
TFLITE, ONNX = "models/tflite", "models/onnx"
TINY = ("ResNet-8 int8", "DS-CNN int8", "VWW int8", "AD int8")
NETWORKS = {  # name -> file
    "ResNet-8 int8": f"{TFLITE}/pretrainedResnet_quant.tflite",
    "DS-CNN int8": f"{TFLITE}/kws_ref_model.tflite",
    "VWW int8": f"{TFLITE}/vww_96_int8.tflite",
    "AD int8": f"{TFLITE}/ad01_int8.tflite",
    "MobileNetV2 f32": f"{ONNX}/mobilenet_v2_fp32.onnx",
    "MobileNetV2 int8": f"{ONNX}/mobilenetv2-12-qdq.onnx",
    "ShuffleNetV2 int8": f"{ONNX}/shufflenet-v2-12-int8.onnx",
    "EfficientNet-Lite0 f32": f"{TFLITE}/efficientnet_lite0.tflite",
    "YuNet f32": f"{ONNX}/yunet_n_320_320.onnx",
    "UltraFace f32": f"{ONNX}/ultraface_RFB-320.onnx",
}
# The same files in 16 bits, when they are named.
HALVES = {
    f"{name.removesuffix(' f32')} {kind}": (file, kind)
    for name, file in NETWORKS.items()
    if name.endswith(" f32")
    for kind in ("f16", "bf16")
}
# Millions of instructions of other runtimes, counted in the same way (November 2026): aarch64
# wheels from PyPI under qemu 7.2; TFLM of 2026-08-20 with CMSIS-NN of 2026-07-15 from source.
PEERS = {
    "neon": ("onnxruntime 1.31.1", {"MobileNetV2 f32": 181.4}),
    "neon-dotprod": ("LiteRT 2.3.0", dict(zip(TINY, (1.62, 0.97, 1.48, 0.33), strict=True))),
    "neon-i8mm": ("LiteRT 2.3.0", dict(zip(TINY, (1.10, 0.77, 1.00, 0.18), strict=True))),
    "cortex-m4": ("TFLM + CMSIS-NN", dict(zip(TINY, (29.88, 7.84, 24.72, 0.58), strict=True))),
    "cortex-m55": ("TFLM + CMSIS-NN", dict(zip(TINY, (4.81, 1.79, 6.43, 0.285), strict=True))),
}
ORT_INT8 = ("onnxruntime 1.31.1", 63.7)  # MobileNetV2 in int8 with dot products
NAMED = f"of {', '.join(NETWORKS)}, all if left out; or of {', '.join(HALVES)}"
TOOLS = {"cmake": "cmake", "cc": "gcc", "make": "make"}
ESTIMATE_TOOLS = {"llvm-mca-19": "llvm-19", "llvm-mc-19": "llvm-19"}


def peer(machine: str, network: str) -> str:
    """The name and count of another runtime, or nothing."""
    name, counts = PEERS.get(machine, ("", {}))
    if (machine, network) == ("neon-dotprod", "MobileNetV2 int8"):
        return "{} {:g}".format(*ORT_INT8)
    return f"{name} {counts[network]:g}" if network in counts else ""


def rows(shared: Path, networks: list[str], machines: list[str], estimate: bool) -> None:
    """Print one line for each network and machine."""
    print("| network | machine | M instructions | peer | M cycles |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as made:
        so = plugin(Path(made))
        for network in networks:
            file, precision = HALVES[network] if network in HALVES else (NETWORKS[network], "f32")
            dims = {"batch_size": 1} if file.endswith("-qdq.onnx") else {}
            for name in machines:
                machine = MACHINES[name]
                if isinstance(machine, Bare) and network not in TINY:
                    continue
                graph = intaglio.load(shared / file, dims=dims)
                found = count(machine.prepare(graph, Path(made), precision), so)
                cores = machine.cores if estimate else ()
                spent = ", ".join(f"{c.name} {cycles(found, c) / 1e6:.2f}" for c in cores)
                counted, beside = f"{found.instructions / 1e6:.2f}", peer(name, network)
                print(f"| {network} | {name} | {counted} | {beside} | {spent} |", flush=True)
    if estimate:
        print(LEFT_OUT)


def main(argv: list[str] | None = None) -> int:
    """Count the networks that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.boards",
        description=f"{__doc__}{LEFT_OUT}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("network", nargs="*", help=NAMED)
    parser.add_argument(
        "--machine",
        action="append",
        help=f"of {', '.join(MACHINES)}; all whose tools are installed if left out",
    )
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", metavar="FOLDER")
    parser.add_argument("--cycles", action="store_true", help="estimate cycles by llvm-mca-19")
    args = parser.parse_args(argv)
    try:
        _require(TOOLS | (ESTIMATE_TOOLS if args.cycles else {}))
        networks = _known("network", args.network, [*NETWORKS, *HALVES]) or list(NETWORKS)
        machines = _known("machine", args.machine or [], list(MACHINES))
        for name in machines:
            _require(MACHINES[name].tools)
        machines = machines or [n for n, m in MACHINES.items() if all(map(shutil.which, m.tools))]
        rows(args.shared, networks, machines, args.cycles)
    except intaglio.IntaglioError as e:
        print(f"benchmarks.boards: {e}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as e:
        print(f"benchmarks.boards: {e}", file=sys.stderr)
        return 2
    return 0


def _known(kind: str, names: list[str], known: list[str]) -> list[str]:
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, 3)
            raise BadInput(f"no {kind} '{name}'{hint or '; known are ' + ', '.join(known)}")
    return names


def _require(tools: dict[str, str]) -> None:
    for tool, packages in tools.items():
        if not shutil.which(tool):
            raise BadInput(f"no {tool}; apt-get install {packages}")


if __name__ == "__main__":
    sys.exit(main())
