"""Executes the commands of k210 functions exactly as the chip does, by C where it is built."""

from __future__ import annotations

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile
from intaglio.ir import Array
from intaglio.npu.chips.k210 import arithmetic, layer, native_layer, ram
from intaglio.npu.chips.k210.fields import Curve, Norm
from intaglio.npu.chips.k210.model import (
    Conv,
    Copy,
    CpuLayer,
    Download,
    Function,
    Module,
    Port,
    Range,
    Upload,
)

Ports = dict[tuple[str, int], Array]  # the bytes of inputs and outputs, by memory and start


class Kpu:
    """The KPU's RAM and main memory, on which the commands of a module work."""

    def __init__(self, module: Module):
        self.module = module
        self.ram = np.zeros(ram.BYTES, np.uint8)
        self.memory = {
            "data": np.zeros(module.pools.get("data", 0), np.uint8),
            "rdata": np.frombuffer(module.sections.get(".rdata", b""), np.uint8).copy(),
            "kpu": self.ram,
        }
        self.ports: Ports = {}
        self._native: dict[int, tuple[layer.Layer, native_layer.NativeLayer]] = {}
        self._scratch = np.empty(0, np.uint8)
        self._ram_at, self._scratch_at = self.ram.ctypes.data, 0

    def run(self, function: Function, ports: Ports) -> None:
        """Execute a function; its outputs are written to the ports."""
        self.ports = ports
        for command in function.commands:
            self.execute(command)

    def give_first(self, function: Function, ports: Ports) -> None:
        """Give the input to the first layer, as the runtime of kmodel 3 does."""
        first, port = function.commands[0], function.inputs[0]
        given = ports["input", port.range.start]
        if isinstance(first, Conv):
            self._upload(given, layer.read(first.words).src, port.shape)
        elif isinstance(first, CpuLayer):
            self.bytes(Range("data", first.fields["main_in"], len(given)))[...] = given

    def execute(self, command: object) -> None:
        """One command."""
        match command:
            case Upload(source, line, shape):
                self._upload(self.bytes(source), line, shape)
            case Download(line, target, shape):
                self.bytes(target)[...] = self._download(line, shape).reshape(-1)
            case Conv():
                self._conv(command)
            case Copy():
                self._copy(command)
            case CpuLayer(kind, fields):
                from intaglio.npu.chips.k210.cpu_layers import execute

                execute(self, kind, fields)

    def bytes(self, where: Range) -> Array:
        """A view of some bytes of a memory; BadFile where they do not exist."""
        if where.place in ("input", "output"):
            memory, first = self.ports.get((where.place, where.start)), 0
            if memory is None:
                raise BadFile(f"no {where.place} starts at {where.start}")
        elif where.place in self.memory:
            memory, first = self.memory[where.place], where.start
        else:
            raise BadFile(f"a command uses the memory '{where.place}', which the KPU cannot reach")
        if first + where.size > len(memory):
            raise BadFile(
                f"a command uses bytes {first} to {first + where.size} of {where.place}; "
                f"it has {len(memory)}"
            )
        return memory[first : first + where.size]

    def read(self, port: Port, ports: Ports) -> Array:
        """The values of an output."""
        self.ports = ports
        return self.bytes(port.range).view(dtypes.numpy_of(port.range.dtype)).copy()

    def _upload(self, source: Array, line: int, shape: tuple[int, ...]) -> None:
        step = ram.lines(*shape[1:])
        for i, one in enumerate(source.reshape(shape)):
            ram.upload(self.ram, line + i * step, one)

    def _download(self, line: int, shape: tuple[int, ...]) -> Array:
        step = ram.lines(*shape[1:])
        return np.stack(
            [ram.download(self.ram, line + i * step, shape[1:]) for i in range(shape[0])]
        )

    def _conv(self, command: Conv) -> None:
        if command.batches == 1 and native_layer.available():
            what = self._conv_in_ram(command)
        else:
            what = layer.read(command.words)
            maps = self._download(what.src, (command.batches, *what.in_shape))
            self._upload(
                np.stack([convolve(what, command, x) for x in maps]),
                what.dst,
                (command.batches, *what.out_shape),
            )
        if command.output is not None:
            shape = (command.batches, *what.out_shape)
            results = self._download(what.dst, shape).reshape(-1)
            self.bytes(command.output)[: results.size] = results

    def _conv_in_ram(self, command: Conv) -> layer.Layer:
        """Execute a layer by C, from RAM to RAM."""
        found = self._native.get(id(command))  # the function keeps its commands
        if found is None:
            found = self._native[id(command)] = prepare(command)
            if len(self._scratch) < found[1].scratch:
                self._scratch = np.empty(found[1].scratch, np.uint8)
                self._scratch_at = self._scratch.ctypes.data
        what, native = found
        x, y = self._ram_at + what.src * ram.LINE, self._ram_at + what.dst * ram.LINE
        if what.depthwise:
            size = ram.lines(*what.in_shape) * ram.LINE
            if abs(what.src - what.dst) * ram.LINE < size:
                copy = np.frombuffer(self.ram, np.uint8, size, what.src * ram.LINE).copy()
                x = copy.ctypes.data
        native.run(x, y, self._scratch_at)
        return what

    def _copy(self, command: Copy) -> None:
        sides = (command.source, command.in_strides), (command.target, command.out_strides)
        read, write = (self._strided(command.shape, *side) for side in sides)
        write[...] = read

    def _strided(self, shape: tuple[int, ...], where: Range, strides: tuple[int, ...]) -> Array:
        # a part of a map reaches beyond its range: the range has the part's size
        last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        view = self.bytes(Range(where.place, where.start, last + 1))
        return np.lib.stride_tricks.as_strided(view, shape, strides)


def _operands(what: layer.Layer, command: Conv) -> tuple[Array, Norm, Curve]:
    shape = what.weight_shape
    w = np.frombuffer(command.weights, np.uint8, int(np.prod(shape))).reshape(shape)
    return w, Norm.unpack(command.norm[: 8 * what.out_channels]), Curve.unpack(command.curve)


def convolve(what: layer.Layer, command: Conv, x: Array) -> Array:
    """The result of a layer for one map."""
    operands = _operands(what, command)
    return compute(x, *operands, what.pad, what.terms, what.depthwise, what.pool)


def prepare(command: Conv) -> tuple[layer.Layer, native_layer.NativeLayer]:
    """A layer with its weights packed for C, which works in the KPU's RAM."""
    what = layer.read(command.words)
    places = native_layer.in_ram(what.in_shape), native_layer.in_ram(what.out_shape)
    w, norm, curve = _operands(what, command)
    last = what.depthwise, what.pool, places
    return what, native_layer.NativeLayer(
        what.in_shape, w, norm, curve, what.pad, what.terms, *last
    )


def compute(
    x: Array,
    w: Array,
    norm: Norm,
    curve: Curve,
    pad: int,
    terms: arithmetic.Terms,
    depthwise: bool,
    pool: int,
) -> Array:
    """A layer's result [O, H, W] for a map [C, H, W]."""
    if native_layer.available():
        return native_layer.run(x, w, norm, curve, pad, terms, depthwise, pool)
    acc = arithmetic.sums(x, w, pad, terms, depthwise)
    return arithmetic.pool(arithmetic.activate(arithmetic.normalize(acc, norm), curve), pool)
