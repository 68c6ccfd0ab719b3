"""Random single commands of CV18xx in a cvimodel that loads all local memory before and stores it
after: whatever a command changes is seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.ir import Array
from intaglio.npu.chips.cv18xx.commands import CHIPS, Command, decode, encode, tdma, tiu
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel, Program, Routine, Section, Tensor

LANE = 32 << 10
INPUT, OUTPUT = 3, 4  # base registers
X, Y, W, Q = 0, 8192, 16384, 24576  # places of operands in local memory
HIGH = 4096  # from the low byte of a number of 16 bits to the high one
Fields = dict[str, int]
Case = tuple[list[Command], Callable[[Array], None]]


def memory(seed: int, chip: str) -> Array:
    """Random bytes for all of local memory."""
    shape = 1, CHIPS[chip].lanes, 128, 256
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def model(commands: list[Command], chip: str) -> Cvimodel:
    """A model whose output is local memory after some commands, from `x` before them."""
    lanes = CHIPS[chip].lanes
    shape = {"c": lanes, "h": 128, "w": 256}
    strides = {"h_stride": 256, "c_stride_low": LANE, "n_stride": lanes * LANE}
    ends = {f"{side}_{k}": v for side in ("src", "dst") for k, v in (shape | strides).items()}
    stream, count = [tdma(ends | {"src_base_reg_sel": INPUT})], {"tiu": 0, "tdma": 1}
    for c in [*commands, tdma(ends | {"trans_dir": 1, "dst_base_reg_sel": OUTPUT})]:
        other = "tdma" if c.name == "tiu" else "tiu"
        stream.append(Command(c.engine, c.name, c.fields, 0, count[other]))
        count[c.name] += 1
    tensors = [
        Tensor("x", "u8", (1, lanes, 128, 256), INPUT),
        Tensor("y", "u8", (1, lanes, 128, 256), OUTPUT),
    ]
    program = Program(["x"], ["y"], tensors, [Routine("tpu", ["x"], ["y"], "main")], 16, 16)
    sections = [Section(0, "weight", bytes(256)), Section(1, "main", encode(stream, chip))]
    return Cvimodel("single", chip, [program], sections)


def reload(chip: str) -> Command:
    """A command that loads local memory again, to see what was written to DDR."""
    return tdma(decode(model([], chip).sections[1].data)[0].fields)


def aligned(x: int) -> int:
    return -(-x // 16) * 16


def one(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high))


def windows(rng: np.random.Generator, lanes: int, depthwise: bool) -> Fields:
    """The shapes of a convolution or pool that fits into local memory."""
    while True:
        n = one(rng, 1, 3) if rng.random() < 0.3 else 1
        ic, oc, h, w = one(rng, 1, 20), one(rng, 1, 24), one(rng, 1, 12), one(rng, 1, 14)
        oc = ic if depthwise else oc
        ky, kx, sy, sx = one(rng, 1, 5), one(rng, 1, 5), one(rng, 1, 4), one(rng, 1, 4)
        dy, dx = (1, 1) if depthwise else (one(rng, 1, 3), one(rng, 1, 3))
        up, down, left, right = (one(rng, 0, 4) for _ in range(4))
        iy = ix = ly = lx = 0
        if not depthwise and rng.random() < 0.3 and h > 1 and w > 1:
            iy, ix, ly, lx = (one(rng, 0, 3) for _ in range(4))
        high = up + (h - 1) * (iy + 1) + 1 + ly + down - (ky - 1) * dy
        wide = left + (w - 1) * (ix + 1) + 1 + lx + right - (kx - 1) * dx
        if high < 1 or wide < 1:
            continue
        if depthwise and (max(up, down) >= ky or max(left, right) >= kx):
            continue
        oh, ow = (high - 1) // sy + 1, (wide - 1) // sx + 1
        blocks = -(-oc // lanes)
        weights = aligned(ky * kx) if depthwise else ky * kx * ic
        fits = n * -(-ic // lanes) * aligned(h * w) <= 8192
        if fits and n * blocks * aligned(oh * ow) <= 2048 and blocks * weights <= 8192:
            break
    plane, in_plane = aligned(oh * ow), aligned(h * w)
    return {
        "res0_addr": Y,
        "res0_n": n,
        "res0_c": oc,
        "res0_h": oh,
        "res0_w": ow,
        "opd0_addr": X,
        "opd0_n": n,
        "opd0_c": ic,
        "opd0_h": h,
        "opd0_w": w,
        "opd1_addr": W,
        "opd1_n": ic,
        "opd1_c": oc,
        "opd1_h": ky,
        "opd1_w": kx,
        "conv_op_y_str": sy,
        "conv_op_x_str": sx,
        "conv_opd1_y_ins0": dy - 1,
        "conv_opd1_x_ins0": dx - 1,
        "conv_opd0_y_ins0": iy,
        "conv_opd0_x_ins0": ix,
        "conv_opd0_y_ins0_last": ly,
        "conv_opd0_x_ins0_last": lx,
        "conv_opd0_up_pad": up,
        "conv_opd0_dn_pad": down,
        "conv_opd0_lf_pad": left,
        "conv_opd0_rt_pad": right,
        "res0_n_str": blocks * plane,
        "res0_c_str": plane,
        "res0_h_str": ow,
        "opd0_n_str": -(-ic // lanes) * in_plane,
        "opd0_c_str": in_plane,
        "opd0_h_str": w,
        "opd0_ins_val": one(rng, 0, 256) if rng.random() < 0.5 else 0,
    }


def convolution(rng: np.random.Generator, lanes: int, depthwise: bool, sums: int) -> Case:
    """`sums`: ps32_md."""
    f = windows(rng, lanes, depthwise)
    f |= {"opt_res_shift": 0, "opt_chl_quan": 1, "opt_res0_sign": 1, "opt_opd2_seg": 1}
    f |= {"opt_opd0_sign": one(rng, 0, 2), "opt_relu_typ": one(rng, 0, 2), "opd2_addr": Q}
    f |= {"short_res0_str": 3, "short_opd1_str": 1, "short_opd2_str": 2, "opd2_b_str": 0}
    f |= {"opd2_c": f["res0_c"], "opd2_w": 1, "tsk_opd_num": 2 if rng.random() < 0.3 else 3}
    if depthwise:
        f |= {"tsk_typ": 1, "tsk_eu_typ": 2, "short_opd0_str": 3, "short_opd1_str": 0, "opd1_n": 1}
    elif f["opd0_c"] % 2 == 0 and f["opd0_c"] >= 4:
        f["double_conv"] = 1
    if sums:
        f |= {"ps32_md": sums, "res0_b_str": f["res0_n"] * f["res0_n_str"]}
    if sums & 2:
        f |= {"opt_relu_typ": 0, "tsk_opd_num": 2, "opt_chl_quan": 0, "short_opd2_str": 0}
    seed = one(rng, 0, 1 << 30)
    return [tiu(f)], lambda x: _records(x, f, lanes, seed)


def convolution_of_floats(rng: np.random.Generator, lanes: int) -> Case:
    """A convolution of bf16 whose sums lose bits: numbers of very different sizes."""
    n, ic, oc = one(rng, 1, 3), one(rng, 1, 20), one(rng, 1, 12)
    h, w, ky, kx = one(rng, 1, 7), one(rng, 1, 9), one(rng, 1, 4), one(rng, 1, 4)
    up, down, left, right = (one(rng, 0, 3) for _ in range(4))
    sy, sx = one(rng, 1, 3), one(rng, 1, 3)
    up, left = max(up, ky - h), max(left, kx - w)
    oh, ow = (up + h + down - ky) // sy + 1, (left + w + right - kx) // sx + 1
    plane = aligned(2 * oh * ow)
    f: Fields = {"opd_typ": 1, "opt_res_shift": 0, "opt_res0_sign": 1, "opt_opd0_sign": 1}
    f |= {"tsk_opd_num": one(rng, 2, 4), "opt_relu_typ": one(rng, 0, 2), "opt_opd2_seg": 0}
    f |= {"res0_addr": Y, "res0_n": n, "res0_c": oc, "res0_h": oh, "res0_w": ow}
    f |= {"opd0_addr": X, "opd0_n": n, "opd0_c": ic, "opd0_h": h, "opd0_w": w}
    f |= {"opd1_addr": W, "opd1_n": ic, "opd1_c": oc, "opd1_h": ky, "opd1_w": kx}
    f |= {"opd2_addr": Q, "opd2_c": oc, "opd2_h": 1, "opd2_w": 1, "short_opd2_str": 2}
    f |= {"conv_op_y_str": sy, "conv_op_x_str": sx, "short_res0_str": 3, "short_opd1_str": 1}
    f |= {"conv_opd0_up_pad": up, "conv_opd0_dn_pad": down}
    f |= {"conv_opd0_lf_pad": left, "conv_opd0_rt_pad": right}
    f |= {"res0_n_str": -(-oc // lanes) * plane, "res0_c_str": plane}
    f |= {"res0_h_str": 2 * ow, "res0_w_str": 2}
    seed = one(rng, 0, 1 << 30)

    def prepare(x: Array) -> None:
        """Large numbers of both signs, which cancel, and small ones in all of local memory."""
        numbers = np.random.default_rng(seed)
        small, size = numbers.standard_normal(x.size // 2), x.size // 2
        real = np.where(numbers.random(size) < 0.5, small, numbers.choice([-1024, 1024], size))
        high = real.astype(np.float32).view(np.uint32) >> 16
        x.reshape(-1)[:] = high.astype(np.uint16).view(np.uint8)

    return [tiu(f)], prepare


def _records(x: Array, f: Fields, lanes: int, seed: int) -> None:
    """Bias, multiplier and shift of every output channel."""
    rng, by_lane = np.random.default_rng(seed), x.reshape(lanes, -1)
    size = 9 if f["tsk_opd_num"] == 3 else 5
    for c in range(f["res0_c"]):
        most = 1 << 31 if rng.random() < 0.1 else 20000
        record = int(rng.integers(-most, most)).to_bytes(4, "little", signed=True)
        record = record[: size - 5] + one(rng, 1 << 30, 1 << 31).to_bytes(4, "little")
        record += bytes([one(rng, 0, 14)])
        start = f["opd2_addr"] + c // lanes * size
        by_lane[c % lanes, start : start + size] = np.frombuffer(record, np.uint8)


def pool(rng: np.random.Generator, lanes: int) -> Case:
    f = {k: v for k, v in windows(rng, lanes, True).items() if k[:4] != "opd1" or k[5] in "hw"}
    f = {k: v for k, v in f.items() if not (k.endswith("_str") and k.startswith(("res0", "opd0")))}
    kind, sign = int(rng.choice([0, 1, 3])), one(rng, 0, 2)
    f |= {"tsk_typ": 1, "tsk_eu_typ": kind, "tsk_opd_num": 1, "opt_res_shift": 0}
    f |= {"opt_res0_sign": sign, "opt_opd0_sign": sign, "opt_shift_typ": sign}
    if kind == 1:
        f |= {"tsk_opd_num": 2, "opt_opd1_const": 1, "opt_opd1_sign": 0}
        f |= {"opd1_addr": one(rng, 0, 256), "opt_res_shift": one(rng, 0, 16)}
    return [tiu(f)], lambda x: None


def eltwise(rng: np.random.Generator, lanes: int, kind: int) -> Case:
    """`kind`: tsk_eu_typ, 0 to 11."""
    n, c, h, w = one(rng, 1, 3), one(rng, 1, 20), one(rng, 1, 6), one(rng, 1, 12)
    plane = aligned(h * w)
    f: Fields = {"tsk_typ": 3, "tsk_eu_typ": kind, "opd0_addr": X, "opd1_addr": Y, "res0_addr": W}
    for of in ("res0", "opd0", "opd1", "opd2"):
        f |= {f"{of}_n": n, f"{of}_c": c, f"{of}_h": h, f"{of}_w": w, f"short_{of}_str": 3}
        f |= {f"{of}_n_str": -(-c // lanes) * plane, f"{of}_c_str": plane, f"{of}_h_str": w}
    coin = [one(rng, 0, 2) for _ in range(6)]
    wide = {"opt_res0_seg": 0, "opt_opd0_seg": 0, "opt_opd1_seg": 0}
    wide |= {"res0_b_str": HIGH, "opd0_b_str": HIGH, "opd1_b_str": HIGH}
    signs = {"opt_opd0_sign": coin[0], "opt_opd1_sign": coin[1], "opt_res0_sign": 1}
    f |= {"tsk_opd_num": 1 if kind == 10 else 2, "opt_res_shift": 0, "opt_left_shift": 0} | signs
    constant = coin[2] if kind not in (6, 10) else 0
    if kind < 4:
        f["opt_res_shift"] = one(rng, 0, 10)
    if kind == 0 and coin[3]:
        f |= {"opt_res0_seg": 0, "res0_b_str": HIGH}
    elif kind == 0 and coin[4]:
        f |= {"opt_chl_quan": 1, "quan_m": one(rng, 1 << 30, 1 << 31), "opt_relu_typ": coin[5]}
    elif kind == 1:
        f |= {"opt_res_add": 1, "opt_left_shift": one(rng, 0, 4), "res0_b_str": HIGH}
        f["opt_res0_seg"] = coin[3]
        f["opt_relu_typ"] = coin[4] * coin[3]
    elif kind in (2, 3):
        f |= wide | {"opt_res0_seg": coin[3]}
        f["opt_opd0_sign"] |= int(kind == 3)  # differences are signed
    elif kind in (4, 5, 11):
        same = ("opt_opd0_sign", "opt_opd1_sign", "opt_res0_sign", "opt_shift_typ")
        f |= dict.fromkeys(same, coin[0])
    elif kind == 6:
        f |= wide | {"opt_rshift_typ": 0, "opt_opd0_sign": 1, "opt_opd1_sign": 1}
        f["opt_opd1_seg"] = 1
    elif kind in (7, 8, 9, 10):
        f |= {"opt_shift_typ": 0, "opt_opd0_sign": 0, "opt_opd1_sign": 0, "opt_res0_sign": 0}
        if coin[3] and kind != 10:
            f |= wide
            constant = 0
    if f["opt_opd0_sign"] + f["opt_opd1_sign"] == 0 and kind < 3:
        f |= {"opt_shift_typ": 0, "opt_res0_sign": 0, "opt_relu_typ": 0}
    if constant:
        f |= {"opt_opd1_const": 1, "opd1_addr": one(rng, 0, 65536 if kind in (2, 3) else 256)}
    seed = one(rng, 0, 1 << 30)

    def prepare(x: Array) -> None:
        if kind == 6:  # numbers of bits
            bits = np.random.default_rng(seed).integers(-16, 17, (lanes, HIGH)).astype(np.int8)
            x.reshape(lanes, -1)[:, Y : Y + HIGH] = bits.view(np.uint8)

    return [tiu(f)], prepare


def look_up(rng: np.random.Generator, lanes: int) -> Case:
    n, c, h, w = one(rng, 1, 3), one(rng, 1, 20), one(rng, 1, 6), one(rng, 1, 12)
    f: Fields = {"tsk_typ": 3, "tsk_eu_typ": 12, "tsk_opd_num": 2, "opt_shift_typ": 0}
    f |= {"opt_res_shift": 0, "opt_opd1_sign": 0, "res0_addr": W, "opd0_addr": X, "opd1_addr": Y}
    for of in ("res0", "opd0"):
        f |= {f"{of}_n": n, f"{of}_c": c, f"{of}_h": h, f"{of}_w": w}
    return [tiu(f | {"opd1_c": lanes, "opd1_h": 16, "opd1_w": 16})], lambda x: None


def matmul(rng: np.random.Generator, lanes: int, sums: int) -> Case:
    """`sums`: ps32_md."""
    rows, depth, columns = one(rng, 1, 4), one(rng, 1, 40), one(rng, 1, 60)
    wide = 16 * -(-columns // (16 * lanes)) if columns >= 16 else columns
    c, left = -(-columns // wide), 5 if rng.random() < 0.5 and depth > 5 else depth
    pieces = -(-depth // left)
    f: Fields = {"tsk_typ": 2, "tsk_opd_num": one(rng, 2, 4), "opt_res0_sign": 1}
    f |= {"opt_opd0_sign": one(rng, 0, 2), "opt_res_shift": one(rng, 0, 12), "opt_left_shift": 0}
    f |= {"opt_relu_typ": one(rng, 0, 2), "opt_opd2_seg": 0}
    f |= {"res0_addr": W, "opd0_addr": X, "opd1_addr": HIGH, "opd2_addr": Q}
    f |= {"res0_n": rows, "res0_c": c, "res0_h": 1, "res0_w": wide, "opd2_c": c, "opd2_w": wide}
    f |= {"opd0_n": rows, "opd0_c": pieces, "opd0_h": 1, "opd0_w": left}
    f |= {"opd1_n": depth, "opd1_c": c, "opd1_h": 1, "opd1_w": depth - left * (pieces - 1)}
    quantized = {"opt_chl_quan": 1, "quan_m": one(rng, 1 << 30, 1 << 31)}
    if sums:
        f |= {"ps32_md": sums, "res0_b_str": rows * -(-c // lanes) * aligned(wide)}
    if sums & 2:
        f |= {"tsk_opd_num": 2, "opt_res_shift": 0, "opt_relu_typ": 0}
    elif sums or rng.random() < 0.6:
        f |= quantized
    return [tiu(f)], lambda x: None
