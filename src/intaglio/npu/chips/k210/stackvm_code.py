"""The code of stackvm functions, which the chip's CPU interprets: one table of all instructions.

An instruction is a byte and its numbers, without padding; a tensor function has opcode 0x5e and a
16-bit number. Names of registers begin with "r": they hold a shape, strides or paddings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from intaglio.errors import BadFile
from intaglio.npu.chips.k210.kmodel5 import DTYPES

TENSOR = 0x5E
MAX_CODE = 1 << 24  # bytes of a function
PLAIN = (  # by opcode; a number as "name:type", of struct's types
    "nop ldnull ldc_i4(imm:i) ldc_i4_0 ldc_i4_1 ldc_r4(imm:f) "
    "ldind_i1 ldind_i2 ldind_i4 ldind_i ldind_u1 ldind_u2 ldind_u4 ldind_u ldind_br2 ldind_r4 "
    "stind_i1 stind_i2 stind_i4 stind_i stind_br2 stind_r4 "
    "lea_gp(register:B,offset:i) lea_buffer(location:B,part:B,offset:I) "
    "ldelem_i1 ldelem_i2 ldelem_i4 ldelem_i ldelem_u1 ldelem_u2 ldelem_u4 ldelem_u ldelem_br2 "
    "ldelem_r4 stelem_i1 stelem_i2 stelem_i4 stelem_i stelem_br2 stelem_r4 "
    "ldarg(index:I) ldarg_0 ldarg_1 ldarg_2 ldarg_3 ldarg_4 ldarg_5 dup pop "
    "stshape(register:B,rank:B) stpaddings(register:B,rank:B) "
    "neg add sub mul div div_u rem rem_u and or xor not shl shr shr_u "
    "clt clt_u cle cle_u ceq cge cge_u cgt cgt_u cne "
    "conv_i1 conv_i2 conv_i4 conv_i conv_u1 conv_u2 conv_u4 conv_u conv_br2 conv_r4 "
    "br(target:i) br_true(target:i) br_false(target:i) ret call(args:B,target:i) ecall(args:B) "
    "throw break"
)
ONE = "dtype rshape rstride rto"  # a tensor function of one operand
TWO = "dtype rshape rstride rshape2 rstride2 rshape_to rto"
CLAMP = "low:f high:f"
WINDOW = "stride_h:H stride_w:H dilation_h:H dilation_w:H " + CLAMP
TENSORS = {  # by number; a number without a type is a byte
    0x00: ("batch_to_space", ONE + " rblock rcrops"),
    0x01: ("binary", f"{TWO} kind {CLAMP}"),
    0x02: ("broadcast", "dtype rshape rstride rshape_to rto"),
    0x03: ("call", "function:I module:H sources targets"),
    0x04: ("compare", TWO + " kind"),
    0x06: ("conv2d", f"dtype rshape rstride rkernel rkernel_stride rbias rto groups:H {WINDOW}"),
    0x08: ("convert", "dtype dtype_to rshape rstride rto"),
    0x09: ("copy", ONE),
    0x0A: ("cumsum", "dtype rshape axis:i exclusive reverse"),
    0x0B: ("dequantize", "dtype dtype_to rshape rstride rto"),
    0x0C: ("gather", "dtype rshape rshape_to rstride rto rindices axis"),
    0x0D: ("gather_nd", "dtype rshape rshape_to rstride rto rindices batch_dims"),
    0x0E: ("hardmax", "dtype rshape rstride axis:i"),
    0x10: ("lut1d", ONE + " length:H"),
    0x11: ("matmul", f"rshape rstride rshape2 rstride2 rshape_to rto {CLAMP}"),
    0x12: ("onehot", "dtype rshape rshape_to rto axis mode"),
    0x13: ("pad", ONE + " rpaddings mode"),
    0x14: ("quantize", "dtype dtype_to rshape rstride rto"),
    0x15: ("random_normal", "dtype rshape_to mean:f std:f seed:f"),
    0x16: ("random_uniform", "dtype rshape_to low:f high:f seed:f"),
    0x17: ("reduce", ONE + " kind raxes keep_dims"),
    0x18: ("reduce_arg", "dtype rshape rstride dtype_to rto kind raxes keep_dims last"),
    0x19: ("reduce_prod", ONE + " raxes keep_dims"),
    0x1A: ("reduce_window2d", f"dtype kind rshape rstride rto filter_h:H filter_w:H {WINDOW}"),
    0x1B: ("resize_image", ONE + " align_corners half_pixel mode"),
    0x1C: ("roi_align", "dtype rshape rshape_to mode scale:f ratio:q"),
    0x1D: ("sigmoid", ONE),
    0x1E: ("slice", ONE + " rbegins rends rsteps"),
    0x1F: ("softmax", ONE + " axis:i beta:f"),
    0x20: ("space_to_batch", ONE + " rblock rcrops"),
    0x22: ("ternary", "dtype rshape rstride rshape2 rstride2 rshape3 rstride3 rto"),
    0x23: ("topk", "dtype rshape rstride rshape_to rto rshape_to2 rto2 k:q axis:i largest sorted"),
    0x24: ("transpose", ONE + " rperm"),
    0x25: ("trilu", "dtype rshape upper k:q"),
    0x26: ("unary", ONE + " kind"),
    0x27: ("gru", "rshape rshape2 direction linear_before_reset"),
    0x28: (
        "tflite_detection_postprocess",
        "rshape rshape2 rshape3 detections:i classes:i per_class:i regular score:f iou:f "
        "num_classes:i y_scale:f x_scale:f h_scale:f w_scale:f",
    ),
    0x29: ("layer_normalization", "dtype rshape axis:i epsilon:f"),
    0x2A: ("compress", "rshape rshape2 axis:f"),
    0x2B: ("gather_elements", "rshape rshape2 axis:i"),
}
REDUCTIONS = ("mean", "min", "max", "sum")
BINARIES = ("add", "sub", "mul", "div", "min", "max", "pow", "floor_div", "floor_mod")
UNARIES = (
    *("abs", "acos", "asin", "ceil", "cos", "exp", "floor", "log", "neg"),
    *("round", "rsqrt", "sign", "sin", "sqrt", "square", "tanh"),
)
PAD_MODES = ("constant", "reflect", "symmetric", "edge")
NAMES = {"rto": "strides_to", "rstride": "strides", "rstride2": "strides2"}  # of registers
KINDS = {"binary": BINARIES, "unary": UNARIES, "reduce": REDUCTIONS, "reduce_window2d": REDUCTIONS}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a stackvm function."""

    at: int  # its byte in the function
    end: int  # the byte after it
    name: str  # tensor functions: "tensor." and a name
    numbers: dict[str, Any]

    def text(self, registers: Mapping[int, str]) -> str:
        """The instruction with the names of numbers, and the contents of shape registers."""
        kinds = KINDS.get(self.name.removeprefix("tensor."), ())
        words = []
        for key, value in self.numbers.items():
            shown = str(value)
            if key == "kind" and value < len(kinds):
                shown = kinds[value]
            elif key.startswith("dtype") and value < len(DTYPES):
                shown = DTYPES[value]
            elif key.startswith("r") and key not in ("register", "rank", "rpaddings", "ratio"):
                shown, key = registers.get(value, f"register {value}"), NAMES.get(key, key[1:])
            words.append(f"{key}={shown}")
        return f"{self.name:22} {' '.join(words)}".rstrip()


@dataclass(frozen=True, slots=True)
class _Form:
    name: str
    keys: tuple[str, ...]
    packed: struct.Struct


def _form(name: str, numbers: list[str]) -> _Form:
    split = [[*n.split(":"), "B"][:2] for n in numbers]
    return _Form(
        name, tuple(k for k, _ in split), struct.Struct("<" + "".join(t for _, t in split))
    )


@cache
def _plain() -> tuple[_Form, ...]:
    forms = []
    for word in PLAIN.split():
        name, _, numbers = word.rstrip(")").partition("(")
        forms.append(_form(name, numbers.split(",") if numbers else []))
    return tuple(forms)


@cache
def _tensors() -> dict[int, _Form]:
    return {k: _form(f"tensor.{name}", n.split()) for k, (name, n) in TENSORS.items()}


def instructions(code: bytes) -> Iterator[Instruction]:
    """The instructions of a function; BadFile where a byte begins none."""
    if len(code) > MAX_CODE:
        raise BadFile(f"kmodel: a stackvm function has {len(code)} bytes; at most {MAX_CODE}")
    at = 0
    while at < len(code):
        opcode, size, form = code[at], 1, None
        if opcode == TENSOR and at + 3 <= len(code):
            number, size = int.from_bytes(code[at + 1 : at + 3], "little"), 3
            form = _tensors().get(number)
            if form is None:
                raise BadFile(f"kmodel: byte {at} of a stackvm function calls tensor {number:#x}")
        elif opcode < len(_plain()):
            form = _plain()[opcode]
        if form is None:
            raise BadFile(f"kmodel: byte {at} of a stackvm function is {opcode:#x}; no instruction")
        first, end = at + size, at + size + form.packed.size
        if end > len(code):
            raise BadFile(f"kmodel: a stackvm function ends within {form.name} at byte {at}")
        numbers = dict(zip(form.keys, form.packed.unpack_from(code, first), strict=True))
        yield Instruction(at, end, form.name, numbers)
        at = end


def listing(code: bytes) -> Iterator[tuple[Instruction, str]]:
    """The instructions of a function as text; shapes are those that were last pushed."""
    pushed: list[int] = []
    registers: dict[int, str] = {}
    for i in instructions(code):
        yield i, i.text(registers)
        if i.name == "ldc_i4":
            pushed.append(i.numbers["imm"])
        elif i.name in ("ldc_i4_0", "ldc_i4_1"):
            pushed.append(int(i.name[-1]))
        elif i.name == "stshape":
            rank = i.numbers["rank"]
            known = len(pushed) >= rank
            dims = pushed[len(pushed) - rank :]
            registers[i.numbers["register"]] = "x".join(map(str, dims)) if known else "?"
            pushed = []
        else:
            pushed = []
