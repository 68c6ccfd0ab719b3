"""Preprocessing with the API of nncase 1.x: options as JSON, one run of the simulator."""

import json
import sys

import nncase
import numpy as np

model, picture, result, target, given = sys.argv[1:6]
options = nncase.CompileOptions()
options.target = target
options.preprocess = True
for name, value in json.loads(given).items():
    setattr(options, name, value)
compiler = nncase.Compiler(options)
with open(model, "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())
x = np.load(picture)
if target != "cpu":
    ptq = nncase.PTQTensorOptions()
    ptq.calibrate_method = "no_clip"
    ptq.samples_count = 2
    ptq.set_tensor_data(np.concatenate([x, x]).tobytes())
    compiler.use_ptq(ptq)
compiler.compile()
kmodel = compiler.gencode_tobytes()
sim = nncase.Simulator()
sim.load_model(kmodel)
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
sim.run()
np.save(result, sim.get_output_tensor(0).to_numpy())
with open(result + ".kmodel", "wb") as f:
    f.write(kmodel)
print("saved", sim.get_input_desc(0).dtype)
