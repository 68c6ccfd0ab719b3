"""Compile, simulate and compare with onnxruntime; `dump_dir` is made by the compiler."""

import os
from pathlib import Path

import nncase
import numpy as np
import onnxruntime
from nncase_base_func import *  # noqa: F403

os.environ["PATH"] += os.pathsep + os.path.dirname(nncase.__file__)
os.environ["NNCASE_PLUGIN_PATH"] = "/nowhere"
rng = np.random.default_rng(11)
calib = [[rng.random((1, 3, 16, 16)).astype(np.float32) for _ in range(4)]]
options = nncase.CompileOptions()
options.target = "k230"
options.dump_dir = "./tmp_onnx"
options.input_file = ""
options.preprocess = False
ptq = nncase.PTQTensorOptions()
ptq.quant_type = "uint8"
ptq.w_quant_type = "uint8"
ptq.calibrate_method = "NoClip"
ptq.finetune_weights_method = "NoFineTuneWeights"
ptq.dump_quant_error = False
ptq.dump_quant_error_symmetric_for_signed = False
ptq.quant_scheme = ""
ptq.samples_count = len(calib[0])
ptq.set_tensor_data(calib)
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("mobilenet.onnx").read_bytes(), nncase.ImportOptions())
compiler.use_ptq(ptq)
compiler.compile()
path = os.path.join("./tmp_onnx", "test.kmodel")
with open(path, "wb") as f:
    f.write(compiler.gencode_tobytes())
results = run_kmodel(path, [calib[0][0]])  # noqa: F405
session = onnxruntime.InferenceSession("mobilenet.onnx")
expected = session.run(None, {"x": calib[0][0]})
print("cosine", get_cosine(results[0], expected[0]) > 0.99)  # noqa: F405
