"""A YOLO-like network for the K210 with the API of nncase 1.x; samples are bytes."""

import sys
from pathlib import Path

import nncase
import numpy as np

kmodel, method = sys.argv[1:3]
assert nncase.test_target("k210")
assert not nncase.test_target("k999")
options = nncase.CompileOptions()
options.preprocess = True
options.swapRB = False
options.input_range = [0, 1]
options.mean = [0.5, 0.5, 0.5]
options.std = [0.25, 0.25, 0.25]
options.target = "k210"
options.input_type = "uint8"
options.input_layout = "NCHW"
options.input_shape = [1, 3, 16, 16]
options.quant_type = "uint8"
compiler = nncase.Compiler(options)
with open("plain.onnx", "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())
pictures = np.random.default_rng(8).integers(0, 256, (5, 3, 16, 16)).astype(np.uint8)
ptq = nncase.PTQTensorOptions()
ptq.calibrate_method = method
ptq.samples_count, data = len(pictures), pictures.tobytes()
ptq.set_tensor_data(data)
compiler.use_ptq(ptq)
compiler.compile()
with open(kmodel, "wb") as f:
    f.write(compiler.gencode_tobytes())

sim = nncase.Simulator()
with open(kmodel, "rb") as f:
    sim.load_model(f.read())
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(np.expand_dims(pictures[0], 0)))
sim.run()
np.savez("k210.npz", x=pictures[:1], y=sim.get_output_tensor(0).to_numpy())
print(Path(kmodel).read_bytes()[:4], sim.get_output_tensor(0).shape)
