"""MNN at high precision (float32). The library is called directly: its command-line tools report
what they do to a server."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array, Refused

ENGINE = "MNN"
PACKAGES = ("MNN",)


def convert(case: Case, folder: Path, threads: int) -> Path:
    import _tools  # MNN's converter

    file = folder / "model.mnn"
    _tools.mnnconvert(
        ["mnnconvert", "-f", "ONNX", "--modelFile", str(case.path), "--MNNModel", str(file),
         "--bizCode", "none"]
    )  # fmt: skip
    if not file.exists():
        raise Refused("MNN's converter wrote no file")
    return file


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        import MNN

        self.engine = MNN.Interpreter(str(file))
        self.session = self.engine.createSession(
            {"backend": "CPU", "precision": "high", "numThread": threads}
        )
        inputs = self.engine.getSessionInputAll(self.session)
        for name, array in feeds.items():
            self.engine.resizeTensor(inputs[name], array.shape)
        self.engine.resizeSession(self.session)
        self.inputs = []
        for name, tensor in self.engine.getSessionInputAll(self.session).items():
            array = feeds[name]
            kind = MNN.Halide_Type_Float if array.dtype.kind == "f" else MNN.Halide_Type_Int
            kept = np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int32)
            host = MNN.Tensor(array.shape, kind, kept, MNN.Tensor_DimensionType_Caffe)
            self.inputs.append((tensor, host))

    def run(self) -> None:
        for tensor, host in self.inputs:  # a run may write over its inputs
            tensor.copyFrom(host)
        self.engine.runSession(self.session)

    def outputs(self) -> list[Array]:
        import MNN

        made = []
        for _, tensor in sorted(self.engine.getSessionOutputAll(self.session).items()):
            shape = tensor.getShape()
            host = MNN.Tensor(
                shape, MNN.Halide_Type_Float, np.zeros(shape, np.float32),
                MNN.Tensor_DimensionType_Caffe,
            )  # fmt: skip
            tensor.copyToHostTensor(host)
            made.append(np.array(host.getNumpyData()).reshape(shape))
        return made


load = Runner
