"""Classify a picture with a model of any kind, with the functions of tpu-mlir's samples."""

import argparse
import os

import cv2
import numpy as np
from tools.model_runner import caffe_inference, mlir_inference, model_inference, onnx_inference
from utils.preprocess import supported_customization_format

parser = argparse.ArgumentParser()
parser.add_argument("--input", required=True)
parser.add_argument("--model", required=True)
parser.add_argument("--model_data")
parser.add_argument("--customization_format", default="", choices=supported_customization_format)
args = parser.parse_args()

picture = cv2.imread(args.input)
picture = cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)
pixels = (picture.astype(np.float32) - 127.5) * 0.0078
data = {"data": np.expand_dims(pixels.transpose(2, 0, 1), 0)}
if args.model.endswith(".onnx"):
    output = onnx_inference(data, args.model, False)
elif args.model.endswith(".prototxt"):
    output = caffe_inference(data, args.model, args.model_data, False)
elif args.model.endswith(".mlir"):
    output = mlir_inference(data, args.model, False)
else:
    output = model_inference(data, args.model)
(scores,) = output.values()
np.save(os.path.splitext(args.model)[0] + "_scores.npy", scores)
print("class", int(np.argmax(scores)), list(output))
