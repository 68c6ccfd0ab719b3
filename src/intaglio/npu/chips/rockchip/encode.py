"""From the layers of a network to tasks: register commands and where they hold addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir import Array, Graph, Node, Value
from intaglio.npu.chips.rockchip import (
    convolution,
    dpu_tasks,
    dpu_tasks_rk3562,
    dpu_tasks_rk3576,
    packing,
    pool_task,
    settings_rk3576,
)
from intaglio.npu.chips.rockchip.arithmetic import MOST_ENTRIES, Bounds, Pair
from intaglio.npu.chips.rockchip.convolution import OUTPUT, Task
from intaglio.npu.chips.rockchip.dpu_tasks import MapSize, Settings
from intaglio.npu.chips.rockchip.geometry import (
    RK3576,
    RK3588,
    Added,
    Convolution,
    Design,
    Table,
    kernel_channels,
    round_up,
    surface_pixels,
)
from intaglio.npu.chips.rockchip.job import INTERNAL, WEIGHTS, Address, JobTask
from intaglio.npu.chips.rockchip.memory import Memory, plan, size_of
from intaglio.npu.chips.rockchip.scaling import CHANNEL_BITS
from intaglio.npu.chips.rockchip.words import NUMBERS, Word

ALIGNMENT = 64
DPU_TASKS: dict[str, Any] = {"rk3562": dpu_tasks_rk3562, "rk3576": dpu_tasks_rk3576}
SOURCE, SECOND = 0x5018, 0x5038  # registers of the DPU that hold addresses
POOL_SOURCE, POOL_DESTINATION = 0x701C, 0x6070


class Encoder:
    """Encodes one network."""

    def __init__(self, graph: Graph, design: Design = RK3588):
        self.graph = graph
        self.design = design
        self.memory: Memory = plan(graph, design)
        self.tasks: list[JobTask] = []
        self.weights = bytearray()
        self.dpu = DPU_TASKS.get(design.registers, dpu_tasks)
        self.stages = design is RK3576  # numbers of all channels lie in memory
        self.destination = convolution.ADDRESSES.get(design.registers, {}).get(OUTPUT, OUTPUT)
        self._constants: dict[bytes, int] = {}
        self._loaded: Table | None = None

    def run(self) -> list[JobTask]:
        """The tasks of all layers, in order."""
        rules = {
            "rockchip.conv": self._conv,
            "rockchip.pair": self._pair,
            "npu.pool": self._pool,
            "npu.lut": self._lut,
            "npu.resize": self._resize,
            "npu.concat": self._concat,
        }
        for node in self.graph.nodes():
            if node.op in rules:
                rules[node.op](node)
        return self.tasks

    # ---- places ----------------------------------------------------------------------------------
    def _at(self, v: Value | None, more: int = 0) -> Address:
        assert v is not None
        if v.data is not None:
            return Address(WEIGHTS, self._constant(_blocks(v.data, self._size(v))) + more)
        return Address(INTERNAL, self.memory.places[v].start + more)

    def _size(self, v: Value) -> MapSize:
        return size_of(v, self.design)

    def _constant(self, data: bytes) -> int:
        """The offset of these bytes in the weights."""
        if data not in self._constants:
            self.weights += bytes(-len(self.weights) % ALIGNMENT)
            self._constants[data] = len(self.weights)
            self.weights += data
        return self._constants[data]

    def _add(self, node: Node, settings: Settings, places: dict[int, Address]) -> None:
        words = [Word(NUMBERS[block], register, value) for block, register, value in settings]
        found = {i: places[w.register] for i, w in enumerate(words) if w.register in places}
        self.tasks.append(JobTask(words, found, node.op, node.origin or node.outputs[0].name or ""))

    # ---- layers ----------------------------------------------------------------------------------
    def _conv(self, node: Node) -> None:
        x, w, numbers, residual, _ = node.inputs
        assert x is not None
        conv = self._geometry(node)
        if conv.table is not None:
            self._load(node, conv.table)
        assert w is not None
        assert w.data is not None
        assert numbers is not None
        assert numbers.data is not None
        zeros = zero_points(w.data)
        stored = (w.data + zeros.reshape(-1, 1, 1, 1)).astype(np.int8)
        held = kernel_channels(conv)
        if conv.depthwise:
            packed = packing.depthwise_weights(stored, zeros, held, self.design)
        else:
            packed = packing.weights(stored, zeros, self.design, held)
        count = round_up(conv.outputs, conv.out_block)
        apart = conv.depthwise and self.design.pairs  # zero points stand beside the weights
        given = None if apart else zeros
        rows = packing.channels(numbers.data[0], given, numbers.data[1], count, self.design)
        bases = {
            "input": self._at(x),
            "output": self._at(node.outputs[0]),
            "weights": Address(WEIGHTS, self._constant(packed)),
            "channels": Address(WEIGHTS, self._constant(rows)),
        }
        if self.stages:
            bases["shifts"] = self._stage(None, None, CHANNEL_BITS)
            if conv.table is not None:
                bases["table_scale"] = self._stage(0, conv.scale, conv.shift)
        if residual is not None:
            bases["added"] = self._at(residual)
        for task in convolution.encode(conv):
            self._task(node, task, bases)

    def _task(self, node: Node, task: Task, bases: dict[str, Address]) -> None:
        found = {i: bases[name].moved(offset) for i, (name, offset) in task.addresses.items()}
        self.tasks.append(
            JobTask(task.words, found, node.op, node.origin or node.outputs[0].name or "")
        )

    def _stage(self, addend: int | None, factor: int | None, shift: int | None) -> Address:
        return Address(WEIGHTS, self._constant(settings_rk3576.stage(addend, factor, shift)))

    def _geometry(self, node: Node) -> Convolution:
        x, w, _, residual, table = node.inputs
        assert x is not None
        assert w is not None
        a = node.attrs
        picture = x in self.memory.places and self.memory.places[x].picture
        made = Table(0, ())
        if table is not None:
            assert table.data is not None
            made = Table(a["first"], tuple(int(v) for v in table.data), a["step_bits"])
        added = Added(a["added_zero"], a["added_scale"], a["added_shift"])
        return Convolution(
            x.shape[1],
            x.shape[2],
            x.shape[3],
            w.shape[0],
            (w.shape[2], w.shape[3]),
            tuple(a["stride"]),
            tuple(a["pad"]),
            tuple(a["dilation"]),
            depthwise=a["groups"] > 1,
            zero_in=a["padding"],
            zero_out=a["zero"],
            scale=a["scale"],
            shift=a["shift"],
            relu=a["relu"],
            limit=a["limit"],
            added=added if residual is not None else None,
            in_surface=0 if picture else surface_pixels(x.shape[2], x.shape[3]),
            relu_after=residual is not None and a["relu"],
            blocks=not picture,
            table=made if table is not None else None,
            apart=tuple(a["apart"]),
            design=self.design,
        )

    def _load(self, node: Node, table: Table) -> None:
        if table.entries == (self._loaded.entries if self._loaded else None):
            return
        self._loaded = table
        scratch = Address(INTERNAL, self.memory.scratch.start)
        for part in self.dpu.load_table(table, self.design):
            self._add(node, part, {SOURCE: scratch, self.destination: scratch})

    def _pair(self, node: Node) -> None:
        a, b = node.inputs
        assert a is not None
        assert b is not None
        n = node.attrs
        numbers = Pair(
            n["multiplies"],
            n["a_zero"],
            Added(n["b_zero"], n["b_scale"], n["b_shift"]),
            n["scale"],
            n["shift"],
            n["zero"],
            Bounds(n["relu"], n["limit"]),
            n["a_scale"],
            n["a_shift"],
        )
        settings = self.dpu.pair(self._size(a), numbers, b.shape != a.shape)
        places = {SOURCE: self._at(a), SECOND: self._at(b)}
        places[self.destination] = self._at(node.outputs[0])
        if self.stages:
            made = dpu_tasks_rk3576.numbers(numbers)
            places[settings_rk3576.CFG] = Address(WEIGHTS, self._constant(made))
        self._add(node, settings, places)

    def _lut(self, node: Node) -> None:
        x, table = node.inputs
        assert x is not None
        assert table is not None
        assert table.data is not None
        made = Table(node.attrs["base"], tuple(int(v) for v in table.data)[:MOST_ENTRIES])
        self._load(node, made)
        places = {SOURCE: self._at(x), self.destination: self._at(node.outputs[0])}
        self._add(node, self.dpu.look_up(self._size(x), made), places)

    def _pool(self, node: Node) -> None:
        x, y, a = node.inputs[0], node.outputs[0], node.attrs
        assert x is not None
        windows = tuple(a["kernel"]), tuple(a["stride"]), tuple(a["pad"])
        settings = pool_task.largest(self._size(x), self._size(y), *windows)
        self._add(node, settings, {POOL_SOURCE: self._at(x), POOL_DESTINATION: self._at(y)})

    def _resize(self, node: Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        assert x is not None
        size, out = self._size(x), self._size(y)
        settings = self.dpu.repeat(size, tuple(node.attrs["factor"]))
        self._clear(node)
        for block in range(-(-size.channels // size.atom)):
            source, to = self._at(x, block * size.surface), self._at(y, block * out.surface)
            self._add(node, settings, {SOURCE: source, self.destination: to})
        self._clear(node)

    def _clear(self, node: Node) -> None:
        """What the vendor does around repeated pixels on an RK3576."""
        if not self.stages:
            return
        size = RK3576.atom * RK3576.atom
        zeros = Address(WEIGHTS, self._constant(bytes(size)))
        scratch = Address(INTERNAL, self.memory.scratch.start)
        names = 0x1088, 0x1110, 0x5024
        for _ in range(2):
            places = dict.fromkeys(names, zeros) | {self.destination: scratch}
            self._add(node, dpu_tasks_rk3576.clear(), places)

    def _concat(self, node: Node) -> None:
        y, at = node.outputs[0], 0
        for number, v in enumerate(node.inputs):
            assert v is not None
            if number in self.memory.copies.get(node, ()):
                size = self._size(v)
                to = self._at(y, at // size.atom * size.surface)
                self._add(node, self.dpu.copy(size), {SOURCE: self._at(v), self.destination: to})
            at += v.shape[1]


def _blocks(values: Array, size: MapSize) -> bytes:
    """A constant map as it lies in memory."""
    channels, pixels = round_up(size.channels, size.atom), size.height * size.width
    padded = np.zeros((channels, size.pixels), np.int8)
    padded[: size.channels, :pixels] = values.reshape(size.channels, pixels)
    return padded.reshape(-1, size.atom, size.pixels).transpose(0, 2, 1).tobytes()


def zero_points(weights: Array) -> Array:
    """What makes the weights of each output signed bytes."""
    flat = weights.reshape(len(weights), -1)
    made = -np.clip(0, flat.max(1) - 127, flat.min(1) + 128)
    return np.asarray(made, np.int32)
