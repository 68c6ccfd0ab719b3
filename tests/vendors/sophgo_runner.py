"""Runs in the vendor's own Python: simulates bmodels with tpu_mlir's runtime and chip models.

    python sophgo_runner.py CHIP FOLDER    every N.bmodel on N.in.npz, into N.out.npz

N.in.npz has one array per input, by its number: pictures x shape. Prints one JSON object: seconds
of the CPU for one picture, or the error, by name. A file that ends the process is reported as
"died".
"""

import importlib
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

MODELS = {
    "bm1684": "libcmodel_bm1684.so",
    "bm1684x": "libcmodel_bm1684x.so",
    "bm1688": "libcmodel_bm1688.so",
    "sg2260": "libtpuv7_emulator.so",
}


def start_again(chip):
    """Run this script again, with the chip's model first in the library path."""
    root = Path(importlib.util.find_spec("tpu_mlir").origin).parent
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root / "lib" / MODELS[chip], Path(folder) / "libcmodel.so")
        os.symlink(root / "lib" / "libbmlib_bm1684x.so.0", Path(folder) / "libbmlib.so.0")
        paths = [folder, str(root / "lib"), str(root / "lib" / "third_party")]
        env = dict(os.environ, SOPHGO_RUNNER="1", TPUC_ROOT=str(root))
        env["LD_LIBRARY_PATH"] = ":".join(paths)
        env["TPU_EMULATOR_PATH"] = str(root / "lib" / MODELS[chip])
        env["PYTHONPATH"] = str(root / "python")
        code = os.spawnve(os.P_WAIT, sys.executable, [sys.executable, *sys.argv], env)
    sys.exit(code)


def simulate(path):
    import numpy as np

    runtime = "pyruntime_tpuv7" if sys.argv[1] == "sg2260" else "pyruntime_bm"
    model = importlib.import_module(runtime).Model(str(path), 0, "")
    net = model.Net(model.networks[0])
    with np.load(path.with_suffix(".in.npz")) as given:
        feeds = [given[str(i)] for i in range(len(net.inputs))]
    runs, seconds = [], 0.0
    for picture in zip(*feeds, strict=True):
        for port, x in zip(net.inputs, picture, strict=True):
            port.data[:] = x.reshape(port.data.shape)
        start = time.process_time()
        net.forward_dynamic([list(port.data.shape) for port in net.inputs])
        seconds += time.process_time() - start
        runs.append([port.data.copy() for port in net.outputs])
    outputs = {str(i): np.stack(one) for i, one in enumerate(zip(*runs, strict=True))}
    np.savez(path.with_suffix(".out.npz"), **outputs)
    return seconds / max(len(runs), 1)


def apart(path):
    """Simulate in a child process: the chip's model ends its process at a bad command."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = simulate(path)
        except Exception as e:
            said = f"{type(e).__name__}: {e}"
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else f"died with status {status}"


def main():
    chip, folder = sys.argv[1], Path(sys.argv[2])
    if "SOPHGO_RUNNER" not in os.environ:
        start_again(chip)
    found = {path.stem: apart(path) for path in sorted(folder.glob("*.bmodel"))}
    print()
    print(json.dumps(found))


main()
