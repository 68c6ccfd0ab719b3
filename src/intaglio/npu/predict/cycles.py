"""The cost model of single instructions: cycles of units by their atoms, of DDR by its bursts.

All instructions of one kind are computed at once. `timeline` schedules them. The constants are in
the [timing] table of a chip file; docs/targets.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput
from intaglio.ir import Array
from intaglio.npu.own import isa
from intaglio.targets.chip import Chip

DEFAULTS = {  # defaults of [timing]
    "efficiency": 0.7,  # share of the peak DDR bandwidth, with equal reads and writes
    "write": 1.0,  # cost of writing a byte, relative to reading one
    "port": 64.0,  # bytes per cycle that a core loads, and that it stores
    "steps": 1,  # minimum cycles of a convolution per output
    "pixels": 1,  # outputs of a channel that it computes at once
    "taps": 0,  # 1: pooling costs one element per tap; 0: one per input element
    "apart": 0.0,  # passes over the output after a product; 0: they overlap with it
    "fold": 0,  # up to so many input channels, an atom holds several taps
    "regroup": 0,  # up to so many, the pixels of a stride become channels, if it divides the kernel
    "launch": 100.0,  # overhead cycles of an instruction
    "layer": 0.0,  # overhead cycles of a layer
    "transfer": 100.0,  # latency of a transfer in cycles
    "alone": 0.0,  # share of the work on one image that does not parallelise over cores
    "barrier": 500.0,  # cycles of a barrier after the last core has arrived
    "start": 20.0,  # microseconds to start a program
    "call": 60.0,  # microseconds to start an op that no layer computes
    "turn": 0.0,  # cycles per element of such an op
    "exp": 0.0,  # more of them, for an exponential or a similar function
    "images": 1,  # images of a batch that 8-bit products process at once
    "element": 1.0,  # size of the element that a byte stands for: see element_types
}  # and "use.TYPE": the share of its rate that a product of that type reaches; "apart.TYPE"
PRODUCTS = ("conv", "depthwise", "matmul")
_ITEM = np.zeros(256)
for _t in dtypes.TABLE.values():
    _ITEM[_t.code] = _t.numpy.itemsize


@dataclass(slots=True)
class Costs:
    """The costs of a program's instructions: arrays with one element per instruction, in order."""

    op: Array  # code
    core: Array
    queue: Array  # 0 load, 1 compute, 2 store
    layer: Array
    wait: Array  # [n, 3]
    barrier: Array
    work: Array  # cycles of the unit, or of the core's memory port
    idle: Array  # cycles of overhead and latency
    ddr: Array  # cycles of DDR
    products: Array
    read: Array  # bytes of DDR
    written: Array
    near: Array  # bytes of shared SRAM

    def __len__(self) -> int:
        return len(self.op)


def costs(program: isa.Program | Array, chip: Chip, cores: int | None = None) -> Costs:
    """The costs of a program's instructions on `chip`, of which `cores` cores share the work.

    Without `cores` they are as many as the program was compiled for.
    """
    data = program.encode() if isinstance(program, isa.Program) else program
    head, at, codes, batch = _walk(data)
    n = len(at)
    zero = [np.zeros(n) for _ in range(7)]
    heads = _gather(data, at, isa.HEAD)
    queues = [isa.QUEUES.index(isa.QUEUE[isa.NAMES[c + 1]]) for c in range(len(isa.NAMES))]
    core, layer = heads["core"].astype(np.int64), heads["layer"].astype(np.int64)
    queue = np.array(queues)[codes - 1]
    result = Costs(codes, core, queue, layer, heads["wait"], heads["barrier"], *zero)
    constant = constants(chip)
    batch_padding = -(-batch // constant["images"]) * constant["images"] / batch
    for name, code in isa.CODES.items():
        which = np.flatnonzero(codes == code)
        if not len(which):
            continue
        rows = _gather(data, at[which], isa.OPS[name])
        if name in ("load", "store"):
            _transfer(result, which, rows, chip, constant, int(head["near"]))
        elif name == "barrier":
            result.idle[which] = constant["barrier"]
        else:
            result.work[which], result.products[which] = _work(
                name, rows, chip, constant, batch_padding
            )
            result.idle[which] = constant["launch"]
    compiled = int(core.max(initial=0)) + 1
    sharing = compiled if cores is None else min(cores, compiled)
    result.work[queue == 1] *= 1 + constant["alone"] * (sharing - 1) / batch
    _add_layer_overhead(result, constant["layer"])
    return result


def constants(chip: Chip) -> dict[str, float]:
    """The chip's [timing], with defaults for constants that it leaves out."""
    return {**DEFAULTS, **chip.timing}


def one_engine(chip: Chip) -> bool:
    """Whether products and all other ops of a core share one engine."""
    return _in_turns(chip.timing)


def _in_turns(constant: Mapping[str, float]) -> bool:
    return any(v > 0 for k, v in constant.items() if k.partition(".")[0] == "apart")


# ---- reading -------------------------------------------------------------------------------------
def _walk(data: Array) -> tuple[Any, Array, Array, int]:
    """The program's header, the offset and the code of each instruction, and the batch."""
    raw = data.tobytes()
    if len(raw) < isa.PROGRAM.itemsize:
        raise BadFile(f"NPU program: {len(raw)} bytes; its head alone has {isa.PROGRAM.itemsize}")
    head = np.frombuffer(raw, isa.PROGRAM, 1)[0]
    if head["magic"] != isa.MAGIC:
        raise BadFile(f"NPU program: magic is {head['magic']!r}; {isa.MAGIC!r} is needed")
    sizes = [0, *(isa.OPS[isa.NAMES[c]].itemsize for c in range(1, len(isa.NAMES) + 1))]
    at = isa.PROGRAM.itemsize + isa.PORT.itemsize * (int(head["inputs"]) + int(head["outputs"]))
    count, where, codes = int(head["instructions"]), [], []
    for _ in range(count):
        code = raw[at] if at < len(raw) else 0
        if not 0 < code < len(sizes) or at + sizes[code] > len(raw):
            raise BadFile(f"NPU program: there is no valid instruction at {at}")
        where.append(at)
        codes.append(code)
        at += sizes[code]
    ports = np.frombuffer(raw, isa.PORT, int(head["inputs"]), isa.PROGRAM.itemsize)
    batch = max(1, int(ports["shape"][:, 0].min(initial=1 << 30))) if len(ports) else 1
    return head, np.array(where, np.int64), np.array(codes, np.int64), batch


def _gather(data: Array, at: Array, dtype: np.dtype[Any]) -> Array:
    """The records of one type at the offsets `at`."""
    picked = data[at[:, None] + np.arange(dtype.itemsize)]
    return np.ascontiguousarray(picked).view(dtype)[:, 0]


# ---- work ----------------------------------------------------------------------------------------
def _work(
    name: str, rows: Array, chip: Chip, constant: dict[str, float], batch_padding: float = 1.0
) -> tuple[Array, Array]:
    """Cycles of a unit, and its products; 8-bit products take `batch_padding` times as long."""
    src = rows["src"]
    rate = _rate(chip, name, src["dtype"])
    if name in PRODUCTS:
        rate = _reached(chip, name, rows, rate, constant)
        rate = rate / np.where(_ITEM[src["dtype"]] == 1, batch_padding, 1)
    if name in ("conv", "depthwise"):
        return _convolution(name, rows, rate, chip, constant)
    if name == "matmul":
        return _matmul(rows, rate, chip, constant)
    elements = _output_elements(rows)
    if name == "pool":
        taps = _f(rows["kernel"]).prod(-1)
        seen = _f(src["height"]) * _f(src["width"]) * _round_up(_f(src["channels"]), _f(src["c2"]))
        elements = elements * taps if constant["taps"] else np.maximum(elements, seen)
    cycles = elements / rate
    if name == "eltwise":
        table = _table_cycles(rows, chip)
        cycles = cycles + table if _in_turns(constant) else np.maximum(cycles, table)
    return cycles, np.zeros(len(rows))


def _output_elements(rows: Array) -> Array:
    """Elements of the results, in whole blocks of channels."""
    dst = rows["dst"]
    return _f(dst["height"]) * _f(dst["width"]) * _round_up(_f(dst["channels"]), _f(dst["c2"]))


def _table_cycles(rows: Array, chip: Chip) -> Array:
    """Cycles of the lookup tables; 0 for instructions without one."""
    cycles = _output_elements(rows) / _rate(chip, "lut", rows["src"]["dtype"])
    return np.where(rows["entries"] > 0, cycles, 0)


def _convolution(
    name: str, rows: Array, rate: Array, chip: Chip, constant: dict[str, float]
) -> tuple[Array, Array]:
    src, dst, dense = rows["src"], rows["dst"], name == "conv"
    pixels, channels = _f(dst["height"]) * _f(dst["width"]), _f(dst["channels"])
    taps = _f(rows["kernel"]).prod(-1)
    ins, outs = _f(rows["in_atom"]), _f(rows["out_atom"])
    depth = _f(src["channels"]) if dense else np.ones(len(rows))
    folded = depth <= constant["fold"]
    atoms = np.where(folded, -(-depth * taps // ins), taps * -(-depth // ins))
    kernel, stride = _f(rows["kernel"]), _f(rows["stride"])
    regrouped = (depth <= constant["regroup"]) & (kernel % stride == 0).all(-1)
    step = stride.prod(-1)
    atoms = np.where(regrouped, np.minimum(atoms, taps / step * -(-depth * step // ins)), atoms)
    steps = np.maximum(constant["steps"], atoms) if dense else taps
    atom = ins * outs if dense else outs
    pixels_at_once = np.full(len(rows), constant["pixels"] if dense else 1)
    cycles = _round_up(pixels, pixels_at_once) * steps * -(-channels // outs) * atom / rate
    epilogue = _epilogue_cycles(rows, chip, constant)
    products = pixels * taps * depth * channels
    if not _in_turns(constant):
        return np.maximum(cycles, epilogue), products
    passes = _by_type(
        {t: constant.get(f"apart.{t}", constant["apart"]) for t in chip.units[name].rate},
        src["dtype"],
        constant["apart"],
    )
    return cycles + epilogue + passes * _output_elements(rows) / wide_rate(chip), products


def _epilogue_cycles(rows: Array, chip: Chip, constant: dict[str, float]) -> Array:
    """Cycles of the table and the residual of a convolution."""
    table = _table_cycles(rows, chip)
    if "eltwise" not in chip.units:
        return table
    residual = _output_elements(rows) / _rate(chip, "eltwise", rows["src"]["dtype"])
    both = table + residual if _in_turns(constant) else np.maximum(table, residual)
    return np.where(rows["residual"]["channels"] > 0, both, table)


def _matmul(
    rows: Array, rate: Array, chip: Chip, constant: dict[str, float]
) -> tuple[Array, Array]:
    src, dst, conv = rows["src"], rows["dst"], chip.units["conv"]
    ins, outs = (_by_type(a, src["dtype"], 1) for a in (conv.in_atom, conv.out_atom))
    pixels = _f(dst["height"]) * _f(dst["width"])
    depth, channels = _f(src["channels"]), _f(dst["channels"])
    steps = np.maximum(constant["steps"], -(-depth // ins))
    pixels_up = _round_up(pixels, np.full(len(rows), constant["pixels"]))
    cycles = pixels_up * steps * -(-channels // outs) * ins * outs / rate
    return cycles, pixels * depth * channels


def _reached(chip: Chip, name: str, rows: Array, rate: Array, constant: dict[str, float]) -> Array:
    """Products per cycle that a unit reaches: a share of its rate.

    Matrix products and linear layers may use a unit that is slower than the convolution unit.
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
    """The unit's rate for each of these element types; the copy unit's if the chip lacks it."""
    known = chip.units.get(unit)
    if known is None and unit in PRODUCTS:
        raise BadInput(f"{chip.name} has no unit for {unit}; the program needs one")
    rate = _by_type((known or chip.units["copy"]).rate, codes, 0)
    if (rate == 0).any():
        lacks = sorted({dtypes.BY_CODE[int(c)].name for c in codes[rate == 0]})
        if known is not None and unit in PRODUCTS:
            raise BadInput(
                f"{chip.name}: {unit} does not take {', '.join(lacks)}; the program needs it"
            )
        i8 = (known or chip.units["copy"]).rate.get("i8", 1.0)
        rate = np.where(rate == 0, i8 / np.maximum(_ITEM[codes], 1), rate)
    return rate


def wide_rate(chip: Chip) -> float:
    """The element-wise unit's rate for 32-bit elements."""
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
    """Bytes in whole bursts, and the cycles of the core's port and of DDR for them."""
    store = rows["src"]["space"] == isa.SPACES.index("sram")
    f = np.where(store, rows["dst"], rows["src"])
    item, c2 = _ITEM[f["dtype"]], _f(f["c2"])
    height, width = _f(f["height"]), _f(f["width"])
    blocks = -(-(_f(f["first"]) + _f(f["channels"])) // c2)
    lanes = np.where(blocks > 1, c2, np.minimum(c2, _f(f["first"]) + _f(f["channels"])))
    run = np.where(_f(f["pixel"]) == c2 * item, width * c2 * item, lanes * item)
    runs = np.where(_f(f["pixel"]) == c2 * item, height * blocks, height * width * blocks)
    whole = run * height == _f(f["plane"])  # rows and blocks are contiguous
    rows_touch = (_f(f["row"]) == run) | (height == 1)
    run = np.where(rows_touch, run * height, run)
    runs = np.where(rows_touch, runs / height, runs)
    run, runs = np.where(whole & rows_touch, run * runs, run), np.where(whole & rows_touch, 1, runs)
    # f32 results keep their size if a byte stands for another element
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
    # `efficiency` holds for equal reads and writes
    each = 2 * np.where(store, constant["write"], 1) / (1 + constant["write"])
    made.ddr[which] = far * each / per_cycle
    made.work[which] = bytes_ / constant["port"]
    made.idle[which] = constant["transfer"]


def _add_layer_overhead(made: Costs, cycles: float) -> None:
    """Add the overhead of a layer to its first instruction on each core."""
    if not cycles or not len(made):
        return
    compute = np.flatnonzero(made.queue == 1)
    key = made.layer[compute] * 256 + made.core[compute]
    _, first = np.unique(key, return_index=True)
    made.idle[compute[first]] += cycles


def _f(x: Array) -> Array:
    return x.astype(np.float64)


def _round_up(x: Array, to: Array) -> Array:
    return np.ceil(x / to) * to
