"""MNN by its module interface (the older sessions run no LSTM), at high precision: float32.

The converter is called as a library, because the command-line tools send reports to a server.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array, Refused

ENGINE = "MNN"
PACKAGES = ("MNN",)


def convert(case: Case, folder: Path, threads: int) -> Path:
    import _tools  # MNN's converter
    import onnx

    file = folder / "model.mnn"
    _tools.mnnconvert(
        [
            "mnnconvert",
            "-f",
            "ONNX",
            "--modelFile",
            str(case.path),
            "--MNNModel",
            str(file),
            "--bizCode",
            "none",
        ]
    )
    if not file.exists():
        raise Refused("MNN's converter wrote no file")
    outputs = onnx.load(case.path, load_external_data=False).graph.output
    file.with_suffix(".txt").write_text("\n".join(o.name for o in outputs))
    return file


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        from MNN import expr, nn

        runtime = nn.create_runtime_manager(
            ({"backend": "CPU", "precision": "high", "numThread": threads},)
        )
        outputs = file.with_suffix(".txt").read_text().split("\n")
        self.net = nn.load_module_from_file(
            str(file), list(feeds), outputs, runtime_manager=runtime
        )
        self.inputs = []
        for a in feeds.values():
            dtype, kind = (np.float32, expr.float) if a.dtype.kind == "f" else (np.int32, expr.int)
            kept = np.ascontiguousarray(a, dtype)
            self.inputs.append(expr.const(kept, list(a.shape), expr.NCHW, kind))

    def run(self) -> None:
        self.made = self.net.forward(self.inputs)
        for output in self.made:
            output.read()  # computes it

    def outputs(self) -> list[Array]:
        return [np.array(output.read()) for output in self.made]


load = Runner
