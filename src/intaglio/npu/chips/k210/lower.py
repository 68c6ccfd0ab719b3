"""From a quantised graph to one of the KPU's layers, and why some ops are none.

Bytes of the KPU are unsigned: an i8 tensor becomes a u8 tensor of the same real values, with 128
more in every element and in the zero point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import ops as neutral
from intaglio.ir import Graph, Node, Type, Value
from intaglio.npu.chips.file_part import Reals
from intaglio.npu.chips.k210 import layer, parts
from intaglio.npu.chips.k210.maps import Map, part_of
from intaglio.npu.chips.k210.maps import Port as Port
from intaglio.npu.chips.k210.operands import (
    bounds,
    byte_weights,
    chain,
    factors,
    name_of,
    no_rule,
    offset,
    only_reader,
    rectangle,
    table,
)
from intaglio.npu.chips.k210.requantize import Function
from intaglio.npu.lowering.builder import Refused, data, integer, scale_of
from intaglio.ops.registry import REGISTRY

PIXEL = (1, 1)
READS = "it reads the result of "  # another op that was refused
TO_NCHW = (0, 3, 1, 2)


class Lowering:
    """Lowers the nodes of one graph, producers first."""

    def __init__(self, graph: Graph, reals: Reals):
        self.graph, self.reals = graph, reals
        self.maps: dict[Value, Map] = {}
        self.inputs: list[Port] = []
        self.scales: dict[Value, tuple[float, int]] = {}  # of tensors that the file may return
        self.sources: dict[Value, tuple[Value, float, int]] = {}  # quantised inputs
        self.turned: dict[Value, Value] = {}  # inputs as NCHW
        self.even: dict[tuple[Value, int], Value] = {}  # maps with even sizes, by their filling
        self.before: list[Node] = []
        self.done: set[Node] = set()
        self.refused: dict[Node, str] = {}
        self.rules: dict[str, Callable[[Node], None]] = {
            "quantize_linear": self._quantize,
            "qlinear_conv": self._conv,
            "qlinear_matmul": self._matmul,
            "qlinear_add": self._add,
            "qlinear_mean": self._mean,
            "qlinear_avg_pool": self._avg_pool,
            "max_pool": self._max_pool,
            "clip": self._clip,
            "lookup": self._lookup,
            "concat": self._concat,
            "reshape": self._reshape,
            "resize": self._resize,
            "transpose": self._transpose,
        }

    def run(self) -> None:
        """Lower every node that the KPU can do."""
        for v in self.graph.inputs:
            if v.dtype in ("i8", "u8"):
                self._input(v, v, *self.reals.inputs.get(v, (1.0, 0)))
        for node in self.graph.nodes():
            if node in self.done or node in self.before:
                continue
            try:
                self._one(node)
                self.done.add(node)
            except Refused as e:
                self.refused[node] = str(e)

    def _one(self, node: Node) -> None:
        blocked = [v for v in node.inputs if v is not None and v.producer in self.refused]
        if blocked:
            raise Refused(f"{READS}{name_of(blocked[0].producer)}")
        rule = self.rules.get(node.op)
        if rule is None:
            raise Refused(no_rule(node))
        rule(node)

    # ---- values ----------------------------------------------------------------------------------
    def _input(self, v: Value, quantized: Value, scale: float, zero: int) -> None:
        """`v` of the graph, or its quantised form, is an input of the file."""
        shape = quantized.shape if quantized.type.rank == 4 else (*quantized.shape, 1, 1)[:4]
        if quantized.type.rank not in (2, 3, 4) or shape[0] != 1:
            raise Refused(f"the input is {v.type}; the KPU reads one picture [1, C, H, W]")
        value = Value(Type("u8", shape), v.name)
        self.inputs.append(Port(v.name, shape, scale, zero + offset(quantized), value))
        self.sources[quantized] = v, scale, zero
        self.maps[quantized] = Map(value)
        self.scales[quantized] = scale, zero + offset(quantized)

    def _map(self, v: Value | None) -> Map:
        assert v is not None
        if v not in self.maps:
            raise Refused("it reads a tensor that is not in the KPU")
        return self.maps[v]

    def _whole(self, v: Value | None) -> Value:
        """The map of a tensor without a pending pick."""
        found = self._map(v)
        if found.pick:
            found.value, found.pick = parts.copied(found.value, pool=found.pick), 0
        if found.part:
            found.value, found.part = parts.cropped(found.value, found.part), None
        return found.value

    def readable(self, v: Value | None) -> Value:
        """A map that a layer of one pixel at a time can read: of at least 4x4."""
        found = self._map(v)
        if found.part and not found.pick and min(found.value.shape[2:]) >= layer.MIN_EXTENT:
            return found.value
        assert v is not None
        return self.enlarged(v, 0, "") if layer.is_small(found.shape[2:]) else self._whole(v)

    def _made(self, v: Value | None) -> Value:
        """The map of a tensor as a layer's result: in a kmodel 3 inputs are not in main memory."""
        value = self._whole(v)
        return parts.copied(value) if value.producer is None else value

    def enlarged(self, v: Value, fill: int, origin: str) -> Value:
        """The map of a tensor with even sizes of at least 4; `fill` is in the new pixels."""
        if (v, fill) not in self.even:
            found = self._map(v)
            high, wide = found.shape[2:]
            source = found.value if found.part and not found.pick else self._made(v)
            made = layer.enlarged(high), layer.enlarged(wide)
            self.even[v, fill] = parts.bordered(source, fill, (high, wide), made, origin)
        return self.even[v, fill]

    def _is(self, node: Node, value: Value, pick: int, scale: Any, zero: Any) -> None:
        """Record the result of a node."""
        out = node.outputs[0]
        self.maps[out] = Map(value, pick)
        self.scales[out] = float(scale_of(scale)), integer(zero) + offset(out)

    def _same(self, node: Node, value: Map) -> None:
        """Record a node that changes no number."""
        source, out = node.inputs[0], node.outputs[0]
        assert source is not None
        self.maps[out] = value
        if source in self.scales:
            self.scales[out] = self.scales[source]

    # ---- ops -------------------------------------------------------------------------------------
    def _quantize(self, node: Node) -> None:
        x, scale, zero = node.inputs[:3]
        assert x is not None
        assert scale is not None
        source = self.turned.get(x, x)
        if source not in self.graph.inputs or node.outputs[0].dtype not in ("i8", "u8"):
            raise Refused("it quantises floats between layers; the KPU works on bytes only")
        self._input(source, node.outputs[0], float(scale_of(scale)), integer(zero))
        self.before.append(node)

    def _of_input(self, node: Node, x: Value, out: Value) -> bool:
        """Leave a move of the input to the caller: the input becomes its result."""
        if x in self.sources:
            source, scale, zero = self.sources[x]
            self.inputs = [p for p in self.inputs if p.value is not self.maps[x].value]
            self._input(source, out, scale, zero)
        elif x in self.graph.inputs:
            self.turned[out] = x
        else:
            return False
        self.before.append(node)
        return True

    def _transpose(self, node: Node) -> None:
        """The file's input is NCHW, also where the model's is NHWC: no command turns it."""
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        if tuple(node.attrs["perm"]) == TO_NCHW and self._of_input(node, x, out):
            return
        if x in self.maps and self._map(x).shape[2:] == PIXEL and node.outputs[0].type.rank == 4:
            n, c = self._map(x).shape[:2]
            if node.outputs[0].shape in ((n, c, 1, 1), (n, 1, 1, c)):
                self._same(node, self._map(x))
                return
        raise Refused(f"it transposes by {node.attrs['perm']}; the KPU moves no axes")

    def _conv(self, node: Node) -> None:
        from intaglio.npu.chips.k210.lower_conv import conv

        conv(self, node)

    def _matmul(self, node: Node) -> None:
        x, xs, xz, w, ws, wz, ys, yz = node.inputs
        assert x is not None
        if w is None or w.data is None or w.type.rank != 2 or ys is None:
            raise Refused("its second operand is no constant matrix, or its result no integers")
        found = self._pixel(x)
        bytes_, w_zero = byte_weights(data(w).T, wz)
        ratio = factors(xs, ws, ys, bytes_.shape[0])
        value, out = self.follow(node, scale=ys, zero=yz)
        zero = integer(xz) + offset(x)
        made = parts.linear(found, bytes_, ratio, np.zeros(1), value, zero, name_of(node), w_zero)
        self.result(out, made)

    def _pixel(self, x: Value) -> Value:
        """A tensor whose numbers are the channels of one pixel."""
        value = self._whole(x)
        n, channels = value.shape[0], value.type.size // value.shape[0]
        if channels > layer.MAX_NUMBERS:
            raise Refused(
                f"it reads {channels} numbers at once; the KPU does at most {layer.MAX_NUMBERS}"
            )
        shape = (n, channels, 1, 1)
        return value if value.shape == shape else neutral.reshape(value, shape=shape)

    def _add(self, node: Node) -> None:
        a, sa, za, b, sb, zb, ys, yz = node.inputs
        if a is None or b is None or a.data is not None or b.data is not None or a.shape != b.shape:
            raise Refused("it adds a constant, or maps of different shapes")
        left, right = self.readable(a), self.readable(b)
        if why := layer.why_not((2 * left.shape[1], *left.shape[2:])):
            raise Refused(why)
        y = float(scale_of(ys))  # type: ignore[arg-type]
        ratios = float(scale_of(sa)) / y, float(scale_of(sb)) / y  # type: ignore[arg-type]
        zeros = integer(za) + offset(a), integer(zb) + offset(b)
        value, out = self.follow(node, scale=ys, zero=yz)
        self.result(out, parts.added(left, right, ratios, zeros, value, name_of(node)))

    def _mean(self, node: Node) -> None:
        x, xs, xz, ys, yz = node.inputs
        assert x is not None
        if tuple(node.attrs["axes"]) != (2, 3):
            raise Refused(f"it takes means over axes {node.attrs['axes']}; the KPU does (2, 3)")
        self._global(node, x, xs, xz, ys, yz)

    def _global(self, node: Node, x: Value, xs: Any, xz: Any, ys: Any, yz: Any) -> None:
        source = self._whole(x)
        c, h, w = source.shape[1:]
        if rectangle(c) is None or h * w > layer.MAX_CHANNELS:
            raise Refused(
                f"it takes the means of {c} maps of {h}x{w}; {c} pixels have to form a rectangle "
                f"of at least 4x4, and a map has at most {layer.MAX_CHANNELS} pixels"
            )
        if source.producer is None:
            raise Refused("it takes the means of the input; a convolution must come first")
        ratio = float(scale_of(xs)) / float(scale_of(ys))
        value, out = self.follow(node, scale=ys, zero=yz)
        zero = integer(xz) + offset(x)
        self.result(out, parts.global_mean(source, ratio, zero, value, name_of(node)))

    def _avg_pool(self, node: Node) -> None:
        x, xs, xz, ys, yz = node.inputs
        assert x is not None
        a = node.attrs
        if tuple(a["kernel"]) == x.shape[2:] and not any(a["pad"]):
            self._global(node, x, xs, xz, ys, yz)
            return
        from intaglio.npu.chips.k210.lower_conv import pool_mode

        mode = pool_mode("mean", node, self._map(x).shape)
        source = self._whole(x)
        ratio = float(scale_of(xs)) / float(scale_of(ys))  # type: ignore[arg-type]
        function = Function(integer(yz) + offset(node.outputs[0]))
        zero = integer(xz) + offset(x)
        made = parts.copied(source, ratio, zero, function, mode, name_of(node))
        self._is(node, made, 0, ys, yz)

    def _max_pool(self, node: Node) -> None:
        from intaglio.npu.chips.k210.lower_conv import TOP_LEFT, is_around, pool_mode

        x = node.inputs[0]
        if is_around(node):
            made = parts.most_around(self._made(x), node.attrs["kernel"][0], name_of(node))
            if why := layer.why_not(made.shape[1:]):
                raise Refused(why)
            pick = TOP_LEFT if node.attrs["stride"][0] == 2 else 0
            self._same(node, Map(made, pick, part_of(node, made, pick)))
            return
        mode = pool_mode("max", node, self._map(x).shape)
        self._same(node, Map(parts.copied(self._whole(x), pool=mode, origin=name_of(node))))

    def _clip(self, node: Node) -> None:
        x = node.inputs[0]
        low, high = bounds(node)
        if (low, high) == (0, 255):
            self._same(node, self._map(x))
            return
        function = Function(0, low, high)
        made = parts.copied(self.readable(x), function=function, origin=name_of(node))
        self._same(node, Map(made, 0, part_of(node, made)))

    def _lookup(self, node: Node) -> None:
        x = node.inputs[0]
        function = Function(0, table=table(node))
        made = parts.copied(self.readable(x), function=function, origin=name_of(node))
        self.maps[node.outputs[0]] = Map(made, 0, part_of(node, made))

    def _concat(self, node: Node) -> None:
        if node.attrs["axis"] != 1 or any(v is None or v.data is not None for v in node.inputs):
            raise Refused("it joins maps along other axes than channels, or joins constants")
        made = neutral.concat(*(self._whole(v) for v in node.inputs), axis=1)
        self._same(node, Map(made))

    def _reshape(self, node: Node) -> None:
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        first = out.type.rank == 4 and out.shape[0] == 1 and len(x.uses) == 1
        if first and x.shape != out.shape and self._of_input(node, x, out):
            return
        shape = self._map(x).shape
        if (*out.shape, 1, 1)[:4] == shape:
            self._same(node, self._map(x))
            return
        if out.shape[0] == shape[0] and out.type.size == out.shape[0] * max(out.shape[1:]):
            self._same(node, Map(self._pixel(x)))  # a flattened map
            return
        raise Refused(f"it reshapes {x.type} to {out.type}; the KPU does not move pixels")

    def _resize(self, node: Node) -> None:
        """Repeated pixels: 2x2 or 4x4 for each."""
        x = node.inputs[0]
        shape, made = self._map(x).shape, node.outputs[0].shape
        numbers = np.arange(shape[2] * shape[3], dtype=np.float32).reshape(1, 1, *shape[2:])
        times = made[2] // shape[2]
        repeated = numbers.repeat(times, 2).repeat(times, 3)
        if times not in (2, 4) or made != (*shape[:2], times * shape[2], times * shape[3]):
            raise Refused(
                f"it resizes {shape} to {made}; maps grow 2 or 4 times in both directions"
            )
        if node.attrs["mode"] != "nearest" or not np.array_equal(
            REGISTRY["resize"].body(numbers, **node.attrs), repeated
        ):
            raise Refused("it interpolates, or picks other pixels than the one above and left")
        if why := layer.why_not(made[1:]):
            raise Refused(why)
        value = self._made(x)
        for _ in range(times // 2):
            value = parts.upsampled(value, name_of(node))
        self._same(node, Map(value))

    # ---- what follows a layer --------------------------------------------------------------------
    def follow(self, node: Node, scale: Any, zero: Any) -> tuple[Function, Node]:
        """The function that a layer applies at the end, and the node whose result that is.

        Clamps and tables that alone read the result become part of the layer.
        """
        out = node.outputs[0]
        function, last = Function(integer(zero) + offset(out)), node
        while reader := only_reader(last):
            if reader.op == "clip" and function.table is None and out.dtype != "i16":
                low, high = bounds(reader)
                low, high = max(low, function.low), min(high, function.high)
                function = Function(function.zero, low, high)
            elif reader.op == "lookup" and function.table is None:
                function = replace(function, table=table(reader))
            elif reader.op == "lookup_wide" and function.table is None:
                entries, base = table(reader), reader.attrs["base"]
                function = Function(function.zero, base, base + len(entries) - 1, entries, base)
            else:
                break
            last = reader
        if last.outputs[0].dtype not in ("i8", "u8"):
            raise Refused(f"its result is {last.outputs[0].dtype}; the KPU writes bytes")
        for step in chain(node, last):
            self.done.add(step)
        if function.table is None:
            self.scales[last.outputs[0]] = float(scale_of(scale)), function.zero
        return function, last

    def result(self, node: Node, value: Value, pick: int = 0) -> None:
        """Record the map of a layer's last node."""
        self.maps[node.outputs[0]] = Map(value, pick, part_of(node, value, pick))
        self.done.add(node)
