"""The options of model_transform, with the picture options that it shares with other tools."""

from __future__ import annotations

from intaglio.compat.tpu_mlir.option_table import (
    Command,
    flag,
    integers,
    listed,
    lower,
    numbers,
    option,
    shapes,
    truth,
    upper,
    words,
)

YUV_TYPES = ("", "YUV420_PLANAR", "YUV_NV21", "YUV_NV12")
PIXEL_FORMATS = ("rgb", "bgr", "gray", "rgba", "gbrg", "grbg", "bggr", "rggb")
POSTPROCESSES = (
    *("", "yolov3", "yolov5", "yolov7", "yolov8", "yolov8_seg", "yolov11", "yolov11_seg"),
    *("yolov26", "ssd", "bnr", "mmap2rgbmap"),
)

PICTURES = (
    option("--resize_dims", "size h,w that pictures get before the crop to the input", integers),
    flag("--keep_aspect_ratio", "resizes without distortion"),
    option(
        "--keep_ratio_mode",
        "letterbox pads, short_side_scale crops",
        default="letterbox",
        choices=("letterbox", "short_side_scale"),
    ),
    option(
        "--mean",
        "subtracted per channel, in the order of --pixel_format",
        numbers,
        default=[0.0, 0.0, 0.0],
        nargs="?",
    ),
    option("--scale", "multiplied per channel, after --mean", numbers, default=[1.0, 1.0, 1.0]),
    option(
        "--pixel_format",
        "channels of the model's input; rgb, bgr, gray or rgba",
        default="bgr",
        choices=PIXEL_FORMATS,
    ),
    option(
        "--channel_format",
        "layout of the model's input; none: it is no picture",
        default="nchw",
        choices=("nhwc", "nchw", "none"),
    ),
    option("--pad_value", "value of padded pixels", int, default=0),
    option(
        "--pad_type",
        "center: the picture is in the middle; normal: top left",
        default="center",
        choices=("normal", "center"),
    ),
    option("--preprocess_list", "the inputs that take pictures, from 1: 1,3", words, default=[]),
    option("--debug_cmd", "ignored: it is for the vendor's developers", default=""),
)

TRANSFORM = Command(
    "model_transform",
    "Reads a model file and writes an .mlir file, which the other tools read.",
    (
        option("--model_name", "the name of the network", required=True),
        option(
            "--model_def",
            "ONNX, TFLite, TorchScript (.pt), Caffe (.prototxt), Darknet or TensorFlow file",
            required=True,
        ),
        option("--model_extern", "refused: join the files into one model first", words),
        option("--model_data", "the file with the weights of a Caffe or Darknet model"),
        option("--input_shapes", "shapes in the order of the inputs", shapes, default=[]),
        option("--input_types", "types of the inputs in order, of .pt files", listed, default=[]),
        option("--output_names", "tensors that become the outputs", words, default=[]),
        option(
            "--test_input", "a picture, .npy or .npz: runs the network on it", words, default=[]
        ),
        option("--test_result", "the .npz that receives all tensors of that run", default=""),
        flag("--cache_skip", "ignored: nothing is cached"),
        option(
            "--tolerance",
            "least cosine and Euclidean similarity with the unoptimised network",
            default="0.99,0.99",
        ),
        option("--excepts", "tensors that are not compared", default="-"),
        option(
            "--add_postprocess",
            "yolov3, yolov5, yolov8 or yolov11: boxes in the output yolo_post; only of packages, "
            "--model NAME.itg",
            lower,
            default="",
            choices=POSTPROCESSES,
        ),
        option("--pruning", "refused: prune the model before its conversion", default=""),
        option("--onnx_sim", "ignored: Intaglio has its own optimiser", default=""),
        option("--do_onnx_sim", "ignored: Intaglio has its own optimiser", truth, default=True),
        flag("--debug", "ignored: no intermediate files are made"),
        option("--mlir", "the file to write", required=True),
        option("--patterns_count", "ignored: it counts rules of the vendor's compiler"),
        option(
            "--dynamic_shape_input_names",
            "refused: shapes are fixed; give --input_shapes",
            words,
            default=[],
        ),
        option(
            "--shape_influencing_input_names",
            "refused: shapes are fixed; give --input_shapes",
            words,
            default=[],
        ),
        flag("--dynamic", "refused: shapes are fixed; give --input_shapes and leave it out"),
        option("--path_yaml", "refused: give its settings as options"),
        flag("--not_inference", "writes the file and does not run the network"),
        option("--op_custom_shape", "ignored: shapes follow from --input_shapes", default=""),
        flag("--enable_maskrcnn", "refused: split the network by --output_names"),
        option(
            "--replace_topk_indices", "ignored: TopK gives its own indices", truth, default=False
        ),
        option(
            "--yuv_type",
            "refused: convert the file to .png first",
            upper,
            default="",
            choices=YUV_TYPES,
        ),
        flag("--use_rewriter_config", "ignored: it is for the vendor's compiler"),
        option("--struct_optimize", "ignored: it is for the vendor's compiler", int, default=0),
        option("--log_level", "1 prints less", int, default=0, choices=(0, 1)),
        *PICTURES,
    ),
)
