"""OpenVINO: its own file format, the latency hint, inputs shared with the request."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array

ENGINE = "openvino"
PACKAGES = ("openvino",)
PRECISIONS = ("f32", "bf16")


def convert(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import openvino

    model = openvino.Core().read_model(case.path)
    if model.is_dynamic():
        model.reshape({i.any_name: list(case.feeds[i.any_name].shape) for i in model.inputs})
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
    return folder / "model.xml"


class Runner:
    """Runs with the given float precision; None: OpenVINO's default."""

    def __init__(
        self, file: Path, feeds: dict[str, Array], threads: int, precision: str | None
    ) -> None:
        import openvino

        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
        if precision:
            hints["INFERENCE_PRECISION_HINT"] = precision
        compiled = openvino.Core().compile_model(file, "CPU", hints)
        self.request, self.names = compiled.create_infer_request(), compiled.outputs
        self.feeds = feeds  # keep alive: the request does not own the memory
        for name, array in feeds.items():
            self.request.set_tensor(name, openvino.Tensor(array, shared_memory=True))

    def run(self) -> None:
        self.request.start_async()  # infer() would wrap every output in Python on each run
        self.request.wait()

    def outputs(self) -> list[Array]:
        return [self.request.get_tensor(n).data.copy() for n in self.names]


load = Runner
