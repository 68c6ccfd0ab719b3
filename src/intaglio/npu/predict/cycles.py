"""Cycles of each instruction by itself: work by the unit's atoms, bytes by bursts.

All instructions of one kind are worked out at once. When they run, and what waits for what, is
the business of `timeline`. A chip's `[timing]` holds the constants; docs/targets.md explains them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array
from intaglio.npu.own import isa
from intaglio.targets.chip import Chip

USUAL = {  # constants of a chip whose file does not say
    "efficiency": 0.7,  # share of the peak that DDR reaches, reading as much as writing
    "write": 1.0,  # cost of a byte written, in bytes read
    "port": 64.0,  # bytes a cycle that a core moves each way
    "steps": 1,  # cycles for which a convolution holds an output at least
    "pixels": 1,  # outputs of a channel that it holds together
    "taps": 0,  # 1: pooling reads every tap of every window; 0: every element once
    "apart": 0.0,  # instructions that follow a product, with tables and sums; 0: all run beside it
    "fold": 0,  # input channels up to which all taps lie side by side in an atom
    "launch": 100.0,  # cycles of each instruction beside its work
    "layer": 0.0,  # cycles of each layer beside those of its instructions
    "transfer": 100.0,  # cycles until a transfer's first byte
    "alone": 0.0,  # share of the work on one image with which other cores do not help
    "barrier": 500.0,  # cycles from the last core's arrival on
    "start": 20.0,  # microseconds to hand a program to the NPU
    "call": 60.0,  # microseconds of each step that the CPU does, beside its work
    "turn": 0.0,  # cycles of each element that a vendor's program moves to another order
    "images": 1,  # of a batch that products of bytes take side by side
    "element": 1.0,  # bytes of what stands for a byte: see `elements`
}  # and "use.TYPE", the share of its rate that a product of that type reaches
PRODUCTS = ("conv", "depthwise", "matmul")
_ITEM = np.zeros(256)
for _t in dtypes.TABLE.values():
    _ITEM[_t.code] = _t.numpy.itemsize


@dataclass(slots=True)
class Costs:
    """What each instruction of a program needs, one array element each, in the program's order."""

    op: Array  # code
    core: Array
    queue: Array  # 0 load, 1 compute, 2 store
    layer: Array
    wait: Array  # [n, 3]
    barrier: Array
    work: Array  # cycles of the unit, or of the core's port
    idle: Array  # cycles of launch, layer and latency
    ddr: Array  # cycles of DDR
    products: Array
    read: Array  # bytes of DDR
    written: Array
    near: Array  # bytes of shared SRAM

    def __len__(self) -> int:
        return len(self.op)


def costs(program: isa.Program | Array, chip: Chip) -> Costs:
    """The costs of a program's instructions on `chip`."""
    data = program.encode() if isinstance(program, isa.Program) else program
    head, at, codes, batch = _walk(data)
    n = len(at)
    zero = [np.zeros(n) for _ in range(7)]
    heads = _gather(data, at, isa.HEAD)
    queues = [isa.QUEUES.index(isa.QUEUE[isa.NAMES[c + 1]]) for c in range(len(isa.NAMES))]
    core, layer = heads["core"].astype(np.int64), heads["layer"].astype(np.int64)
    queue = np.array(queues)[codes - 1]
    made = Costs(codes, core, queue, layer, heads["wait"], heads["barrier"], *zero)
    constant = constants(chip)
    spread = -(-batch // constant["images"]) * constant["images"] / batch
    for name, code in isa.CODES.items():
        which = np.flatnonzero(codes == code)
        if not len(which):
            continue
        rows = _gather(data, at[which], isa.OPS[name])
        if name in ("load", "store"):
            _transfer(made, which, rows, chip, constant, int(head["near"]))
        elif name == "barrier":
            made.idle[which] = constant["barrier"]
        else:
            made.work[which], made.products[which] = _work(name, rows, chip, constant, spread)
            made.idle[which] = constant["launch"]
    cores = int(core.max(initial=0)) + 1
    made.work[queue == 1] *= 1 + constant["alone"] * (cores - 1) / batch
    _layers(made, constant["layer"])
    return made


def constants(chip: Chip) -> dict[str, float]:
    """The chip's constants of the model, with those that it leaves out."""
    return {**USUAL, **chip.timing}


# ---- reading -------------------------------------------------------------------------------------
def _walk(data: Array) -> tuple[Any, Array, Array, int]:
    """The program's head, where each instruction begins, with its code, and the batch."""
    raw = data.tobytes()
    if len(raw) < isa.PROGRAM.itemsize:
        raise BadFile(f"NPU program: {len(raw)} bytes are too few for its head")
    head = np.frombuffer(raw, isa.PROGRAM, 1)[0]
    if head["magic"] != isa.MAGIC:
        raise BadFile(f"NPU program: magic {head['magic']!r}; {isa.MAGIC!r} is known")
    sizes = [0, *(isa.OPS[isa.NAMES[c]].itemsize for c in range(1, len(isa.NAMES) + 1))]
    at = isa.PROGRAM.itemsize + isa.PORT.itemsize * (int(head["inputs"]) + int(head["outputs"]))
    count, where, codes = int(head["instructions"]), [], []
    for _ in range(count):
        code = raw[at] if at < len(raw) else 0
        if not 0 < code < len(sizes) or at + sizes[code] > len(raw):
            raise BadFile(f"NPU program: no instruction at {at}")
        where.append(at)
        codes.append(code)
        at += sizes[code]
    ports = np.frombuffer(raw, isa.PORT, int(head["inputs"]), isa.PROGRAM.itemsize)
    batch = max(1, int(ports["shape"][:, 0].min(initial=1 << 30))) if len(ports) else 1
    return head, np.array(where, np.int64), np.array(codes, np.int64), batch


def _gather(data: Array, at: Array, dtype: np.dtype[Any]) -> Array:
    """The records of one type that begin at `at`."""
    picked = data[at[:, None] + np.arange(dtype.itemsize)]
    return np.ascontiguousarray(picked).view(dtype)[:, 0]


# ---- work ----------------------------------------------------------------------------------------
def _work(
    name: str, rows: Array, chip: Chip, constant: dict[str, float], spread: float = 1.0
) -> tuple[Array, Array]:
    """Cycles of a unit, and products; those of bytes take `spread` times as long."""
    src, dst = rows["src"], rows["dst"]
    rate = _rate(chip, name, src["dtype"])
    if name in PRODUCTS:
        rate = _reached(chip, name, rows, rate, constant)
        rate = rate / np.where(_ITEM[src["dtype"]] == 1, spread, 1)
    pixels = _f(dst["height"]) * _f(dst["width"])
    made = pixels * _up(_f(dst["channels"]), _f(dst["c2"]))  # elements, in whole blocks
    if name in ("conv", "depthwise"):
        taps = _f(rows["kernel"]).prod(-1)
        ins, outs = _f(rows["in_atom"]), _f(rows["out_atom"])
        deep = _f(src["channels"]) if name == "conv" else np.ones(len(rows))
        atoms = np.where(deep <= constant["fold"], -(-deep * taps // ins), taps * -(-deep // ins))
        held = np.maximum(constant["steps"], atoms) if name == "conv" else taps
        atom = ins * outs if name == "conv" else outs
        together = constant["pixels"] if name == "conv" else 1
        cycles = (
            _up(pixels, np.full(len(rows), together))
            * held
            * -(-_f(dst["channels"]) // outs)
            * atom
            / rate
        )
        ends = np.where(rows["entries"] > 0, made / _rate(chip, "lut", src["dtype"]), 0)
        if "eltwise" in chip.units:
            more = made / _rate(chip, "eltwise", src["dtype"])
            both = ends + more if constant["apart"] else np.maximum(ends, more)
            ends = np.where(rows["residual"]["channels"] > 0, both, ends)
        if constant["apart"]:
            return cycles + ends + constant["apart"] * made / _wide(chip), (
                pixels * taps * deep * _f(dst["channels"])
            )
        return np.maximum(cycles, ends), pixels * taps * deep * _f(dst["channels"])
    if name == "matmul":
        conv = chip.units["conv"]
        ins = _by_type(conv.in_atom, src["dtype"], 1)
        outs = _by_type(conv.out_atom, src["dtype"], 1)
        deep, wide = _f(src["channels"]), _f(dst["channels"])
        held = np.maximum(constant["steps"], -(-deep // ins))
        many = _up(pixels, np.full(len(rows), constant["pixels"]))
        return many * held * -(-wide // outs) * ins * outs / rate, pixels * deep * wide
    if name == "pool":
        taps = _f(rows["kernel"]).prod(-1)
        seen = _f(src["height"]) * _f(src["width"]) * _up(_f(src["channels"]), _f(src["c2"]))
        elements = made * taps if constant["taps"] else np.maximum(made, seen)
        return elements / rate, np.zeros(len(rows))
    if name == "eltwise":
        table = np.where(rows["entries"] > 0, made / _rate(chip, "lut", src["dtype"]), 0)
        whole = made / rate + table if constant["apart"] else np.maximum(made / rate, table)
        return whole, np.zeros(len(rows))
    return made / rate, np.zeros(len(rows))


def _reached(chip: Chip, name: str, rows: Array, rate: Array, constant: dict[str, float]) -> Array:
    """The products a cycle that a unit reaches: a share of its rate.

    Matrices, which linear layers multiply, too, go through a unit that may be slower than that.
    """
    codes = rows["src"]["dtype"]
    shares = {t: constant.get(f"use.{t}", 1.0) for t in chip.units[name].rate}
    share = _by_type(shares, codes, 1)
    if name == "depthwise" or "matmul" not in chip.units:
        return rate * share
    most = _by_type(chip.units["conv"].rate, codes, np.inf) * share
    slower: Array = np.minimum(most, _by_type(chip.units["matmul"].rate, codes, np.inf))
    if name == "matmul":
        return slower
    line = (rows["kernel"] == 1).all(-1) & (rows["dst"]["width"] == 1) & (rows["dst"]["height"] > 1)
    return np.where(line, slower, rate * share)


def _rate(chip: Chip, unit: str, codes: Array) -> Array:
    """What the unit does a cycle, for each of these element types; what it lacks, copying does."""
    known = chip.units.get(unit)
    if known is None and unit in PRODUCTS:
        raise BadInput(f"{chip.name} has no unit for {unit}, which the program asks for")
    rate = _by_type((known or chip.units["copy"]).rate, codes, 0)
    if (rate == 0).any():
        lacks = sorted({dtypes.BY_CODE[int(c)].name for c in codes[rate == 0]})
        if known is not None and unit in PRODUCTS:
            raise BadInput(
                f"{chip.name}: {unit} does not know {', '.join(lacks)}, which the program asks for"
            )
        i8 = (known or chip.units["copy"]).rate.get("i8", 1.0)
        rate = np.where(rate == 0, i8 / np.maximum(_ITEM[codes], 1), rate)
    return rate


def _wide(chip: Chip) -> float:
    """Elements of 32 bits that element-wise work takes a cycle."""
    rate = chip.units.get("eltwise", chip.units["copy"]).rate
    return rate.get("f32") or rate["i8"] / 4


def _by_type(values: Any, codes: Array, other: float) -> Array:
    table = np.full(256, float(other))
    for t, value in values.items():
        table[dtypes.TABLE[t].code] = value
    return table[codes]


# ---- transfers -----------------------------------------------------------------------------------
def _transfer(
    made: Costs, which: Array, rows: Array, chip: Chip, constant: dict[str, float], near: int
) -> None:
    """Bytes by whole bursts, and the cycles that port and DDR take for them."""
    store = rows["src"]["space"] == isa.SPACES.index("sram")
    f = np.where(store, rows["dst"], rows["src"])
    item, c2 = _ITEM[f["dtype"]], _f(f["c2"])
    height, width = _f(f["height"]), _f(f["width"])
    blocks = -(-(_f(f["first"]) + _f(f["channels"])) // c2)
    lanes = np.where(blocks > 1, c2, np.minimum(c2, _f(f["first"]) + _f(f["channels"])))
    run = np.where(_f(f["pixel"]) == c2 * item, width * c2 * item, lanes * item)
    runs = np.where(_f(f["pixel"]) == c2 * item, height * blocks, height * width * blocks)
    whole = run * height == _f(f["plane"])  # rows of a block touch, and so do the blocks
    rows_touch = (_f(f["row"]) == run) | (height == 1)
    run = np.where(rows_touch, run * height, run)
    runs = np.where(rows_touch, runs / height, runs)
    run, runs = np.where(whole & rows_touch, run * runs, run), np.where(whole & rows_touch, 1, runs)
    # floats that a program of bytes makes are as wide when those stand for other elements
    run = run / np.where(f["dtype"] == dtypes.TABLE["f32"].code, constant["element"], 1)
    bytes_ = runs * np.ceil(run / chip.burst) * chip.burst
    span = (blocks - 1) * _f(f["plane"]) + (height - 1) * _f(f["row"]) + width * _f(f["pixel"])
    inside = np.clip((near - _f(f["offset"])) / np.maximum(span, 1), 0, 1)
    inside = np.where(f["space"] == isa.SPACES.index("internal"), inside, 0)
    far = bytes_ * (1 - inside)
    made.near[which] = bytes_ - far
    made.read[which] = np.where(store, 0, far)
    made.written[which] = np.where(store, far, 0)
    per_cycle = chip.ddr * 1000 / chip.clock * constant["efficiency"]
    # as many bytes read as written reach the share that `efficiency` says
    each = 2 * np.where(store, constant["write"], 1) / (1 + constant["write"])
    made.ddr[which] = far * each / per_cycle
    made.work[which] = bytes_ / constant["port"]
    made.idle[which] = constant["transfer"]


def _layers(made: Costs, cycles: float) -> None:
    """The first work of each layer on a core takes longer: the unit has to be set up."""
    if not cycles or not len(made):
        return
    compute = np.flatnonzero(made.queue == 1)
    key = made.layer[compute] * 256 + made.core[compute]
    _, first = np.unique(key, return_index=True)
    made.idle[compute[first]] += cycles


def _f(x: Array) -> Array:
    return x.astype(np.float64)


def _up(x: Array, to: Array) -> Array:
    return np.ceil(x / to) * to
