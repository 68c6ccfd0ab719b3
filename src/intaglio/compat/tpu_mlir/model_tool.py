"""model_tool and tpu_model: show, combine and extract bmodel and cvimodel files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.option_table import Command, option
from intaglio.errors import BadFile, BadInput, did_you_mean
from intaglio.files import read_regular, write_atomically
from intaglio.npu.chips.bm1684x import bmodel, disassembly
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Net, Stage, Tensor
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel

NAMES = {"f32": "float32", "f16": "float16", "i8": "int8", "u8": "uint8", "i16": "int16"}
NAMES |= {"u16": "uint16", "i32": "int32", "u32": "uint32", "bf16": "bfloat16"}
COMPILATION = "compilation.bmodel"  # the file in a folder of --combine_dir
RULE = "=" * 42

TOOL = Command(
    "model_tool",
    "Shows, combines and extracts bmodel and cvimodel files.",
    (
        option("--info", "chip, networks, inputs, outputs and memory; --all adds every tensor"),
        option("--chip", "the chip of a file"),
        option("--dynamic", "true or false: whether a network has open shapes"),
        option("--print", "the tables of a file as JSON"),
        option("--weight", "the place and size of the weights"),
        option("--update_weight", "refused: compile the model with its new weights"),
        option("--encrypt", "refused: encrypt a package by `intaglio encrypt`"),
        option("--decrypt", "refused: give the file that is not encrypted"),
        option("--extract", "writes every network and shape as a file of its own"),
        option("--refresh", "writes the file anew, in the current version"),
        option("--combine", "joins files into one; -o FILE"),
        option("--combine_dir", "joins the compilation.bmodel of folders; -o FOLDER"),
        option("--combine_coeff", "refused: every network keeps its own weights; use --combine"),
        option("--dump", "writes bytes of a file: FILE START SIZE OUTPUT"),
        option("--kernel_dump", "writes the firmware of a file; -o FILE"),
        option("--kernel_update", "puts a firmware into a file: FILE FIRMWARE"),
        option("--kernel_remove", "removes the firmware of a file"),
    ),
)


def main(arguments: Sequence[str], log: Log) -> int:
    """Run one action."""
    actions = {o.names[0]: o for o in TOOL.options}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    name, rest = arguments[0], list(arguments[1:])
    if name not in actions:
        raise BadInput(
            f"no action is called '{name}'{did_you_mean(name, actions) or '; see --help'}"
        )
    if actions[name].state != "implemented":
        raise BadInput(f"{name}: {actions[name].effect.partition(': ')[2]}")
    output = None
    if "-o" in rest:
        at = rest.index("-o")
        if at + 1 >= len(rest):
            raise BadInput(f"{name}: -o needs a name")
        output = rest[at + 1]
        rest = rest[:at] + rest[at + 2 :]
    function, count, wants_output = ACTIONS[name]
    files = [w for w in rest if w != "--all"]
    if (count and len(files) != count) or not files or (wants_output and output is None):
        raise BadInput(f"{name}: {actions[name].effect}; see --help")
    function(files, output, "--all" in rest, log)
    return 0


def _usage() -> str:
    lines = ["usage: model_tool ACTION FILE ... [-o OUTPUT]", ""]
    return "\n".join(lines + [f"  {o.names[0]:<16} {o.effect}" for o in TOOL.options])


def _read(path: str) -> Bmodel | Cvimodel:
    """A file of either kind; BadFile if it is neither."""
    data = read_regular(path)
    if bmodel.is_bmodel(data):
        return bmodel.read(data)
    if data.startswith(cvimodel.MAGIC):
        return cvimodel.read(data)
    raise BadFile(f"'{path}' is no bmodel or cvimodel; check the path")


def _bmodel(path: str, action: str) -> Bmodel:
    found = _read(path)
    if isinstance(found, Cvimodel):
        raise BadInput(f"{action} is for bmodels; '{path}' is a cvimodel")
    return found


def _whole(model: Bmodel, path: str, action: str) -> Bmodel:
    """The model, if writing it again keeps all of it."""
    subnets = [s for net in model.nets for stage in net.stages for s in stage.subnets]
    if any(s.mode or s.dynamic for s in subnets):
        raise BadInput(
            f"{action}: '{path}' has parts that run on the CPU or in the firmware, which are not "
            "kept; use the vendor's tool for it"
        )
    return model


# ---- show ----------------------------------------------------------------------------------------
def info(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--info."""
    model = _read(files[0])
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
    print(_read(files[0]).chip)


def dynamic(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--dynamic."""
    model = _bmodel(files[0], "--dynamic")
    print("true" if any(map(_is_dynamic, model.nets)) else "false")


def show(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--print."""
    print(json.dumps(disassembly.facts(_bmodel(files[0], "--print")), indent=2))


def weight(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--weight."""
    for i, net in enumerate(_bmodel(files[0], "--weight").nets):
        for j, stage in enumerate(net.stages):
            print(f'net {i} : "{net.name}", stage:{j}\n-------------------------------')
            print(f"coefficients : [0x0, {len(stage.coefficients):#x})\n{RULE}")


# ---- write ---------------------------------------------------------------------------------------
def combine(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--combine."""
    assert output is not None
    write_atomically(output, bmodel.write(joined(files)))
    log.info(f"Success: combined to [{output}].")


def combine_dir(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--combine_dir."""
    assert output is not None
    data = bmodel.write(joined([str(Path(f, COMPILATION)) for f in files]))
    Path(output).mkdir(parents=True, exist_ok=True)
    write_atomically(Path(output, COMPILATION), data)
    log.info(f"Success: combined to [{Path(output, COMPILATION)}].")


def joined(files: Sequence[str]) -> Bmodel:
    """The networks of all files; those of one name become stages of one network."""
    models = [_whole(_bmodel(f, "--combine"), f, "--combine") for f in files]
    first = models[0]
    nets: dict[str, Net] = {}
    for path, model in zip(files, models, strict=True):
        if model.chip != first.chip:
            raise BadInput(
                f"--combine: '{path}' is for {model.chip}, '{files[0]}' for {first.chip}; combine "
                "files of one chip"
            )
        for net in model.nets:
            known = nets.setdefault(net.name, Net(net.name, [], net.address_mode))
            for stage in net.stages:
                _refuse_same(known, stage, path)
                known.stages.append(stage)
    kernel = next((m.kernel for m in models if m.kernel), None)
    return Bmodel(list(nets.values()), first.chip, first.version, first.time, kernel)


def _refuse_same(net: Net, stage: Stage, path: str) -> None:
    shapes = [t.shape for t in stage.inputs]
    if any([t.shape for t in s.inputs] == shapes for s in net.stages):
        raise BadInput(
            f"--combine: '{path}' has network '{net.name}' with input shapes that another file has "
            "too; give the networks different names (--model_name) or shapes"
        )


def extract(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--extract."""
    model = _read(files[0])
    if isinstance(model, Cvimodel):
        for i, s in enumerate(model.sections):
            kind = cvimodel.SECTIONS[s.kind] if s.kind < len(cvimodel.SECTIONS) else str(i)
            name = _safe(f"{model.name}_{kind}_{s.name}") + ".bin"
            write_atomically(name, s.data)
            log.info(f"store section to {name}")
        return
    _whole(model, files[0], "--extract")
    for i, net in enumerate(model.nets):
        for j, stage in enumerate(net.stages):
            name = f"bm_net{i}_stage{j}.bmodel"
            one = Net(net.name, [stage], net.address_mode)
            parts = Bmodel([one], model.chip, model.version, model.time, model.kernel)
            write_atomically(name, bmodel.write(parts))
            log.info(f"Generate file [{name}]")


def _safe(name: str) -> str:
    """A name of a file in this folder."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def refresh(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--refresh."""
    model = _whole(_bmodel(files[0], "--refresh"), files[0], "--refresh")
    write_atomically(output or files[0], bmodel.write(model))


def dump(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--dump."""
    path, start, size, out = files
    data = read_regular(path)
    try:
        first, count = int(start, 0), int(size, 0)
    except ValueError:
        raise BadInput(f"--dump: START {start} and SIZE {size} are numbers of bytes") from None
    if min(first, count) < 0 or first + count > len(data):
        raise BadInput(f"--dump: bytes {first} to {first + count}; '{path}' has {len(data)}")
    write_atomically(out, data[first : first + count])


def kernel_dump(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_dump."""
    model = _bmodel(files[0], "--kernel_dump")
    if model.kernel is None or output is None:
        raise BadInput(f"--kernel_dump: '{files[0]}' brings no firmware")
    write_atomically(output, model.kernel[1])


def kernel_update(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_update."""
    model = _whole(_bmodel(files[0], "--kernel_update"), files[0], "--kernel_update")
    model.kernel = Path(files[1]).name, read_regular(files[1])
    write_atomically(files[0], bmodel.write(model))


def kernel_remove(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_remove."""
    model = _whole(_bmodel(files[0], "--kernel_remove"), files[0], "--kernel_remove")
    model.kernel = None
    write_atomically(files[0], bmodel.write(model))


Action = Callable[[Sequence[str], str | None, bool, Log], None]
ACTIONS: dict[str, tuple[Action, int, bool]] = {  # function, number of files (0: any), needs -o
    "--info": (info, 1, False),
    "--chip": (chip, 1, False),
    "--dynamic": (dynamic, 1, False),
    "--print": (show, 1, False),
    "--weight": (weight, 1, False),
    "--extract": (extract, 1, False),
    "--refresh": (refresh, 1, False),
    "--combine": (combine, 0, True),
    "--combine_dir": (combine_dir, 0, True),
    "--dump": (dump, 4, False),
    "--kernel_dump": (kernel_dump, 1, True),
    "--kernel_update": (kernel_update, 2, False),
    "--kernel_remove": (kernel_remove, 1, False),
}
