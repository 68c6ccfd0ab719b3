"""A TFLite model with uint8 pictures, quantised; samples are bytes, as in nncase 1.x."""

import nncase
import numpy as np

rng = np.random.default_rng(0)
options = nncase.CompileOptions()
options.target = "k510"
options.input_type = "uint8"
options.preprocess = True
options.swapRB = True
options.input_shape = [1, 16, 16, 3]
options.input_layout = "NHWC"
options.output_layout = "NHWC"
options.model_layout = ""
options.mean = [0, 0, 0]
options.std = [1, 1, 1]
options.input_range = [0, 1]
options.letterbox_value = 114.0
compiler = nncase.Compiler(options)
with open("model.tflite", "rb") as f:
    compiler.import_tflite(f.read(), nncase.ImportOptions())
data = rng.integers(0, 256, (6, 1, 16, 16, 3)).astype(np.uint8)
ptq = nncase.PTQTensorOptions()
ptq.samples_count = 6
ptq.set_tensor_data(np.asarray(data).tobytes())
compiler.use_ptq(ptq)
compiler.compile()

sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(data[0]))
sim.run()
np.save("pixels.npy", data[0])
np.save("outputs.npy", sim.get_output_tensor(0).to_numpy())
print(sim.get_input_desc(0).dtype, sim.get_output_tensor(0).shape)
