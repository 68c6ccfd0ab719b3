"""Runs a cvimodel, ours or Sophgo's: its commands in C, its CPU functions in numpy."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array
from intaglio.npu.chips.cv18xx import commands, cpu_routines, expanded_weights, native_machine
from intaglio.npu.chips.cv18xx.cvimodel import (
    CMDBUF,
    FIRST_IO,
    MOST_BYTES,
    PRIVATE,
    SHARED,
    SIZES,
    WEIGHT,
    WEIGHTS,
    Cvimodel,
    Program,
    Routine,
    Tensor,
)

NUMPY = {
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i16": np.dtype(np.int16),
    "u16": np.dtype(np.uint16),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}


class Machine:
    """A chip with the memory of one program of a model; `isa`: instruction sets that it may use."""

    def __init__(self, model: Cvimodel, program: int = 0, isa: int = 0xFFFFFFFF):
        self.model, self.program, self.isa = model, model.programs[program], isa
        self.chip = commands.find_chip(model.chip)
        self.memory = _memory(model, self.program)
        self._streams: dict[str, native_machine.Stream] = {}

    @property
    def inputs(self) -> list[Tensor]:
        """The tensors that `run` takes."""
        return [self.program.tensor(name) for name in self.program.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that `run` gives."""
        return [self.program.tensor(name) for name in self.program.outputs]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by their names."""
        for tensor in self.inputs:
            self._bytes(tensor)[...] = _checked(inputs, tensor)
        for routine in self.program.routines:
            if routine.kind == "cpu":
                self._call(routine)
            else:
                stream = self._stream(routine.name)
                native_machine.execute(stream, self.chip, self.memory, self.isa)
        return {t.name: self.value(t.name) for t in self.outputs}

    def value(self, name: str) -> Array:
        """A tensor as it now lies in memory."""
        tensor = self.program.tensor(name)
        return np.array(self._bytes(tensor).view(NUMPY[tensor.dtype]).reshape(tensor.shape))

    def _stream(self, name: str) -> native_machine.Stream:
        if not self._streams:
            kinds: dict[bool, list[Routine]] = {True: [], False: []}
            for routine in self.program.routines:
                kinds[routine.kind == "cpu"].append(routine)
            for routine in kinds[False]:
                data = self.model.section(CMDBUF, routine.name)
                self._streams[routine.name] = native_machine.prepare(data, self.chip)
            written = [*self.program.inputs, *(n for r in kinds[True] for n in r.outputs)]
            if all(self.program.tensor(n).base != WEIGHTS for n in written):
                expanded_weights.expand_ahead(list(self._streams.values()), self.memory)
        return self._streams[name]

    def _call(self, routine: Routine) -> None:
        inputs = [self.value(name) for name in routine.inputs]
        arguments = cpu_routines.arguments(routine.arguments)
        for name in routine.outputs:
            tensor = self.program.tensor(name)
            made = cpu_routines.run(routine.name, arguments, inputs, tensor.dtype)
            where = self._bytes(tensor)
            if made.nbytes != where.nbytes:
                raise BadFile(f"cvimodel: '{routine.name}' gives {made.nbytes} bytes for '{name}'")
            where[...] = np.ascontiguousarray(made).reshape(-1).view(np.uint8)

    def _bytes(self, tensor: Tensor) -> Array:
        part = self.memory[tensor.base]
        size = int(np.prod(tensor.shape, dtype=np.int64)) * SIZES[tensor.dtype]
        if part is None or tensor.offset + size > len(part):
            raise BadFile(f"cvimodel: tensor '{tensor.name}' lies beyond its memory")
        return part[tensor.offset : tensor.offset + size]


def _memory(model: Cvimodel, program: Program) -> list[Array | None]:
    """The bytes behind each base register."""
    parts: list[Array | None] = [None] * native_machine.BASES
    ends = {t.base: t.offset + t.bytes for t in program.tensors if t.base >= FIRST_IO}
    if program.shared + program.private + sum(ends.values()) > MOST_BYTES:
        raise BadFile(f"cvimodel: it wants more than {MOST_BYTES} bytes of memory")
    parts[SHARED] = np.zeros(program.shared, np.uint8)
    parts[PRIVATE] = np.zeros(program.private, np.uint8)
    weights = [s.data for s in model.sections if s.kind == WEIGHT]
    parts[WEIGHTS] = np.frombuffer(weights[0], np.uint8).copy() if weights else None
    for base, size in ends.items():
        parts[base] = np.zeros(size, np.uint8)
    return parts


def _checked(inputs: Mapping[str, Array], tensor: Tensor) -> Array:
    if tensor.name not in inputs:
        raise BadInput(f"input '{tensor.name}' is missing")
    given, want = np.asarray(inputs[tensor.name]), NUMPY[tensor.dtype]
    if given.dtype != want or given.shape != tensor.shape:
        raise BadInput(
            f"input '{tensor.name}' is {given.dtype}{list(given.shape)}; "
            f"{want}{list(tensor.shape)} is needed"
        )
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)
