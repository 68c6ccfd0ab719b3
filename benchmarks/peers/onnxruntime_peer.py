"""ONNX Runtime: all graph optimisations, inputs bound once, so that a run copies nothing in."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import Array

ENGINE = "onnxruntime"
PACKAGES = ("onnxruntime",)


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.binding = self.session.io_binding()
        for name, array in feeds.items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name)

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> list[Array]:
        return self.binding.copy_outputs_to_cpu()


load = Runner
