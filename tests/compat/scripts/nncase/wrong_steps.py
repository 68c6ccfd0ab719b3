"""What users do wrong: each is an exception of one line."""

from pathlib import Path

import nncase
import numpy as np


def tell(work):
    try:
        work()
        print("nothing happened")
    except Exception as e:
        print(f"{type(e).__name__}: {e}")


def options(**given):
    made = nncase.CompileOptions()
    for name, value in given.items():
        setattr(made, name, value)
    return made


content = Path("mobilenet.onnx").read_bytes()
tell(lambda: nncase.Compiler(options(target="k320")))
compiler = nncase.Compiler(options(target="k230"))
tell(compiler.compile)
tell(compiler.gencode_tobytes)
tell(lambda: compiler.import_onnx("mobilenet.onnx", nncase.ImportOptions()))
tell(lambda: compiler.import_onnx(content[:200], nncase.ImportOptions()))
tell(lambda: compiler.import_ncnn(b"7767517", b"", nncase.ImportOptions()))
compiler.import_onnx(content, nncase.ImportOptions())
ptq = nncase.PTQTensorOptions()
ptq.calibrate_method = "Entropy"
tell(lambda: compiler.use_ptq(ptq))
sim = nncase.Simulator()
tell(lambda: sim.load_model(b"not a kmodel"))
tell(sim.run)
compiler.compile()
sim.load_model(compiler.gencode_tobytes())
tell(sim.run)
tell(lambda: sim.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(np.zeros((1, 3, 16, 16)))))
tell(lambda: sim.get_output_tensor(7))
