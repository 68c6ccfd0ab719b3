"""Jobs of elementwise commands: arithmetic, casts, and scaling by the numbers of channels."""

from __future__ import annotations

from intaglio.npu.chips.bm1684x import arithmetic, jobs, numbers, requantize
from intaglio.npu.chips.bm1684x.arithmetic import SHAPE, Fields
from intaglio.npu.chips.bm1684x.jobs import ABSENT, Job, Operand
from intaglio.npu.chips.bm1684x.lanes import Memory
from intaglio.npu.chips.bm1684x.numbers import F32, I8

INTEGERS = {
    arithmetic.MUL: "mul",
    arithmetic.ADD: "add",
    arithmetic.SUB: "sub",
    arithmetic.MAX: "max",
    arithmetic.MIN: "min",
    arithmetic.ADD_SAT: "add",
    arithmetic.SUB_SAT: "sub",
    arithmetic.MUL_SAT: "mul",
}
FLOATS = {k: f"f_{v}" for k, v in INTEGERS.items() if v in ("add", "sub", "mul")}
MOST_SHIFT = 31


def element(memory: Memory, f: Fields) -> Job | None:
    """An AR command; None where numpy has to run it."""
    kind, count = f["tsk_eu_typ"], f["tsk_opd_num"]
    if kind == arithmetic.CAST:
        return _cast(memory, f)
    if kind not in INTEGERS or count < 2:
        return None
    if f["opd0_prec"] == F32:
        if kind not in FLOATS or f["opd1_prec"] != F32 or f["res0_prec"] != F32:
            return None
        return _two(memory, f, FLOATS[kind], 1, kind in (arithmetic.SUB, arithmetic.SUB_SAT))
    subtracts = kind in (arithmetic.SUB, arithmetic.SUB_SAT)
    signed = 1 if subtracts else f["opd0_sign"] | f["opd1_sign"]
    kinds = (("res0", signed), ("opd0", f["opd0_sign"]), ("opd1", f["opd1_sign"]))
    if not all(jobs.known_type(f[f"{name}_prec"], sign) for name, sign in kinds):
        return None
    made = _two(memory, f, INTEGERS[kind], signed, subtracts)
    if made is not None and count > 2:
        made.shift = int(numbers.constant(f["opd2_addr"], I8, 1).item())
        made.mode = f["opd2_n_str"]
        constant = f["opd2_const"] and f["opd2_prec"] == I8
        if not constant or abs(made.shift) > MOST_SHIFT or made.mode > jobs.MOST_MODE:
            return None
    if made is not None:
        made.saturate = kind not in (arithmetic.MUL, arithmetic.ADD, arithmetic.SUB)
    return made


def _operand(memory: Memory, f: Fields, name: str, signed: int | bool) -> Operand:
    code, address = f[f"{name}_prec"], f[f"{name}_addr"]
    if f.get(f"{name}_const"):
        if code == F32:
            return jobs.constant(address & 0xFFFFFFFF)
        return jobs.constant(int(numbers.constant(address, code, signed).item()))
    shape = tuple(f[s] for s in SHAPE)
    given = tuple(f.get(f"{name}_{d}_str", 0) for d in "nchw")
    steps = memory.strides(shape, code, f.get(f"{name}_str", 0), address, given)
    return jobs.local(memory, address, numbers.dtype(code, signed), shape, steps)


def _two(memory: Memory, f: Fields, op: str, signed: int, ordered: bool) -> Job | None:
    y = _operand(memory, f, "res0", signed)
    a, b = (_operand(memory, f, name, f[f"{name}_sign"]) for name in ("opd0", "opd1"))
    if a.constant:
        if ordered or b.constant:
            return None
        a, b = b, a
    return None if _disturbs(y, a, b) else jobs.job(op, [f[s] for s in SHAPE], y, a, b)


def _disturbs(y: Operand, *operands: Operand) -> bool:
    """Whether storing y changes what is still to be read."""
    return any(y.touches(x) and not y.same(x) for x in operands)


def _cast(memory: Memory, f: Fields) -> Job | None:
    """To bytes and shorts, halves to even; or integers to f32."""
    shape = [f[s] for s in SHAPE]
    if f.get("opd2_n_str", 0) or f.get("opd0_const"):
        return None
    if f["opd0_prec"] == F32 and f["res0_prec"] in (I8, numbers.I16):
        y = _operand(memory, f, "res0", f["opd2_sign"])
        a = _operand(memory, f, "opd0", 1)
        return None if _disturbs(y, a) else jobs.job("cast", shape, y, a)
    if f["res0_prec"] == F32 and jobs.known_type(f["opd0_prec"], f["opd0_sign"]):
        y, a = _operand(memory, f, "res0", 1), _operand(memory, f, "opd0", f["opd0_sign"])
        made = jobs.job("dq0", shape, y, a)
        made.numbers = jobs.constant(0).tensor
        made.given[:] = [0, jobs.float_bits(1.0), 0]
        return None if _disturbs(y, a) else made
    return None


def scaled(memory: Memory, f: Fields) -> Job | None:
    """An RQ or DQ command; None where numpy has to run it."""
    kind, mode, code = f["tsk_eu_typ"], f["opd2_n_str"], f["res0_prec"]
    one, two = f["opd1_addr"], f["opd2_addr"]
    dequantises = kind == requantize.DQ0
    if kind not in (requantize.RQ0, requantize.RQ1, requantize.DQ0) or f.get("opd0_const"):
        return None
    if not jobs.known_type(f["opd0_prec"], f["opd0_sign"]):
        return None
    if code != F32 if dequantises else not jobs.known_type(code, f["opd2_sign"]):
        return None
    if (kind == requantize.RQ0 and mode) or (kind == requantize.RQ1 and mode > jobs.MOST_MODE):
        return None
    y = _operand(memory, f, "res0", 1 if dequantises else f["opd2_sign"])
    a = _operand(memory, f, "opd0", f["opd0_sign"])
    op = {requantize.RQ0: "rq0", requantize.RQ1: "rq1", requantize.DQ0: "dq0"}[kind]
    made = jobs.job(op, [f[s] for s in SHAPE], y, a, mode=mode)
    table = ABSENT
    if f["opd1_const"]:
        if kind == requantize.RQ1:
            given = [int(p.item()) for p in requantize.constants(f)]
        else:
            given = [one, two, 0] if not dequantises or memory.chip.zero_first else [two, one, 0]
        made.given[:], made.numbers = given, jobs.constant(0).tensor
    else:
        count = 3 if kind == requantize.RQ1 else 2
        table = jobs.per_channel(memory, one, f["res0_c"], count, memory.chip.scale_step)
        made.numbers, made.swapped = table.tensor, not memory.chip.zero_first
        made.zero_bits = 16 if f["opd2_sign"] else -16
    return None if _disturbs(y, a, table) else made
