"""The option objects of nncase: plain attributes, with the defaults of nncase 2.x.

Attributes of nncase 1.x are there too. Unknown attributes are accepted, as nncase 2.x does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from intaglio.compat.nncase.refusals import NncaseError
from intaglio.compat.nncase.runtime_tensor import RuntimeTensor


class Untouched(str):
    """A default that the user did not set: nncase 1.x and 2.x have different ones."""

    __slots__ = ()


# Attributes of CompileOptions: the default of nncase 2.x and the effect.
COMPILE: dict[str, tuple[Any, str]] = {
    "target": ("cpu", "cpu, k230, k510 or k210"),
    "preprocess": (False, "whether the model prepares its inputs; the next rows need it"),
    "input_type": (Untouched("float32"), "uint8, int8 or float32; 1.x: `default` is uint8 if "
                   "quantised"),
    "input_shape": ([], "shape of the new input, in `input_layout`; empty: as the model"),
    "input_range": ([], "values of the smallest and the largest byte; empty: 0 to 255"),
    "input_layout": ("", "NHWC, NCHW or a permutation such as `0,3,1,2`; empty: as the model"),
    "swapRB": (False, "swaps the first and third channel"),
    "letterbox_value": (0, "padding beside a resized picture, in units of `input_range`"),
    "mean": ([0, 0, 0], "subtracted from the input, after `input_range`"),
    "std": ([1, 1, 1], "divides the input; 0 is refused"),
    "output_layout": ("", "NHWC, NCHW or a permutation of the outputs; empty: as the model"),
    "model_layout": ("", "layout of the model itself; empty: NHWC of TFLite, else NCHW"),
    "input_file": ("", "file with the weights of an ONNX model of more than 2 GB"),
    "dump_ir": (False, "writes the graph before and after every pass to `dump_dir`"),
    "dump_asm": (True, "writes the steps and the NPU's commands to `dump_dir`"),
    "dump_dir": ("tmp", "folder for all that is written; it is made"),
    "shape_bucket_enable": (False, "compiles a model with open dimensions for ranges of sizes"),
    "shape_bucket_range_info": ({}, "smallest and largest extent by the name of a dimension"),
    "shape_bucket_segments_count": (2, "number of sizes that an NPU's plans have"),
    "shape_bucket_fix_var_map": ({}, "extents by the name of a dimension that does not vary"),
    "quant_type": ("uint8", "1.x: type of activations; PTQTensorOptions has it in 2.x"),
    "w_quant_type": ("uint8", "1.x: type of weights; PTQTensorOptions has it in 2.x"),
    "use_mse_quant_w": (False, "ignored: weights are always rounded for the least error"),
    "split_w_to_act": (False, "ignored: it is a choice of the vendor's compiler"),
    "output_type": ("float32", "1.x: uint8 or int8 quantises the outputs of a quantised model"),
    "output_range": ([], "1.x: range of outputs with `output_type`; empty: as calibrated"),
    "dump_quant_error": (False, "1.x: as in PTQTensorOptions"),
    "dump_import_op_range": (False, "ignored: `export_quant_scheme` writes all ranges"),
    "is_fpga": (False, "ignored: it is for the vendor's own boards"),
    "benchmark_only": (False, "ignored: a model always has its weights"),
    "tcu_num": (0, "ignored: it is for the vendor's own chips"),
}  # fmt: skip
# Attributes of PTQTensorOptions.
PTQ: dict[str, tuple[Any, str]] = {
    "calibrate_method": (Untouched("Kld"), "Kld or NoClip; 1.x: no_clip, l2, kld_m0, kld_m1, "
                         "kld_m2, cdf"),
    "samples_count": (5, "number of samples in set_tensor_data"),
    "quant_type": ("uint8", "type of activations: uint8, int8 or int16"),
    "w_quant_type": ("uint8", "type of weights: uint8 and int8 are int8 for each channel; int16 "
                     "makes activations int16 too"),
    "finetune_weights_method": ("NoFineTuneWeights", "rounding of weights: UseSquant, UseAdaRound "
                                "(by the samples), or the best of both"),
    "use_mix_quant": (False, "moves layers out of 8 bits until outputs have a cosine of 0.99"),
    "use_mse_quant_w": (False, "ignored: weights are always rounded for the least error"),
    "quant_scheme": ("", "path of a QuantScheme.json to read"),
    "quant_scheme_strict_mode": (False, "names that the model lacks are errors"),
    "export_quant_scheme": (False, "writes QuantScheme.json to `dump_dir`"),
    "export_weight_range_by_channel": (False, "weights in it have a range for each channel"),
    "dump_quant_error": (False, "writes quant_error.csv to `dump_dir`: cosine of every tensor"),
    "dump_quant_error_symmetric_for_signed": (True, "ignored: errors are those of the model"),
    "input_mean": (0.5, "ignored: CompileOptions has the mean"),
    "input_std": (0.5, "ignored: CompileOptions has the standard deviation"),
    "cali_data": ([], "what set_tensor_data keeps"),
}  # fmt: skip


def _copy(default: Any) -> Any:
    return default.copy() if isinstance(default, list | dict) else default


class _Attributes:
    """An object with the attributes of a table."""

    _TABLE: ClassVar[dict[str, tuple[Any, str]]] = {}

    def __init__(self) -> None:
        for name, (default, _) in self._TABLE.items():
            setattr(self, name, _copy(default))

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k != "cali_data")
        return f"{type(self).__name__}({shown})"


class CompileOptions(_Attributes):
    """Target, preprocessing, dumps and shape buckets."""

    _TABLE = COMPILE

    def __getattr__(self, name: str) -> Any:  # for type checkers; all attributes are set
        raise AttributeError(f"CompileOptions has no attribute '{name}'")


class ImportOptions:
    """What is imported: `output_arrays` names the tensors that become outputs."""

    def __init__(self) -> None:
        self.output_arrays: Any = ""


class PTQTensorOptions(_Attributes):
    """Quantisation from samples: types, methods and the mixed-quantisation scheme."""

    _TABLE = PTQ

    def __init__(self) -> None:
        super().__init__()
        self._given: Any = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"PTQTensorOptions has no attribute '{name}'")

    def set_tensor_data(self, data: Any) -> None:
        """Set the samples: a list of arrays for each input, or (1.x) all of them as bytes.

        Deviation: a list for each sample is accepted too, where shapes tell which one it is.
        """
        if isinstance(data, Iterator):  # a generator gives its samples once
            data = list(data)
        self._given = data
        if isinstance(data, bytes | bytearray | memoryview):
            return
        try:
            flat = [sample for row in zip(*data, strict=False) for sample in row]
        except TypeError:
            raise NncaseError(
                f"set_tensor_data: the samples are {type(data).__name__}; give a list of arrays "
                "for each input: [[x1, x2], [y1, y2]]"
            ) from None
        self.cali_data = [RuntimeTensor.from_numpy(one) for one in flat]


class DumpRangeTensorOptions:
    """Samples for the ranges of imported operators (1.x)."""

    def __init__(self) -> None:
        self.calibrate_method = "no_clip"
        self.samples_count = 0
        self._given: Any = None

    def set_tensor_data(self, data: Any) -> None:
        """Set the samples, as in PTQTensorOptions.

        Deviation: `export_quant_scheme` of PTQTensorOptions writes the ranges instead.
        """
        self._given = data


class ShapeBucketOptions:
    """Ranges of open dimensions.

    Deviation: as in nncase, the compiler reads the attributes `shape_bucket_...` of CompileOptions.
    """

    def __init__(self) -> None:
        self.enable = False
        self.var_map: dict[str, Any] = {}
        self.range_info: dict[str, Any] = {}
        self.segments_count = 2
        self.fix_var_map: dict[str, int] = {}
