"""The first half of the class RKNN: config, load, build, hybrid quantisation and export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from intaglio.compat.guard import guarded
from intaglio.compat.rknn import hybrid, io_types, model_file, reports
from intaglio.compat.rknn import source as sources
from intaglio.compat.rknn.build import Built, Loaded, build_float, build_quantized, checked_batch
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.custom_operators import CustomOperators
from intaglio.compat.rknn.device import Device
from intaglio.compat.rknn.inputs import other_counts, read_inputs
from intaglio.compat.rknn.source import Source
from intaglio.dtypes import is_float
from intaglio.errors import BadInput, did_you_mean


class Converter(Device):
    """Converts a model. Methods return 0, or -1 and a logged line."""

    def __init__(self, verbose: bool | str = False, verbose_file: Any = None):
        super().__init__(verbose, verbose_file)
        self._config: Config | None = None
        self._loaded: Loaded | None = None
        self._built: Built | None = None
        self._operators = CustomOperators()
        self._exported: Path | None = None

    @guarded(-1)
    def config(
        self,
        mean_values: Any = None,
        std_values: Any = None,
        quantized_dtype: str = "w8a8",
        quantized_algorithm: str = "normal",
        quantized_method: str = "channel",
        quantized_hybrid_level: int = 0,
        target_platform: Any = None,
        quant_img_RGB2BGR: Any = False,
        float_dtype: str = "float16",
        optimization_level: int = 3,
        custom_string: str | None = None,
        remove_weight: bool = False,
        compress_weight: bool = False,
        inputs_yuv_fmt: Any = None,
        single_core_mode: bool = False,
        dynamic_input: Any = None,
        model_pruning: bool = False,
        op_target: Any = None,
        quantize_weight: bool = False,
        remove_reshape: bool = False,
        sparse_infer: bool = False,
        mini_rknn: bool = False,
        enable_flash_attention: bool = False,
        auto_hybrid_cos_thresh: float = 0.98,
        auto_hybrid_euc_thresh: float | None = None,
        memory_plan_strategy: str = "BestFit",
        compute_order: str = "WidthFirst",
        compiler_control_file: Any = None,
        **kwargs: Any,
    ) -> int:
        """Set the chip, the preprocessing and how the model is quantised.

        Deviation: -1 where the vendor's tool raises ValueError; the last table has each argument.

        Missing: op_target of float models.
        """
        given = {k: v for k, v in locals().items() if k not in ("self", "kwargs")}
        self._config = None
        self._config = Config.of(given, kwargs, self.log.warning)
        if self._config.largest is not None:
            self.log.warning(
                "config: dynamic_input: samples, eval_perf and eval_memory use the largest shapes, "
                f"{self._config.largest}"
            )
        return 0

    def _load(self, source: Source) -> int:
        config = self._configured()
        with self.log.collecting():
            self._loaded = Loaded.of(source, config)
        self._built = self.package = None
        for words in other_counts(self._loaded.graph, config):
            self.log.warning(f"load: {words}")
        for v in self._loaded.graph.inputs:
            if not is_float(v.dtype) and (config.mean_values or config.std_values):
                self.log.warning(f"load: '{v.name}' takes {v.dtype}; it has no mean and std")
            self.log.detail(f"load: input '{v.name}' {v.dtype} {list(v.shape)}")
        return 0

    def _configured(self) -> Config:
        if self._config is None:
            raise BadInput("there is no config; call config(target_platform='rk3588') first")
        return self._config

    @guarded(-1)
    def load_onnx(
        self,
        model: Any,
        inputs: Any = None,
        input_size_list: Any = None,
        input_initial_val: Any = None,
        outputs: Any = None,
    ) -> int:
        """Load an ONNX file; `inputs` and `outputs` cut it at tensors.

        Deviation: opsets above 19 are read too.
        """
        largest = self._configured().largest
        path = sources.model_path(model, "load_onnx")
        self._operators.prepare(path)
        return self._load(
            sources.onnx_source(path, inputs, input_size_list, input_initial_val, outputs, largest)
        )

    @guarded(-1)
    def load_tflite(self, model: Any, input_is_nchw: bool = False) -> int:
        """Load a TFLite file, float or quantised.

        Deviation: no TensorFlow is needed.
        """
        self._configured()
        path = sources.model_path(model, "load_tflite")
        return self._load(Source(path, channels_last=not input_is_nchw))

    @guarded(-1)
    def load_tensorflow(
        self,
        tf_pb: Any,
        inputs: Any,
        input_size_list: Any,
        outputs: Any,
        input_is_nchw: bool = False,
    ) -> int:
        """Load a frozen TensorFlow graph (.pb).

        Deviation: no TensorFlow is needed.
        """
        self._configured()
        return self._load(
            sources.tensorflow_source(tf_pb, inputs, input_size_list, outputs, input_is_nchw)
        )

    @guarded(-1)
    def load_caffe(self, model: Any, blobs: Any = None, input_name: Any = None) -> int:
        """Load a Caffe net (.prototxt) and weights (.caffemodel); `input_name` orders inputs."""
        self._configured()
        path = sources.model_path(model, "load_caffe")
        weights = sources.second_file(blobs or path.with_suffix(".caffemodel"), "blobs")
        keywords: dict[str, Any] = {"weights": weights}
        if input_name is not None:
            keywords["inputs"] = [input_name] if isinstance(input_name, str) else list(input_name)
        return self._load(Source(path, keywords))

    @guarded(-1)
    def load_darknet(self, model: Any, weight: Any) -> int:
        """Load a Darknet net (.cfg) and its weights (.weights)."""
        self._configured()
        path = sources.model_path(model, "load_darknet")
        return self._load(Source(path, {"weights": sources.second_file(weight, "weight")}))

    @guarded(-1)
    def load_pytorch(self, model: Any, input_size_list: Any) -> int:
        """Load a TorchScript (.pt) or torch.export (.pt2) file.

        Deviation: no PyTorch is needed.
        """
        self._configured()
        return self._load(sources.torch_source(model, input_size_list))

    @guarded(-1)
    def load_rknn(self, path: Any) -> int:
        """Load a file that `export_rknn` wrote; it runs in the simulator too.

        Deviation: a file of Rockchip's compiler is refused; damaged files are refused here too.
        """
        self.package = model_file.read(path)
        self.infos = read_inputs(self.package)
        self._built = self._loaded = None
        self._exported = Path(path)
        return 0

    @guarded(-1)
    def build(
        self,
        do_quantization: bool = True,
        dataset: Any = None,
        rknn_batch_size: int | None = None,
        auto_hybrid: bool = False,
    ) -> int:
        """Compile the loaded model, in integers or in float16.

        Deviation: pictures of another size are resized (bilinear); weights are rounded and biases
        corrected for accuracy, so int8 outputs differ from the vendor's.
        """
        model, config = self._model(), self._configured()
        rknn_batch_size = checked_batch(rknn_batch_size)
        self.log.info("building ...")
        with self.log.collecting():
            if do_quantization:
                built = build_quantized(
                    model, config, dataset, rknn_batch_size, auto_hybrid, self.log
                )
            else:
                built = build_float(model, config, rknn_batch_size, self.log)
        self._use(built)
        return 0

    def _model(self) -> Loaded:
        if self._loaded is None:
            raise BadInput("there is no model; call load_onnx or another load method first")
        return self._loaded

    def _use(self, built: Built) -> None:
        self._built, self.package, self.infos = built, built.package, built.infos
        self._exported = None
        if self.log.verbose:
            print(reports.perf(built.package, by_layer=True))
        self.log.info("building done.")

    @guarded(-1)
    def hybrid_quantization_step1(
        self,
        dataset: Any = "dataset.txt",
        rknn_batch_size: int | None = None,
        proposal: bool = False,
        proposal_dataset_size: int = 1,
        custom_hybrid: Any = None,
    ) -> int:
        """Quantise and write MODEL.model, MODEL.data and MODEL.quantization.cfg into the cwd.

        Deviation: MODEL.model is the float model as ONNX.

        Missing: dynamic_input.
        """
        model, config = self._model(), self._configured()
        batch = checked_batch(rknn_batch_size)
        count = max(int(proposal_dataset_size), 1) if proposal else 0
        with self.log.collecting():
            paths = hybrid.step1(
                model, config, dataset, count, custom_hybrid, Path.cwd(), self.log.warning, batch
            )
        self.log.info(f"wrote {', '.join(p.name for p in paths)}")
        return 0

    @guarded(-1)
    def hybrid_quantization_step2(
        self, model_input: Any, data_input: Any, model_quantization_cfg: Any
    ) -> int:
        """Build from the files of step 1, after edits of MODEL.quantization.cfg.

        Deviation: names that the model lacks are errors.
        """
        paths = (Path(model_input), Path(data_input), Path(model_quantization_cfg))
        with self.log.collecting():
            built, self._config, self._loaded = hybrid.step2(*paths, self.log)
        self._use(built)
        return 0

    @guarded(-1)
    def export_rknn(self, export_path: Any, **kwargs: Any) -> int:
        """Write the built model.

        Deviation: the file is a package of Intaglio, which its own runtime opens.

        Missing: files that Rockchip's runtime opens.
        """
        for name in kwargs:
            if name != "cpp_gen_cfg":
                hint = did_you_mean(name, ("export_path", "cpp_gen_cfg"))
                raise BadInput(f"unknown argument '{name}'{hint or '; leave it out'}")
            self.log.warning("export_rknn: cpp_gen_cfg is ignored; call codegen")
        if self.package is None:
            raise BadInput("there is no built model; call build first")
        config = self._config or Config(target_platform="rk3588")
        made = self.package
        if self._built is not None:
            made = io_types.describe(made, self._built, config)
        self._exported = model_file.write(made, export_path, config)
        return 0
