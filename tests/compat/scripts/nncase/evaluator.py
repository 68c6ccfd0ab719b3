"""The evaluator beside the simulator, as nncase's own tests use them."""

from pathlib import Path

import nncase
import numpy as np

options = nncase.CompileOptions()
for name, value in {
    "target": "cpu",
    "preprocess": False,
    "input_file": "",
    "dump_asm": True,
}.items():
    exec(f"options.{name} = {value!r}")
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("yolo.onnx").read_bytes(), nncase.ImportOptions())
x = np.random.default_rng(9).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
evaluator = compiler.create_evaluator(3)
evaluator.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
evaluator.run()
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
nncase.RuntimeTensor.from_numpy(x).copy_to(sim.get_input_tensor(0))
sim.run()
errors = [
    np.abs(evaluator.get_output_tensor(i).to_numpy() - sim.get_output_tensor(i).to_numpy()).max()
    for i in range(evaluator.outputs_size)
]
print("same", all(e < 1e-4 for e in errors), len(errors))
