"""What single commands compute: convolutions, pools, element-wise commands, copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intaglio import ops
from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684.arithmetic import rounded
from intaglio.npu.chips.bm1684.memory import F32, I8, I16, I32, STRIDED, Memory, dtype_of
from intaglio.npu.chips.bm1684.variant import BM1684, WORD

Fields = Mapping[str, int]
DEPTHWISE, LARGEST = 1, 4
MUL, _, ADD, SUB, MAX, MIN, SHIFT, AND, OR, XOR = range(10)
COPY = 19
MOST_BITS = 16  # of the index of a lookup
MOST_PRODUCTS = 1 << 33  # of one convolution
ITEMS = {0: 4, 1: 2, 2: 1, 3: 1, 4: 2}  # bytes of the elements of a DMA command
DMA_COPY, DMA_CONSTANT = 0, 4


def _given(f: Fields, name: str) -> tuple[int, ...]:
    return tuple(f[f"{name}_{a}_str"] for a in "nchw")


def _lane(address: int) -> int:
    return (address - BM1684.local) // BM1684.lane_bytes


def _saturated(x: Array, dtype: np.dtype) -> Array:
    info = np.iinfo(dtype)
    return np.clip(x, info.min, info.max).astype(dtype)


# ---- convolutions and pools ----------------------------------------------------------------------
def _source(memory: Memory, f: Fields, channels: int) -> Array:
    shape = f["res0_n"], channels, f["opd0_h"], f["opd0_w"]
    address = f["opd0_addr"]
    steps = memory.steps(f["opd0_str"], shape, _given(f, "opd0"), _lane(address))
    return memory.read(address, dtype_of(f["opd0_prec"], f["opd0_sign"]), shape, steps)


def _bias(memory: Memory, f: Fields) -> Array:
    if f["tsk_opd_num"] < 3:
        return np.zeros((1, 1, 1, 1), np.int64)
    if f["opd2_const"] or f["opd2_prec"] != I16:
        raise Unsupported("a bias that is not one number of 16 bits per channel is not simulated")
    shape = 1, f["res0_c"], 1, 1
    dtype = dtype_of(I16, f["opd2_sign"])
    read = memory.read(f["opd2_addr"], dtype, shape, (0, 1, 0, 0), 1, dtype.itemsize)
    return read.astype(np.int64)


def _window(f: Fields) -> dict[str, tuple[int, ...]]:
    if f["opd0_x_ins0"] or f["opd0_y_ins0"] or f["kernel_rotate"] or f["winograd"] or f["res_add"]:
        raise Unsupported("a transposed, Winograd or accumulating convolution is not simulated")
    return {
        "stride": (f["res_op_y_str"], f["res_op_x_str"]),
        "pad": (f["opd0_up_pad"], f["opd0_lf_pad"], f["opd0_dn_pad"], f["opd0_rt_pad"]),
        "dilation": (f["opd1_y_ins0"] + 1, f["opd1_x_ins0"] + 1),
    }


def _integers(f: Fields) -> None:
    if f["opd0_prec"] != I8 or f["res0_prec"] not in (I8, I16):
        raise Unsupported(f"a convolution of type {f['opd0_prec']} is not simulated")


def _bounded(f: Fields, deep: int) -> None:
    """BadFile for windows of a size that no network has, before memory is taken for them."""
    count = deep * f["opd1_h"] * f["opd1_w"]
    for a in "nchw":
        count *= f[f"res0_{a}"]
    if count > MOST_PRODUCTS:
        raise BadFile(f"a convolution has {count:,} products; {MOST_PRODUCTS:,} are simulated")


def _store(memory: Memory, f: Fields, sums: Array, signed: int) -> None:
    """Sums of a convolution, shifted and saturated."""
    n, c, h, w = (f[f"res0_{a}"] for a in "nchw")
    if sums.shape[2] < h or sums.shape[3] < w:
        raise BadFile(f"windows make {sums.shape[2]}x{sums.shape[3]} pixels; {h}x{w} are written")
    values = rounded(sums[:, :, :h, :w].astype(np.int64), f["right_shift"])
    if f["relu"]:
        values = np.maximum(values, 0)
    dtype = dtype_of(f["res0_prec"], signed and not f["relu"])
    _write(memory, f, _saturated(values, dtype), (n, c, h, w))


def _write(memory: Memory, f: Fields, values: Array, shape: tuple[int, ...]) -> None:
    """A result of a windowed command; pixels of 16 bits have two words."""
    address = f["res0_addr"]
    steps = memory.steps(f["res0_str"], shape, _given(f, "res0"), _lane(address))
    if values.dtype.itemsize == 2:
        steps = tuple(2 * s for s in steps)
    memory.write(address, values, steps, WORD)


def conv(memory: Memory, f: Fields) -> None:
    """A convolution of bytes."""
    _integers(f)
    if f["relu"] and f["res0_prec"] == I16:
        raise Unsupported("a convolution to 16 bits with ReLU is not simulated")
    window = _window(f)
    _bounded(f, f["opd0_c"])
    x = _source(memory, f, f["opd0_c"])
    outs, ins, kh, kw = f["res0_c"], f["opd0_c"], f["opd1_h"], f["opd1_w"]
    if f["opd1_const"] or f["opd1_str"] != STRIDED:
        raise Unsupported("weights that are a constant or have no strides are not simulated")
    groups = -(-ins // WORD)
    # an output channel is a block of lanes; groups of inputs stand where images do
    rows = []
    for g in range(groups):
        at = f["opd1_addr"] + g * f["opd1_n_str"] * WORD
        steps = 0, f["opd1_c_str"], f["opd1_h_str"], f["opd1_w_str"]
        part = memory.read(at, dtype_of(I8, f["opd1_sign"]), (WORD, outs, kh, kw), steps)
        rows.append(part.transpose(1, 0, 2, 3))
    w = np.concatenate(rows, 1)[:, :ins]
    zero = np.array(0, x.dtype)
    sums = ops.conv_integer.body(x, np.ascontiguousarray(w), zero, **window, groups=1)
    signed = f["opd0_sign"] | f["opd1_sign"]
    _store(memory, f, sums.astype(np.int64) + _bias(memory, f), signed)


def windows(memory: Memory, f: Fields) -> None:
    """A depthwise convolution, a mean, or the largest number of each window."""
    window, channels = _window(f), f["res0_c"]
    _bounded(f, 1)
    kernel = f["opd1_h"], f["opd1_w"]
    x = _source(memory, f, channels)
    shape = tuple(f[f"res0_{a}"] for a in "nchw")
    if f["tsk_eu_typ"] == LARGEST:
        window["dilation"] = 1, 1
        y = ops.max_pool.body(x, kernel=kernel, **window)[:, :, : shape[2], : shape[3]]
        if y.shape != shape:
            raise BadFile(f"windows make {y.shape} numbers; {shape} are written")
        _write(memory, f, np.ascontiguousarray(y), shape)
        return
    if f["tsk_eu_typ"] != DEPTHWISE:
        raise Unsupported(f"command PorD of kind {f['tsk_eu_typ']} is not simulated")
    _integers(f)
    dtype = dtype_of(I8, f["opd1_sign"])
    if f["opd1_const"]:
        one = np.array([f["opd1_addr"] & 0xFF], np.uint8).view(dtype)[0]
        if any(window["pad"]):
            raise Unsupported("a mean with padding is not simulated")
        w = np.full((channels, 1, *kernel), one, dtype)
    else:
        taps = kernel[0] * kernel[1]
        steps = 0, taps, kernel[1], 1
        at = 1, channels, *kernel
        w = memory.read(f["opd1_addr"], dtype, at, steps, 1, 1).transpose(1, 0, 2, 3)
    zero = np.array(0, x.dtype)
    wide = np.ascontiguousarray(w.astype(np.int16))
    sums = ops.conv_integer.body(x, wide, zero, **window, groups=channels)
    signed = f["opd0_sign"] | f["opd1_sign"]
    _store(memory, f, sums.astype(np.int64) + _bias(memory, f), signed)


# ---- element-wise --------------------------------------------------------------------------------
def _operand(memory: Memory, f: Fields, name: str, shape: tuple[int, ...]) -> Array:
    code, signed = f[f"{name}_prec"], f[f"{name}_sign"]
    dtype = dtype_of(code, signed)
    address = f[f"{name}_addr"]
    if f[f"{name}_const"]:
        return np.array([address], np.uint32).view(dtype)[:1].reshape(1, 1, 1, 1)
    steps = memory.steps(f[f"{name}_str"], shape, _given(f, name), _lane(address))
    return memory.read(address, dtype, shape, steps)


def arithmetic(memory: Memory, f: Fields) -> None:
    """An AR command."""
    kind = f["tsk_eu_typ"]
    shape = tuple(f[f"res0_{a}"] for a in "nchw")
    a = _operand(memory, f, "opd0", shape)
    b = _operand(memory, f, "opd1", shape) if f["tsk_opd_num"] > 1 else None
    signed = f["opd0_sign"] | (f["opd1_sign"] if b is not None else 0)
    dtype = dtype_of(f["res0_prec"], signed or kind == SUB)
    floats = f["opd0_prec"] == F32
    if floats or f["res0_prec"] == F32 or f["opd0_prec"] == I32:
        found = _whole_words(kind, a, b, dtype)
    else:
        found = _integer(kind, a, b, dtype, f["right_shift"])
    values = np.ascontiguousarray(np.broadcast_to(found, shape))
    address = f["res0_addr"]
    steps = memory.steps(f["res0_str"], shape, _given(f, "res0"), _lane(address))
    memory.write(address, values, steps)


BITS: dict[int, Callable[[Array, Array], Array]] = {
    AND: np.bitwise_and,
    OR: np.bitwise_or,
    XOR: np.bitwise_xor,
}
FLOATS: dict[int, Callable[[Array, Array], Array]] = {
    MUL: np.multiply,
    ADD: np.add,
    SUB: np.subtract,
    MAX: np.maximum,
    MIN: np.minimum,
}


def _whole_words(kind: int, a: Array, b: Array | None, dtype: np.dtype) -> Array:
    """Commands on f32, and on the bits of words."""
    if kind == COPY and a.dtype.kind == dtype.kind:
        return a.astype(dtype)
    if b is not None and kind in BITS and a.dtype.kind != "f":
        return BITS[kind](a.view(np.uint32), b.view(np.uint32)).view(dtype)
    if b is not None and kind in FLOATS and a.dtype == b.dtype == dtype == np.float32:
        return FLOATS[kind](a, b)
    raise Unsupported(f"command AR of kind {kind} from {a.dtype} to {dtype} is not simulated")


def _integer(kind: int, a: Array, b: Array | None, dtype: np.dtype, shift: int) -> Array:
    if kind == COPY and a.itemsize == dtype.itemsize:
        return a.astype(dtype)
    if b is None:
        raise Unsupported(f"command AR of kind {kind} with one operand is not simulated")
    x, y = a.astype(np.int64), b.astype(np.int64)
    if kind in (ADD, SUB) or (kind == MUL and a.itemsize == 1):
        exact = {ADD: np.add, SUB: np.subtract, MUL: np.multiply}[kind](x, y)
        return _saturated(rounded(exact, shift), dtype)
    if kind in (MAX, MIN) and a.dtype == b.dtype == dtype:
        return FLOATS[kind](a, b)
    if kind == SHIFT and a.itemsize == dtype.itemsize == 2 and (y <= 0).all():
        return (x >> np.minimum(-y, 31)).astype(dtype)
    raise Unsupported(f"command AR of kind {kind} from {a.dtype} to {dtype} is not simulated")


def lookup(memory: Memory, f: Fields) -> None:
    """Each word by a table of words in L2 memory."""
    shape = tuple(f[f"res0_{a}"] for a in "nchw")
    bits, address = f["opd1_h"], f["opd0_addr"]
    if f["tsk_eu_typ"] or bits > MOST_BITS:
        raise Unsupported(f"a lookup of kind {f['tsk_eu_typ']}, {bits} bits, is not simulated")
    steps = memory.steps(f["opd0_str"], shape, _given(f, "opd0"), _lane(address))
    words = np.dtype(np.uint32)
    x = memory.read(address, words, shape, steps)
    table = memory.flat(BM1684.l2 + f["opd1_addr"], words, (1 << bits,), (1,))
    y = table[x & ((1 << bits) - 1)]
    address = f["res0_addr"]
    steps = memory.steps(f["res0_str"], shape, _given(f, "res0"), _lane(address))
    memory.write(address, y, steps)


# ---- the DMA engine ------------------------------------------------------------------------------
def move(memory: Memory, f: Fields) -> None:
    """A DMA command that copies a tensor, or fills it with a constant."""
    if f["localmem_mask_l32"] & f["localmem_mask_h32"] != 0xFFFFFFFF or f["acc_write_enable"]:
        raise Unsupported("a DMA command with a mask of lanes, or that adds, is not simulated")
    kind, code = f["cmd_special_function"], f["dst_data_format"]
    if code not in ITEMS or (kind == DMA_COPY and code != f["src_data_format"]):
        raise Unsupported(f"a DMA command that converts to type {code} is not simulated")
    dtype = np.dtype(f"u{ITEMS[code]}")
    sizes = tuple(f[f"dst_{a}size"] for a in "nchw")
    if kind == DMA_CONSTANT:
        one = np.array([f["constant_value"]], np.uint32).view(dtype)[0]
        values = np.full(sizes, one, dtype)
    elif kind == DMA_COPY:
        values = _side(memory, f, "src", dtype)
        if values.size != int(np.prod(sizes)):
            raise BadFile(f"a DMA command copies {values.shape} to {sizes}")
        values = np.array(values).reshape(sizes)
    else:
        raise Unsupported(f"a DMA command of kind {kind} is not simulated")
    address, steps = _place(f, "dst")
    if memory.is_local(address):
        memory.write(address, values, steps, 1, dtype.itemsize)
    else:
        memory.flat(address, dtype, sizes, steps)[...] = values


def _place(f: Fields, side: str) -> tuple[int, tuple[int, ...]]:
    address = f[f"{side}_start_addr_l32"] | f[f"{side}_start_addr_h8"] << 32
    return address, tuple(f[f"{side}_{a}stride"] for a in "nchw")


def _side(memory: Memory, f: Fields, side: str, dtype: np.dtype) -> Array:
    address, steps = _place(f, side)
    sizes = tuple(f[f"{side}_{a}size"] for a in "nchw")
    if memory.is_local(address):
        return memory.read(address, dtype, sizes, steps, 1, dtype.itemsize)
    return memory.flat(address, dtype, sizes, steps)
