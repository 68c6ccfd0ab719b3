"""Caffe, TensorFlow, PyTorch and Darknet, one after the other with one object each."""

import numpy as np
from rknn.api import RKNN

LOADS = {
    "caffe": lambda r: r.load_caffe(model="./model.prototxt", blobs="./model.caffemodel"),
    "tensorflow": lambda r: r.load_tensorflow(
        tf_pb="./model.pb", inputs=["image"], outputs=["probs"], input_size_list=[[1, 16, 16, 3]]
    ),
    "pytorch": lambda r: r.load_pytorch(model="./model.pt", input_size_list=[[1, 3, 16, 16]]),
    "darknet": lambda r: r.load_darknet(model="./model.cfg", weight="./model.weights"),
}
for name, load in LOADS.items():
    rknn = RKNN()
    rknn.config(target_platform="rk3588")
    ret = load(rknn)
    if ret != 0:
        print(f"Load {name} model failed!")
        exit(ret)
    ret = rknn.build(do_quantization=True, dataset="./dataset.txt")
    if ret != 0:
        print(f"Build {name} model failed!")
        exit(ret)
    rknn.init_runtime()
    outputs = rknn.inference(inputs=[np.zeros((1, 16, 16, 3), np.uint8)])
    print(name, [o.shape for o in outputs])
    rknn.release()
