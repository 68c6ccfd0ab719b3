"""LiteRT: the f32 file of benchmarks/peers, quantised by Google's AI Edge Quantizer, statically
or dynamically, whichever is faster."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import Case
from benchmarks.peers import Array, litert_peer
from benchmarks.peers.int8 import SAMPLES, keep_fastest

ENGINE = "ai_edge_litert.interpreter"
PACKAGES = (*litert_peer.PACKAGES, "ai-edge-quantizer")


def convert(case: Case, folder: Path, threads: int) -> Path:
    from benchmarks import worker

    warnings.simplefilter("ignore")
    float_file, _ = worker.convert("litert", case, threads)
    exact = litert_peer.load(float_file, case.feeds, 1)
    exact.run()
    return keep_fastest(
        case,
        load,
        exact.outputs(),
        {
            "static": lambda: _static(float_file, folder / "static.tflite", case),
            "dynamic": lambda: _dynamic(float_file, folder / "dynamic.tflite"),
        },
    )


def _static(source: Path, file: Path, case: Case) -> Path:
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_quantizer import quantizer, recipe

    signature, details = _signature(Interpreter(str(source)))
    samples = [
        {
            name: litert_peer.channels_last(a).astype(d["dtype"])
            for (name, d), a in zip(details, sample.values(), strict=True)
        }
        for sample in case.samples(SAMPLES)
    ]
    made = quantizer.Quantizer(str(source), recipe.static_wi8_ai8())
    ranges = made.calibrate({signature: samples}, num_threads=1)
    file.write_bytes(made.quantize(ranges).quantized_model)
    return file


def _signature(engine: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The name of the only signature, and its inputs in the model's order."""
    ((name, _),) = engine.get_signature_list().items()
    details = engine.get_signature_runner(name).get_input_details()
    return name, sorted(details.items(), key=lambda item: str(item[1]["name"]))


def _dynamic(source: Path, file: Path) -> Path:
    from ai_edge_quantizer import quantizer, recipe

    made = quantizer.Quantizer(str(source), recipe.dynamic_wi8_afp32())
    file.write_bytes(made.quantize().quantized_model)
    return file


class Runner(litert_peer.Runner):
    """Converts between f32 arrays and the file's int8 inputs and outputs."""

    def __init__(self, file: Path, feeds: dict[str, Array], threads: int) -> None:
        super().__init__(file, feeds, threads)
        for i, (detail, array) in enumerate(zip(self.input_details, feeds.values(), strict=True)):
            if detail["dtype"] == np.int8:
                scale, zero = detail["quantization"]
                stored = np.rint(litert_peer.channels_last(array) / scale) + zero
                self.inputs[i] = (detail["index"], np.clip(stored, -128, 127).astype(np.int8))

    def outputs(self) -> list[Array]:
        made = []
        for detail, array in zip(self.output_details, super().outputs(), strict=True):
            if array.dtype == np.int8:
                scale, zero = detail["quantization"]
                array = (array.astype(np.float32) - zero) * np.float32(scale)
            made.append(array)
        return made


load = Runner
