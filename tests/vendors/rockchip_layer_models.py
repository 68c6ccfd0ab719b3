"""Models of one or two layers for the RK3588, as ONNX files: what follows a convolution."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = ("add", "add_relu", "mul", "scale", "max", "mean", "sigmoid", "silu", "leaky", "table")
KINDS += ("resize", "concat", "slice", "conv_add_relu", "conv_mul", "inputs_add", "inputs_mul")
KINDS += ("transposed", "transposed_depthwise")


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def layers(kind, chance, channels, outputs):
    """Nodes that make y from the results c and d of two convolutions, and constants."""
    kernel = int(chance.choice([2, 3, 5]))
    window = {"kernel_shape": [kernel] * 2, "strides": [int(chance.integers(1, 3))] * 2}
    factors = np.array([1, 1, chance.integers(1, 5), chance.integers(2, 5)], np.float32)
    means = {"axes": [2, 3], "keepdims": 1}
    taps, step, edge = ((2, 2, 0), (3, 2, 1), (4, 2, 1), (4, 4, 0))[chance.integers(4)]
    across = {"kernel_shape": [taps] * 2, "strides": [step] * 2, "pads": [edge] * 4}
    same = {"kernel_shape": [3, 3], "pads": [1] * 4}  # keeps what follows from being fused
    pooled = [node("MaxPool", [a], [b], **same) for a, b in ("cm", "dn")]
    made = {
        "add": [*pooled, node("Add", ["m", "n"], ["y"])],
        "add_relu": [*pooled, node("Add", ["m", "n"], ["s"]), node("Relu", ["s"], ["y"])],
        "mul": [*pooled, node("Mul", ["m", "n"], ["y"])],
        "conv_mul": [pooled[0], node("Mul", ["m", "d"], ["y"])],
        "scale": [
            node("MaxPool", ["c"], ["m"], **same),
            node("ReduceMean", ["d"], ["g"], **means),
            node("Mul", ["m", "g"], ["y"]),
        ],
        "max": [node("MaxPool", ["c"], ["y"], pads=[kernel // 2] * 4, **window)],
        "mean": [node("AveragePool", ["c"], ["y"], **window)],
        "sigmoid": [node("Sigmoid", ["c"], ["y"])],
        "silu": [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])],
        "leaky": [node("LeakyRelu", ["c"], ["y"], alpha=float(chance.uniform(0.02, 0.3)))],
        "table": [node("MaxPool", ["c"], ["m"], **same), node("Sigmoid", ["m"], ["y"])],
        "resize": [
            node(
                "Resize",
                ["c", "", "factors"],
                ["y"],
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        ],
        "concat": [
            node("Concat", ["c", "d"], ["j"], axis=1),
            node("MaxPool", ["j"], ["y"], **same),
        ],
        "slice": [
            node("Slice", ["c", "from", "to", "axis"], ["p"]),
            node("MaxPool", ["p"], ["y"], **same),
        ],
        "conv_add_relu": [
            node("MaxPool", ["c"], ["m"], **same),
            node("Conv", ["m", "v", "b"], ["e"], pads=[1] * 4),
            node("Add", ["e", "d"], ["s"]),
            node("Relu", ["s"], ["y"]),
        ],
        "transposed": [node("ConvTranspose", ["x", "t", "b"], ["y"], **across)],
        "transposed_depthwise": [
            node("MaxPool", ["c"], ["m"], **same),
            node("ConvTranspose", ["m", "td", "b"], ["y"], **across, group=outputs),
        ],
    }[kind]
    constants = {
        "factors": factors,
        "from": np.array([16]),
        "to": np.array([32]),
        "axis": np.array([1]),
        "t": chance.normal(size=(channels, outputs, taps, taps)) * 0.1,
        "td": chance.normal(size=(outputs, 1, taps, taps)) * 0.3,
    }
    return made, constants


def write(folder, name, kind, chance):
    """Write NAME.onnx and its inputs, NAME.npy and NAME.1.npy."""
    channels, outputs = (int(chance.choice(c)) for c in ((16, 20, 48), (32, 40, 64, 96)))
    side = int(chance.choice([7, 8, 14, 20, 28]))
    shape = 1, channels, side, side
    if kind.startswith("inputs_"):
        op = {"inputs_add": "Add", "inputs_mul": "Mul"}[kind]
        nodes, held, ports = [node(op, ["x", "z"], ["y"])], {}, {"x": shape, "z": shape}
    else:
        nodes, held = layers(kind, chance, channels, outputs)
        held |= {
            "w": chance.normal(size=(outputs, channels, 3, 3)) * 0.1,
            "u": chance.normal(size=(outputs, channels, 1, 1)) * 0.2,
            "v": chance.normal(size=(outputs, outputs, 3, 3)) * 0.1,
            "b": chance.normal(size=outputs),
        }
        convs = [
            node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
            node("Conv", ["x", "u", "b"], ["d"]),
        ]
        read = {name for n in nodes for name in n.input}
        nodes = [n for n in convs if n.output[0] in read] + nodes
        ports = {"x": shape}
    read = {name for n in nodes for name in n.input}
    constants = [
        numpy_helper.from_array(v if v.dtype == np.int64 else v.astype(np.float32), k)
        for k, v in held.items()
        if k in read
    ]
    inputs = [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in ports.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, name, inputs, [output], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(made), folder / f"{name}.onnx")
    for number, extents in enumerate(ports.values()):
        ending = ".npy" if number == 0 else f".{number}.npy"
        np.save(folder / f"{name}{ending}", chance.normal(size=extents).astype(np.float32))
