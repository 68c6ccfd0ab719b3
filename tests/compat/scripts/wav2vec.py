"""Speech: a model without pictures, float16, then int8 from arrays."""

import numpy as np
from rknn.api import RKNN

for quantize in (False, True):
    rknn = RKNN()
    rknn.config(target_platform="rk3576")
    ret = rknn.load_onnx(model="wav2vec.onnx")
    if ret != 0:
        exit(ret)
    ret = rknn.build(do_quantization=quantize, dataset="speech.txt")
    if ret != 0:
        exit(ret)
    ret = rknn.init_runtime()
    if ret != 0:
        exit(ret)
    logits = rknn.inference(inputs=[np.load("arrays/s1.npy")])[0]
    print("quantised" if quantize else "float", logits.shape, logits[0].argmax(-1).tolist())
    rknn.release()
