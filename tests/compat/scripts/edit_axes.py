"""onnx_edit: other axes of an input and an output, then a conversion with the new dataset."""

from rknn.api import RKNN
from rknn.utils import onnx_edit

ret = onnx_edit(
    model="./pair.onnx",
    export_path="./pair_edited.onnx",
    inputs_transform={"a": "a,b,c,d->1,ad,b,c"},
    outputs_transform={"y": "a,b,c,d->a,c,d,b"},
    dataset="./pairs.txt",
)
if ret != 0:
    exit(ret)
rknn = RKNN()
rknn.config(target_platform="rk3588")
ret = rknn.load_onnx(model="./pair_edited.onnx")
if ret != 0:
    exit(ret)
ret = rknn.build(do_quantization=True, dataset="./dataset_for_pair_edited.txt")
if ret != 0:
    exit(ret)
print("edited and built")
rknn.release()
