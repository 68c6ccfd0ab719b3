"""MM and MM2: products of matrices in local memory."""

from __future__ import annotations

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.bm1684x import arithmetic, native_units, numbers, requantize
from intaglio.npu.chips.bm1684x.arithmetic import Fields
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import F32, FLOATS, I8, I32

NN, NT, TT = 4, 5, 6
HALF_BLOCK = 32  # products of f16 that are added at once


def _read(memory: Memory, address: int, code: int, signed: int, shape: tuple[int, ...]) -> Array:
    steps = memory.strides(shape, code, 0, address)
    raw = memory.read(address, numbers.dtype(code, signed), shape, steps)
    return numbers.from_bits(raw, code)


def columns(memory: Memory, f: Fields) -> None:
    """An MM command: rows are tensors' first dimension, columns are cut over the lanes."""
    code, kind = f["opd0_prec"], f["tsk_eu_typ"]
    if kind != 1 or (code not in FLOATS and code != I8):
        raise Unsupported(f"command MM of kind {kind} on type {code} is not simulated")
    rows, cuts, width, last = f["opd0_n"], f["opd0_c"], f["opd0_w"], f["opd1_w"]
    inner = width * (cuts - 1) + last
    if min(rows, cuts, width, last) < 1:
        raise BadFile(f"command MM has a matrix of {rows} rows, {cuts} cuts of {width}")
    if f["opd0_const"]:
        left = numbers.constant(f["opd0_addr"], code, f["opd0_sign"]).reshape(1, 1)
        left = np.broadcast_to(left, (rows, inner))
    else:
        shape = rows, cuts, 1, width
        left = _read(memory, f["opd0_addr"], code, f["opd0_sign"], shape)
        left = left.reshape(rows, -1)[:, :inner]
    if f["left_tran"]:
        left, rows, inner = left.T, inner, rows
    shape = inner, f["res0_c"], 1, f["res0_w"]
    right = _read(memory, f["opd1_addr"], code, f["opd1_sign"], shape).reshape(inner, -1)
    shape = rows, f["res0_c"], 1, f["res0_w"]
    result = f["res0_prec"]
    signed = f["opd0_sign"] | f["opd1_sign"]
    bias = before = None
    if code in FLOATS:
        if f["opd2_const"]:
            bias = numbers.constant(f["opd2_addr"], F32, 1).reshape(1, 1)
        else:
            bias = _read(memory, f["opd2_addr"], F32, 1, (1, *shape[1:])).reshape(1, -1)
    if f["res_add"]:
        before = _read(memory, f["res0_addr"], result, signed, shape).reshape(rows, -1)
    y = product(left, right, code, bias, before, half_block(memory))
    if code == I8:
        if memory.chip.rounds and (f["rq"] or f["relu"]):
            y, signed = _rounded(memory, f, y), f["res0_sign"]
        if f.get("opd3_addr"):
            y = numbers.shift(y, numbers.constant(f["opd3_addr"], I8, 1)[0, 0], f["opd2_n_str"])
        y = numbers.saturate(y, result, signed)
    y = arithmetic.as_type(y.reshape(shape), result, signed)
    memory.write(f["res0_addr"], y, memory.strides(shape, result, 0, f["res0_addr"]))


def product(
    left: Array,
    right: Array,
    code: int,
    bias: Array | None = None,
    before: Array | None = None,
    block: int = HALF_BLOCK,
) -> Array:
    """left @ right and what is added, exact for integers, as the chip does it for floats."""
    if code == I8:
        exact: Array = left.astype(np.float64) @ right.astype(np.float64)
        return exact if before is None else exact + before
    inner, n = right.shape
    if code != F32:
        native_units.needed("sums of f16")
    if native_units.available():
        flat = np.zeros(inner * n + native_units.BEYOND, np.float32)
        flat[: inner * n] = right.reshape(-1)
        if code != F32:
            sizes = np.diff([*range(0, inner, block), inner])
            places = np.arange(inner) * n
            start = (before if bias is None else bias if before is None else bias + before, None)
            half = native_units.sums(flat, left[None], places, n, begin=start, blocks=sizes)
            return np.asarray(half[0])
        begin = native_units.two_sums(bias, before)
        both = native_units.sums(flat, left[None], np.arange(inner) * n, n, begin=begin)
        return np.asarray(both[0])
    sums = [np.zeros((len(left), n), np.float32) for _ in range(2)]
    for total, given in zip(sums, native_units.two_sums(bias, before), strict=True):
        if given is not None:
            total += given
    for k in range(inner):
        sums[k % 2] += left[:, k : k + 1].astype(np.float32) * right[k].astype(np.float32)
    return sums[0] + sums[1]


def lanes(memory: Memory, f: Fields) -> None:
    """An MM2 command: a row of a matrix in each lane."""
    code, kind, result = f["opd0_prec"], f["tsk_eu_typ"], f["res0_prec"]
    m, n = f["res0_c"], f["res0_w"]
    right_shape = f["opd1_c"], f["opd1_w"]
    inner = right_shape[1] if kind in (NT, TT) else right_shape[0]
    left_shape = (inner, m) if kind == TT else (m, inner)
    if (right_shape[0] if kind in (NT, TT) else right_shape[1]) != n or kind not in (NN, NT, TT):
        raise BadFile(f"command MM2 of kind {kind} multiplies {left_shape} by {right_shape}")

    def load(name: str, shape: tuple[int, int]) -> Array:
        signed = f[f"{name}_sign"]
        if f[f"{name}_const"]:
            one = numbers.constant(f[f"{name}_addr"], code, signed).reshape(1, 1)
            return np.broadcast_to(one, shape)
        wide = (1, shape[0], 1, shape[1])
        return _read(memory, f[f"{name}_addr"], code, signed, wide).reshape(shape)

    left, right = load("opd0", left_shape), load("opd1", right_shape)
    if code == I8 and not memory.chip.rounds:
        right = right.astype(np.int64) - _zero(memory, f, kind)
    if kind == TT:
        left = left.T
    shape = 1, m, 1, n
    signed = f["opd0_sign"] | f["opd1_sign"]
    before = None
    if f["res_add"]:
        before = _read(memory, f["res0_addr"], result, signed, shape).reshape(m, n)
    bias = _bias(memory, f, kind) if memory.chip.rounds else None
    right = right.T if kind in (NT, TT) else right
    y = product(left, right, code, None if code == I8 else bias, before, half_block(memory))
    if code == I8:
        if bias is not None:
            y, signed = _rounded(memory, f, y + bias), f["res0_sign"]
        y = numbers.saturate(y, result, signed)
    y = arithmetic.as_type(y.reshape(shape), result, signed)
    memory.write(f["res0_addr"], y, memory.strides(shape, result, 0, f["res0_addr"]))


def half_block(memory: Memory) -> int:
    """Products of f16 that a chip adds at once."""
    return memory.chip.inputs_at_once // 2


def _bias(memory: Memory, f: Fields, kind: int) -> Array:
    """What is added to each column, on chips that add a bias; every lane has the row."""
    code = I32 if f["opd0_prec"] == I8 else f.get("opd2_prec", F32)
    if f["opd2_const"]:
        return numbers.constant(f["opd2_addr"], code, 1).reshape(1, 1)
    if kind == TT:
        raise Unsupported("command MM2 with a bias of each row is not simulated")
    row = _read(memory, f["opd2_addr"], code, 1, (1, memory.lanes, 1, f["res0_w"]))[0, :, 0]
    first = memory.lane_of(f["res0_addr"])
    return np.asarray(row[(first + np.arange(f["res0_c"])) % memory.lanes])


def _rounded(memory: Memory, f: Fields, y: Array) -> Array:
    if f["rq"] and not (f.get("opd5_const", 1) and f.get("opd4_const", 1)):
        raise Unsupported("a product with scales in memory is not simulated")
    if memory.registers.get(requantize.ZERO_REGISTER, 0) and f["rq"]:
        raise Unsupported("a product with a zero of its second matrix is not simulated")
    y = requantize.fused(memory, {**f, "opd5_const": 1}, y.astype(np.int64)[None, None])
    return np.asarray(y.reshape(y.shape[-2:]))


def _zero(memory: Memory, f: Fields, kind: int) -> Array:
    """The zero of the right matrix."""
    if f["opd2_const"]:
        return numbers.constant(f["opd2_addr"], I8, f["opd1_sign"]).reshape(1, 1).astype(np.int64)
    if kind in (NN, NT):
        shape = 1, memory.lanes, 1, f["res0_w"]
        row = _read(memory, f["opd2_addr"], I8, f["opd1_sign"], shape)[0, 0].astype(np.int64)
        return np.asarray(row.T if kind == NT else row)
    raise Unsupported("command MM2 with zeros of each row is not simulated")
