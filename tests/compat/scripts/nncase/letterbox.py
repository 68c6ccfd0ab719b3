"""Pictures of another size than the model's: letterbox, swap of channels and normalisation."""

import nncase
import numpy as np

options = nncase.CompileOptions()
options.target = "k230"
options.preprocess = True
options.input_type = "uint8"
options.input_shape = [1, 12, 32, 3]
options.input_range = [0, 1]
options.input_layout = "NHWC"
options.swapRB = True
options.mean = [0.485, 0.456, 0.406]
options.std = [0.229, 0.224, 0.225]
options.letterbox_value = 0.5
options.output_layout = "NCHW"
compiler = nncase.Compiler(options)
with open("mobilenet.onnx", "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
picture = np.random.default_rng(2).integers(0, 256, (1, 12, 32, 3)).astype(np.uint8)
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(picture))
sim.run()
np.save("picture.npy", picture)
np.save("letterbox.npy", sim.get_output_tensor(0).to_numpy())
print(sim.get_input_shape(0), sim.get_output_shape(0))
