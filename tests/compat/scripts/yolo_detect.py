"""Detection with an exported model: a container class, letterbox, decoding of two heads."""

import argparse

import cv2
import numpy as np
from rknn.api import RKNN

SIZE, CLASSES = (16, 16), 1
ANCHORS = [[[2, 2], [3, 4], [5, 3]], [[6, 6], [8, 10], [12, 9]]]


class RknnModelContainer:
    def __init__(self, model_path, target=None, device_id=None):
        rknn = RKNN()
        rknn.load_rknn(model_path)
        print("--> Init runtime environment")
        if target is None:
            ret = rknn.init_runtime()
        else:
            ret = rknn.init_runtime(target=target, device_id=device_id)
        if ret != 0:
            print("Init runtime environment failed")
            exit(ret)
        print("done")
        self.rknn = rknn

    def run(self, inputs):
        if not isinstance(inputs, (list, tuple)):
            inputs = [inputs]
        return self.rknn.inference(inputs=inputs)

    def release(self):
        self.rknn.release()
        self.rknn = None


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def process(head, anchors):
    h, w = head.shape[1:]
    head = sigmoid(head.reshape(3, 5 + CLASSES, h, w))
    rows, columns = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    stride = SIZE[0] // h
    boxes = []
    for a, (aw, ah) in enumerate(anchors):
        x = (head[a, 0] * 2 - 0.5 + columns) * stride
        y = (head[a, 1] * 2 - 0.5 + rows) * stride
        bw, bh = (head[a, 2] * 2) ** 2 * aw, (head[a, 3] * 2) ** 2 * ah
        score = head[a, 4] * head[a, 5]
        boxes.append(np.stack([x, y, bw, bh, score], -1).reshape(-1, 5))
    return np.concatenate(boxes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Process some integers.")
    parser.add_argument("--model_path", type=str, required=True)
    parser.add_argument("--target", type=str, default="rk3588")
    parser.add_argument("--device_id", type=str, default=None)
    parser.add_argument("--img_path", type=str, default="images/1.png")
    args = parser.parse_args()

    model = RknnModelContainer(args.model_path, args.target, args.device_id)
    img = cv2.cvtColor(cv2.imread(args.img_path), cv2.COLOR_BGR2RGB)
    img = cv2.resize(img, SIZE)
    outputs = model.run([np.expand_dims(img, 0)])
    found = np.concatenate([process(o[0], a) for o, a in zip(outputs, ANCHORS, strict=True)])
    best = found[np.argsort(-found[:, 4])][:3]
    for x, y, w, h, score in best:
        print(f"box @ ({x:.1f} {y:.1f} {w:.1f} {h:.1f}) {score:.3f}")
    model.release()
