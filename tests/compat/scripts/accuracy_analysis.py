"""Accuracy analysis of every layer, on the simulator."""

from rknn.api import RKNN

rknn = RKNN(verbose=False)
rknn.config(
    mean_values=[[127.5] * 3],
    std_values=[[127.5] * 3],
    quantized_algorithm="mmse",
    quantized_method="channel",
    target_platform="rk3588",
)
ret = rknn.load_onnx(model="./mobilenet.onnx")
ret = ret or rknn.build(do_quantization=True, dataset="./dataset.txt")
if ret != 0:
    exit(ret)
print("--> Accuracy analysis")
ret = rknn.accuracy_analysis(inputs=["./images/0.png"], output_dir="./snapshot")
if ret != 0:
    print("Accuracy analysis failed!")
    exit(ret)
print("done")
with open("./snapshot/error_analysis.txt") as file:
    print(sum(line.startswith("[") for line in file), "layers")
rknn.release()
