"""Random commands of the BM1684X, and the local memory that they run on.

Each lane's memory has four parts of 8 KiB: bytes, f32, f16, and records of 64 bytes with a
multiplier, a shift and a zero. Results go behind them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from intaglio.npu.chips.bm1684x.commands import Command
from intaglio.npu.chips.bm1684x.lanes import LANE, LANES, Memory

PART = 8192
DIGESTED = 1 << 16  # bytes of a lane: operands and results
BYTES, F32, F16, RECORDS, RESULT = (i * PART for i in range(5))
SOURCE = {0: BYTES, 1: F16, 2: F32, 3: BYTES, 4: BYTES}  # by type
Fields = dict[str, int]
Rng = np.random.Generator


def image() -> np.ndarray:
    """Local memory before a command."""
    rng = np.random.default_rng(9)
    memory = np.zeros((LANES, LANE), np.uint8)
    memory[:, :PART] = rng.integers(0, 256, (LANES, PART))
    parts = rng.integers(-(1 << 20), 1 << 20, (LANES, PART // 4)).astype(np.float32) / (1 << 16)
    memory[:, F32:F16] = parts.view(np.uint8)
    halves = (rng.integers(-2047, 2048, (LANES, PART // 2)) / 512).astype(np.float16)
    memory[:, F16:RECORDS] = halves.view(np.uint8)
    records = np.zeros((LANES, PART // 64, 16), np.int32)
    records[..., 0] = rng.integers(1, 1 << 30, records.shape[:2])
    records[..., 1] = -rng.integers(20, 45, records.shape[:2])
    records[..., 2] = rng.integers(-20, 20, records.shape[:2])
    memory[:, RECORDS:RESULT] = records.reshape(LANES, -1).view(np.uint8)
    memory[:, RESULT : 2 * RESULT] = memory[:, :RESULT]
    return memory


def digest(memory: np.ndarray) -> str:
    """A short name of the contents of local memory."""
    return hashlib.sha256(np.ascontiguousarray(memory[:, :DIGESTED])).hexdigest()[:16]


def local(memory: Memory) -> np.ndarray:
    """A simulator's local memory as [lanes, bytes]."""
    return memory.raw.reshape(LANES, LANE)


def _shape(rng: Rng, most: int = 9) -> Fields:
    n, c = int(rng.integers(1, 3)), int(rng.choice([1, 3, 17, 64, 70]))
    h, w = (int(v) for v in rng.integers(1, most, 2))
    return {"res0_n": n, "res0_c": c, "res0_h": h, "res0_w": w, "res0_addr": RESULT}


def _const(value: float, code: int) -> int:
    if code in (1, 2):
        kind, bits = ((np.float16, np.uint16), (np.float32, np.uint32))[code - 1]
        return int(np.array([value], kind).view(bits)[0])
    return int(value) & 0xFF


def arithmetic(rng: Rng) -> tuple[str, Fields]:
    """Integers: add, subtract, multiply, larger, smaller; with a shift."""
    types = [(0, 0, 0), (3, 0, 0), (4, 0, 0), (4, 3, 3), (4, 4, 4), (0, 3, 3), (0, 4, 4), (3, 3, 3)]
    result, a, b = types[rng.integers(len(types))]
    f = _shape(rng) | {"tsk_eu_typ": int(rng.choice([0, 2, 3, 4, 5, 15, 16, 20]))}
    f |= {"res0_prec": result, "opd0_prec": a, "opd1_prec": b, "tsk_opd_num": 2}
    f |= {"opd0_sign": int(rng.integers(2)), "opd1_sign": int(rng.integers(2))}
    f |= {"opd0_addr": 0, "opd1_addr": PART // 2, "opd2_n_str": int(rng.integers(0, 7))}
    if f["tsk_eu_typ"] >= 15 and a != 4 and rng.integers(2):
        f |= {"tsk_opd_num": 3, "opd2_const": 1, "opd2_addr": int(rng.integers(-6, 3)) & 0xFF}
    if rng.integers(3) == 0:
        f |= {"opd1_const": 1, "opd1_addr": int(rng.integers(256)), "opd1_prec": 0}
    return "sAR", f


def floats(rng: Rng) -> tuple[str, Fields]:
    """f32 and f16: add, subtract, multiply, larger, smaller, divide."""
    code = int(rng.integers(1, 3))
    kinds = [0, 2, 3, 4, 5] + [12] * (code == 2)
    f = _shape(rng) | {"tsk_eu_typ": int(rng.choice(kinds)), "tsk_opd_num": 2, "opd0_sign": 1}
    f |= {"res0_prec": code, "opd0_prec": code, "opd1_prec": code, "opd1_sign": 1}
    f |= {"opd0_addr": SOURCE[code], "opd1_addr": SOURCE[code] + PART // 2, "opd2_n_str": 2}
    return "sAR", f


def cast(rng: Rng) -> tuple[str, Fields]:
    """Between types, with all ways of rounding."""
    pairs = [(2, 0), (2, 3), (2, 4), (4, 2), (0, 2), (2, 1), (1, 2), (4, 0), (0, 4), (2, 2), (1, 1)]
    source, result = pairs[rng.integers(len(pairs))]
    f = _shape(rng) | {"tsk_eu_typ": 14, "tsk_opd_num": 1, "opd0_prec": source}
    f |= {"res0_prec": result, "opd0_addr": SOURCE[source], "opd2_n_str": int(rng.integers(0, 7))}
    return "sAR", f | {"opd0_sign": int(rng.integers(2)), "opd2_sign": int(rng.integers(2))}


def requantize(rng: Rng) -> tuple[str, Fields]:
    """Accumulators to bytes, bytes to floats."""
    kind = int(rng.choice([0, 1, 3]))
    f = _shape(rng) | {"tsk_eu_typ": kind, "opd0_sign": 1, "opd0_prec": 4, "opd0_addr": 0}
    f |= {"opd2_sign": int(rng.integers(2)), "opd1_addr": RECORDS, "opd2_n_str": 5}
    if kind == 0:
        f |= {"opd1_const": 1, "opd1_addr": _const(3e-8, 2), "opd2_addr": _const(1.5, 2)}
        f["opd2_n_str"] = 0
    if kind == 1 and rng.integers(2):
        shift = (-int(rng.integers(20, 45)) & 0xFF) | 7 << 8
        f |= {"opd1_const": 1, "opd1_addr": int(rng.integers(1, 1 << 30)), "opd2_addr": shift}
    if kind == 3:
        f |= {"opd0_prec": 0, "res0_prec": 2, "opd1_const": 1, "opd1_addr": 5}
        f |= {"opd2_addr": _const(0.037, 2)}
    return "sRQ&sDQ", f


def _window(rng: Rng, code: int) -> Fields:
    h, w, kh, kw = (int(v) for v in (*rng.integers(4, 9, 2), *rng.integers(1, 4, 2)))
    up, down, left, right = (int(v) for v in rng.integers(0, 2, 4))
    sy, sx = (int(v) for v in rng.integers(1, 3, 2))
    f = {"opd0_h": h, "opd0_w": w, "opd1_h": kh, "opd1_w": kw, "opd0_prec": code}
    f |= {"opd0_up_pad": up, "opd0_dn_pad": down, "opd0_lf_pad": left, "opd0_rt_pad": right}
    f |= {"res_op_y_str": sy, "res_op_x_str": sx, "opd3_const": 1, "opd3_addr": _const(1, code)}
    f |= {"res0_n": int(rng.integers(1, 3)), "res0_addr": RESULT, "opd0_addr": SOURCE[code]}
    f |= {"res0_h": (h + up + down - kh) // sy + 1, "res0_w": (w + left + right - kw) // sx + 1}
    return f | {"opd0_sign": int(rng.integers(2)), "opd1_sign": int(rng.integers(2))}


def conv(rng: Rng) -> tuple[str, Fields]:
    """Convolutions of bytes, f32 and f16."""
    code = int(rng.integers(0, 3))
    f = _window(rng, code) | {"res0_c": int(rng.choice([1, 5, 20, 70])), "opd2_const": 1}
    f |= {"opd0_c": int(rng.choice([1, 3, 20, 33, 70])), "opd1_addr": SOURCE[code] + PART // 2}
    f |= {"opd2_addr": _const(0.5 if code else 3, 2 if code else 0)}
    f |= {"res0_prec": (4, int(rng.integers(1, 3)), 2)[code], "opd2_sign": int(rng.integers(2))}
    return "sCONV", f | {"res_add": int(rng.integers(2)) if f["res0_prec"] != 1 else 0}


def pool(rng: Rng) -> tuple[str, Fields]:
    """Depthwise convolutions and pools."""
    code, kind = int(rng.integers(0, 3)), int(rng.choice([0, 1, 4]))
    f = _window(rng, code) | {"tsk_eu_typ": kind, "res0_c": int(rng.choice([1, 5, 64, 70]))}
    f |= {"opd1_addr": SOURCE[code] + PART // 2, "opd2_const": 1, "res0_prec": code}
    if kind == 0:
        f |= {"opd2_addr": _const(0.5, code) if code else 77, "res0_prec": code or 4}
        f["opd2_sign"] = 1
    if kind == 1:
        f |= {"opd1_const": 1, "opd1_addr": _const(0.3 if code else 23, code), "opd2_n_str": 5}
        f |= {"opd2_addr": 0 if code else 6, "opd1_sign": f["opd0_sign"]}
    if kind == 4:
        f |= {"opd2_const": 0}
    return "sPorD", f


def matmul(rng: Rng) -> tuple[str, Fields]:
    """MM of f32, MM2 of bytes and f16."""
    code = int(rng.integers(0, 3))
    m, k, n = int(rng.integers(1, 9)), int(rng.choice([1, 5, 20, 33, 64])), int(rng.integers(1, 17))
    f = {"res0_addr": RESULT, "opd0_addr": SOURCE[code], "opd1_addr": SOURCE[code] + PART // 2}
    f |= {"opd0_prec": code, "opd0_sign": 1, "opd1_sign": int(rng.integers(2))}
    if code == 2:
        f |= {"tsk_eu_typ": 1, "res0_prec": 2, "opd2_const": 1, "opd2_addr": _const(0.7, 2)}
        f |= {"opd0_n": m, "opd0_c": 1, "opd0_w": k, "opd1_w": k, "res0_c": 2, "res0_w": n}
        return "sMM", f | {"res_add": int(rng.integers(2))}
    kind = int(rng.choice([4, 5]))
    f |= {"tsk_eu_typ": kind, "res0_c": m, "res0_w": n, "res0_prec": 2 if code else 4}
    f |= {"opd1_c": k, "opd1_w": n} if kind == 4 else {"opd1_c": n, "opd1_w": k}
    return "sMM2", f | {"opd2_const": 1, "opd2_addr": 0 if code else 3}


def move(rng: Rng) -> tuple[str, Fields]:
    """Copies, broadcasts and transposes."""
    f = _shape(rng) | {"tsk_eu_typ": int(rng.integers(0, 4)), "res0_prec": int(rng.integers(0, 3))}
    turned = f["tsk_eu_typ"] < 2
    f |= {"opd0_c": f["res0_w"] if turned else f["res0_c"]}
    f |= {"opd0_w": f["res0_c"] if turned else f["res0_w"]}
    return "sTRANS&sBC", f


def table(rng: Rng) -> tuple[str, Fields]:
    """Looking up bytes in a table of 256 numbers."""
    f = _shape(rng) | {"tsk_eu_typ": int(rng.choice([5, 13])), "res0_prec": int(rng.choice([0, 1]))}
    f |= {"res0_h": 1, "opd0_h": 1, "opd0_w": 256, "opd0_prec": f["res0_prec"], "opd0_str": 4}
    f |= {"opd1_c": f["res0_c"], "opd1_w": f["res0_w"], "opd1_prec": 0, "opd1_addr": PART // 2}
    return "sSG", f | {"opd0_addr": SOURCE[f["res0_prec"]]}


def series(rng: Rng) -> tuple[str, Fields]:
    """Series of f32 and f16, and reciprocal square roots."""
    code = int(rng.integers(1, 3))
    f = _shape(rng) | {"tsk_eu_typ": int(rng.choice([12, 13])), "res0_prec": code}
    f |= {"opd0_prec": code, "opd0_addr": SOURCE[code], "opd1_addr": SOURCE[code] + PART // 2}
    return "sSFU", f | {"opd1_n": int(rng.integers(2, 8))}


KINDS: list[Callable[[Rng], tuple[str, Fields]]] = [
    *(arithmetic, floats, cast, requantize, conv, pool, matmul, move, table, series)
]


def case(seed: int) -> Command:
    """A random command."""
    rng = np.random.default_rng(seed)
    name, fields = KINDS[seed % len(KINDS)](rng)
    return Command("tiu", name, fields, 1)
