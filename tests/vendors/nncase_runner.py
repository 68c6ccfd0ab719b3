"""Runs in the vendor's own Python: simulates kmodels, and compiles ONNX files with nncase 1.9.

    python nncase_runner.py simulate FOLDER    every N.kmodel on N.in.npy, into N.out.npz
    python nncase_runner.py compile FOLDER     every N.onnx, calibrated by N.in.npy, to N.kmodel
    python nncase_runner.py time FOLDER        the first input of every N.kmodel, the best of 5 runs

Prints one JSON object: seconds, or the error, by name.
"""

import json
import sys
import time
from pathlib import Path

import nncase
import numpy as np


def simulate(path):
    simulator = nncase.Simulator()
    simulator.load_model(path.read_bytes())
    given = np.load(path.with_suffix(".in.npy"))
    runs, seconds = [], 0.0
    for x in given:
        simulator.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(np.ascontiguousarray(x)))
        start = time.perf_counter()
        simulator.run()
        seconds += time.perf_counter() - start
        count = simulator.outputs_size
        runs.append([simulator.get_output_tensor(i).to_numpy().copy() for i in range(count)])
    outputs = {str(i): np.stack(one) for i, one in enumerate(zip(*runs, strict=True))}
    np.savez(path.with_suffix(".out.npz"), **outputs)
    return seconds / len(given)


def time_one(path):
    simulator = nncase.Simulator()
    simulator.load_model(path.read_bytes())
    x = np.ascontiguousarray(np.load(path.with_suffix(".in.npy"))[0])
    simulator.set_input_tensor(0, nncase.RuntimeTensor.from_numpy(x))
    seconds = []
    for _ in range(5):
        start = time.process_time()  # other processes disturb it less
        simulator.run()
        seconds.append(time.process_time() - start)
    return min(seconds)


def compile_one(path):
    options = nncase.CompileOptions()
    options.target = "k210"
    options.input_type = "uint8"
    options.quant_type = "uint8"
    options.w_quant_type = "uint8"
    options.dump_ir = options.dump_asm = False
    samples = np.load(path.with_suffix(".in.npy"))
    if samples.dtype == np.uint8:  # the file reads pictures, and scales them itself
        options.preprocess, options.swapRB = True, False
        options.input_shape = list(samples.shape[1:])
        options.input_layout = options.output_layout = "NCHW"
        options.input_range, options.mean, options.std = [0, 1], [0.5] * 3, [0.25] * 3
    compiler = nncase.Compiler(options)
    start = time.perf_counter()
    compiler.import_onnx(path.read_bytes(), nncase.ImportOptions())
    ptq = nncase.PTQTensorOptions()
    ptq.calibrate_method = "no_clip"
    ptq.samples_count = len(samples)
    ptq.set_tensor_data(np.ascontiguousarray(samples).tobytes())
    compiler.use_ptq(ptq)
    compiler.compile()
    path.with_suffix(".kmodel").write_bytes(compiler.gencode_tobytes())
    return time.perf_counter() - start


def main():
    what, folder = sys.argv[1], Path(sys.argv[2])
    work = {"simulate": simulate, "compile": compile_one, "time": time_one}[what]
    pattern = "*.onnx" if what == "compile" else "*.kmodel"
    found = {}
    for path in sorted(folder.glob(pattern)):
        try:
            found[path.stem] = work(path)
        except Exception as e:
            found[path.stem] = f"{type(e).__name__}: {e}"
    print(json.dumps(found))


main()
