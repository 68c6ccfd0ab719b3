"""Mixed quantisation: write the scheme, change types in it, and read it without samples."""

import json
from pathlib import Path

import nncase
import numpy as np

rng = np.random.default_rng(5)
data = [[rng.normal(0, 1, (1, 3, 16, 16)).astype(np.float32) for _ in range(4)]]


def compiled(scheme, samples, folder, strict=False):
    options = nncase.CompileOptions()
    options.target = "k230"
    options.dump_ir = True
    options.dump_dir = folder
    compiler = nncase.Compiler(options)
    compiler.import_onnx(Path("mobilenet.onnx").read_bytes(), nncase.ImportOptions())
    ptq = nncase.PTQTensorOptions()
    ptq.calibrate_method = "NoClip"
    ptq.samples_count = 4
    ptq.set_tensor_data(samples)
    ptq.quant_scheme = scheme
    ptq.quant_scheme_strict_mode = strict
    ptq.export_quant_scheme = True
    ptq.export_weight_range_by_channel = True
    compiler.use_ptq(ptq)
    compiler.compile()
    sim = nncase.Simulator()
    sim.load_model(compiler.gencode_tobytes())
    sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(data[0][0]))
    sim.run()
    return sim.get_output_tensor(0).to_numpy()


first = compiled("", data, "mix")
with open("mix/QuantScheme.json") as f:
    scheme = json.load(f)
again = compiled("mix/QuantScheme.json", [], "again", strict=True)
for row in scheme["Outputs"]:
    if row["Name"] == "r1":
        row["DataType"] = "f32"
with open("edited.json", "w") as f:
    json.dump(scheme, f)
mixed = compiled("edited.json", [], "mixed")
np.savez("mixed.npz", x=data[0][0], first=first, again=again, mixed=mixed)
print(scheme["Version"], sorted({r["DataRangeMode"] for r in scheme["Outputs"]}))
