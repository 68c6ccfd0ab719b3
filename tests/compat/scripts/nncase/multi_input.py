"""A model with two inputs: a list of samples for each."""

from pathlib import Path

import nncase
import numpy as np

rng = np.random.default_rng(4)
calib = [[rng.normal(0, s, (1, 4, 8, 8)).astype(np.float32) for _ in range(3)] for s in (1, 4)]
options = nncase.CompileOptions()
options.target = "k230"
ptq = nncase.PTQTensorOptions()
ptq.calibrate_method = "NoClip"
ptq.samples_count = len(calib[0])
ptq.set_tensor_data(calib)
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("pair.onnx").read_bytes(), nncase.ImportOptions())
compiler.use_ptq(ptq)
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
for i in range(sim.inputs_size):
    sim.set_input_tensor(i, nncase.RuntimeTensor.from_numpy(calib[i][0]))
sim.run()
np.save("pair_out.npy", sim.get_output_tensor(0).to_numpy())
np.save("pair_in.npy", np.stack([calib[0][0], calib[1][0]]))
print(sim.inputs_size, sim.outputs_size)
