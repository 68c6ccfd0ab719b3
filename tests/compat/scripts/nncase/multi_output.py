"""Several outputs, their descriptions, and tensors of the user's own."""

from pathlib import Path

import nncase
import numpy as np

options = nncase.CompileOptions()
options.target = "cpu"
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("yolo.onnx").read_bytes(), nncase.ImportOptions())
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
sim.set_profiling(0)
tensor = nncase.RuntimeTensor.from_numpy(np.full((1, 3, 16, 16), 0.5, np.float32))
tensor.copy_to(sim.get_input_tensor(0))
mine = nncase.RuntimeTensor.from_numpy(np.zeros((1, 18, 4, 4), np.float32))
sim.set_output_tensor(1, mine)
sim.run()
for i in range(sim.outputs_size):
    desc = sim.get_output_desc(i)
    print(desc.dtype, desc.start, desc.size, sim.get_output_tensor(i).shape)
print("own tensor", bool(np.abs(mine.to_numpy()).max() > 0), sim.get_input_desc(0).size)
