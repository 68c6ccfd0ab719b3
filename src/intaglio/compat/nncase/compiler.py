"""The Compiler of nncase: import, quantise, compile, write."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from intaglio.compat.nncase import dumps, quant_scheme
from intaglio.compat.nncase import source as sources
from intaglio.compat.nncase.build import Build, Built, inputs_of
from intaglio.compat.nncase.evaluator import GraphEvaluator
from intaglio.compat.nncase.k210_model import k210_file
from intaglio.compat.nncase.quantization import Quantization
from intaglio.compat.nncase.refusals import LOG, refusing
from intaglio.compat.nncase.settings import Settings
from intaglio.compat.nncase.source import Source
from intaglio.errors import BadInput
from intaglio.ir import Graph, Type


def input_types(compiler: Compiler) -> dict[str, Type]:
    """The inputs of the compiled model, by name."""
    return inputs_of(compiler._build().float_graph())


class IRModule:
    """The imported model; `entry` is its graph."""

    def __init__(self, graph: Graph):
        self.entry = graph


class Compiler:
    """Compiles one model. Options are read when it is made."""

    @refusing
    def __init__(self, compile_options: Any):
        LOG.warned.clear()  # each compiler tells its own warnings
        self._settings = Settings.of(compile_options)
        self._source: Source | None = None
        self._quantization: Quantization | None = None
        self._built: Built | None = None
        self._data: bytes | None = None

    # ---- import --------------------------------------------------------------------------------
    @refusing
    def import_onnx(self, model_content: Any, options: Any = None) -> None:
        """Import the bytes of an ONNX model, or an open file with them.

        Deviation: `ImportOptions.output_arrays` is honoured; 2.x ignores it.
        """
        external = self._settings.input_file
        self._take(sources.onnx_source(model_content, options, external))

    @refusing
    def import_tflite(self, model_content: Any, options: Any = None) -> None:
        """Import the bytes of a TFLite model, or an open file with them.

        Deviation: quantised TFLite models are accepted.
        """
        self._take(sources.tflite_source(model_content, options))

    @refusing
    def import_caffe(self, model: Any, prototxt: Any, options: Any = None) -> None:
        """Import the bytes of a Caffe model and of its prototxt.

        Deviation: no Caffe is needed; 2.x raises NotImplementedError.
        """
        self._take(sources.caffe_source(model, prototxt))

    @refusing
    def import_ncnn(self, model_param: Any, model_bin: Any, options: Any = None) -> None:
        """Import the bytes of an ncnn model: its .param and its .bin.

        Deviation: weights of 8 bits are refused.
        """
        self._take(sources.ncnn_source(model_param, model_bin, options))

    def _take(self, source: Source) -> None:
        self._built = self._data = None
        self._source = source
        if not source.open:
            self._build().float_graph({})  # refuses what cannot be compiled

    # ---- quantise and compile ------------------------------------------------------------------
    @refusing
    def use_ptq(self, ptq_dataset_options: Any, *more: Any) -> None:
        """Quantise the model with the samples and types of PTQTensorOptions.

        Deviation: target `cpu` is quantised too. Weights are int8 for each channel where nncase
        has uint8. int16 weights make activations int16.
        """
        if ptq_dataset_options is None:
            raise BadInput("the options are None; give a PTQTensorOptions object")
        self._quantization = Quantization.of(ptq_dataset_options, self._settings)

    @refusing
    def dump_range_options(self, options: Any = None) -> None:
        """Accepted.

        Deviation: `export_quant_scheme` of PTQTensorOptions writes the ranges instead.
        """
        LOG.warning("dump_range_options has no effect; use ptq_options.export_quant_scheme = True")

    @refusing
    def compile(self) -> None:
        """Compile the model for the target.

        Deviation: a float model for k230 runs on the CPU beside the NPU, as with nncase.
        """
        self._built = self._data = None
        self._built = built = self._build().run()
        settings, quantization = self._settings, self._quantization
        if settings.target == "k210" and built.quantized is not None and len(built.graphs) == 1:
            self._data = k210_file(built.graphs[0])
        if self._data is None:
            self._data = built.package.bytes
        if settings.dump_asm or settings.dump_ir:
            dumps.write(built, self._data, settings)
        if quantization is None or built.quantized is None:
            return
        if quantization.export:
            settings.dump_dir.mkdir(parents=True, exist_ok=True)
            place = settings.dump_dir / quant_scheme.NAME
            quant_scheme.write(built.quantized, place, quantization.by_channel)
        if quantization.errors:
            dumps.write_errors(built, settings.dump_dir)

    # ---- results -------------------------------------------------------------------------------
    @refusing
    def gencode(self, stream: io.RawIOBase) -> None:
        """Write the kmodel into an open file."""
        if not hasattr(stream, "write"):
            raise BadInput(
                f"the stream is {type(stream).__name__}; give an open file: open(path, 'wb')"
            )
        stream.write(self._bytes())

    @refusing
    def gencode_tobytes(self) -> bytes:
        """The kmodel.

        Deviation: a kmodel of version 5 for k210, if the KPU runs the whole quantised model. All
        others are packages of Intaglio, which a board cannot run: the vendor's format is closed.
        """
        return self._bytes()

    @refusing
    def create_evaluator(self, stage: int = 0) -> GraphEvaluator:
        """An evaluator of the imported model with its preprocessing.

        Deviation: it computes in floats at every stage.
        """
        return GraphEvaluator(self._build().float_graph())

    @refusing
    def dump(self, folder: Any = None) -> None:
        """Write the steps and the NPU's commands to a folder; without one to `dump_dir`."""
        place = Path(folder) if folder else self._settings.dump_dir
        dumps.write(self._compiled(), self._bytes(), self._settings, place)

    @property
    def module(self) -> IRModule:
        """The imported model."""
        return IRModule(self._build().float_graph())

    def _build(self) -> Build:
        if self._source is None:
            raise BadInput("no model is imported; call import_onnx or import_tflite first")
        return Build(self._source, self._settings, self._quantization)

    def _compiled(self) -> Built:
        if self._built is None:
            raise BadInput("the model is not compiled; call compile() first")
        return self._built

    def _bytes(self) -> bytes:
        self._compiled()
        assert self._data is not None
        return self._data
