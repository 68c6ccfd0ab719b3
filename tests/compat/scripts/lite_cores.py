"""RKNNLite: several objects on several cores, each in a thread of its own."""

import sys
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import cv2
import numpy as np
from rknnlite.api import RKNNLite


def init_rknn(path, number):
    rknn_lite = RKNNLite()
    ret = rknn_lite.load_rknn(path)
    if ret != 0:
        print("Load RKNN rknnModel failed")
        exit(ret)
    masks = (RKNNLite.NPU_CORE_0, RKNNLite.NPU_CORE_1, RKNNLite.NPU_CORE_2)
    ret = rknn_lite.init_runtime(core_mask=masks[number % 3])
    if ret != 0:
        print("Init runtime environment failed")
        exit(ret)
    return rknn_lite


class Pool:
    def __init__(self, path, workers):
        self.free = Queue()
        for i in range(workers):
            self.free.put(init_rknn(path, i))
        self.pool = ThreadPoolExecutor(max_workers=workers)

    def run(self, frame):
        rknn_lite = self.free.get()
        try:
            return rknn_lite.inference(inputs=[frame])[0].argmax()
        finally:
            self.free.put(rknn_lite)


if __name__ == "__main__":
    img = cv2.cvtColor(cv2.imread("images/0.png"), cv2.COLOR_BGR2RGB)
    pool = Pool(sys.argv[1], 3)
    frames = [np.expand_dims(img, 0)] * 6
    results = list(pool.pool.map(pool.run, frames))
    print("classes", sorted(set(map(int, results))), len(results), "frames")
