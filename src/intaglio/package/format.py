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

ENCRYPTED = 1  # header flag: sections CRPT and BODY, and SIGN if the file is signed
REQUIRED = 1  # section flag: a reader that does not know this kind must refuse the file
# Kinds that were added later: a reader that does not know them must refuse the file.
REQUIRED_KINDS = ("CODE", "SYMB", "AXES", "PTCH", "FORM", "WGTS", "PLUG")

HEADER = np.dtype(
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("sections", "<u4"),  # rows of the section table that follows
        ("flags", "<u4"),  # bit 0: encrypted; a reader refuses unknown bits
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
        ("slot", "<u4"),  # which input or output, over all main plans; const: 1 + row of WGTS
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
        ("file", "<u4"),  # where its first value lies: 0 CNST, else 1 + row of WGTS
        ("initial", "<u8"),  # there: the value for the first run; ZEROS: zeros
    ]
)
SYMBOL = np.dtype(
    [
        ("name", "<u4"),  # in NAME
        ("plan", "<u4"),  # a main plan
        ("low", "<i8"),  # the smallest extent
        ("high", "<i8"),  # the largest, for which everything in the file is planned
        ("multiple", "<i8"),  # extents are multiples of it
    ]
)
AXIS = np.dtype(
    [
        ("plan", "<u4"),  # a main plan
        ("input", "<u4"),
        ("axis", "<u4"),
        ("symbol", "<u4"),  # row of SYMB that gives the extent of this axis
    ]
)
PAD = np.dtype(
    [
        ("output", "<u4"),
        ("axis", "<u4"),
        ("input", "<u4"),
        ("input_axis", "<u4"),  # whose extent the output is cut to if that input is padded
    ]
)
PATCH = np.dtype(
    [
        ("step", "<u4"),
        ("field", "<u4"),  # which 8 bytes of its attributes
        ("formula", "<u4"),  # first row in FORM
        ("terms", "<u4"),
    ]
)
TERM = np.dtype(
    [
        ("code", "<u4"),  # 0 a number, 1 a symbol, then the operations of symint.OPERATIONS
        ("reserved", "<u4"),
        ("value", "<i8"),  # the number, or the row of SYMB
    ]
)
PLUGIN = np.dtype(
    [
        ("op", "<u4"),  # in NAME, as in STEP; rows are in the order of it
        ("plugin", "<u4"),  # in NAME: name of the plug-in
        ("version", "<u4"),  # in NAME
        ("fields", "<u4"),  # in NAME: the op's attributes in words
        ("abi", "<u4"),
        ("reserved", "<u4"),
    ]
)
NUMBER_TERM, SYMBOL_TERM, FIRST_OPERATION = 0, 1, 2
ZEROS = 0xFFFFFFFFFFFFFFFF
WEIGHTS = np.dtype(  # section WGTS
    [
        ("name", "<u4"),  # in NAME: the plain name of a file beside the package
        ("flags", "<u4"),  # bit 0: any contents of this layout will do
        ("layout", "u1", (32,)),
        ("content", "u1", (32,)),  # SHA-256 of its header (with crc 0) and table
    ]
)
ANY_CONTENT = 1  # flag of WEIGHTS
WEIGHTS_MAGIC = b"ITGW"
WEIGHTS_VERSION = 1
MAX_WEIGHT_FILES = 8  # that a package may name
WEIGHTS_HEADER = np.dtype(  # of a weight file; rows of BLOB follow
    [
        ("magic", "S4"),
        ("version", "<u4"),
        ("blobs", "<u4"),
        ("crc", "<u4"),  # CRC-32 of header (with this field 0) and table
        ("size", "<u8"),  # of the whole file
        ("flags", "<u8"),
        ("layout", "u1", (32,)),  # SHA-256 of the plan that it was made for
    ]
)
BLOB = np.dtype(
    [
        ("offset", "<u8"),  # from the start of the file
        ("size", "<u8"),
        ("hash", "u1", (32,)),  # SHA-256
        ("crc", "<u4"),
        ("reserved", "<u4"),
    ]
)
CRYPT = np.dtype(  # section CRPT; rows of PART follow
    [
        ("level", "<u4"),  # 1 weights, 2 graph (all sections), 3 all
        ("parts", "<u4"),  # rows that follow; together they are section BODY
        ("salt", "u1", (32,)),  # random; with the user's key it gives the key of this file
        ("tag", "u1", (16,)),  # of section CRPT, with this field 0
    ]
)
PART = np.dtype(
    [
        ("size", "<u8"),
        ("encrypted", "<u4"),  # 0: only authenticated; 1: encrypted
        ("reserved", "<u4"),
        ("tag", "u1", (16,)),
    ]
)
SIGNATURE = np.dtype(  # section SIGN
    [
        ("public_key", "u1", (32,)),  # Ed25519
        ("signature", "u1", (64,)),
    ]
)
RECORDS = {
    "header": HEADER,
    "section": SECTION,
    "plan": PLAN,
    "tensor": TENSOR,
    "quant": QUANT,
    "step": STEP,
    "state": STATE,
    "symbol": SYMBOL,
    "axis": AXIS,
    "pad": PAD,
    "patch": PATCH,
    "term": TERM,
    "weights": WEIGHTS,
    "weights_header": WEIGHTS_HEADER,
    "blob": BLOB,
    "plugin": PLUGIN,
    "crypt": CRYPT,
    "part": PART,
    "signature": SIGNATURE,
}


def align(n: int) -> int:
    """`n` rounded up to a multiple of ALIGN."""
    return -(-n // ALIGN) * ALIGN
