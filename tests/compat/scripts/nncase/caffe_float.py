"""A Caffe model in floats."""

import nncase
import numpy as np

options = nncase.CompileOptions()
options.target = "cpu"
compiler = nncase.Compiler(options)
with open("model.caffemodel", "rb") as f, open("model.prototxt", "rb") as g:
    compiler.import_caffe(f.read(), g.read())
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
x = np.ones((1, 3, 16, 16), np.float32)
sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
sim.run()
print([round(float(v), 3) for v in sim.get_output_tensor(0).to_numpy()[0, :, 0, 0]])
