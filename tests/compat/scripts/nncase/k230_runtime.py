"""The runtimes of the K230: nncaseruntime's Interpreter, and the module of CanMV's firmware."""

from pathlib import Path

import _nncase
import nncase
import nncase_runtime as nn
import nncaseruntime
import numpy as np

options = nncase.CompileOptions()
options.target = "k230"
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("mobilenet.onnx").read_bytes(), nncase.ImportOptions())
compiler.compile()
with open("runtime.kmodel", "wb") as f:
    compiler.gencode(f)
x = np.random.default_rng(10).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)

interp = nncaseruntime.Interpreter()
interp.load_model(Path("runtime.kmodel").read_bytes())
interp.set_input_tensor(0, nncaseruntime.RuntimeTensor.from_numpy(x))
interp.run()
kpu = nn.kpu()
kpu.load_kmodel("runtime.kmodel")
kpu.set_input_tensor(0, nn.from_numpy(x))
kpu.run()
a = interp.get_output_tensor(0).to_numpy()
outputs = [kpu.get_output_tensor(i).to_numpy() for i in range(kpu.outputs_size())]
print(_nncase.__version__.split(".")[0], np.array_equal(a, outputs[0]), kpu.inputs_desc(0).size)
