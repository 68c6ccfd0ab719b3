"""Everything that nncase can write beside the kmodel."""

import os
from pathlib import Path

import nncase
import numpy as np

options = nncase.CompileOptions()
options.target = "k230"
options.dump_ir = True
options.dump_asm = True
options.dump_dir = os.path.join("out", "dump")
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("mobilenet.onnx").read_bytes(), nncase.ImportOptions())
ptq = nncase.PTQTensorOptions()
ptq.dump_quant_error = True
ptq.export_quant_scheme = True
ptq.samples_count = 2
rng = np.random.default_rng(7)
ptq.set_tensor_data([[rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for _ in range(2)]])
compiler.use_ptq(ptq)
compiler.compile()
with open(os.path.join("out", "dump", "test.kmodel"), "wb") as f:
    compiler.gencode(f)
compiler.dump("again")
print(sorted(os.listdir("out/dump")), sorted(os.listdir("again")))
