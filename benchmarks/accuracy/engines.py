"""The engines: each makes of an ONNX file and calibration samples something that answers."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import peers
from benchmarks.accuracy import Feeds, Run, files
from benchmarks.peers.int8 import onnxruntime as ort_int8
from benchmarks.peers.int8 import openvino as openvino_int8
from intaglio.ir import Graph

THREADS = 2
BY_CHANNEL = 13  # the opset in which DequantizeLinear got scales by channel
FLOAT, OURS, AUTO, INT4 = "float", "intaglio", "intaglio --auto", "intaglio int4"
STATIC, DYNAMIC, OPENVINO = "onnxruntime", "onnxruntime dynamic", "openvino"
Make = Callable[[Path, Sequence[Feeds]], Run]


def onnxruntime(file: Path) -> Run:
    """What onnxruntime answers, by the outputs' order."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, THREADS
    session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def _session(graph: Graph) -> Run:
    import intaglio

    made = Path(tempfile.mkdtemp(dir=files.scratch())) / "model.itg"
    intaglio.compile(graph).save(made)
    session = intaglio.open(made, threads=THREADS)
    return lambda feeds: [a.copy() for a in session.run(feeds).values()]


def _ours(file: Path, samples: Sequence[Feeds]) -> Run:
    import intaglio

    return _session(intaglio.quantize(intaglio.load(file), data=samples))


def _auto(file: Path, samples: Sequence[Feeds]) -> Run:
    import intaglio
    from intaglio.quant.search.strategies import auto

    return _session(auto(intaglio.load(file), samples).best.graph)


def _int4(file: Path, samples: Sequence[Feeds]) -> Run:
    import intaglio
    from intaglio.quant.weight_only.datafree import without_data

    made = without_data(intaglio.load(file), "weights", weights="uint4", data=samples)
    return _session(made.graph)


def _prepared(file: Path) -> Path:
    """The model as onnxruntime's quantisers want it: weights that are no inputs, and an opset that
    has scales by channel."""
    import onnx

    model = onnx.load(file)
    if any(o.domain == "" and o.version < BY_CHANNEL for o in model.opset_import):
        model = onnx.version_converter.convert_version(model, BY_CHANNEL)
        constants = {t.name for t in model.graph.initializer}
        for given in [i for i in model.graph.input if i.name in constants]:
            model.graph.input.remove(given)
        file = files.scratch() / f"{file.stem}.newer.onnx"
        onnx.save(model, file)
    return ort_int8.prepare(file, files.scratch() / f"{file.stem}.float.onnx")


def _static(file: Path, samples: Sequence[Feeds]) -> Run:
    ready = _prepared(file)
    return onnxruntime(ort_int8.static(ready, ready.with_suffix(".int8.onnx"), samples))


def _dynamic(file: Path, samples: Sequence[Feeds]) -> Run:
    ready = _prepared(file)
    return onnxruntime(ort_int8.dynamic(ready, ready.with_suffix(".int8.onnx")))


def _openvino(file: Path, samples: Sequence[Feeds]) -> Run:
    import openvino

    logging.disable(logging.WARNING)
    model = openvino_int8.read(file, samples[0])
    kinds = [op.get_type_name() for op in model.get_ops()]
    attends = kinds.count("Softmax") + kinds.count("ScaledDotProductAttention") > 2
    quantised = openvino_int8.quantize(model, samples, transformer=attends)
    hints = {"INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(quantised, "CPU", hints)
    return lambda feeds: [a.copy() for a in compiled(feeds).values()]


ENGINES: dict[str, Make] = {
    FLOAT: lambda file, samples: onnxruntime(file),
    OURS: _ours,
    AUTO: _auto,
    INT4: _int4,
    STATIC: _static,
    DYNAMIC: _dynamic,
    OPENVINO: _openvino,
}
PACKAGES = {  # what an engine's answers depend on
    FLOAT: ("onnxruntime",),
    STATIC: ort_int8.PACKAGES,
    DYNAMIC: ort_int8.PACKAGES,
    OPENVINO: openvino_int8.PACKAGES,
}


def missing(engine: str) -> str | None:
    """Why the engine cannot run here; None if it can."""
    lacking = [p for p in PACKAGES.get(engine, ()) if not peers.has(p)]
    return f"needs {', '.join(lacking)}: `make bench` installs it" if lacking else None
