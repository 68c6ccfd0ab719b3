"""Number plates in int8: accuracy before export, then inference from the exported file."""

import os

import numpy as np
from rknn.api import RKNN

CHARS = [*"0123456789ABCDEFGHJKLMNPQRSTUVWXYZ", "-"]


def decode(preds):
    """Greedy CTC: the best class of each column, without repeats and blanks."""
    text, last = "", None
    for index in preds.argmax(0):
        if index != last and index != len(CHARS) - 1:
            text += CHARS[index]
        last = index
    return text


rknn = RKNN()
print("--> Config model")
rknn.config(
    mean_values=[[127.5, 127.5, 127.5]],
    std_values=[[127.5, 127.5, 127.5]],
    quant_img_RGB2BGR=True,
    quantized_algorithm="mmse",
    target_platform="rk3566",
)
if rknn.load_onnx(model="lprnet.onnx", outputs=["columns"]) != 0:
    exit(-1)
if rknn.build(do_quantization=True, dataset="plates.txt") != 0:
    exit(-1)
if rknn.accuracy_analysis(inputs=["arrays/plate0.npy"], output_dir="./snapshot") != 0:
    exit(-1)
print("report", os.path.exists("./snapshot/error_analysis.txt"))
if rknn.export_rknn("lprnet.rknn") != 0:
    exit(-1)
rknn.release()

runner = RKNN()
if runner.load_rknn("lprnet.rknn") != 0 or runner.init_runtime() != 0:
    exit(-1)
plate = np.load("arrays/plate0.npy")
outputs = runner.inference(inputs=[plate], data_format=["nchw"])
print("plate", outputs[0].shape, len(decode(outputs[0][0])) > 0)
runner.release()
