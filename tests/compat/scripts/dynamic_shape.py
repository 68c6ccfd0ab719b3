"""Several input shapes in one model."""

import numpy as np
from rknn.api import RKNN

dynamic_input = [
    [[1, 3, 16, 16]],  # set the first shape for all inputs
    [[1, 3, 12, 12]],
    [[1, 3, 8, 8]],
]
rknn = RKNN()
rknn.config(
    mean_values=[103.94, 116.78, 123.68],
    std_values=[58.82, 58.82, 58.82],
    quant_img_RGB2BGR=True,
    dynamic_input=dynamic_input,
    target_platform="rk3588",
)
ret = rknn.load_onnx(model="./dynamic.onnx")
if ret != 0:
    exit(ret)
ret = rknn.build(do_quantization=True, dataset="./dataset.txt")
if ret != 0:
    exit(ret)
ret = rknn.export_rknn("./dynamic.rknn")
if ret != 0:
    exit(ret)
rknn.init_runtime()
for side in (16, 12, 8):
    img = np.full((1, side, side, 3), 100, np.uint8)
    print(side, rknn.inference(inputs=[img], data_format=["nhwc"])[0].shape)
rknn.release()
