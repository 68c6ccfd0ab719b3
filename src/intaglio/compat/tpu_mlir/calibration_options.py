"""The options of run_calibration and run_qtable."""

from __future__ import annotations

from intaglio.compat.tpu_mlir.chips import CHIPS
from intaglio.compat.tpu_mlir.option_table import Command, flag, lower, option, words

METHODS = {  # --cali_method -> method of the core
    "kl": "kl",
    "mse": "mse",
    "max": "minmax",
    "percentile9999": "percentile:99.99",
    "aciq_laplace": "mse",
    "aciq_gauss": "mse",
    "use_kl": "kl",
    "use_mse": "mse",
    "use_max": "minmax",
    "use_percentile9999": "percentile:99.99",
}
SEARCHES = ("search_threshold", "search_qtable", "fast_search", "mix_search", "False")
CHIP = option(
    "--chip --processor",
    "the chip that the table is for",
    lower,
    default="bm1684x",
    choices=tuple(CHIPS),
)
SAMPLES = (
    option("--dataset", "a folder of pictures, .npy or .npz files"),
    option("--data_list", "a text file with the files of one sample on each line"),
    option("--input_num", "the number of samples; 0: all", int, default=0),
)
OURS = "ignored: the quantiser of Intaglio decides"
FP_TYPES = ("auto", "F16", "F32", "BF16")

CALIBRATION = Command(
    "run_calibration",
    "Runs a network on samples and writes the ranges of its tensors into a table.",
    (
        option("mlir_file", "the file of model_transform"),
        flag("--we", "ignored: weights are rounded by their own search"),
        flag("--bc", "ignored: biases are always corrected by model_deploy"),
        flag("--sq", OURS),
        flag("--smc", OURS),
        *SAMPLES,
        option(
            "--cali_method",
            "how ranges follow from the values: kl, mse, max or percentile9999",
            default="kl",
            choices=tuple(METHODS),
        ),
        option(
            "--search",
            "search_threshold tries all methods; search_qtable and others also write "
            "--quantize_table",
            default="False",
            choices=SEARCHES,
        ),
        option("--inference_num", OURS, int, default=30),
        option("--bc_inference_num", OURS, int, default=30),
        option("--tune_list", OURS, default=""),
        option("--tune_num", "ignored: ranges are chosen on all samples", int, default=5),
        option("--histogram_bin_num", "ignored: the bins follow the data", int, default=2048),
        option(
            "--expected_cos", "cosine of the outputs that the search keeps", float, default=0.99
        ),
        option("--min_layer_cos", OURS, float, default=0.99),
        option("--max_float_layers", "most layers that the search makes float", int, default=5),
        CHIP,
        option(
            "--fp_type", "type of the float layers of the search", default="auto", choices=FP_TYPES
        ),
        option("--post_process", "ignored: outputs are compared by their cosine"),
        option("--global_compare_layers", "ignored: outputs are compared", default=""),
        option("--quantize_method_list", OURS, words, default=["mse"]),
        option("--benchmark_method", OURS, default="cos", choices=("cos", "snr")),
        flag("--kurtosis_analysis", OURS),
        option(
            "--part_quantize",
            "ignored: all layers are quantised; --quantize_table of model_deploy excludes some",
            choices=("N_mode", "H_mode", "custom_mode"),
        ),
        option("--custom_operator", OURS, words, default=[]),
        flag("--part_asymmetric", OURS),
        option("--mix_mode", OURS, default="wi8ai8_fp"),
        option("--pre_qtable", OURS, default=""),
        flag("--cluster", OURS),
        option("--transformer", OURS, default="False"),  # of the quick start guide
        option("-o --calibration_table", "the table to write", required=True),
        option("--quantize_table", "the table of float layers that a search writes", default=""),
        option("--debug_cmd", "ignored: it is for the vendor's developers", default=""),
        flag("--debug_log", "ignored: the log is short"),
    ),
)

QTABLE = Command(
    "run_qtable",
    "Finds layers that lose accuracy in int8 and writes them into a table of float layers.",
    (
        option("mlir_file", "the file of model_transform"),
        *SAMPLES,
        option("--calibration_table", "the table of run_calibration", required=True),
        CHIP,
        option("--fp_type", "type of the float layers", default="auto", choices=FP_TYPES),
        option("--inference_num", OURS, int, default=30),
        option("--max_float_layers", "most layers that become float", int, default=5),
        option("--tune_list", OURS, default=""),
        option("--tune_num", OURS, int, default=5),
        option("--histogram_bin_num", "ignored: the bins follow the data", int, default=2048),
        option("--post_process", "ignored: outputs are compared by their cosine"),
        option("--expected_cos", "cosine of the outputs that is wanted", float, default=0.99),
        option("--min_layer_cos", OURS, float, default=0.99),
        option("--loss_table", "the list of all layers and their cosines", default=""),
        option("--global_compare_layers", "ignored: outputs are compared", default=""),
        option("-o --quantize_table", "the table to write", required=True),
        option("--debug_cmd", "ignored: it is for the vendor's developers", default=""),
    ),
)
