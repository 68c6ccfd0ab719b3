"""A custom operator in Python: cstSoftmax."""

import cv2
import numpy as np
from rknn.api import RKNN
from rknn.api.custom_op import get_node_attr


class cstSoftmax:  # noqa: N801
    op_type = "cstSoftmax"

    def shape_infer(self, node, in_shapes, in_dtypes):
        out_shapes = in_shapes.copy()
        out_dtypes = in_dtypes.copy()
        return out_shapes, out_dtypes

    def compute(self, node, inputs):
        x = inputs[0]
        axis = get_node_attr(node, "axis")
        x_max = np.max(x, axis=axis, keepdims=True)
        tmp = np.exp(x - x_max)
        s = np.sum(tmp, axis=axis, keepdims=True)
        outputs = [tmp / s]
        return outputs


rknn = RKNN()
rknn.config(
    mean_values=[103.94, 116.78, 123.68],
    std_values=[58.82, 58.82, 58.82],
    quant_img_RGB2BGR=True,
    target_platform="rk3566",
)
print("--> Register cstSoftmax op")
ret = rknn.reg_custom_op(cstSoftmax())
if ret != 0:
    print("Register cstSoftmax op failed!")
    exit(ret)
ret = rknn.load_onnx(model="custom.onnx")
if ret != 0:
    exit(ret)
ret = rknn.build(do_quantization=True, dataset="./dataset.txt")
if ret != 0:
    exit(ret)
rknn.init_runtime()
img = cv2.imread("images/0.png")
outputs = rknn.inference(inputs=[np.expand_dims(img, 0)])
print(f"sum of probabilities: {outputs[0].sum():.3f}")
rknn.release()
