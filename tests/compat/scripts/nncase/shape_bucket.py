"""A model with open dimensions, compiled for a range of lengths."""

import sys
from pathlib import Path

import nncase
import numpy as np

rng = np.random.default_rng(6)
options = nncase.CompileOptions()
options.target = sys.argv[1]
options.shape_bucket_enable = True
options.shape_bucket_range_info = {"seq": [1, 16]}
options.shape_bucket_segments_count = 2
options.shape_bucket_fix_var_map = {"batch": 1}
compiler = nncase.Compiler(options)
compiler.import_onnx(Path("sequence.onnx").read_bytes(), nncase.ImportOptions())
if sys.argv[2] == "ptq":
    ptq = nncase.PTQTensorOptions()
    ptq.calibrate_method = "NoClip"
    ptq.samples_count = 3
    ptq.set_tensor_data([[rng.normal(0, 1, (1, 16, 6)).astype(np.float32) for _ in range(3)]])
    compiler.use_ptq(ptq)
compiler.compile()
sim = nncase.Simulator()
sim.load_model(compiler.gencode_tobytes())
for length in (16, 5, 9):
    x = rng.uniform(-1, 1, (1, length, 6)).astype(np.float32)
    sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
    sim.run()
    np.savez(f"seq{length}.npz", x=x, y=sim.get_output_tensor(0).to_numpy())
    print(length, sim.get_output_tensor(0).shape)
