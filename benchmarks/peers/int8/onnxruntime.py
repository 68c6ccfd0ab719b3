"""ONNX Runtime with its own quantisers: static QDQ (unsigned activations, signed weights per
channel) or dynamic, whichever is faster; static suits convolutions, dynamic most other nets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array
from benchmarks.peers.int8 import SAMPLES, keep_fastest
from benchmarks.peers.onnxruntime_peer import load

__all__ = ["ENGINE", "PACKAGES", "convert", "dynamic", "load", "prepare", "static"]
ENGINE = "onnxruntime"
PACKAGES = ("onnxruntime", "onnx")


def convert(case: Case, folder: Path, threads: int) -> Path:
    float_file = prepare(case.path, folder / "float.onnx")
    exact = load(case.path, case.feeds, 1)
    exact.run()
    file = keep_fastest(
        case,
        load,
        exact.outputs(),
        {
            "static": lambda: static(float_file, folder / "static.onnx", case.samples(SAMPLES)),
            "dynamic": lambda: dynamic(float_file, folder / "dynamic.onnx"),
        },
    )
    float_file.unlink()
    return file


def prepare(source: Path, file: Path) -> Path:
    """The model with inferred shapes and folded batch norms, as the quantisers need it."""
    from onnxruntime.quantization import quant_pre_process

    logging.disable(logging.WARNING)
    try:
        quant_pre_process(str(source), str(file))
    except Exception:  # its symbolic shape inference does not know every op
        quant_pre_process(str(source), str(file), skip_symbolic_shape=True)
    return file


def static(source: Path, file: Path, samples: Iterable[dict[str, Array]]) -> Path:
    """Static quantisation: fixed ranges."""
    kept = list(samples)
    try:
        return _static(source, file, kept)
    except ValueError:  # its treatment of large biases fails on some models
        return _static(source, file, kept, {"QDQDisableWeightAdjustForInt32Bias": True})


def _static(
    source: Path,
    file: Path,
    samples: Iterable[dict[str, Array]],
    options: dict[str, bool] | None = None,
) -> Path:
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.left: Iterator[dict[str, Array]] = iter(samples)

        def get_next(self) -> dict[str, Array] | None:
            return next(self.left, None)

    q.quantize_static(
        str(source),
        str(file),
        Reader(),
        quant_format=q.QuantFormat.QDQ,
        per_channel=True,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QInt8,
        extra_options=options,
    )
    return file


def dynamic(source: Path, file: Path, ops: Sequence[str] | None = None) -> Path:
    """Dynamic quantisation: ranges computed in each run."""
    from onnxruntime import quantization as q

    q.quantize_dynamic(
        str(source),
        str(file),
        op_types_to_quantize=ops,
        weight_type=q.QuantType.QInt8,
        per_channel=True,
    )
    return file
