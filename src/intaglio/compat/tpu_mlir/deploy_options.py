"""The options of model_deploy."""

from __future__ import annotations

from intaglio.compat.tpu_mlir.chips import CHIPS
from intaglio.compat.tpu_mlir.option_table import (
    Command,
    flag,
    integers,
    lower,
    option,
    upper,
    words,
)

FORMATS = (  # of --customization_format: pixels of the frames that a file takes
    *("", "RGB_PLANAR", "RGB_PACKED", "BGR_PLANAR", "BGR_PACKED", "GRAYSCALE", "YUV420_PLANAR"),
    *("YUV_NV21", "YUV_NV12", "RGBA_PLANAR", "GBRG_RAW", "GRBG_RAW", "BGGR_RAW", "RGGB_RAW"),
)
QUANTIZE = (
    *("F32", "BF16", "F16", "INT8", "INT4", "W8F16", "W8BF16", "W4F16", "W4BF16", "W4INT8"),
    *("F8E4M3", "F8E5M2", "QDQ", "INT8F16DYN", "INT8BF16DYN", "INT4F16DYN", "INT4BF16DYN"),
    *("F8E4M3F16DYN", "F8E4M3BF16DYN", "F4F16DYN", "F4BF16DYN"),
)
TILING = "ignored: the tiling search of Intaglio decides"
VENDOR = "ignored: it is for the vendor's compiler"
PORTS = "numbers from 1 of those that are meant by"

DEPLOY = Command(
    "model_deploy",
    "Compiles an .mlir file for a chip and compares the result with the float network.",
    (
        option("--mlir", "the file of model_transform", required=True),
        option(
            "--chip --processor",
            "bm1684, bm1684x, bm1688, bm1690 (sg2260), cv181x or cv180x; packages: cv186x too",
            lower,
            required=True,
            choices=tuple(CHIPS),
        ),
        option(
            "--quantize",
            "INT8, QDQ for a quantised model, F16, BF16, F32, or W8F16 to W4BF16: weights are "
            "rounded; a .cvimodel is INT8",
            upper,
            default="F32",
            choices=QUANTIZE,
        ),
        option(
            "--model", "the file to write: .bmodel, .cvimodel, or a package .itg", required=True
        ),
        option(
            "--calibration_table", "the table of run_calibration; INT8 of a float model needs it"
        ),
        option(
            "--quantize_table", "the table of layers with another type, such as F32 in INT8 or F16"
        ),
        flag("--asymmetric", "inputs and outputs have zero points; inner tensors always may"),
        option("--q_group_size", "weights of W4F16 that share a scale", int, default=64),
        flag("--q_symmetric", "weights of W4F16 have no zero points"),
        flag("--quant_input", "inputs are f16 or bf16 in files of these; of INT8 always bytes"),
        flag("--quant_output", "outputs are bytes, or f16 or bf16, instead of f32"),
        flag("--quant_output_bf16", "refused: outputs are f32 or bytes; leave it out"),
        flag("--quant_input_int8", "inputs are bytes; they always are in a file for a chip"),
        flag("--quant_output_int8", "outputs are bytes instead of floats"),
        option("--quant_input_list", f"{PORTS} --quant_input: 1,3", integers),
        option("--quant_output_list", f"{PORTS} --quant_output: 1,3", integers),
        flag("--high_precision", TILING),
        flag("--ignore_f16_overflow", VENDOR),
        option(
            "--test_input",
            "an .npz of model_transform, .npy, or a picture: runs the file on it",
            words,
            default=[],
        ),
        option("--test_reference", "the .npz of --test_result, to compare with", default=""),
        flag("--compare_all", "compares all tensors of the quantised network, not only outputs"),
        option(
            "--tolerance",
            "least similarity with the reference; by default 0.90,0.80 for INT8, 0.99,0.90 for "
            "F16 and BF16",
            default="",
        ),
        option(
            "--correctness",
            "the same between the file and the quantised network; 0.99,0.90 by default",
            default="",
        ),
        option("--excepts", "tensors that are not compared", default="-"),
        flag("--skip_validation", "compares nothing"),
        flag("--cache_skip", "ignored: nothing is cached"),
        flag("--fazzy_match", "ignored: tensors are compared by name"),
        flag("--cuda", "ignored: files run in Intaglio's simulator"),
        flag("--fuse_preprocess", "the file takes pixels; mean and scale become part of it"),
        option(
            "--customization_format",
            "pixels of the file's input; RGB_ or BGR_, PLANAR or PACKED, or GRAYSCALE",
            upper,
            default="",
            choices=FORMATS,
        ),
        flag("--aligned_input", "refused: rows of the input have no padding; leave it out"),
        option("--num_device", "refused: a file is for one device; leave it out", int, default=1),
        option("--num_core", "cores of bm1688 and bm1690 that share the work", int, default=1),
        option(
            "--group_by_cores", TILING, lower, default="auto", choices=("auto", "true", "false")
        ),
        flag(
            "--dynamic",
            "refused: shapes are fixed; leave it out, and join a file for each shape by "
            "model_tool --combine",
        ),
        option("--opt", TILING, int, default=2, choices=(1, 2, 3)),
        option("--layer_group_config", TILING, default=""),
        option("--shape_secs_search_strategy", TILING, int, default=0, choices=(0, 1, 2)),
        flag("--disable_structure_detect_opt", TILING),
        option(
            "--addr_mode", "ignored: Intaglio plans memory in its own way", lower, default="auto"
        ),
        option("--same_addr", "refused: leave it out", default=""),
        flag("--not_gen_bmodel", "compares the quantised network, writes no file"),
        flag("--use_rewriter_config", VENDOR),
        flag("--disable_topo_sort", VENDOR),
        flag("--enable_lghash", VENDOR),
        option("--lghash_dir", VENDOR, default=""),
        flag("--rvti", VENDOR),
        flag("--disable_affine", VENDOR),
        flag("--debug", "ignored: no intermediate files are made"),
        option("--log_level", "1 prints less", int, default=0, choices=(0, 1)),
        flag("--disable_layer_group", TILING),
        flag("--disable_gdma_check", VENDOR),
        option("--trunc_final", "refused: end the network by --output_names", nargs="*"),
        option("--lg_debugger", VENDOR, int, default=0, choices=(0, 1, 2, 3)),
        flag("--op_divide", TILING),
        flag("--merge_weight", "ignored: every file brings its own weights"),
        option("--model_version", "ignored: the newest version is written", default="latest"),
        option("--iomem_set", VENDOR, default=""),
        flag("--do_winograd", TILING),
        flag("--includeWeight", VENDOR),
        option(
            "--compress_mode", "ignored: weights are stored as the TPU reads them", default="none"
        ),
        flag("--matmul_perchannel", "ignored: weights always have a scale for each channel"),
        flag("--opt_post_processor", VENDOR),
        flag("--weight_deduplicate", VENDOR),
        option("--patterns_count", "ignored: it counts rules of the vendor's compiler"),
        option("--gelu_mode", "ignored: tables hold the exact function", lower, default="normal"),
        option("--time_fixed_subnet", TILING, lower, choices=("normal", "limit", "custom")),
        option("--subnet_params", TILING),
        flag("--io_alone", "ignored: Intaglio plans memory in its own way"),
        flag("--enable_maskrcnn", "refused: split the network by --output_names"),
        option("--global_op_types", TILING, default=""),
        option("--debug_cmd", "ignored: it is for the vendor's developers", default=""),
    ),
)
