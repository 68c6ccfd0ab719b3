"""The actions of model_tool that show a file."""

from __future__ import annotations

import json
from collections.abc import Sequence

from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.chip_file_reading import read_bmodel, read_file
from intaglio.npu.chips.bm1684x import bmodel, disassembly
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Net, Stage, Tensor
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel

NAMES = {"f32": "float32", "f16": "float16", "i8": "int8", "u8": "uint8", "i16": "int16"}
NAMES |= {"u16": "uint16", "i32": "int32", "u32": "uint32", "bf16": "bfloat16"}
RULE = "=" * 42


def info(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--info."""
    model = read_file(files[0])
    lines = _cv_info(model) if isinstance(model, Cvimodel) else _bm_info(model, all_tensors)
    print("\n".join(lines))


def _bm_info(model: Bmodel, all_tensors: bool) -> list[str]:
    lines = [f"bmodel version: B.{model.version}", f"chip: {model.chip}"]
    lines.append(f"create time: {model.time}")
    if model.kernel:
        lines += [f"kernel_module name: {model.kernel[0]}"]
        lines += [f"kernel_module size: {len(model.kernel[1])}"]
    for i, net in enumerate(model.nets):
        kind = "dynamic" if _is_dynamic(net) else "static"
        lines += [RULE, f"net {i}: [{net.name}]  {kind}"]
        for j, stage in enumerate(net.stages):
            lines += ["------------", f"stage {j}, core num: {stage.cores}"]
            lines += [f"input: {_tensor(t)}" for t in stage.inputs]
            lines += [f"output: {_tensor(t)}" for t in stage.outputs]
            if all_tensors:
                every = [t for s in stage.subnets for t in (*s.inputs, *s.outputs)]
                lines += [f"tensor: {_tensor(t)}, address: {t.address:#x}" for t in every]
    stages = [s for net in model.nets for s in net.stages]
    weight = sum(len(s.coefficients) for s in stages)
    instruct = sum(_instructions(s) for s in stages)
    runtime = max((s.neuron_bytes + s.io[1] for s in stages), default=0)
    total = weight + instruct + runtime
    sizes = f"(weight: {weight}, instruct: {instruct}, runtime: {runtime})"
    return [
        *lines,
        "",
        f"device mem size: {total} {sizes}",
        "host mem size: 0 (weight: 0, runtime: 0)",
    ]


def _tensor(t: Tensor) -> str:
    dims = ", ".join(map(str, t.shape))
    kind = (
        NAMES.get(bmodel.TYPES[t.type][0], bmodel.TYPES[t.type][0])
        if t.type in bmodel.TYPES
        else "?"
    )
    return f"{t.name}, [{dims}], {kind}, scale: {t.scale:.6g}, zero_point: {t.zero}"


def _instructions(stage: Stage) -> int:
    groups = [g for s in stage.subnets for g in (*s.groups, *(g for core in s.cores for g in core))]
    return sum(len(g.tiu) + len(g.dma) for g in groups)


def _is_dynamic(net: Net) -> bool:
    return any(s.dynamic for stage in net.stages for s in stage.subnets)


def _cv_info(model: Cvimodel) -> list[str]:
    lines = [f"Mlir Version: {model.made_by}"]
    lines += [f"Cvimodel Version: {'.'.join(map(str, model.version))}"]
    lines += [
        f"{model.name} Build at {model.build_time}",
        f"For {model.chip} chip ONLY",
        "",
        "Sections:",
    ]
    lines.append("ID   TYPE      NAME                     SIZE")
    for i, s in enumerate(model.sections):
        kind = cvimodel.SECTIONS[s.kind] if s.kind < len(cvimodel.SECTIONS) else str(s.kind)
        lines.append(f"{i:03}  {kind:<8}  {s.name:<23}  {len(s.data)}")
    for i, p in enumerate(model.programs):
        lines += ["", f"Program #{i}", f"    batch_num   : {p.batch}"]
        lines += [f"    private_gmem_size: {p.private}", f"    shared_gmem_size: {p.shared}"]
        lines += [
            f"    inputs      : {', '.join(p.inputs)}",
            f"    outputs     : {', '.join(p.outputs)}",
        ]
        lines += ["    tensor_map  :", "        TYPE      SHAPE               QSCALE      NAME"]
        for t in p.tensors:
            dims = "x".join(map(str, t.shape))
            kind = NAMES.get(t.dtype, t.dtype)
            lines.append(f"        {kind:<8}  {dims:<18}  {t.scale:<10.6f}  {t.name}")
    return lines


def chip(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--chip."""
    print(read_file(files[0]).chip)


def dynamic(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--dynamic."""
    model = read_bmodel(files[0], "--dynamic")
    print("true" if any(map(_is_dynamic, model.nets)) else "false")


def show(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--print."""
    print(json.dumps(disassembly.facts(read_bmodel(files[0], "--print")), indent=2))


def weight(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--weight."""
    for i, net in enumerate(read_bmodel(files[0], "--weight").nets):
        for j, stage in enumerate(net.stages):
            print(f'net {i} : "{net.name}", stage:{j}\n-------------------------------')
            print(f"coefficients : [0x0, {len(stage.coefficients):#x})\n{RULE}")
