"""From a graph of the KPU's layers to the commands of a kmodel 5."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.chips.buffers import Buffer, lowest, place
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.arithmetic import Terms
from intaglio.npu.chips.k210.arrange import ON_KPU, Home, TooLarge
from intaglio.npu.chips.k210.fields import Curve, Norm
from intaglio.npu.chips.k210.layer import MIN_EXTENT, Layer, linear_window
from intaglio.npu.chips.k210.model import Conv, Function, Kmodel, Module, Port, Range, Upload
from intaglio.npu.chips.k210.movements import Movements, Where, inside
from intaglio.npu.chips.k210.operands import name_of, rectangle
from intaglio.npu.chips.k210.split import fitted

ALIGN = 64  # of buffers in main memory
WINDOW_CENTRE = MIN_EXTENT + 1  # the pixel in the middle of its top left 3x3


class Emitter(Movements):
    """Emits the commands of one graph."""

    version = 5
    write_unit = 1  # of addresses in main memory that a layer writes to

    def __init__(self, graph: Graph):
        super().__init__()
        self.graph = graph
        self.plan = fitted(graph)
        self.buffers: list[Buffer] = []
        self.main: dict[Value, Where] = {}  # dense copies in main memory
        self.copies: dict[Value, list[Where]] = {}  # other places where they are needed too
        self.scratch: list[Buffer] = []  # the KPU's RAM for layers on main memory

    def model(self) -> Kmodel:
        """The whole model."""
        ends = self._ports()
        self._scratch()
        self.start()
        for v in self.graph.inputs:
            self._copy(v)
        for step, node in enumerate(self.plan.nodes):
            self.step = step
            self._node(node)
            for v in node.outputs:
                self._copy(v)
        self.finish()
        size = place(self.buffers, ALIGN) if self.buffers else 0
        commands = [make() for make in self.commands]
        function = Function(*ends, commands)
        used = max(self.plan.lines, *(b.start + b.size for b in self.scratch), 0)
        pools = {"data": size, "kpu": used * ram.LINE}
        return Kmodel(self.version, [Module("k210", [function], pools)])

    # ---- main memory -----------------------------------------------------------------------------
    def _ports(self) -> tuple[list[Port], list[Port]]:
        """The ports, and the places in main memory of all values that are needed there."""
        inputs, at = [], 0
        for v in self.graph.inputs:
            where = Range("input", at, v.type.bytes)
            inputs.append(Port(v.shape, where))
            self.main[v] = lambda where=where: where  # type: ignore[misc]
            at += -(-where.size // ALIGN) * ALIGN
        outputs, at = [], 0
        for i, v in enumerate(self.graph.outputs):
            where = Range("output", at, v.type.bytes)
            outputs.append(Port(v.shape, where))
            if self.version == 5 and v not in self.main and _joined(v):
                # the runtime finds an output by its first byte: parts cannot be written to it
                self._to_main(v, self.buffer(v.type.bytes, *self._span(v)))
            self._to_main(v, self.output_place(i, where))
            at += -(-where.size // ALIGN) * ALIGN
        for node in self.plan.nodes:
            for x in node.inputs if node.op in READ_MAIN else ():
                if x is not None and x.data is None and x not in self.main:
                    self._to_main(x, self.buffer(x.type.bytes, *self._span(x)))
        return inputs, outputs

    def output_place(self, index: int, where: Range) -> Where:
        """Where an output goes."""
        return lambda: where

    def _to_main(self, v: Value, where: Where) -> None:
        """`v` is needed in main memory; its parts are written where they belong."""
        if v in self.main:
            self.copies.setdefault(v, []).append(where)
            return
        self.main[v] = where
        n = v.producer
        if n is None or n.op not in ("concat", "reshape"):
            return
        offset = 0
        for x in n.inputs:
            assert x is not None
            size = x.type.bytes
            if offset % self.write_unit and x not in self.main:
                self._to_main(x, self.buffer(size, *self._span(x)))
            self._to_main(x, lambda o=offset, s=size: inside(where(), o, s))  # type: ignore[misc]
            offset += size

    def _span(self, v: Value) -> tuple[int, int]:
        """The first step that writes a part of a value in main memory, and the last that reads."""
        steps = {node: i for i, node in enumerate(self.plan.nodes)}
        return _first(steps, v), _last(steps, v)

    def buffer(self, size: int, *steps: int) -> Where:
        """A block of main memory that is in use from the first to the last of these steps."""
        block = Buffer(size, min(steps), max(steps))
        self.buffers.append(block)
        return lambda: Range("data", block.start, size)

    def _scratch(self) -> None:
        """The KPU's RAM for layers that read and write main memory; other maps may be in use."""
        roots = {id(h.buffer): h.buffer for h in self.plan.homes.values()}
        self.spaces: dict[Node, tuple[int, int]] = {}
        for step, node in enumerate(self.plan.nodes):
            if node.op not in MAIN_LAYERS:
                continue
            source, result = (ram.lines(*s) for s in main_shapes(node))
            block = Buffer(source + result, step, step)
            others = [b for b in roots.values() if b.overlaps(block)]
            block.start = lowest(block, others, 1)
            if block.start + block.size > ram.LINES:
                raise TooLarge(
                    f"k210: {name_of(node)} needs {block.size * ram.LINE:,} bytes of the KPU's RAM "
                    "beside the maps that are in use; they are not free",
                    node,
                )
            self.scratch.append(block)
            self.spaces[node] = block.start, block.start + source

    # ---- nodes -----------------------------------------------------------------------------------
    def start(self) -> None:
        """Upload the inputs."""
        for v in self.graph.inputs:
            if v in self.plan.homes:
                home, where = self.plan.homes[v], self.main[v]
                self.commands.append(
                    lambda v=v, home=home, where=where: Upload(where(), home.start, v.shape)  # type: ignore[misc]
                )

    def finish(self) -> None:
        """What follows the last layer."""

    def _node(self, node: Node) -> None:
        if node.op == ON_KPU:
            self._conv(node)
        elif node.op == "k210.global_mean":
            self._mean(node)
        elif node.op == "k210.linear":
            self._linear(node)
        elif node.op in ENLARGE:
            self._enlarge(node)
        elif node.op == "k210.crop":
            x, out = node.inputs[0], node.outputs[0]
            assert x is not None
            where, home = self._place(out), self.plan.homes.get(out)
            self.cropped(self.main[x], where, x.shape, out.shape)
            if home is not None:
                self.commands.append(lambda: Upload(where(), home.start, out.shape))

    def _copy(self, v: Value) -> None:
        """Copy a value to all places of main memory that need it."""
        for where in self.copies.get(v, ()):
            self.copied(self.main[v], where, v.type.bytes)

    def _conv(self, node: Node) -> None:
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        source, target = self.plan.homes[x], self.plan.homes[out]
        self._layer(node, x.shape[1:], source, target.start, self.main.get(out), source.start)

    def _layer(
        self,
        node: Node,
        shape: tuple[int, ...],
        source: Home | None,
        dst: int,
        main: Where | None,
        src: int,
    ) -> None:
        """One command of the KPU."""
        a = dict(node.attrs)
        _, w, norm, curve = (None if v is None else v.data for v in node.inputs)
        assert w is not None
        assert norm is not None
        assert curve is not None
        if source is not None and not source.dense and not a.get("depthwise", False):
            w, shape = _with_gaps(w, source, -a["arg_x"]), (source.room, *shape[1:])
        if node.op == "k210.linear" and w.shape[1] > shape[0]:
            w, a["arg_add"] = _in_windows(w, shape[0], -a["arg_x"]), 9 * a["arg_add"]
        args = a.get("arg_x", 0), 0, a.get("arg_w", 0), 0, a.get("arg_add", 0)
        layer = Layer(
            (shape[0], shape[1], shape[2]),
            len(w),
            w.shape[2],
            a.get("depthwise", False),
            a.get("pool", 0),
            a.get("pad", 0),
            Terms(*args),
            src,
            dst,
            main is not None,
        )
        packed = w.tobytes(), Norm(*norm).pack(), Curve(*curve).pack()
        target = None if main is None else self.conv_target(main)
        self.commands.append(
            lambda: Conv(layer.words(), *packed, None if target is None else target())
        )

    def _mean(self, node: Node) -> None:
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        shape, _ = main_shapes(node)
        src, dst = self.spaces[node]
        pixels, channels = shape[0], x.shape[1]
        turned = self.transposed(self.main[x], channels, pixels)
        self.commands.append(lambda: Upload(turned(), src, (1, *shape)))
        self._layer(node, shape, None, dst, self._place(out), src)

    def _linear(self, node: Node) -> None:
        x, out = node.inputs[0], node.outputs[0]
        assert x is not None
        shape, made = main_shapes(node)
        src, dst = self.spaces[node]
        numbers, first = x.shape[1], 0  # the pixel of the result
        where = self.main[x]
        if numbers == shape[0]:
            self.spread(where, numbers, src)
        else:
            first = WINDOW_CENTRE
            if x.producer is None:  # parts of an input have no address of their own
                where = self.buffer(numbers, self.step)
                self.copied(self.main[x], where, numbers)
            self.spread_windows(where, numbers, src)
        padded = self.buffer(math.prod(made) + first, self.step)
        self._layer(node, shape, None, dst, padded, src)
        size = math.prod(made)
        self.gather(lambda: inside(padded(), first, size), self._place(out), made[0])

    def _enlarge(self, node: Node) -> None:
        """Make a larger map in main memory, and upload it."""
        x, *fill = (v for v in node.inputs if v is not None)
        out, home = node.outputs[0], self.plan.homes[node.outputs[0]]
        target = self.buffer(out.type.bytes, self.step)
        if fill:
            keep = node.attrs["keep"]
            self.bordered(self.main[x], self.main[fill[0]], target, x.shape, keep, out.shape)
        else:
            self.upsampled(self.main[x], target, x.shape)
        self.commands.append(lambda: Upload(target(), home.start, out.shape))
        if out in self.main:
            self.copied(target, self.main[out], out.type.bytes)

    def _place(self, v: Value) -> Where:
        """Where a value goes in main memory."""
        if v not in self.main:
            self._to_main(v, self.buffer(v.type.bytes, *self._span(v)))
        return self.main[v]

    def conv_target(self, where: Where) -> Where:
        """Where a layer writes to main memory."""
        return where


MAIN_LAYERS = ("k210.global_mean", "k210.linear")
ENLARGE = ("k210.upsample", "k210.border")  # read main memory, write the KPU's RAM
READ_MAIN = (*MAIN_LAYERS, *ENLARGE, "k210.crop", "reshape")


def main_shapes(node: Node) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The maps that a layer on main memory reads and writes in the KPU's RAM."""
    x, out = node.inputs[0], node.outputs[0]
    assert x is not None
    if node.op == "k210.linear":
        side, channels = MIN_EXTENT, linear_window(x.shape[1])[0]
        return (channels, side, side), (out.shape[1], side, side)
    sides = rectangle(x.shape[1])
    assert sides is not None
    return (math.prod(x.shape[2:]), *sides), (1, *sides)


def _first(steps: dict[Node, int], v: Value) -> int:
    """The first step that writes a part of a value."""
    n = v.producer
    if n is None:
        return 0
    if n.op in ("concat", "reshape"):
        return min(_first(steps, x) for x in n.inputs if x is not None)
    return steps[n]


def _last(steps: dict[Node, int], v: Value) -> int:
    """The last step that reads a value, or one that it is part of."""
    readers = [n for n in v.uses if n in steps]
    found = [
        _last(steps, n.outputs[0]) if n.op in ("concat", "reshape") else steps[n] for n in readers
    ]
    made = 0 if v.producer is None else steps[v.producer]
    return max(found, default=made)


def _joined(v: Value) -> bool:
    """Whether several layers write the parts of a value."""
    n = v.producer
    if n is not None and n.op == "reshape" and n.inputs[0] is not None:
        return _joined(n.inputs[0])
    return n is not None and n.op == "concat"


def _with_gaps(w: Array, home: Home, zero: int) -> Array:
    """Weights with zeros for the gaps between the operands of a concat."""
    wide = np.full((len(w), home.room, *w.shape[2:]), zero, np.uint8)
    wide[:, home.channels] = w
    return wide


def _in_windows(w: Array, channels: int, zero: int) -> Array:
    """The weights of a linear layer as 3x3 windows; numbers that are missing have no weight."""
    wide = np.full((len(w), 9 * channels), zero, np.uint8)
    wide[:, : w.shape[1]] = w.reshape(len(w), -1)
    return wide.reshape(len(w), channels, 3, 3)
