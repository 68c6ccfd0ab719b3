"""Elementwise commands: AR (add, multiply, compare, cast ...)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from intaglio.errors import Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.division import divide, divide_halves
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import FLOATS
from intaglio.npu.chips.bm1684x.variants import SG2260

Fields = Mapping[str, int]
SHAPE = ("res0_n", "res0_c", "res0_h", "res0_w")
MUL, NOT, ADD, SUB, MAX, MIN, SHIFT, AND, OR, XOR, GREATER, EQUAL, DIV, LESS, CAST = range(15)
ADD_SAT, SUB_SAT, _, MAC, COPY, MUL_SAT, SHIFT_ARITH, ROTATE, MUL_HIGH = range(15, 24)
ABS, SUB_ABS = 26, 27


def operand(memory: Memory, f: Fields, name: str, shape: tuple[int, ...] = ()) -> Array:
    """An operand of a command as numbers: a constant or a tensor."""
    code, signed = f[f"{name}_prec"], f.get(f"{name}_sign", 1)
    if f.get(f"{name}_const"):
        return numbers.constant(f[f"{name}_addr"], code, signed)
    shape = shape or tuple(f[s] for s in SHAPE)
    given = tuple(f.get(f"{name}_{d}_str", 0) for d in "nchw")
    address = f[f"{name}_addr"]
    steps = memory.strides(shape, code, f.get(f"{name}_str", 0), address, given)
    raw = memory.read(address, numbers.dtype(code, signed), shape, steps)
    return numbers.from_bits(raw, code)


def store(memory: Memory, f: Fields, values: Array, signed: int | bool) -> None:
    """Store a result that has the type of res0 already, or is a float."""
    code, address = f["res0_prec"], f["res0_addr"]
    values = as_type(values, code, signed)
    shape = tuple(f[s] for s in SHAPE)
    given = tuple(f.get(f"res0_{d}_str", 0) for d in "nchw")
    steps = memory.strides(shape, code, f.get("res0_str", 0), address, given)
    memory.write(address, np.broadcast_to(values, shape), steps)


def as_type(values: Array, code: int, signed: int | bool) -> Array:
    """Floats in the bits of a float type; integers unchanged."""
    if code == numbers.BF16:
        return numbers.to_bf16(values)
    with np.errstate(over="ignore"):
        return values.astype(numbers.dtype(code, signed), copy=False)


def run(memory: Memory, f: Fields) -> None:
    """An AR command."""
    kind = f["tsk_eu_typ"]
    if kind == CAST:
        return _cast(memory, f)
    count = f["tsk_opd_num"]
    signed = f["opd0_sign"] | f["opd1_sign"] if count > 1 else f["opd0_sign"]
    if kind in (SUB, SUB_SAT):
        signed = 1
    if kind in (NOT, ABS):
        f = {**f, "opd0_prec": f["res0_prec"]}
    a = operand(memory, f, "opd0")
    b = operand(memory, f, "opd1") if count > 1 else None
    floats = f["opd0_prec"] in FLOATS
    if kind == COPY:
        return store(memory, f, a, f["opd0_sign"])
    third = _third(memory, f) if count > 2 else None
    if floats:
        if (
            kind == DIV
            and b is not None
            and f["opd0_prec"] == numbers.F16
            and memory.chip is SG2260
        ):
            return store(memory, f, divide_halves(a, b, f["opd2_n_str"] + 1), 1)
        store(memory, f, _float(kind, a, b, third, f), 1)
    else:
        store(memory, f, _integer(kind, a, b, third, f, signed), signed)
    return None


def _third(memory: Memory, f: Fields) -> Array:
    """The third operand, one number per channel or a constant."""
    shifts = f["opd0_prec"] not in FLOATS and f["tsk_eu_typ"] not in _SELECTS
    f = {**f, "opd2_sign": 1} if shifts else f
    if f.get("opd2_const"):
        return numbers.constant(f["opd2_addr"], f["opd2_prec"], f["opd2_sign"])
    code, address = f["opd2_prec"], f["opd2_addr"]
    shape = 1, f["res0_c"], 1, 1
    steps = memory.strides(shape, code, 1, address)
    return memory.read(address, numbers.dtype(code, f["opd2_sign"]), shape, steps)


def _float(kind: int, a: Array, b: Array | None, third: Array | None, f: Fields) -> Array:
    if kind == ABS:
        return np.abs(a)
    if b is None:
        raise Unsupported(f"command AR of kind {kind} with one operand is not simulated")
    if kind == DIV:
        return divide(a, b, f["opd2_n_str"] + 1)
    if kind in _FLOATS:
        with np.errstate(all="ignore"):
            return _FLOATS[kind](a.astype(np.float32), b.astype(np.float32))
    if kind in _SELECTS and third is not None:
        return np.where(_SELECTS[kind](a, b), numbers.from_bits(third, f["opd2_prec"]), 0)
    raise Unsupported(f"command AR of kind {kind} on floats is not simulated")


def _integer(
    kind: int, a: Array, b: Array | None, third: Array | None, f: Fields, signed: int
) -> Array:
    code, mode = f["res0_prec"], f.get("opd2_n_str", 0)
    x = a.astype(np.int64)
    if kind == NOT:
        return numbers.wrap(~x, code, signed)
    if kind == ABS:
        return numbers.wrap(np.abs(x), code, signed)
    if b is None:
        raise Unsupported(f"command AR of kind {kind} with one operand is not simulated")
    y = b.astype(np.int64)
    if kind in _INTEGERS:
        found = _INTEGERS[kind](x, y)
        if kind == MUL_SAT and not signed:  # products of two u32 can pass beyond i64
            found = np.where(
                (y > 0) & (x > (1 << 62) // np.maximum(y, 1)), np.int64(1) << 62, found
            )
        if third is not None:
            found = numbers.shift(found, third, mode)
        exact = kind in (ADD_SAT, SUB_SAT, MUL_SAT, MAX, MIN)
        return (numbers.saturate if exact else numbers.wrap)(found, code, signed)
    if kind in _SELECTS and third is not None:
        chosen = np.where(_SELECTS[kind](x, y), third.astype(np.int64), 0)
        return numbers.wrap(chosen, code, signed)
    if kind in (SHIFT, SHIFT_ARITH):
        if kind == SHIFT:
            x = x & ((1 << 8 * a.itemsize) - 1)
        return numbers.wrap(numbers.shift(x, y, mode), code, signed)
    raise Unsupported(f"command AR of kind {kind} on integers is not simulated")


def _cast(memory: Memory, f: Fields) -> None:
    a = operand(memory, f, "opd0")
    code, signed, mode = f["res0_prec"], f["opd2_sign"], f.get("opd2_n_str", 0)
    if code in FLOATS:
        if code == f["opd0_prec"]:  # to the same type: to integers
            a = numbers.round_float(a, mode)
        elif code != numbers.BF16 and mode:
            narrow = np.float16 if code == numbers.F16 else np.float32
            a = numbers.to_narrow(a.astype(np.float64), narrow, mode)
        store(memory, f, a, 1)
    elif f["opd0_prec"] in FLOATS:
        store(memory, f, numbers.to_integer(a, mode, code, signed), signed)
    else:
        store(memory, f, numbers.saturate(a.astype(np.int64), code, signed), signed)


Two = Callable[[Array, Array], Array]
_INTEGERS: dict[int, Two] = {
    MUL: np.multiply,
    ADD: np.add,
    SUB: np.subtract,
    MAX: np.maximum,
    MIN: np.minimum,
    AND: np.bitwise_and,
    OR: np.bitwise_or,
    XOR: np.bitwise_xor,
    ADD_SAT: np.add,
    SUB_SAT: np.subtract,
    MUL_SAT: np.multiply,
}
_FLOATS: dict[int, Two] = {
    MUL: np.multiply,
    ADD: np.add,
    SUB: np.subtract,
    MAX: np.maximum,
    MIN: np.minimum,
    ADD_SAT: np.add,
    SUB_SAT: np.subtract,
    MUL_SAT: np.multiply,
    SUB_ABS: lambda a, b: np.abs(a - b),
}
_SELECTS: dict[int, Two] = {GREATER: np.greater, EQUAL: np.equal, LESS: np.less}
