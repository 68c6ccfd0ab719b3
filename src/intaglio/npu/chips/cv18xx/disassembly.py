"""A cvimodel as text and as JSON: container, tensors, memory, and every command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from intaglio.npu.chips.cv18xx import cpu_routines, timing
from intaglio.npu.chips.cv18xx.commands import Chip, Command, decode, find_chip
from intaglio.npu.chips.cv18xx.cvimodel import CMDBUF, SECTIONS, Cvimodel, Program, Routine, Tensor
from intaglio.targets import chip as chips

BASES = ("shared", "weights", "private")
ELTWISE = (
    "mul",
    "mac",
    "add",
    "sub",
    "max",
    "min",
    "shift",
    "and",
    "or",
    "xor",
    "copy",
    "ge",
    "lookup",
)
WINDOWS = ("max_pool", "average_pool", "depthwise", "min_pool")
TRANSPOSES = ("nc", "pixels of 3", "pixels of 4", "cw")
DIRECTIONS = ("load", "store", "copy DDR", "copy local")
MOST_KINDS = 8  # kinds of commands that are listed


def lines(model: Cvimodel, words: bool = False) -> Iterator[str]:
    """A model as text; `words`: with every command."""
    version = ".".join(map(str, model.version))
    by = f", built {model.build_time}" if model.build_time else ""
    yield f"cvimodel    version {version} for {model.chip}, '{model.name}'{by}"
    for s in model.sections:
        kind = SECTIONS[s.kind] if s.kind < len(SECTIONS) else f"kind {s.kind}"
        yield f"section     {s.name}: {kind}, {len(s.data):,} bytes"
    for program in model.programs:
        yield f"memory      {program.shared:,} bytes shared, {program.private:,} private"
        for title, names in (("input", program.inputs), ("output", program.outputs)):
            for name in names:
                yield f"{title:11} {_tensor(program.tensor(name))}"
        for routine in program.routines:
            yield from _routine(model, program, routine, words)


def _tensor(t: Tensor) -> str:
    dims = "x".join(map(str, t.shape))
    scale = f"; scale {t.scale:.6g}" if t.scale != 1 else ""
    return f"{t.name}  {t.dtype}[{dims}] at {_base(t.base)}+{t.offset:#x}{scale}"


def _base(register: int) -> str:
    return BASES[register] if register < len(BASES) else f"io{register}"


def _routine(model: Cvimodel, program: Program, routine: Routine, words: bool) -> Iterator[str]:
    ends = f"{', '.join(routine.inputs)} -> {', '.join(routine.outputs)}"
    if routine.kind == "cpu":
        found = cpu_routines.arguments(routine.arguments)
        given = " ".join(f"{k}={v}" for k, v in found.items())
        yield f"cpu         {routine.name}({given}): {ends}"
        return
    chip = find_chip(model.chip)
    stream = decode(model.section(CMDBUF, routine.name), chip)
    counts = Counter(c.name for c in stream)
    yield f"tpu         {routine.name}: {counts['tiu']} TIU and {counts['tdma']} TDMA commands"
    kinds = Counter(kind(c) for c in stream).most_common()
    more = f", {len(kinds) - MOST_KINDS} other kinds" if len(kinds) > MOST_KINDS else ""
    yield "            " + ", ".join(f"{n} {k}" for k, n in kinds[:MOST_KINDS]) + more
    times = _times(stream, chip)
    yield (
        f"time        {times['total_ms']:.3f} ms; TIU {times['tiu_ms']:.3f}, TDMA "
        f"{times['tdma_ms']:.3f}; {times['ddr_bytes']:,} bytes of DDR (estimate)"
    )
    if words:
        yield from (f"  {text(c, chip)}" for c in stream)


def _times(stream: list[Command], chip: Chip) -> dict[str, float]:
    """An estimate by the clock and the DDR of the chip's file."""
    bandwidth = chips.load(chip.name).ddr * 1e9
    times = timing.measure(stream, chip, bandwidth)
    seconds = {"total": times.total, "tiu": times.tiu, "tdma": times.tdma}
    return {f"{k}_ms": v * 1e3 for k, v in seconds.items()} | {"ddr_bytes": times.ddr_bytes}


def kind(c: Command) -> str:
    """What a command does, in a word or two."""
    get = c.get
    if c.name == "tdma":
        special = get("spec_func")
        if special == 4:
            return "fill local" if get("trans_dir") == 0 else "fill DDR"
        name = DIRECTIONS[get("trans_dir")]
        if special == 1:
            return f"{name} transposed"
        if get("sys_dtype"):
            name += " matrix"
        if get("trans_fmt"):
            name += " bytes"
        return name + (" compressed" if get("compress_en") else "")
    task, unit = get("tsk_typ"), get("tsk_eu_typ")
    name = f"task {task}.{unit}"
    if task == 0:
        name = "conv"
    elif task == 1 and unit < len(WINDOWS):
        name = WINDOWS[unit]
    elif task == 2:
        name = "matmul"
    elif task == 3 and unit < len(ELTWISE):
        name = ELTWISE[unit]
    return name + (" bf16" if get("opd_typ") else "")


def text(c: Command, chip: Chip) -> str:
    """A command in one line."""
    wait = f" after {'tdma' if c.name == 'tiu' else 'tiu'} {c.depends}" if c.depends else ""
    body = _tiu(c, chip) if c.name == "tiu" else _tdma(c, chip)
    return f"{c.name:4} {c.number:5}  {kind(c):16} {body}{wait}  layer {c.layer}"


def _shape(c: Command, of: str, dims: str = "nchw") -> str:
    return "x".join(str(c.get(f"{of}_{d}")) for d in dims)


def _local(address: int, chip: Chip) -> str:
    lane, offset = divmod(address, chip.lane_bytes)
    return f"{offset:#x}" + (f" of lane {lane}" if lane else "")


def _tiu(c: Command, chip: Chip) -> str:
    get, task = c.get, c.get("tsk_typ")
    parts = [f"[{_shape(c, 'opd0')}] {_local(get('opd0_addr'), chip)}"]
    if task in (0, 1):
        steps = f"s{get('conv_op_y_str')}x{get('conv_op_x_str')}"
        pads = [get(f"conv_opd0_{side}_pad") for side in ("up", "dn", "lf", "rt")]
        parts.append(f"k{get('opd1_h')}x{get('opd1_w')} {steps}")
        if any(pads):
            parts.append("p" + ",".join(map(str, pads)))
        if task == 0 or get("tsk_eu_typ") == 2:
            parts.append(f"w {_local(get('opd1_addr'), chip)}")
    elif get("opt_opd1_const"):
        parts.append(f"const {get('opd1_addr')}")
    elif get("tsk_opd_num") > 1:
        parts.append(f"[{_shape(c, 'opd1')}] {_local(get('opd1_addr'), chip)}")
    if get("ps32_md"):
        parts.append(f"ps32 {get('ps32_md')}")
    if get("opt_relu_typ"):
        parts.append("relu")
    result = f"-> [{_shape(c, 'res0')}] {_local(get('res0_addr'), chip)}"
    return " ".join([*parts, result])


def _tdma(c: Command, chip: Chip) -> str:
    get, way = c.get, c.get("trans_dir")

    def end(side: str, is_local: bool) -> str:
        address = get(f"{side}_base_addr_high") << 32 | get(f"{side}_base_addr_low")
        if is_local:
            return _local(address, chip)
        return f"{_base(get(f'{side}_base_reg_sel'))}+{address:#x}"

    target = end("dst", way in (0, 3))
    size = f"[{get('src_n')}x{_shape(c, 'dst', 'chw')}]"
    if get("trans_fmt"):
        size = f"{get('src_n_stride')} bytes"
    if get("spec_func") == 4:
        return f"{size} {get('const_val')} -> {target}"
    formats = ("", "i8", "bf16", "?")
    types = f"{formats[get('src_fmt')]}->{formats[get('dst_fmt')]}"
    turned = f" {TRANSPOSES[get('transpose_md')]}" if get("spec_func") == 1 else ""
    shown = f" {types}" if get("src_fmt") != get("dst_fmt") else ""
    return f"{size}{turned}{shown} {end('src', way in (1, 3))} -> {target}"


def facts(model: Cvimodel) -> dict[str, Any]:
    """A model as data for JSON."""
    return {
        "name": model.name,
        "chip": model.chip,
        "version": ".".join(map(str, model.version)),
        "build_time": model.build_time,
        "sections": [
            {"name": s.name, "kind": s.kind, "bytes": len(s.data)} for s in model.sections
        ],
        "weights": [
            {"name": w.name, "dtype": w.dtype, "shape": list(w.shape), "offset": w.offset}
            for w in model.weights
        ],
        "programs": [_program(model, p) for p in model.programs],
    }


def _program(model: Cvimodel, program: Program) -> dict[str, Any]:
    chip = find_chip(model.chip)
    routines: list[dict[str, Any]] = []
    for r in program.routines:
        row: dict[str, Any] = {"kind": r.kind, "name": r.name}
        row |= {"inputs": r.inputs, "outputs": r.outputs}
        if r.kind == "cpu":
            row["arguments"] = cpu_routines.arguments(r.arguments)
        else:
            stream = decode(model.section(CMDBUF, r.name), chip)
            row["times"] = _times(stream, chip)
            row["commands"] = [_fact(c, chip) for c in stream]
        routines.append(row)
    return {
        "memory": {"shared": program.shared, "private": program.private},
        "inputs": program.inputs,
        "outputs": program.outputs,
        "tensors": [
            {
                "name": t.name,
                "dtype": t.dtype,
                "shape": list(t.shape),
                "base": t.base,
                "offset": t.offset,
                "scale": t.scale,
            }
            for t in program.tensors
        ],
        "routines": routines,
    }


def _fact(c: Command, chip: Chip) -> dict[str, Any]:
    return {
        "engine": c.engine,
        "number": c.number,
        "depends": c.depends,
        "layer": c.layer,
        "kind": kind(c),
        "text": text(c, chip),
        "fields": c.fields,
    }
