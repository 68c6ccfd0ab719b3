"""Two inputs, calibrated with pairs of arrays."""

import numpy as np
from rknn.api import RKNN

rknn = RKNN()
rknn.config(mean_values=[[0] * 4, [0] * 4], std_values=[[1] * 4, [1] * 4], target_platform="rk3562")
ret = rknn.load_onnx(model="pair.onnx", inputs=["a", "b"], input_size_list=[[1, 4, 8, 8]] * 2)
if ret != 0:
    exit(ret)
ret = rknn.build(do_quantization=True, dataset="pairs.txt")
if ret != 0:
    exit(ret)
rknn.init_runtime()
a, b = np.load("arrays/a0.npy"), np.load("arrays/b0.npy")
outputs = rknn.inference(inputs=[a, b], data_format=["nchw", "nchw"])
print([o.shape for o in outputs])
rknn.release()
