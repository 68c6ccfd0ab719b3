"""Float networks as ONNX models, layer by layer, with random weights: only shapes matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Pair = int | tuple[int, int]


class Net:
    """Makes nodes and keeps the shapes of their results; `act` is that of convolutions."""

    def __init__(self, act: str = "relu", batch: int = 1, seed: int = 0) -> None:
        self.act, self.batch = act, batch
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.shapes: dict[str, Shape] = {}
        self._random = np.random.default_rng(seed)

    # ---- plumbing --------------------------------------------------------------------------------
    def image(self, channels: int, height: int, width: int) -> str:
        return self.input((self.batch, channels, height, width))

    def input(self, shape: Shape, kind: int = TensorProto.FLOAT) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.shapes[name] = shape
        return name

    def add_node(self, op: str, inputs: Sequence[str], shape: Shape, **attrs: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        self.shapes[name] = shape
        return name

    def constant(self, values: Any) -> str:
        array = np.asarray(values)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        self.shapes[name] = array.shape
        return name

    def weights(self, *shape: int) -> str:
        fan = max(int(np.prod(shape[1:])), 1)
        values = self._random.random(shape, np.float32) - np.float32(0.5)
        return self.constant(values * np.float32((12 / fan) ** 0.5))

    def model(self, *outputs: str) -> Any:
        ends = [
            helper.make_tensor_value_info(y, TensorProto.FLOAT, self.shapes[y]) for y in outputs
        ]
        graph = helper.make_graph(self.nodes, "net", self.inputs, ends, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    # ---- layers ----------------------------------------------------------------------------------
    def conv(
        self,
        x: str,
        channels: int,
        kernel: Pair | Shape = 1,
        stride: Pair | Shape = 1,
        *,
        act: str | None = None,
        pad: Shape | int | None = None,
        groups: int = 1,
        dilation: int = 1,
        bias: bool = True,
    ) -> str:
        """A convolution with its folded batch norm; the paddings of an odd kernel keep the size."""
        n, c, *space = self.shapes[x]
        k, s = _each(kernel, len(space)), _each(stride, len(space))
        if pad is None:
            pad = tuple((i - 1) // 2 * dilation for i in k)
        p = _each(pad, len(space))
        p = p if len(p) == 2 * len(space) else (*p, *p)
        size = tuple(
            (v + p[i] + p[i + len(space)] - dilation * (k[i] - 1) - 1) // s[i] + 1
            for i, v in enumerate(space)
        )
        inputs = [x, self.weights(channels, c // groups, *k)]
        inputs += [self.weights(channels)] if bias else []
        rest: dict[str, Any] = {"kernel_shape": k, "strides": s, "pads": p, "group": groups}
        rest["dilations"] = (dilation,) * len(space)
        y = self.add_node("Conv", inputs, (n, channels, *size), **rest)
        return self.activation(y, self.act if act is None else act)

    def depthwise(
        self, x: str, kernel: Pair = 3, stride: Pair = 1, *, act: str | None = None, **rest: Any
    ) -> str:
        c = self.shapes[x][1]
        return self.conv(x, c, kernel, stride, act=act, groups=c, **rest)

    def deconv(
        self,
        x: str,
        channels: int,
        kernel: int = 2,
        stride: int = 2,
        pad: int = 0,
        act: str = "none",
        groups: int = 1,
    ) -> str:
        n, c, h, w = self.shapes[x]
        size = tuple((v - 1) * stride - 2 * pad + kernel for v in (h, w))
        inputs = [x, self.weights(c, channels // groups, kernel, kernel), self.weights(channels)]
        rest = {"kernel_shape": (kernel,) * 2, "strides": (stride,) * 2, "pads": (pad,) * 4}
        y = self.add_node("ConvTranspose", inputs, (n, channels, *size), group=groups, **rest)
        return self.activation(y, act)

    def activation(self, x: str, act: str) -> str:
        shape = self.shapes[x]
        if act == "none":
            return x
        if act == "silu":
            return self.mul(x, self.add_node("Sigmoid", [x], shape))
        if act == "leaky":
            return self.add_node("LeakyRelu", [x], shape, alpha=0.1)
        if act == "hswish":
            return self.mul(x, self.hard(x))
        if act == "hsigmoid":
            return self.hard(x)
        if act == "relu6":
            zero, six = self.constant(np.float32(0)), self.constant(np.float32(6))
            return self.add_node("Clip", [x, zero, six], shape)
        if act == "prelu":
            slope = self.weights(shape[1], 1, 1)
            return self.add_node("PRelu", [x, slope], shape)
        if act == "mish":
            y = self.add_node("Tanh", [self.add_node("Softplus", [x], shape)], shape)
            return self.mul(x, y)
        if act == "gelu":
            y = self.add_node("Div", [x, self.constant(np.float32(2**0.5))], shape)
            y = self.add_node("Erf", [y], shape)
            y = self.add_node("Add", [y, self.constant(np.float32(1))], shape)
            return self.mul(self.mul(x, y), self.constant(np.float32(0.5)))
        if act == "quickgelu":
            y = self.mul(x, self.constant(np.float32(1.702)))
            return self.mul(x, self.add_node("Sigmoid", [y], shape))
        return self.add_node(
            {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[act], [x], shape
        )

    def hard(self, x: str) -> str:
        return self.add_node("HardSigmoid", [x], self.shapes[x], alpha=1 / 6, beta=0.5)

    def linear(self, x: str, channels: int, act: str = "none", bias: bool = True) -> str:
        *rest, c = self.shapes[x]
        y = self.add_node("MatMul", [x, self.weights(c, channels)], (*rest, channels))
        y = self.add(y, self.weights(channels)) if bias else y
        return self.activation(y, act)

    def matmul(self, a: str, b: str) -> str:
        return self.add_node("MatMul", [a, b], (*self.shapes[a][:-1], self.shapes[b][-1]))

    def pool(
        self,
        x: str,
        kernel: Pair,
        stride: Pair | None = None,
        pad: Any = 0,
        kind: str = "Max",
        ceil: bool = False,
    ) -> str:
        n, c, *space = self.shapes[x]
        k = _each(kernel, len(space))
        s = k if stride is None else _each(stride, len(space))
        p = _each(pad, len(space))
        p = p if len(p) == 2 * len(space) else (*p, *p)
        up = s if ceil else (1,) * len(space)
        size = tuple(
            (v + p[i] + p[i + len(space)] - k[i] + up[i] - 1) // s[i] + 1
            for i, v in enumerate(space)
        )
        rest = {"kernel_shape": k, "strides": s, "pads": p, "ceil_mode": int(ceil)}
        return self.add_node(f"{kind}Pool", [x], (n, c, *size), **rest)

    def mean(self, x: str) -> str:
        n, c, *space = self.shapes[x]
        return self.add_node("GlobalAveragePool", [x], (n, c, *(1,) * len(space)))

    def classifier(self, x: str, classes: int = 1000) -> str:
        n, c, *_ = self.shapes[x]
        y = self.add_node("Flatten", [self.mean(x)], (n, c))
        return self.add_node(
            "Gemm", [y, self.weights(classes, c), self.weights(classes)], (n, classes), transB=1
        )

    # ---- shapes and element-wise -----------------------------------------------------------------
    def add(self, a: str, b: str, act: str = "none") -> str:
        shape = np.broadcast_shapes(self.shapes[a], self.shapes[b])
        return self.activation(self.add_node("Add", [a, b], shape), act)

    def mul(self, a: str, b: str) -> str:
        return self.add_node("Mul", [a, b], np.broadcast_shapes(self.shapes[a], self.shapes[b]))

    def concat(self, *parts: str, axis: int = 1) -> str:
        shape = list(self.shapes[parts[0]])
        shape[axis] = sum(self.shapes[p][axis] for p in parts)
        return self.add_node("Concat", parts, tuple(shape), axis=axis)

    def split(self, x: str, *sizes: int, axis: int = 1) -> list[str]:
        name = f"split_{len(self.nodes)}"
        outputs = [f"{name}_{i}" for i in range(len(sizes))]
        given = self.constant(np.array(sizes, np.int64))
        self.nodes.append(helper.make_node("Split", [x, given], outputs, name, axis=axis))
        for y, size in zip(outputs, sizes, strict=True):
            shape = list(self.shapes[x])
            shape[axis] = size
            self.shapes[y] = tuple(shape)
        return outputs

    def slice(self, x: str, start: int, stop: int, axis: int, step: int = 1) -> str:
        shape = list(self.shapes[x])
        shape[axis] = len(range(shape[axis])[start:stop:step])
        ends = [self.constant(np.array([v], np.int64)) for v in (start, stop, axis, step)]
        return self.add_node("Slice", [x, *ends], tuple(shape))

    def halves(self, x: str) -> list[str]:
        half = self.shapes[x][1] // 2
        return self.split(x, half, half)

    def up(self, x: str, factor: int = 2, mode: str = "nearest") -> str:
        n, c, h, w = self.shapes[x]
        return (
            self.resize(x, h * factor, w * factor, mode)
            if mode != "nearest"
            else self.add_node(
                "Resize",
                [x, "", self.constant(np.array([1, 1, factor, factor], np.float32))],
                (n, c, h * factor, w * factor),
                mode="nearest",
                coordinate_transformation_mode="asymmetric",
                nearest_mode="floor",
            )
        )

    def resize(self, x: str, height: int, width: int, mode: str = "linear") -> str:
        n, c, *_ = self.shapes[x]
        sizes = self.constant(np.array([n, c, height, width], np.int64))
        return self.add_node(
            "Resize",
            [x, "", "", sizes],
            (n, c, height, width),
            mode=mode,
            coordinate_transformation_mode="pytorch_half_pixel",
        )

    def transpose(self, x: str, *order: int) -> str:
        shape = tuple(self.shapes[x][i] for i in order)
        return self.add_node("Transpose", [x], shape, perm=order)

    def reshape(self, x: str, *shape: int) -> str:
        whole = int(np.prod(self.shapes[x]))
        known = -int(np.prod(shape))
        shape = tuple(whole // known if v < 0 else v for v in shape)
        return self.add_node("Reshape", [x, self.constant(np.array(shape, np.int64))], shape)

    def softmax(self, x: str, axis: int = -1) -> str:
        return self.add_node("Softmax", [x], self.shapes[x], axis=axis)

    def reduce(self, op: str, x: str, axis: int) -> str:
        shape = list(self.shapes[x])
        shape[axis] = 1
        if op == "ReduceSum":
            axes = self.constant(np.array([axis], np.int64))
            return self.add_node(op, [x, axes], tuple(shape), keepdims=1)
        return self.add_node(op, [x], tuple(shape), axes=[axis], keepdims=1)

    def clip(self, x: str, low: float, high: float) -> str:
        ends = [self.constant(np.float32(v)) for v in (low, high)]
        return self.add_node("Clip", [x, *ends], self.shapes[x])

    def layer_norm(self, x: str, eps: float = 1e-5) -> str:
        """As PyTorch exports it before opset 17."""
        shape = self.shapes[x]
        off = self.add_node("Sub", [x, self.reduce("ReduceMean", x, len(shape) - 1)], shape)
        square = self.add_node("Pow", [off, self.constant(np.float32(2))], shape)
        mean = self.reduce("ReduceMean", square, len(shape) - 1)
        small = self.add(mean, self.constant(np.float32(eps)))
        root = self.add_node("Sqrt", [small], self.shapes[small])
        y = self.add_node("Div", [off, root], shape)
        return self.add(self.mul(y, self.weights(shape[-1])), self.weights(shape[-1]))

    def gather(self, rows: int, width: int, tokens: str) -> str:
        """Rows of an embedding table."""
        table = self.weights(rows, width)
        return self.add_node("Gather", [table, tokens], (*self.shapes[tokens], width), axis=0)


def _each(value: Any, count: int) -> Shape:
    return (value,) * count if isinstance(value, int) else tuple(value)
