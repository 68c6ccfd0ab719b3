"""Everything in the wrong order and with wrong arguments: nothing is raised."""

from rknn.api import RKNN

rknn = RKNN()
print(rknn.load_onnx(model="mobilenet.onnx"))
print(rknn.config(target_platform="rk3599"))
print(rknn.config(target_platfrom="rk3588"))
print(rknn.config(target_platform="rk3588"))
print(rknn.build(do_quantization=True, dataset="dataset.txt"))
print(rknn.export_rknn("x.rknn"))
print(rknn.load_onnx(model="missing.onnx"))
print(rknn.load_onnx(model="mobilenet.onnx"))
print(rknn.build(do_quantization=True, dataset="missing.txt"))
print(rknn.inference(inputs=[None]))
print(rknn.init_runtime(target="rk3588"))
print(rknn.eval_perf())
rknn.release()
rknn.release()
