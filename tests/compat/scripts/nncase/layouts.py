"""Layouts as permutations: an input and an output with three axes."""

import nncase
import numpy as np

options = nncase.CompileOptions()
options.target = "cpu"
options.preprocess = True
options.input_type = "float32"
options.input_shape = [1, 6, 20]
options.input_layout = "0, 2, 1"
options.output_layout = "0,2,1"
options.mean = [0.5]
options.std = [2.0]
compiler = nncase.Compiler(options)
with open("wav2vec.onnx", "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
x = np.random.default_rng(3).normal(0, 1, (1, 6, 20)).astype(np.float32)
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
sim.run()
np.save("speech_in.npy", x)
np.save("speech_out.npy", sim.get_output_tensor(0).to_numpy())
print(sim.get_output_tensor(0).shape)
