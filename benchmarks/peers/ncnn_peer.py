"""ncnn, converted by its own pnnx: from the torch module where there is one, else from ONNX."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array, Refused

ENGINE = "ncnn"
PACKAGES = ("ncnn", "pnnx", "torch")
KINDS = {"float32": "f32", "int64": "i64", "int32": "i32"}


def convert(case: Case, folder: Path, threads: int) -> Path:
    import pnnx
    import torch

    source = folder / "model.pt"
    if case.in_zoo:
        samples = tuple(map(torch.from_numpy, case.feeds.values()))
        with torch.no_grad():
            torch.jit.trace(case.net(), samples, check_trace=False).save(source)
    else:
        source = Path(shutil.copy(case.path, folder / "model.onnx"))
    shapes = ",".join(
        f"[{','.join(map(str, a.shape))}]{KINDS[a.dtype.name]}" for a in case.feeds.values()
    )
    command = [pnnx.EXEC_PATH, source.name, f"inputshape={shapes}", "fp16=0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    file = folder / "model.ncnn.param"
    if done.returncode or not file.exists():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Refused(f"pnnx ended with {done.returncode}: {' '.join(last)}")
    for leftover in ("model.pt", "model.onnx", "model.pnnx.bin", "model.pnnx.onnx"):
        (folder / leftover).unlink(missing_ok=True)
    if unknown := [line.split()[0] for line in file.read_text().splitlines() if "pnnx." in line]:
        raise Refused(f"pnnx left '{unknown[0]}', which ncnn has not")
    return file


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        import ncnn

        self.net = ncnn.Net()
        options = self.net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = False
        bin = file.with_suffix(".bin")
        if self.net.load_param(str(file)) or self.net.load_model(str(bin)):
            raise Refused("ncnn could not load what pnnx wrote")
        self.feeds = []
        for name, array in zip(self.net.input_names(), feeds.values(), strict=True):
            kept = np.ascontiguousarray(array[0] if array.shape[0] == 1 else array)
            kept = kept.astype(np.int32) if kept.dtype.kind == "i" else kept
            self.feeds.append((name, kept, ncnn.Mat(kept)))
        self.names = self.net.output_names()
        self.made: list[object] = []

    def run(self) -> None:
        extractor = self.net.create_extractor()
        for name, _, mat in self.feeds:
            extractor.input(name, mat)
        made = [extractor.extract(name) for name in self.names]
        if any(status for status, _ in made):
            raise Refused("ncnn's extractor failed")
        self.made = [mat for _, mat in made]

    def outputs(self) -> list[Array]:
        return [np.array(mat)[None] for mat in self.made]


load = Runner
