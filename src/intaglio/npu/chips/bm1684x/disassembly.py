"""A bmodel file as text and as JSON: container, tensors, memory, commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from intaglio.npu.chips.bm1684x import numbers
from intaglio.npu.chips.bm1684x.bmodel import TYPES, Bmodel, Group, Stage, Subnet, Tensor
from intaglio.npu.chips.bm1684x.commands import (
    DEPENDENCY,
    UNKNOWN,
    Command,
    decode,
    form_of,
    kind_of,
)
from intaglio.npu.chips.bm1684x.fields import FORMS, OTHER
from intaglio.npu.chips.bm1684x.lanes import DDR_AT, L2, L2_AT, LANE, LANES, LOCAL_AT, STATIC_AT

OPERANDS = ("res0", "res1", "opd0", "opd1", "opd2", "opd3")
SIDES = ("src", "dst", "index", "mask")
SAME = {"sg2260": "bm1690", "cv186x": "bm1688"}
LANE_BYTES = {"bm1684": 512 << 10}  # from one lane to the next; other chips: LANE
MOST_KINDS = 8  # kinds of commands that are listed
QUIET = {"cmd_id_en", "tsk_eu_typ", "cmd_special_function", "localmem_mask_l32", "tsk_lane_num"}
QUIET |= {"localmem_mask_h32"}


def chip_of(name: str) -> str:
    """The chip whose commands a file has, by the name in the file."""
    found = name.lower()
    return SAME.get(found, found)


def lines(model: Bmodel, words: bool = False) -> Iterator[str]:
    """A file as text; `words`: with all commands."""
    yield f"bmodel      version {model.version} for {model.chip or 'no chip'}, {model.time}".rstrip(
        ", "
    )
    if model.kernel and model.kernel[1]:
        yield f"firmware    {model.kernel[0]}, {len(model.kernel[1]):,} bytes"
    for net in model.nets:
        yield f"net         {net.name}: {len(net.stages)} stage{'s' * (len(net.stages) != 1)}"
        for stage in net.stages:
            yield from _stage(model, stage, words)


def _stage(model: Bmodel, stage: Stage, words: bool) -> Iterator[str]:
    yield f"coefficients {len(stage.coefficients):,} bytes at {stage.address:#x}"
    yield f"neurons     {stage.neuron_bytes:,} bytes at {stage.neurons:#x}"
    if stage.io[1]:
        yield f"io          {stage.io[1]:,} bytes at {stage.io[0]:#x}"
    for title, tensors in (("input", stage.inputs), ("output", stage.outputs)):
        for t in tensors:
            yield f"{title:11} {_tensor(t)}"
    for subnet in stage.subnets:
        where = "the CPU" if subnet.mode else "the firmware" if subnet.dynamic else "commands"
        yield f"subnet {subnet.id:<4} by {where}"
        for core, groups in _cores(subnet):
            for group in groups:
                yield from _group(group, core, _chip(model), words)


def _cores(subnet: Subnet) -> Iterator[tuple[int, list[Group]]]:
    if not subnet.cores:
        yield 0, subnet.groups
    yield from enumerate(subnet.cores)


def _chip(model: Bmodel) -> str:
    return chip_of(model.chip)


def _group(group: Group, core: int, chip: str, words: bool) -> Iterator[str]:
    sizes = f"{len(group.tiu):,} + {len(group.dma):,} bytes"
    counts = f"{group.tiu_count} commands of the TIU, {group.dma_count} of the DMA"
    yield f"group       core {core}: {counts}, {sizes}"
    if chip not in FORMS:
        yield f"            the commands of {chip.upper() or 'this chip'} are not known"
        return
    commands = decode(group.tiu, group.dma, chip)
    kinds = Counter(f"{c.name} {kind_of(c, chip)}" for c in commands).most_common()
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds[:MOST_KINDS])
    more = f", {len(kinds) - MOST_KINDS} other kinds" if len(kinds) > MOST_KINDS else ""
    yield f"            {shown}{more}"
    if words:
        yield from (f"  {text(c, chip)}" for c in commands)


def _tensor(t: Tensor) -> str:
    kind = TYPES.get(t.type, (f"type {t.type}",))[0]
    dims = "x".join(map(str, t.shape))
    scale = f"; real = {t.scale:.6g} * (number - {t.zero})" if t.scale != 1 or t.zero else ""
    return f"{t.name}  {kind} [{dims}] at {t.address:#x}, {t.size:,} bytes{scale}"


def text(command: Command, chip: str = "bm1684x") -> str:
    """A command in a line: number, dependency, name, operands, and all other fields."""
    other = "dma" if command.engine == "tiu" else "tiu"
    depends = command.depends & DEPENDENCY.get(chip, -1)
    after = f"after {other} {depends}" if depends else ""
    head = f"{command.engine} {command.number:<5} {after:<16}"
    if command.name == UNKNOWN:
        shown = " ".join(f"{command.fields[f'word{i}']:08x}" for i in range(4))
        return f"{head} {UNKNOWN} {shown}"
    left = dict(command.fields)
    used = left.pop("tsk_opd_num", len(OPERANDS))
    for name in OPERANDS[2 + used : 5]:  # operands that this command does not read
        left.pop(f"{name}_addr", None)
    lane = LANE_BYTES.get(chip, LANE)
    found = [s for s in (_operand(left, name, lane) for name in OPERANDS) if s]
    found += [s for s in (_side(left, name, lane) for name in SIDES) if s]
    form = form_of(command, chip)
    usual = form.defaults if form else {}
    rest = [
        f"{k}={v:#x}" if k == OTHER else f"{k}={v}"
        for k, v in left.items()
        if v and k not in QUIET and v != usual.get(k)
    ]
    return " ".join([head, command.name, kind_of(command, chip), *found, *rest])


def _operand(left: dict[str, int], name: str, lane: int) -> str:
    """An operand of the TIU as text; its fields are taken from `left`."""
    if f"{name}_addr" not in left:
        return ""
    address = left.pop(f"{name}_addr")
    code, sign = left.pop(f"{name}_prec", None), left.pop(f"{name}_sign", None)
    kind = numbers.NAMES.get(code, f"type{code}") if code is not None else ""
    if sign == 0 and kind.startswith("i"):
        kind = "u" + kind[1:]
    dims = [left.pop(f"{name}_{d}") for d in "nchw" if f"{name}_{d}" in left]
    steps = [left.pop(f"{name}_{d}_str", 0) for d in "nchw"] if f"{name}_h_str" in left else []
    shape = f"[{'x'.join(map(str, dims))}]" if any(dims) else ""
    if left.pop(f"{name}_const", 0):
        return f"{name}={kind}{shape}:{address:#x}"
    if not address and not shape and not any(steps):
        return f"{name}={kind}@0" if kind else ""
    step = f"/{','.join(map(str, steps))}" if any(steps) else ""
    return f"{name}={kind}{shape}{step}@{_local(address, lane)}"


def _local(address: int, lane: int) -> str:
    if address >= LOCAL_AT:
        return place(address, lane)
    first, offset = divmod(address, lane)
    return f"{offset:#x}" if not first else f"lane{first}+{offset:#x}"


def _side(left: dict[str, int], name: str, lane: int) -> str:
    """Source or destination of a DMA command as text."""
    low = left.pop(f"{name}_start_addr_l32", None)
    if low is None:
        return ""
    address = low | left.pop(f"{name}_start_addr_h8", 0) << 32
    dims = [left.pop(f"{name}_{d}size") for d in "nchw" if f"{name}_{d}size" in left]
    steps = [left.pop(f"{name}_{d}stride") for d in "nchw" if f"{name}_{d}stride" in left]
    shape = f"[{'x'.join(map(str, dims))}]" if any(dims) else ""
    step = f"/{','.join(map(str, steps))}" if any(steps) else ""
    return f"{name}={shape}{step}@{place(address, lane)}"


def place(address: int, lane: int = LANE) -> str:
    """An address that the DMA uses, with the name of the memory; a lane has so many bytes."""
    if LOCAL_AT <= address < LOCAL_AT + LANES * lane:
        return f"local:{_local(address - LOCAL_AT, lane)}"
    if address >= DDR_AT:
        return f"ddr:{address - DDR_AT:#x}"
    if L2_AT <= address < L2_AT + L2:
        return f"l2:{address - L2_AT:#x}"
    if STATIC_AT <= address < L2_AT:
        return f"static:{address - STATIC_AT:#x}"
    return f"{address:#x}"


def facts(model: Bmodel) -> dict[str, Any]:
    """A file as plain data for JSON."""
    chip = _chip(model)
    return {
        "chip": model.chip,
        "version": model.version,
        "time": model.time,
        "firmware": len(model.kernel[1]) if model.kernel else 0,
        "nets": [
            {"name": net.name, "stages": [_stage_facts(s, chip) for s in net.stages]}
            for net in model.nets
        ],
    }


def _stage_facts(stage: Stage, chip: str) -> dict[str, Any]:
    def tensors(of: list[Tensor]) -> list[dict[str, Any]]:
        return [
            {
                "name": t.name,
                "type": TYPES.get(t.type, (t.type,))[0],
                "shape": list(t.shape),
                "address": t.address,
                "bytes": t.size,
                "scale": t.scale,
                "zero": t.zero,
            }
            for t in of
        ]

    def commands(group: Group) -> list[dict[str, Any]]:
        if chip not in FORMS:
            return []
        return [
            {
                "engine": c.engine,
                "name": c.name,
                "kind": kind_of(c, chip),
                "number": c.number,
                "depends": c.depends,
                "fields": {k: v for k, v in c.fields.items() if v},
                "bytes": form.size if (form := form_of(c, chip)) else 16,
            }
            for c in decode(group.tiu, group.dma, chip)
        ]

    return {
        "coefficients": {"address": stage.address, "bytes": len(stage.coefficients)},
        "neurons": {"address": stage.neurons, "bytes": stage.neuron_bytes},
        "inputs": tensors(stage.inputs),
        "outputs": tensors(stage.outputs),
        "subnets": [
            {
                "id": s.id,
                "mode": s.mode,
                "dynamic": s.dynamic,
                "groups": [
                    {"core": core, "commands": commands(g)} for core, gs in _cores(s) for g in gs
                ],
            }
            for s in stage.subnets
        ],
    }
