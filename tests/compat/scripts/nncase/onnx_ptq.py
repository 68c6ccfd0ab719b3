"""An ONNX classifier, quantised: target, types and calibration method are arguments."""

import sys

import nncase
import numpy as np

target, quant_type, w_quant_type, method, finetune = sys.argv[1:6]
rng = np.random.default_rng(1)
options = nncase.CompileOptions()
options.target = target
options.dump_asm = False
compiler = nncase.Compiler(options)
with open("mobilenet.onnx", "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())
data = [[rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for _ in range(6)]]
ptq = nncase.PTQTensorOptions()
ptq.quant_type = quant_type
ptq.w_quant_type = w_quant_type
ptq.calibrate_method = method
ptq.finetune_weights_method = finetune
ptq.samples_count = len(data[0])
ptq.set_tensor_data(data)
compiler.use_ptq(ptq)
compiler.compile()

sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
for i in range(sim.inputs_size):
    sim.set_input_tensor(i, nncase.RuntimeTensor.from_numpy(data[i][0]))
sim.run()
np.save("x.npy", data[0][0])
np.save("y.npy", sim.get_output_tensor(0).to_numpy())
print("done", quant_type, w_quant_type, method)
