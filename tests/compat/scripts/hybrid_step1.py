"""Hybrid quantisation, step 1: write the files that the user edits."""

from rknn.api import RKNN

rknn = RKNN()
rknn.config(
    mean_values=[[127.5] * 3],
    std_values=[[127.5] * 3],
    target_platform="rk3588",
    quantized_algorithm="normal",
    quantized_method="channel",
)
if rknn.load_onnx(model="./mobilenet.onnx") != 0:
    exit(1)
print("--> hybrid_quantization_step1")
ret = rknn.hybrid_quantization_step1(dataset="./dataset.txt", proposal=False)
if ret != 0:
    print("hybrid_quantization_step1 failed!")
    exit(ret)
print("done")
rknn.release()
