"""Hybrid quantisation, step 2: build, compare, export and run, from the files alone."""

import cv2
import numpy as np
from rknn.api import RKNN

rknn = RKNN()
print("--> hybrid_quantization_step2")
ret = rknn.hybrid_quantization_step2(
    model_input="./mobilenet.model",
    data_input="./mobilenet.data",
    model_quantization_cfg="./mobilenet.quantization.cfg",
)
if ret != 0:
    print("hybrid_quantization_step2 failed!")
    exit(ret)
ret = rknn.export_rknn("./mobilenet_hybrid.rknn")
if ret != 0:
    exit(ret)
ret = rknn.accuracy_analysis(inputs=["./images/0.png"], output_dir=None)
if ret != 0:
    exit(ret)
rknn.init_runtime()
img = cv2.cvtColor(cv2.imread("./images/0.png"), cv2.COLOR_BGR2RGB)
print(rknn.inference(inputs=[np.expand_dims(img, 0)])[0])
rknn.release()
