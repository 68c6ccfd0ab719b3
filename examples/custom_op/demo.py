"""One operator that Intaglio does not have, in Python and in C: results and times of both.

make -C examples/custom_op
python examples/custom_op/demo.py
"""

import time
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import intaglio
from intaglio import custom

HERE = Path(__file__).parent
SHAPE, FILTERS = (1, 32, 40, 40), 32


def model(rng: np.random.Generator):
    """An ONNX model with the operator DeformConv of the domain example.ops."""
    weight = rng.standard_normal((FILTERS, SHAPE[1], 3, 3), np.float32) / 16
    offsets = (1, 18, *SHAPE[2:])
    node = helper.make_node(
        "DeformConv", ["x", "w", "offset"], ["y"], domain="example.ops", pad=[1, 1]
    )
    kinds = {"x": SHAPE, "offset": offsets, "y": (1, FILTERS, *SHAPE[2:])}
    info = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in kinds.items()}
    stored = [numpy_helper.from_array(weight, "w")]
    graph = helper.make_graph([node], "g", [info["x"], info["offset"]], [info["y"]], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("example.ops", 1)]
    feeds = {"x": rng.standard_normal(SHAPE, np.float32)}
    feeds["offset"] = 2 * rng.standard_normal(offsets, np.float32)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


def run(proto, feeds):
    """The result, and the milliseconds of the fastest of some runs."""
    with intaglio.open(intaglio.compile(intaglio.load(proto)), threads=1) as session:
        best = 1e9
        for _ in range(20):
            start = time.perf_counter()
            result = session.run(feeds)["y"]
            best = min(best, 1e3 * (time.perf_counter() - start))
    return result, best


def main() -> None:
    proto, feeds = model(np.random.default_rng(0))
    custom.load(HERE / "deform_conv.py")
    in_python, slow = run(proto, feeds)
    custom.load(HERE / "libdeform_conv.so")
    in_c, fast = run(proto, feeds)
    difference = np.abs(in_python - in_c).max() / np.abs(in_python).max()
    print(f"in Python {slow:.2f} ms, in C {fast:.2f} ms, largest difference {difference:.1e}")


if __name__ == "__main__":
    main()
