"""Jobs of convolutions and pools on bytes."""

from __future__ import annotations

import numpy as np

from intaglio.npu.chips.bm1684x import jobs, numbers, pool, requantize
from intaglio.npu.chips.bm1684x.arithmetic import SHAPE, Fields
from intaglio.npu.chips.bm1684x.jobs import ABSENT, Job, Operand
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import I8, I32

MOST_PRODUCTS = 60_000  # of a sum: they stay below 2 ** 31


def conv(memory: Memory, f: Fields) -> Job | None:
    """A CONV command on bytes; None where numpy has to run it."""
    ic, oc = f["opd0_c"], f["res0_c"]
    if f["tsk_eu_typ"] or f["opd0_prec"] != I8 or f["opd1_const"] or not f["opd1_sign"]:
        return None
    if not _plain_weights(memory, f) or ic * f["opd1_h"] * f["opd1_w"] > MOST_PRODUCTS:
        return None
    signed = f["res0_sign"] if memory.chip.rounds else 1
    if not jobs.known_type(f["res0_prec"], signed):
        return None
    shape = tuple(f[s] for s in SHAPE)
    at_once = memory.chip.inputs_at_once
    row = -(-ic // at_once) * f["opd1_h"] * f["opd1_w"] * at_once
    weights = jobs.local(memory, f["opd1_addr"], np.dtype(np.int8), (1, oc, 1, row), (0, row, 0, 1))
    y = _placed(memory, {**f, "res0_str": 0}, "res0", shape, signed)
    before = _placed(memory, {**f, "res0_str": 0}, "res0", shape, 1) if f["res_add"] else ABSENT
    made = _windows(memory, f, "conv", ic, (y, before, weights))
    if made is None or not _rounding(memory, f, made, y, weights):
        return None
    made.at_once = at_once
    return made


def depthwise(memory: Memory, f: Fields) -> Job | None:
    """A PorD command on bytes; None where numpy has to run it."""
    kind, c = f["tsk_eu_typ"], f["res0_c"]
    if f["opd0_prec"] != I8 or kind not in (0, 1, 2, pool.MAX):
        return None
    shape = tuple(f[s] for s in SHAPE)
    if kind == pool.MAX:
        if f["res0_prec"] != I8:
            return None
        y = _placed(memory, f, "res0", shape, f["opd0_sign"])
        made = _windows(memory, f, "max_pool", c, (y, ABSENT, ABSENT))
        return None if made is None or y.touches(_input(memory, f, c)) else made
    if kind == pool.AVERAGE or f["opd1_const"]:
        value = int(numbers.constant(f["opd1_addr"], I8, f["opd1_sign"]).item())
        weights = jobs.constant(value)
    else:
        row = f["opd1_h"] * f["opd1_w"]
        dtype = numbers.dtype(I8, f["opd1_sign"])
        weights = jobs.local(memory, f["opd1_addr"], dtype, (1, c, 1, row), (0, row, 0, 1))
    signed = f["opd0_sign"] | (f["opd1_sign"] if kind != pool.AVERAGE or f["opd1_const"] else 0)
    signed |= f["opd2_sign"] if kind != pool.AVERAGE else 0
    signed = f["res0_sign"] if memory.chip.rounds else signed
    if not jobs.known_type(f["res0_prec"], signed):
        return None
    y = _placed(memory, f, "res0", shape, signed)
    made = _windows(memory, f, "depthwise", c, (y, ABSENT, weights))
    if made is None or y.touches(_input(memory, f, c)):
        return None
    if not _rounding(memory, f, made, y, weights, bias=kind != pool.AVERAGE):
        return None
    made.relu |= kind == pool.DEPTHWISE_RELU
    if not memory.chip.rounds:
        average = kind == pool.AVERAGE
        made.shift = -(f["opd2_addr"] & 0xFF) if average else pool.signed_byte(f["res1_addr"])
        if made.shift and (
            f["opd2_n_str"] > jobs.MOST_MODE or abs(made.shift) > numbers.MOST_SHIFT
        ):
            return None
    return made


def _plain_weights(memory: Memory, f: Fields) -> bool:
    """Whether weights have no zero point."""
    if not memory.chip.rounds:
        return bool(f["opd2_const"] and not f["opd2_addr"] & 0xFF)
    zero = memory.registers.get(requantize.ZERO_REGISTER, 0) if f["rq"] else 0
    return bool(f["opd4_const"] and not zero & 0xFFFF)


def _placed(
    memory: Memory, f: Fields, name: str, shape: tuple[int, ...], signed: int | bool
) -> Operand:
    code, address = f[f"{name}_prec"], f[f"{name}_addr"]
    given = tuple(f.get(f"{name}_{d}_str", 0) for d in "nchw")
    steps = memory.strides(shape, code, f.get(f"{name}_str", 0), address, given)
    return jobs.local(memory, address, numbers.dtype(code, signed), shape, steps)


def _input(memory: Memory, f: Fields, channels: int) -> Operand:
    shape = f["res0_n"], channels, f["opd0_h"], f["opd0_w"]
    return _placed(memory, f, "opd0", shape, f["opd0_sign"])


def _windows(
    memory: Memory, f: Fields, op: str, channels: int, operands: tuple[Operand, Operand, Operand]
) -> Job | None:
    """The windows of a command: kernel, strides and padding."""
    y, before, weights = operands
    up, down, left, right = (f[f"opd0_{d}_pad"] for d in ("up", "dn", "lf", "rt"))
    padded = any((up, down, left, right))
    if f["opd0_y_ins0"] or f["opd0_x_ins0"] or (padded and (f["pad_mode"] or not f["opd3_const"])):
        return None
    kernel, stride = (f["opd1_h"], f["opd1_w"]), (f["res_op_y_str"], f["res_op_x_str"])
    dilation = f["opd1_y_ins0"] + 1, f["opd1_x_ins0"] + 1
    sizes = f["opd0_h"] + up + down, f["opd0_w"] + left + right
    if 0 in (*kernel, *stride) or kernel[0] * kernel[1] > MOST_PRODUCTS // 2:
        return None
    for axis, out in enumerate((f["res0_h"], f["res0_w"])):
        if (out - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1 > sizes[axis]:
            return None
    shape = tuple(f[s] for s in SHAPE)
    made = jobs.job(op, shape, y, _input(memory, f, channels), before)
    made.w, made.rotate = weights.tensor, f["kernel_rotate"] & 1
    made.fill = int(numbers.constant(f["opd3_addr"], I8, f["opd0_sign"]).item()) if padded else 0
    made.input[:] = [channels, f["opd0_h"], f["opd0_w"]]
    for name, values in (("kernel", kernel), ("stride", stride), ("dilation", dilation)):
        getattr(made, name)[:] = values
    made.pad[:] = [up, left]
    if op != "max_pool" and y.touches(weights) and not weights.constant:
        return None
    return made if jobs.fits(made) else None


def _rounding(
    memory: Memory, f: Fields, made: Job, y: Operand, weights: Operand, bias: bool = True
) -> bool:
    """Bias and rounding of the sums; False where numpy has to run the command."""
    c, chip = f["res0_c"], memory.chip
    made.mode = f.get("opd2_n_str", 0)
    if bias and (chip.rounds or made.op == jobs.OPS.index("depthwise")):
        if not f["opd2_sign"] and made.op == jobs.OPS.index("conv"):
            return False
        first = ABSENT
        if f["opd2_const"]:
            first = jobs.constant(int(numbers.constant(f["opd2_addr"], I32, 1).item()))
        else:
            first = jobs.per_channel(memory, f["opd2_addr"], c, 1, 4)
            if y.touches(first):
                return False
        made.bias = first.tensor
    if not chip.rounds:
        return True
    made.relu, made.rounds = f["relu"], f["rq"]
    if not f["rq"]:
        return True
    if made.mode > jobs.MOST_MODE:
        return False
    if f["opd5_const"]:
        made.given[:] = [int(a.item()) for a in requantize.fused_parameters(memory, f)]
        made.numbers = jobs.constant(0).tensor
        return True
    at = memory.registers.get(requantize.MULTIPLIER_REGISTER, 0)
    both = jobs.per_channel(memory, at, c, 2, 8)
    made.numbers, made.packed, made.zero_bits = both.tensor, 1, 16
    return not y.touches(both)
