"""Conversion by arguments, as in the examples of the model zoo: MODEL PLATFORM [DTYPE] [OUT]."""

import sys

from rknn.api import RKNN

DATASET_PATH = "./dataset.txt"
DEFAULT_RKNN_PATH = "./model.rknn"
DEFAULT_QUANT = True


def parse_arg():
    if len(sys.argv) < 3:
        print(f"Usage: python3 {sys.argv[0]} onnx_model_path [platform] [dtype] [output]")
        exit(1)
    model_path = sys.argv[1]
    platform = sys.argv[2]
    do_quant = DEFAULT_QUANT
    if len(sys.argv) > 3:
        model_type = sys.argv[3]
        if model_type not in ["i8", "u8", "fp"]:
            print(f"ERROR: Invalid model type: {model_type}")
            exit(1)
        do_quant = model_type in ["i8", "u8"]
    output_path = sys.argv[4] if len(sys.argv) > 4 else DEFAULT_RKNN_PATH
    return model_path, platform, do_quant, output_path


if __name__ == "__main__":
    model_path, platform, do_quant, output_path = parse_arg()
    rknn = RKNN(verbose=False)
    print("--> Config model")
    rknn.config(mean_values=[[0, 0, 0]], std_values=[[255, 255, 255]], target_platform=platform)
    print("done")
    print("--> Loading model")
    ret = rknn.load_onnx(model=model_path)
    if ret != 0:
        print("Load model failed!")
        exit(ret)
    print("done")
    print("--> Building model")
    ret = rknn.build(do_quantization=do_quant, dataset=DATASET_PATH)
    if ret != 0:
        print("Build model failed!")
        exit(ret)
    print("done")
    print("--> Export rknn model")
    ret = rknn.export_rknn(output_path)
    if ret != 0:
        print("Export rknn model failed!")
        exit(ret)
    print("done")
    rknn.release()
