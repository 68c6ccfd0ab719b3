"""A detector from ONNX to a kmodel, with preprocessing in the model and one of six PTQ settings."""

import argparse
import os

import nncase
import numpy as np
import onnx
import onnxsim
from PIL import Image

SETTINGS = [
    (method, *types)
    for method in ("NoClip", "Kld")
    for types in (("uint8", "uint8"), ("uint8", "int16"), ("int16", "uint8"))
]


def simplify(path, shape, folder):
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    held = {t.name for t in model.graph.initializer}
    shapes = {}
    for value in model.graph.input:
        if value.name not in held:
            kind = onnx.mapping.TENSOR_TYPE_TO_NP_TYPE[value.type.tensor_type.elem_type]
            assert kind == np.float32
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = [d.dim_value or s for d, s in zip(dims, shape, strict=True)]
    model, valid = onnxsim.simplify(model, input_shapes=shapes)
    assert valid
    place = os.path.join(folder, "simplified.onnx")
    onnx.save_model(model, place)
    return place


def samples(shape, count, folder):
    found = []
    for name in sorted(os.listdir(folder))[:count]:
        picture = Image.open(os.path.join(folder, name)).convert("RGB")
        picture = picture.resize((shape[3], shape[2]), Image.BILINEAR)
        found.append([np.asarray(picture, np.uint8).transpose(2, 0, 1)[np.newaxis]])
    return np.array(found)


parser = argparse.ArgumentParser()
parser.add_argument("--target", default="k230")
parser.add_argument("--model")
parser.add_argument("--dataset_path")
parser.add_argument("--input_width", type=int, default=32)
parser.add_argument("--input_height", type=int, default=32)
parser.add_argument("--ptq_option", type=int, default=0)
args = parser.parse_args()

shape = [1, 3, args.input_height, args.input_width]
os.makedirs("tmp", exist_ok=True)
simplified = simplify(args.model, shape, "tmp")

options = nncase.CompileOptions()
options.target = args.target
options.preprocess = True
options.swapRB = False
options.input_shape = shape
options.input_type = "uint8"
options.input_range = [0, 1]
options.mean = [0, 0, 0]
options.std = [1, 1, 1]
options.input_layout = "NCHW"
compiler = nncase.Compiler(options)
with open(simplified, "rb") as f:
    compiler.import_onnx(f.read(), nncase.ImportOptions())

ptq = nncase.PTQTensorOptions()
ptq.samples_count = 10
ptq.calibrate_method, ptq.quant_type, ptq.w_quant_type = SETTINGS[args.ptq_option]
ptq.set_tensor_data(samples(shape, ptq.samples_count, args.dataset_path))
compiler.use_ptq(ptq)
compiler.compile()
kmodel = compiler.gencode_tobytes()
with open(os.path.splitext(args.model)[0] + ".kmodel", "wb") as f:
    f.write(kmodel)
print("kmodel written", args.ptq_option)
