"""TFLite: float16 build and a run with a picture."""

import cv2
import numpy as np
from rknn.api import RKNN

rknn = RKNN()
rknn.config(mean_values=[128, 128, 128], std_values=[128, 128, 128], target_platform="rk3588")
if rknn.load_tflite(model="model.tflite") != 0:
    exit(1)
if rknn.build(do_quantization=False) != 0:
    exit(2)
if rknn.export_rknn("./mobilenet_v1.rknn") != 0:
    exit(3)
if rknn.init_runtime() != 0:
    exit(4)
img = cv2.cvtColor(cv2.imread("images/0.png"), cv2.COLOR_BGR2RGB)
outputs = rknn.inference(inputs=[np.expand_dims(img, 0)])
print("max", outputs[0].max(), "min", outputs[0].min(), outputs[0].shape)
assert abs(outputs[0].max() - 127 / 128) < 0.01
rknn.release()
