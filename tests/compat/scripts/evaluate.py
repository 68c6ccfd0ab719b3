"""Speed and memory of every layer, then a C project."""

from rknn.api import RKNN

platform = "rk3588"
rknn = RKNN()
rknn.config(std_values=[[255] * 3], target_platform=platform)
ret = rknn.load_onnx(model="yolo.onnx")
if ret != 0:
    exit(ret)
ret = rknn.build(do_quantization=True, dataset="dataset.txt", rknn_batch_size=1)
if ret != 0:
    exit(ret)
ret = rknn.export_rknn("yolo.rknn")
ret = rknn.init_runtime(target=platform, perf_debug=True, eval_mem=True)
if ret != 0:
    exit(ret)
perf_detail = rknn.eval_perf()
memory_detail = rknn.eval_memory()
print("total", memory_detail["total_memory"])
ret = rknn.codegen(output_path="./rknn_app_demo", inputs=["images/0.png"], overwrite=True)
if ret != 0:
    exit(ret)
rknn.release()
