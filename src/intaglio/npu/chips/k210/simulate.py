"""Executes the commands of a kmodel exactly as the chip does, by C where it is built."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.k210 import arithmetic, layer, native_layer, ram
from intaglio.npu.chips.k210.fields import Curve, Norm
from intaglio.npu.chips.k210.model import (
    Conv,
    Copy,
    CpuLayer,
    Download,
    Kmodel,
    Port,
    Range,
    Upload,
)


class Machine:
    """The KPU's RAM and main memory, on which commands work."""

    def __init__(self, model: Kmodel):
        module = model.modules[model.entry[0]]
        if module.kind != "k210":
            raise Unsupported(
                f"the file starts in a {module.kind} function, for the CPU; only k210 functions "
                "are simulated: `intaglio inspect` shows them"
            )
        self.model, self.function = model, model.main
        self.ram = np.zeros(ram.BYTES, np.uint8)
        self.memory = {
            "data": np.zeros(module.pools.get("data", 0), np.uint8),
            "rdata": np.frombuffer(module.sections.get(".rdata", b""), np.uint8).copy(),
            "kpu": self.ram,
        }
        self.ports: dict[tuple[str, int], Array] = {}
        self._native: dict[int, tuple[layer.Layer, native_layer.NativeLayer]] = {}
        self._scratch = np.empty(0, np.uint8)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of one inference."""
        for name, port in zip(input_names(self.model), self.function.inputs, strict=True):
            self.ports["input", port.range.start] = _checked(inputs, name, port)
        for port in self.function.outputs:
            if port.range.place == "output":
                blank = np.zeros(port.range.size, np.uint8)
                self.ports["output", port.range.start] = blank
        if self.model.version == 3:
            self._upload_first()
        for command in self.function.commands:
            self.execute(command)
        names = output_names(self.model)
        found = zip(names, self.function.outputs, strict=True)
        return {name: self._read(port).reshape(port.shape) for name, port in found}

    def _upload_first(self) -> None:
        """Give the input to the first layer, as the runtime of kmodel 3 does."""
        first, port = self.function.commands[0], self.function.inputs[0]
        given = self.ports["input", port.range.start]
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

    def _read(self, port: Port) -> Array:
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
        if id(command) not in self._native:  # the function keeps its commands
            self._native[id(command)] = prepare(command)
        what, native = self._native[id(command)]
        if len(self._scratch) < native.scratch:
            self._scratch = np.empty(native.scratch, np.uint8)
        base = self.ram.ctypes.data
        x, y = base + what.src * ram.LINE, base + what.dst * ram.LINE
        size = ram.lines(*what.in_shape) * ram.LINE
        if what.depthwise and abs(what.src - what.dst) * ram.LINE < size:
            copy = np.frombuffer(self.ram, np.uint8, size, what.src * ram.LINE).copy()
            x = copy.ctypes.data
        native.run(x, y, self._scratch.ctypes.data)
        return what

    def _copy(self, command: Copy) -> None:
        source, target = self.bytes(command.source), self.bytes(command.target)
        read, write = (
            np.lib.stride_tricks.as_strided(m, command.shape, strides, writeable=w)
            for m, strides, w in (
                (source, command.in_strides, False),
                (target, command.out_strides, True),
            )
        )
        write[...] = read


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
    last = what.pad, what.terms, what.depthwise, what.pool
    places = native_layer.in_ram(what.in_shape), native_layer.in_ram(what.out_shape)
    operands = _operands(what, command)
    return what, native_layer.NativeLayer(what.in_shape, *operands, *last, places)


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


def _checked(inputs: Mapping[str, Array], name: str, port: Port) -> Array:
    if name not in inputs:
        raise BadInput(f"input '{name}' is missing")
    want, given = dtypes.numpy_of(port.range.dtype), np.asarray(inputs[name])
    if given.dtype != want or given.shape != port.shape:
        raise BadInput(
            f"input '{name}' is {given.dtype}{list(given.shape)}; "
            f"{np.dtype(want)}{list(port.shape)} is needed"
        )
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def input_names(model: Kmodel) -> list[str]:
    """The names of the inputs; input0, input1, ... where the file has none."""
    return _names(model, "inputs", len(model.main.inputs))


def output_names(model: Kmodel) -> list[str]:
    """The names of the outputs; output0, output1, ... where the file has none."""
    return _names(model, "outputs", len(model.main.outputs))


def _names(model: Kmodel, ports: str, count: int) -> list[str]:
    known = model.about.get(ports, [])
    if len(known) == count:
        return [str(port["name"]) for port in known]
    return [f"{ports[:-1]}{i}" for i in range(count)]
