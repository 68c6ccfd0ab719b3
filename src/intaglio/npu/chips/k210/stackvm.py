"""Executes stackvm functions: the part of nncase's kmodels that runs on the chip's CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.k210.kmodel5 import DTYPES
from intaglio.npu.chips.k210.model import LOCATIONS, Function, Module, Port
from intaglio.npu.chips.k210.stackvm_code import Instruction, instructions

MAX_STEPS = 1 << 20  # instructions of one run
MAX_STACK = 1 << 12
MAX_WORK = 1 << 27  # elements of one run
AS_FAST = 16  # products that take as long as an element
MAX_RANK = 8
Call = Callable[[int, int, list[Array], list[Array]], None]  # module, function, inputs, outputs
Ports = dict[tuple[str, int], Array]
Padding = tuple[int, int, int]  # before, after, between elements


@dataclass(frozen=True, slots=True)
class Address:
    """A byte of one of the memories; `memory` is None for no address."""

    memory: Array | None
    offset: int


NOTHING = Address(None, 0)


class StackVm:
    """A stackvm module: its memory, registers and stack."""

    def __init__(self, module: Module, call: Call):
        self.module, self.call = module, call
        self.data = np.zeros(module.pools.get("data", 0), np.uint8)
        self.rdata = np.frombuffer(module.sections.get(".rdata", b""), np.uint8)
        self.ports: Ports = {}
        self.stack: list[int | float | Address] = []
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.paddings: dict[int, tuple[Padding, ...]] = {}
        self.steps = self.work = 0
        self._code: dict[int, dict[int, Instruction]] = {}

    def start(self) -> None:
        """Forget what earlier runs counted."""
        self.steps = self.work = 0

    def run(self, function: Function, ports: Ports) -> None:
        """Execute a function; its outputs are written to the ports."""
        self.ports = ports
        code = self._decoded(function)
        at, size = 0, function.size
        while at < size:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise BadFile(f"kmodel: stackvm code executes more than {MAX_STEPS} instructions")
            if at not in code:
                raise BadFile(
                    f"kmodel: stackvm code jumps to byte {at}; no instruction begins there"
                )
            instruction = code[at]
            if instruction.name == "ret":
                return
            at = self._execute(instruction)
            if at < 0:
                raise BadFile(f"kmodel: stackvm code jumps to byte {at}")

    def _decoded(self, function: Function) -> dict[int, Instruction]:
        if id(function) not in self._code:
            code = function_code(self.module, function)
            self._code[id(function)] = {i.at: i for i in instructions(code)}
        return self._code[id(function)]

    def read(self, port: Port, ports: Ports) -> Array:
        """The values of an output."""
        found = ports.get((port.range.place, port.range.start))
        if found is None:
            raise BadFile(f"kmodel: an output lies in {port.range.place}; only 'output' is known")
        return found.view(dtypes.numpy_of(port.range.dtype)).copy()

    def _execute(self, instruction: Instruction) -> int:
        """One instruction; returns the byte of the next one."""
        f = instruction.numbers
        match instruction.name:
            case "nop":
                pass
            case "ldc_i4" | "ldc_r4":
                self.push(f["imm"])
            case "ldc_i4_0" | "ldc_i4_1":
                self.push(int(instruction.name[-1]))
            case "ldnull":
                self.push(NOTHING)
            case "lea_buffer":
                self.push(self._address(f["location"], f["offset"]))
            case "dup":
                top = self.pop()
                self.push(top)
                self.push(top)
            case "pop":
                self.pop()
            case "br":
                return int(instruction.end + f["target"])
            case "br_true" | "br_false":
                taken = bool(self.integer()) == (instruction.name == "br_true")
                return int(instruction.end + f["target"]) if taken else instruction.end
            case "stshape":
                self.shapes[f["register"]] = self._shape(f["rank"])
            case "stpaddings":
                self.paddings[f["register"]] = self._paddings(f["rank"])
            case "tensor.call":
                targets = [self._operand() for _ in range(f["targets"])][::-1]
                sources = [self._operand() for _ in range(f["sources"])][::-1]
                self.call(f["module"], f["function"], sources, targets)
            case name:
                from intaglio.npu.chips.k210.stackvm_tensors import FUNCTIONS

                if name not in FUNCTIONS:
                    raise Unsupported(
                        f"kmodel: byte {instruction.at} of the stackvm code is {name}; that is not "
                        "simulated; `intaglio inspect` shows the code"
                    )
                FUNCTIONS[name](self, f)
        return instruction.end

    # ---- the stack -------------------------------------------------------------------------------
    def push(self, value: int | float | Address) -> None:
        """Push a value."""
        if len(self.stack) >= MAX_STACK:
            raise BadFile(f"kmodel: stackvm code pushes more than {MAX_STACK} values")
        self.stack.append(value)

    def pop(self) -> int | float | Address:
        """Pop a value."""
        if not self.stack:
            raise BadFile("kmodel: stackvm code pops from an empty stack")
        return self.stack.pop()

    def integer(self) -> int:
        """Pop an integer."""
        value = self.pop()
        if not isinstance(value, int):
            raise BadFile("kmodel: stackvm code uses a float or an address as an integer")
        return value

    def number(self) -> float:
        """Pop a float."""
        value = self.pop()
        if not isinstance(value, float):
            raise BadFile("kmodel: stackvm code uses an integer or an address as a float")
        return value

    def address(self) -> Address:
        """Pop an address."""
        value = self.pop()
        if not isinstance(value, Address):
            raise BadFile("kmodel: stackvm code uses a number as an address")
        return value

    def padding(self) -> Padding:
        """Pop a padding."""
        between, after, before = self.integer(), self.integer(), self.integer()
        return before, after, between

    # ---- registers and memory --------------------------------------------------------------------
    def _shape(self, rank: int) -> tuple[int, ...]:
        if rank > MAX_RANK:
            raise BadFile(f"kmodel: stackvm code has a shape of rank {rank}; at most {MAX_RANK}")
        return tuple(self.integer() for _ in range(rank))[::-1]

    def _paddings(self, rank: int) -> tuple[Padding, ...]:
        if rank > MAX_RANK:
            raise BadFile(f"kmodel: stackvm code has paddings of rank {rank}; at most {MAX_RANK}")
        return tuple(self.padding() for _ in range(rank))[::-1]

    def shape(self, register: int) -> tuple[int, ...]:
        """The numbers in a register."""
        if register not in self.shapes:
            raise BadFile(f"kmodel: stackvm code reads the empty register {register}")
        return self.shapes[register]

    def _address(self, location: int, offset: int) -> Address:
        place = LOCATIONS.get(location, str(location))
        if place in ("input", "output"):
            starts = [s for p, s in self.ports if p == place and s <= offset]
            if not starts:
                raise BadFile(f"kmodel: stackvm code uses byte {offset} of no {place}")
            return Address(self.ports[place, max(starts)], offset - max(starts))
        if place not in ("data", "rdata"):
            raise BadFile(f"kmodel: stackvm code uses the memory '{place}'")
        return Address(self.data if place == "data" else self.rdata, offset)

    def count(self, elements: int, products: int = 0) -> None:
        """Count the work of an instruction; BadFile where a run does too much."""
        self.work += elements + products // AS_FAST
        if self.work > MAX_WORK:
            raise BadFile(f"kmodel: stackvm code computes more than {MAX_WORK} numbers")

    def view(
        self,
        where: Address,
        dtype: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        write: bool = False,
    ) -> Array:
        """A tensor in memory; strides count elements."""
        if dtype >= len(DTYPES):
            raise BadFile(f"kmodel: stackvm code has element type {dtype}")
        kind = np.dtype(dtypes.numpy_of(DTYPES[dtype]))
        if len(shape) != len(strides) or min(shape, default=1) < 1 or min(strides, default=0) < 0:
            raise BadFile(f"kmodel: stackvm code has shape {shape} with strides {strides}")
        self.count(math.prod(shape))
        last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        size = 0 if where.memory is None else where.memory.size
        if where.memory is None or where.offset + (last + 1) * kind.itemsize > size:
            raise BadFile(
                f"kmodel: stackvm code uses a tensor {shape} at byte {where.offset} of {size}"
            )
        if write and not where.memory.flags.writeable:
            raise BadFile("kmodel: stackvm code writes to constants")
        steps = tuple(s * kind.itemsize for s in strides)
        return np.ndarray(shape, kind, where.memory.data, where.offset, steps)

    def _operand(self) -> Array:
        """Pop a tensor that a call passes, as bytes; the called function knows its strides."""
        strides, shape = self.shape(self.integer()), self.shape(self.integer())
        dtype, where = self.integer(), self.address()
        view = self.view(where, dtype & 0xFF, shape, strides)
        assert where.memory is not None
        last = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        return where.memory[where.offset : where.offset + (last + 1) * view.itemsize]


def function_code(module: Module, function: Function) -> bytes:
    """The code of a stackvm function; BadFile where it is not in the file."""
    text = module.sections.get(".text", b"")
    if function.entry + function.size > len(text):
        raise BadFile(
            f"kmodel: a function's code lies at bytes {function.entry} to "
            f"{function.entry + function.size}; there are {len(text)}"
        )
    return text[function.entry : function.entry + function.size]
