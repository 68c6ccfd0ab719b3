"""Text detection at several sizes, then recognition of each line: the two models of PPOCR."""

import numpy as np
from rknn.api import RKNN

CHARACTERS = "-abcdef"


def convert(model, output, **config):
    rknn = RKNN(verbose=False)
    rknn.config(target_platform="rk3588", **config)
    if rknn.load_onnx(model=model) != 0:
        exit(-1)
    if rknn.build(do_quantization=False) != 0:
        exit(-1)
    if rknn.export_rknn(output) != 0:
        exit(-1)
    if rknn.init_runtime() != 0:
        exit(-1)
    return rknn


class TextDetector:
    def __init__(self, path):
        self.rknn = convert(
            path,
            "det.rknn",
            mean_values=[[123.675, 116.28, 103.53]],
            std_values=[[58.395, 57.12, 57.375]],
            dynamic_input=[[[1, 3, 16, 32]], [[1, 3, 32, 32]]],
        )

    def run(self, image):
        (heat,) = self.rknn.inference(inputs=[image[None]], data_format=["nhwc"])
        mask = heat[0, 0] > heat.mean()
        rows = np.flatnonzero(mask.any(1))
        return heat.shape, image[rows[0] : rows[-1] + 1]


class TextRecognizer:
    def __init__(self, path):
        self.rknn = convert(path, "rec.rknn")

    def run(self, line):
        x = np.zeros((1, 8, 24, 3), np.float32)
        h, w = min(line.shape[0], 8), min(line.shape[1], 24)
        x[0, :h, :w] = line[:h, :w] / 127.5 - 1
        (scores,) = self.rknn.inference(inputs=[x])
        indices = scores[0].argmax(1)
        kept = [i for n, i in enumerate(indices) if i and (n == 0 or i != indices[n - 1])]
        return scores.shape, "".join(CHARACTERS[i] for i in kept)


detector, recognizer = TextDetector("ppocr_det.onnx"), TextRecognizer("ppocr_rec.onnx")
for height in (16, 32):
    picture = np.random.default_rng(height).integers(0, 256, (height, 32, 3), np.uint8)
    shape, line = detector.run(picture)
    print("det", shape, "rec", *recognizer.run(line))
