"""Export a torch module to ONNX with either of torch's exporters, and check the result."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.zoo import MODELS, Array
from intaglio.files import write_atomically

FOLDER = Path(__file__).parents[2] / "build" / "zoo"
OPSETS = {"torchscript": 14, "dynamo": 18}  # 14 has no LayerNormalization: it becomes single ops
TOLERANCE = 1e-4  # of an output's range, onnxruntime against torch


@dataclass(frozen=True)
class Export:
    """An exported file, and the difference of onnxruntime's outputs from torch's."""

    path: Path
    nodes: int
    apart: float


def path_of(
    name: str, exporter: str = "torchscript", opset: int = 0, folder: Path = FOLDER
) -> Path:
    """The path of an exported model."""
    return folder / f"{exporter}-{opset or OPSETS[exporter]}" / f"{name}.onnx"


def is_current(path: Path) -> bool:
    """Whether the file exists and is newer than all code that makes it."""
    sources = set(Path(__file__).parent.glob("*.py")) - {
        Path(__file__).with_name(name) for name in ("__main__.py", "macs.py")
    }
    return path.exists() and path.stat().st_mtime > max(s.stat().st_mtime for s in sources)


def export(
    name: str, exporter: str = "torchscript", opset: int = 0, folder: Path = FOLDER
) -> Export:
    """Build, export and check one model; the file is written only if the outputs agree."""
    import onnx
    import torch

    model = MODELS[name]
    net, feeds = model.build(), model.feeds(1)
    with torch.no_grad():
        made = net(*map(torch.from_numpy, feeds.values()))
    wanted = [t.numpy() for t in (made if isinstance(made, tuple) else (made,))]
    data = _serialize(net, feeds, len(wanted), exporter, opset or OPSETS[exporter])
    proto = onnx.load_from_string(data)
    onnx.checker.check_model(proto, full_check=True)
    apart = max(map(difference, run(data, feeds), wanted))
    if not apart <= TOLERANCE:
        raise AssertionError(f"{name}: onnxruntime and torch differ by {apart:.1e} of the range")
    path = path_of(name, exporter, opset, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return Export(path, len(proto.graph.node), apart)


def run(model: bytes, feeds: dict[str, Array]) -> list[Array]:
    """onnxruntime's outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, feeds)
    return outputs


def difference(a: Array, b: Array) -> float:
    """The largest difference, as a share of b's range; infinite where shapes differ."""
    if a.shape != b.shape:
        return float("inf")
    return float(np.abs(a - b).max() / max(np.ptp(b), 1e-12))


def _serialize(
    net: object, feeds: dict[str, Array], outputs: int, exporter: str, opset: int
) -> bytes:
    """The ONNX bytes, with as little optimisation as the exporter allows."""
    import torch

    names = ["output"] if outputs == 1 else [f"output{i}" for i in range(outputs)]
    args = tuple(map(torch.from_numpy, feeds.values()))
    naming = {"input_names": list(feeds), "output_names": names, "opset_version": opset}
    with _quiet():
        if exporter == "dynamo":
            program = torch.onnx.export(
                net, args, dynamo=True, optimize=False, external_data=False, verbose=False, **naming
            )
            data: bytes = program.model_proto.SerializeToString()
            return data
        file = io.BytesIO()
        torch.onnx.export(
            net,
            args,
            file,
            dynamo=False,
            do_constant_folding=False,
            training=torch.onnx.TrainingMode.PRESERVE,  # EVAL would fold batch norms away
            **naming,
        )
        return file.getvalue()


@contextlib.contextmanager
def _quiet():
    """Suppress the exporters' warnings."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
