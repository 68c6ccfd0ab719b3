"""The records of a package file, as numpy dtypes. csrc/format.h declares the same as C structs.

docs/format.md explains every field, and a test compares all three. Numbers are little-endian;
sections start at multiples of 64 bytes.
"""

from __future__ import annotations

import numpy as np

MAGIC = b"ITG1"
VERSION = 1
ALIGN = 64
NONE = 0xFFFFFFFF  # an absent tensor, quantisation or origin

REQUIRED = 1  # section flag: a reader that does not know this kind must refuse the file
REQUIRED_KINDS = ("CODE",)  # unknown to version 0.1 readers, which must refuse such a file

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("sections", "<u4"),  # rows of the section table that follows
        ("flags", "<u4"),  # 0; a reader refuses unknown bits
        ("isa", "<u4"),  # ISA bits that the CPU must have
        ("crc", "<u4"),  # CRC-32 of header (with this field 0) and section table
        ("size", "<u8"),  # of the whole file
    ]
)
SECTION = np.dtype(
    [
        ("kind", "S4"),
        ("flags", "<u4"),
        ("offset", "<u8"),
        ("size", "<u8"),
        ("crc", "<u4"),  # CRC-32 of the section's bytes
        ("reserved", "<u4"),
    ]
)
PLAN = np.dtype(
    [
        ("name", "<u4"),  # in NAME
        ("main", "<u4"),  # number of its main plan; a main plan holds its own number
        ("first_step", "<u4"),
        ("n_steps", "<u4"),
        ("inputs", "<u4"),  # first of n_inputs tensor numbers in ARGS
        ("n_inputs", "<u4"),
        ("outputs", "<u4"),
        ("n_outputs", "<u4"),
        ("arena", "<u8"),  # bytes of internal memory; 0 in a sub-plan
    ]
)
TENSOR = np.dtype(
    [
        ("name", "<u4"),  # in NAME
        ("dtype", "u1"),
        ("rank", "u1"),
        ("memory", "u1"),  # 0 const, 1 arena, 2 input, 3 output, 4 code
        ("dynamic", "u1"),  # bit i: the extent of axis i is known only at run time
        ("slot", "<u4"),  # which input or output, counted over all main plans
        ("quant", "<u4"),  # row of QUNT, or NONE
        ("offset", "<u8"),  # in bytes, within the memory
        ("size", "<u8"),  # in bytes
        ("shape", "<i8", (8,)),  # upper bound where dynamic; 0 past the rank
    ]
)
QUANT = np.dtype(
    [
        ("axis", "<i4"),  # -1: one scale for the whole tensor
        ("count", "<u4"),
        ("values", "<u8"),  # in ATTR: count f64 scales, then count i64 zero points
    ]
)
STEP = np.dtype(
    [
        ("op", "<u4"),  # in NAME
        ("origin", "<u4"),  # in ORIG, or NONE
        ("args", "<u4"),  # first in ARGS: n_in inputs, then n_out outputs
        ("n_in", "<u4"),
        ("n_out", "<u4"),
        ("attrs_size", "<u4"),
        ("attrs", "<u8"),  # in ATTR: the op's attribute struct
        ("macs", "<u8"),
    ]
)
STATE = np.dtype(
    [
        ("plan", "<u4"),  # a main plan
        ("input", "<u4"),  # the input of the next run that gets the value of ...
        ("output", "<u4"),  # ... this output
        ("reserved", "<u4"),
        ("initial", "<u8"),  # in CNST: the value for the first run; ZEROS: zeros
    ]
)
ZEROS = 0xFFFFFFFFFFFFFFFF
RECORDS = {
    "header": HEADER,
    "section": SECTION,
    "plan": PLAN,
    "tensor": TENSOR,
    "quant": QUANT,
    "step": STEP,
    "state": STATE,
}


def align(n: int) -> int:
    """`n` rounded up to a multiple of ALIGN."""
    return -(-n // ALIGN) * ALIGN
