"""ncnn, converted by its own pnnx: from the torch module where there is one, else from ONNX."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array, Refused

ENGINE = "ncnn"
PACKAGES = ("ncnn", "pnnx", "torch")
PRECISIONS = ("f32", "bf16")
KINDS = {"float32": "f32", "int64": "i64", "int32": "i32"}


def convert(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import torch

    if case.in_zoo:
        samples = tuple(map(torch.from_numpy, case.feeds.values()))
        with torch.no_grad():
            torch.jit.trace(case.net(), samples, check_trace=False).save(folder / "model.pt")
        with contextlib.suppress(Refused):  # ONNX may work where torch does not
            return _pnnx(folder / "model.pt", case)
    return _pnnx(Path(shutil.copy(case.path, folder / "model.onnx")), case)


def _pnnx(source: Path, case: Case) -> Path:
    """Run the converter in its source folder, and check that ncnn has all layers."""
    import ncnn
    import pnnx

    shapes = ",".join(
        f"[{','.join(map(str, a.shape))}]{KINDS[a.dtype.name]}" for a in case.feeds.values()
    )
    done = subprocess.run(
        [pnnx.EXEC_PATH, source.name, f"inputshape={shapes}", "fp16=0"],
        cwd=source.parent,
        capture_output=True,
        text=True,
        errors="replace",
    )
    file = source.with_name("model.ncnn.param")
    if done.returncode or not file.exists():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise Refused(f"pnnx ended with {done.returncode}: {' '.join(last)}")
    for leftover in (source.name, "model.pnnx.bin", "model.pnnx.onnx"):
        source.with_name(leftover).unlink(missing_ok=True)
    # ncnn has no casts: a mask is given as the floats that it is cast to
    file.write_text(re.sub(r"^Tensor\.to ", "Noop ", file.read_text(), flags=re.MULTILINE))
    if unknown := [k for k, *_ in _layers(file) if ncnn.layer_to_index(k) < 0]:
        raise Refused(f"pnnx left '{unknown[0]}', which ncnn does not have")
    return file


def _layers(file: Path) -> list[list[str]]:
    """The words of each layer's line: kind, name, number of inputs and outputs, their names, ..."""
    return [line.split() for line in file.read_text().splitlines()[2:] if line]


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int, precision: str) -> None:
        import ncnn

        self.net = ncnn.Net()
        options = self.net.opt
        options.num_threads = threads
        options.use_fp16_packed = options.use_fp16_storage = options.use_fp16_arithmetic = False
        options.use_bf16_storage = precision == "bf16"
        bin = file.with_suffix(".bin")
        if self.net.load_param(str(file)) or self.net.load_model(str(bin)):
            raise Refused("ncnn could not load the file from pnnx")
        looked_up = {n for k, _, _, _, n, *_ in _layers(file) if k == "Embed"}
        self.feeds = []
        for name, array in zip(self.net.input_names(), feeds.values(), strict=True):
            kind = np.int32 if name in looked_up else np.float32
            kept = np.ascontiguousarray(array[0] if array.shape[0] == 1 else array, kind)
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
