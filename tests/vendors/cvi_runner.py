"""Runs in the vendor's own Python: simulates cvimodels on the register-level model of tpu_mlir.

    python cvi_runner.py CHIP FOLDER    every N.cvimodel on N.in.npz (arrays of pictures, by input
                                        number), into N.out.npz

Writes FOLDER/report.json: seconds of the CPU for a picture, or the error, by name. The simulator
ends the process where a command breaks its rules: the first model that the report lacks.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def simulate(path):
    import tpu_mlir

    sys.path.insert(0, str(Path(tpu_mlir.__file__).parent / "python"))
    import pyruntime_cvi

    model = pyruntime_cvi.Model(str(path), output_all_tensors=False)
    given = np.load(path.with_suffix(".in.npz"))
    inputs = [given[str(i)] for i in range(len(given.files))]
    runs, seconds = [], 0.0
    for pictures in zip(*inputs, strict=True):
        for tensor, x in zip(model.inputs, pictures, strict=True):
            tensor.data[:] = x.reshape(tensor.data.shape)
        start = time.process_time()
        model.forward()
        seconds += time.process_time() - start
        runs.append([np.array(t.data) for t in model.outputs])
    outputs = {str(i): np.stack(one) for i, one in enumerate(zip(*runs, strict=True))}
    np.savez(path.with_suffix(".out.npz"), **outputs)
    return seconds / len(runs)


def main():
    os.environ["SET_CHIP_NAME"] = sys.argv[1]
    found = {}
    folder = Path(sys.argv[2])
    for path in sorted(folder.glob("*.cvimodel")):
        try:
            found[path.stem] = simulate(path)
        except Exception as e:
            found[path.stem] = f"{type(e).__name__}: {e}"
        (folder / "report.json").write_text(json.dumps(found))


main()
