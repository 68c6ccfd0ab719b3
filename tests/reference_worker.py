"""A model in the runtime that it was made for: feeds in a file, outputs in another.

    PYTHON reference_worker.py litert model.tflite feeds.npz outputs.npz

Runs by itself, with numpy and one runtime only, in whichever interpreter has that. Feeds are named
`0/0`, `0/1`, `1/0`, ...: step and place of the input; `names` says what to feed and to fetch in
runtimes that go by names. Outputs are named likewise.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

MODULES = {
    "litert": "ai_edge_litert",
    "torch": "torch",
    "caffe": "cv2",
    "darknet": "cv2",
    "tensorflow": "tensorflow",
}  # what each runtime is imported as
Step = Callable[[list[np.ndarray]], list[np.ndarray]]


def litert(model: str, names: dict[str, Any]) -> Step:
    from ai_edge_litert.interpreter import Interpreter

    made = Interpreter(model, num_threads=1)
    details = made.get_input_details()
    if names["shapes"]:
        for detail, shape in zip(details, names["shapes"], strict=True):
            made.resize_tensor_input(detail["index"], shape)
    made.allocate_tensors()

    def step(feeds: list[np.ndarray]) -> list[np.ndarray]:
        for detail, x in zip(details, feeds, strict=True):
            made.set_tensor(detail["index"], x)
        made.invoke()
        return [made.get_tensor(d["index"]) for d in made.get_output_details()]

    return step


def torch(model: str, names: dict[str, Any]) -> Step:
    import torch as library

    module = library.jit.load(model).eval()

    def step(feeds: list[np.ndarray]) -> list[np.ndarray]:
        with library.no_grad():
            made = module(*(library.from_numpy(x) for x in feeds))
        return [t.numpy() for t in (made if isinstance(made, list | tuple) else [made])]

    return step


def opencv(model: str, names: dict[str, Any], read: str, ending: str) -> Step:
    import cv2

    if not hasattr(cv2.dnn, read):
        raise ImportError(f"OpenCV {cv2.__version__} reads no such models; versions before 5 do")
    net = getattr(cv2.dnn, read)(model, os.path.splitext(model)[0] + ending)

    def step(feeds: list[np.ndarray]) -> list[np.ndarray]:
        for name, x in zip(names["inputs"], feeds, strict=True):
            net.setInput(x, name)
        return list(net.forward(names["outputs"]))

    return step


def tensorflow(model: str, names: dict[str, Any]) -> Step:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as library

    described = library.compat.v1.GraphDef()
    with open(model, "rb") as file:
        described.ParseFromString(file.read())
    graph = library.Graph()
    with graph.as_default():
        library.import_graph_def(described, name="")
    session = library.compat.v1.Session(graph=graph)

    def spelled(name: str) -> str:
        return name if ":" in name else f"{name}:0"

    def step(feeds: list[np.ndarray]) -> list[np.ndarray]:
        given = dict(zip(map(spelled, names["inputs"]), feeds, strict=True))
        made: list[np.ndarray] = session.run([spelled(n) for n in names["outputs"]], given)
        return made

    return step


RUNTIMES: dict[str, Callable[[str, dict[str, Any]], Step]] = {
    "litert": litert,
    "torch": torch,
    "caffe": lambda model, names: opencv(model, names, "readNetFromCaffe", ".caffemodel"),
    "darknet": lambda model, names: opencv(model, names, "readNetFromDarknet", ".weights"),
    "tensorflow": tensorflow,
}


def main() -> None:
    runtime, model, source, target = sys.argv[1:]
    with np.load(source) as file:
        names = json.loads(str(file["names"]))
        feeds = [[file[f"{i}/{k}"] for k in range(names["count"])] for i in range(names["steps"])]
    step = RUNTIMES[runtime](model, names)
    made = {
        f"{i}/{k}": y for i, f in enumerate(feeds) for k, y in enumerate(map(np.array, step(f)))
    }
    np.savez(target, **made)


if __name__ == "__main__":
    main()
