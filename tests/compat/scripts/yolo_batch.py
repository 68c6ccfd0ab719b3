"""A detector for batches of two, in hybrid int8 by proposal, run by the lite runtime."""

import numpy as np
from rknn.api import RKNN
from rknnlite.api import RKNNLite

BATCH = 2
rknn = RKNN()
rknn.config(mean_values=[[0, 0, 0]], std_values=[[255, 255, 255]], target_platform="rk3588")
if rknn.load_onnx(model="./yolo.onnx") != 0:
    exit(-1)
if rknn.hybrid_quantization_step1(dataset="./dataset.txt", proposal=True) != 0:
    exit(-1)
files = ["./yolo.model", "./yolo.data", "./yolo.quantization.cfg"]
rknn.release()

rknn = RKNN()
ret = rknn.hybrid_quantization_step2(
    model_input=files[0], data_input=files[1], model_quantization_cfg=files[2]
)
if ret != 0 or rknn.export_rknn("./hybrid.rknn") != 0:
    exit(-1)
rknn.release()

rknn = RKNN()
rknn.config(mean_values=[[0, 0, 0]], std_values=[[255, 255, 255]], target_platform="rk3588")
rknn.load_onnx(model="./yolo.onnx")
ret = rknn.build(do_quantization=True, dataset="./dataset.txt", rknn_batch_size=BATCH)
if ret != 0 or rknn.export_rknn("./batch.rknn") != 0:
    exit(-1)
rknn.release()

images = np.random.default_rng(0).integers(0, 256, (BATCH, 16, 16, 3), np.uint8)
results = []
for path, batch in (("./hybrid.rknn", images[:1]), ("./batch.rknn", images)):
    lite = RKNNLite()
    if lite.load_rknn(path) != 0:
        exit(-1)
    if lite.init_runtime(core_mask=RKNNLite.NPU_CORE_0) != 0:
        exit(-1)
    results.append(lite.inference(inputs=[batch]))
    lite.release()
print("hybrid", [o.shape for o in results[0]])
print("batch", [o.shape for o in results[1]])
a, b = results[0][0][0], results[1][0][0]
print("agree", bool(np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.98))
