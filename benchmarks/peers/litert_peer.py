"""LiteRT with XNNPACK, converted from the torch module with channels last at its inputs.

With `num_threads=2` one thread only waits, so twice as many are requested and pinned to the same
CPUs that every engine gets.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array

ENGINE = "ai_edge_litert.interpreter"
PACKAGES = ("ai-edge-litert", "litert-torch", "torch")


def convert(case: Case, folder: Path, threads: int) -> Path:
    warnings.simplefilter("ignore")
    import litert_torch
    import torch

    net = case.net()
    images = [i for i, a in enumerate(case.feeds.values()) if a.ndim == 4]
    if images:
        net = litert_torch.to_channel_last_io(net, args=images)
    samples = tuple(torch.from_numpy(a) for a in map(channels_last, case.feeds.values()))
    with torch.no_grad():
        litert_torch.convert(net.eval(), samples).export(str(folder / "model.tflite"))
    return folder / "model.tflite"


def channels_last(array: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)) if array.ndim == 4 else array


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.engine = Interpreter(str(file), num_threads=threads if threads == 1 else 2 * threads)
        self.engine.allocate_tensors()
        self.input_details = sorted(self.engine.get_input_details(), key=lambda d: d["name"])
        self.inputs = [
            (d["index"], channels_last(a).astype(d["dtype"]))
            for d, a in zip(self.input_details, feeds.values(), strict=True)
        ]
        self.output_details = sorted(self.engine.get_output_details(), key=lambda d: d["name"])

    def run(self) -> None:
        for index, array in self.inputs:  # a run may write over its inputs
            self.engine.set_tensor(index, array)
        self.engine.invoke()

    def outputs(self) -> list[Array]:
        return [self.engine.get_tensor(d["index"]) for d in self.output_details]


load = Runner
