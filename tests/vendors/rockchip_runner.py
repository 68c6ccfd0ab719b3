"""Runs in the environment of RKNN-Toolkit2: compiles one-layer models and simulates them.

rockchip_runner.py TARGET FOLDER: for every NAME.onnx with NAME.npy (and NAME.1.npy) in the folder,
writes NAME.rknn and NAME.out.npy, the vendor's simulated output.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from rknn.api import RKNN


def main(target, folder):
    for model in sorted(Path(folder).glob("*.onnx")):
        ports = [port.name for port in onnx.load(str(model)).graph.input]
        endings = [".npy", *(f".{k}.npy" for k in range(1, len(ports)))]
        data = [model.with_suffix(ending) for ending in endings]
        listed = model.with_suffix(".txt")
        listed.write_text(" ".join(map(str, data)) + "\n")
        rknn = RKNN(verbose=False)
        rknn.config(target_platform=target)
        values = [np.load(path) for path in data]
        sizes = [list(v.shape) for v in values]  # a model may leave the batch open
        assert rknn.load_onnx(str(model), inputs=ports, input_size_list=sizes) == 0
        assert rknn.build(do_quantization=True, dataset=str(listed)) == 0
        assert rknn.export_rknn(str(model.with_suffix(".rknn"))) == 0
        assert rknn.init_runtime() == 0
        (output,) = rknn.inference(values, data_format=["nchw"] * len(values))
        np.save(model.with_suffix(".out.npy"), output)
        rknn.release()


main(*sys.argv[1:])
