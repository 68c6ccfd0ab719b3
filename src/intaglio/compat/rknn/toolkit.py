"""`RKNN`, the class of RKNN-Toolkit2: every method names what the core does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import intaglio
from intaglio.compat.guard import guarded
from intaglio.compat.rknn import accuracy, model_file, reports
from intaglio.compat.rknn import codegen as c_project
from intaglio.compat.rknn import source as sources
from intaglio.compat.rknn.converter import Converter
from intaglio.compat.rknn.dataset import Samples
from intaglio.compat.rknn.reports import Perf
from intaglio.errors import BadInput


class RKNN(Converter):
    """Converts, simulates and measures a model. Methods return 0, or -1 and a logged line."""

    def __init__(self, verbose: bool | str = False, verbose_file: Any = None):
        super().__init__(verbose, verbose_file)
        self._perf_debug = False

    @guarded(-1)
    def init_runtime(
        self,
        target: Any = None,
        device_id: Any = None,
        perf_debug: bool = False,
        eval_mem: bool = False,
        async_mode: bool = False,
        core_mask: int = 0,
        fallback_prior_device: str = "cpu",
    ) -> int:
        """Make the model ready to run in the simulator of its chip.

        Deviation: with `target` the simulator answers too, after a warning.

        Missing: connections to boards; with async_mode, inference waits for its own frame;
        fallback_prior_device is ignored.
        """
        if async_mode:
            self.log.warning("init_runtime: async_mode: inference still waits for its own frame")
        self._perf_debug, self._async = perf_debug, bool(async_mode)
        return self._start(target, device_id, core_mask, "build or load_rknn")

    def _use_cores(self, cores: int) -> None:
        if self._built is None:
            return super()._use_cores(cores)
        if cores > 1 and self._configured().single_core_mode:
            raise BadInput(
                "core_mask has several cores, but config(single_core_mode=True); leave one out"
            )
        self.package = self._built.with_cores(cores)
        return None

    @guarded(None)
    def inference(
        self,
        inputs: Any,
        data_format: Any = None,
        inputs_pass_through: Any = None,
        get_frame_id: bool = False,
    ) -> Any:
        """Run the model; the outputs in order as float32, None after a mistake.

        Deviation: None where the vendor's tool raises ValueError; loaded files run too.
        """
        return self._inference(inputs, data_format, inputs_pass_through, get_frame_id)

    @guarded(-1)
    def accuracy_analysis(
        self, inputs: Any, output_dir: Any = "./snapshot", target: Any = None, device_id: Any = None
    ) -> int:
        """Compare every layer with the float model; print the table and write all tensors.

        Deviation: of a float16 model the column single is empty; runtime_error, with `target`, is
        of the simulator of the chip.
        """
        if self._built is None or self._loaded is None:
            raise BadInput(
                "there is no built model; call build first (a loaded .rknn has no float model to "
                "compare with)"
            )
        if target is not None:
            self._check_target(target)
            self.log.warning(
                "accuracy_analysis: boards are not reached from here; runtime_error is that of "
                "the chip's simulator"
            )
        files = [inputs] if isinstance(inputs, str) else list(inputs)
        config = self._configured()
        sample = next(iter(Samples([[Path(f) for f in files]], self._built.pictures, config)))
        folder = Path(output_dir or "./snapshot")
        if self._built.quantized is not None:
            text = accuracy.analyse(self._built.quantized, sample, folder, target is not None)
        else:
            keywords = {k: v for k, v in self._built.compile.items() if k != "batch"}
            graphs = self._loaded.graph, self._built.rounded or self._loaded.graph
            text = accuracy.analyse_float(*graphs, sample, keywords, folder, target is not None)
        print(text)
        return 0

    @guarded(None)
    def eval_perf(self, is_print: bool = True, fix_freq: bool = True) -> Perf | None:
        """The predicted time of a frame; of every layer after init_runtime(perf_debug=True).

        Deviation: predicted from the chip's figures, not measured; needs no board.
        """
        found = reports.perf(self._reported(), self._perf_debug)
        if is_print:
            print(found)
        return found

    @guarded(None)
    def eval_memory(self, is_print: bool = True) -> dict[str, int] | None:
        """Bytes of weights, intermediate tensors and all others.

        Deviation: planned sizes, not measured; needs no board.
        """
        package = self._reported()
        found = reports.memory(package)
        if is_print:
            print(reports.memory_text(found, len(package.image)))
        return found

    def _reported(self) -> Any:
        """The package that reports are about: with names, and at the largest of dynamic shapes."""
        if self.package is None:
            raise BadInput("there is no model; call build or load_rknn first")
        stripped = self._built is not None and "strip" in self._built.compile
        if len(self.package.plans) == 1 and not stripped:
            return self.package
        if self._built is None:
            raise BadInput(
                "the loaded file has several shapes, and its report is of one; call this after "
                "build instead"
            )
        keywords = {k: v for k, v in self._built.compile.items() if k != "strip"}
        return intaglio.compile(self._built.graphs[0], **keywords)

    # ---- others ----------------------------------------------------------------------------------
    @guarded(-1)
    def reg_custom_op(self, custom_op: Any) -> int:
        """Register an operator of the user's, before load_onnx."""
        self._operators.add(custom_op)
        if self._loaded is not None:
            self.log.warning("reg_custom_op: the model is loaded already; load it again")
        return 0

    @guarded(-1)
    def optimize_onnx(
        self,
        model: Any,
        optimized_path: Any = None,
        passes_enable: Any = None,
        inputs_for_dump: Any = None,
    ) -> int:
        """Write an equivalent ONNX file with less work.

        Deviation: works for every model; passes_enable and inputs_for_dump are ignored.
        """
        path = sources.model_path(model, "load_onnx")
        place = optimized_path or path.with_name(f"{path.stem}_optimized.onnx")
        intaglio.save_onnx(intaglio.optimize(intaglio.load(path), level=2), place)
        self.log.info(f"wrote {place}")
        return 0

    @guarded(-1)
    def codegen(self, output_path: Any, inputs: Any = None, overwrite: bool = False) -> int:
        """Write a C project that runs the exported model with Intaglio's runtime.

        Deviation: the project uses intaglio.h, and CMake alone; there is no build for Android.
        """
        if self._exported is None or self.package is None:
            self.log.warning("codegen: call export_rknn first; nothing is written")
            return -1
        c_project.write(
            self.package, self.infos, self._exported, output_path, inputs, overwrite, self._config
        )
        self.log.info(f"codegen: wrote {output_path}")
        return 0

    @guarded(-1)
    def export_encrypted_rknn_model(
        self, input_model: Any, output_model: Any = None, crypt_level: int = 1
    ) -> int:
        """Encrypt a file that `export_rknn` wrote.

        Deviation: AES-256 with a key of yours, from INTAGLIO_KEY_FILE or INTAGLIO_KEY, else a new
        one in FILE.key beside the file; the key is needed to load the file.
        """
        place = model_file.encrypt(input_model, output_model, crypt_level, self.log.warning)
        self.log.info(f"wrote {place}")
        return 0

    def clear_op_cache(self) -> None:
        """Nothing to clear: operators are not cached."""

    def release(self) -> None:
        """Close the session and forget custom operators; may be called twice."""
        super().release()
        self._operators.forget()
        self._built = self._loaded = None
