"""A kmodel as text and as JSON: container, memory, commands, and the words of every layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from intaglio.npu.chips.k210 import layer, ram
from intaglio.npu.chips.k210.arithmetic import POOL_NAMES
from intaglio.npu.chips.k210.fields import unpack
from intaglio.npu.chips.k210.model import (
    Command,
    Conv,
    Copy,
    CpuLayer,
    Download,
    Function,
    Kmodel,
    Module,
    Port,
    Range,
    Upload,
)
from intaglio.npu.chips.k210.simulate import input_names, output_names
from intaglio.npu.chips.k210.stackvm import function_code
from intaglio.npu.chips.k210.stackvm_code import instructions, listing


def lines(model: Kmodel, words: bool = False) -> Iterator[str]:
    """A model as text; `words`: with all 12 words and fields of each layer."""
    where = f"starts in function {model.entry[1]} of module {model.entry[0]}"
    header = ", ".join(f"{k} {v}" for k, v in model.header.items())
    yield f"kmodel      version {model.version}; {where}; {header}"
    for number, module in enumerate(model.modules):
        sections = ", ".join(f"{k} {len(v):,} bytes" for k, v in module.sections.items())
        pools = ", ".join(f"{k} {v:,}" for k, v in module.pools.items())
        yield f"module {number}    {module.kind}; memory in bytes: {pools or 'none'}"
        if sections:
            yield f"            sections: {sections}"
        for i, function in enumerate(module.functions):
            yield from _function(model, module, function, f"{number}.{i}", words)


def _function(
    model: Kmodel, module: Module, function: Function, number: str, words: bool
) -> Iterator[str]:
    names = input_names(model), output_names(model)
    known = (model.about.get("inputs", []), model.about.get("outputs", []))
    main = function is model.main
    for title, ports, own, about in zip(
        ("input", "output"), (function.inputs, function.outputs), names, known, strict=True
    ):
        for i, port in enumerate(ports):
            name = own[i] if main else f"{title}{i}"
            real = _real(about[i]) if main and i < len(about) else ""
            yield f"{title:11} {name}  {_port(port)}{real}"
    if module.kind == "stackvm":
        code = list(listing(function_code(module, function)))
        yield f"function    {number}: {len(code)} instructions for the CPU"
        for instruction, text in code:
            if words or instruction.name.startswith("tensor."):
                yield f"  {instruction.at:5}  {text}"
        if not words:
            yield "            (tensor functions only)"
        return
    yield f"function    {number}: {len(function.commands)} commands, {_used(function)}"
    for i, command in enumerate(function.commands):
        yield f"  {i:4}  {_command(command)}"
        if words and isinstance(command, Conv):
            yield from _words(command)


def _real(about: dict[str, Any]) -> str:
    if "scale" not in about or "zero" not in about:
        return ""
    return f"; real = {float(about['scale']):.6g} * (byte - {about['zero']})"


def _port(port: Port) -> str:
    dims = "x".join(map(str, port.shape))
    return f"{port.range.dtype}[{dims}] at {port.range.place} {port.range.start}"


def _used(function: Function) -> str:
    """The KPU's RAM that a function uses."""
    ends = [0]
    for c in function.commands:
        match c:
            case Conv():
                f = layer.read(c.words)
                ends += [f.src + ram.lines(*f.in_shape), f.dst + ram.lines(*f.out_shape)]
            case Upload(_, line, shape) | Download(line, _, shape):
                ends.append(line + shape[0] * ram.lines(*shape[1:]))
    return f"{max(ends) * ram.LINE:,} of {ram.BYTES:,} bytes of the KPU's RAM"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _range(r: Range) -> str:
    return f"{r.place}[{r.start}+{r.size}]"


def _command(command: Command) -> str:
    match command:
        case Upload(source, line, shape):
            return f"upload    {_shape(shape)}  {_range(source)} -> line {line}"
        case Download(line, target, shape):
            return f"download  {_shape(shape)}  line {line} -> {_range(target)}"
        case Copy(source, target, shape, read, write):
            strides = f"strides {_shape(read)} -> {_shape(write)}"
            return f"copy      {_shape(shape)}  {_range(source)} -> {_range(target)}  {strides}"
        case CpuLayer(kind, fields):
            rest = {k: v for k, v in fields.items() if not isinstance(v, bytes)}
            return f"cpu       {kind}  " + " ".join(f"{k}={v}" for k, v in rest.items())
        case Conv():
            f = layer.read(command.words)
            kind = "depthwise" if f.depthwise else "conv"
            pooled = f", {POOL_NAMES[f.pool]}" if f.pool else ""
            main = f"  and {_range(command.output)}" if command.output else ""
            return (
                f"{kind:9} {_shape(f.in_shape)} -> {_shape(f.out_shape)}  "
                f"{f.kernel}x{f.kernel}{pooled}  line {f.src} -> line {f.dst}{main}"
            )
    return str(command)


def _words(command: Conv) -> Iterator[str]:
    hexadecimal = [f"{int(w):016x}" for w in command.words]
    for i in range(0, len(hexadecimal), 4):
        yield "        " + " ".join(hexadecimal[i : i + 4])
    fields = [f"{k}={v}" for k, v in unpack(command.words).items() if v]
    for i in range(0, len(fields), 6):
        yield "        " + " ".join(fields[i : i + 6])


def facts(model: Kmodel) -> dict[str, Any]:
    """A model as data for JSON."""
    return {
        "version": model.version,
        "entry": list(model.entry),
        "header": model.header,
        "about": model.about,
        "modules": [
            {
                "kind": module.kind,
                "memory": module.pools,
                "sections": {k: len(v) for k, v in module.sections.items()},
                "functions": [_facts(module, function) for function in module.functions],
            }
            for module in model.modules
        ],
    }


def _facts(module: Module, function: Function) -> dict[str, Any]:
    code = {}
    if module.kind == "stackvm":
        found = instructions(function_code(module, function))
        code = {"code": [{"at": i.at, "name": i.name, **i.numbers} for i in found]}
    return code | {
        "inputs": [_port(p) for p in function.inputs],
        "outputs": [_port(p) for p in function.outputs],
        "commands": [_fact(c) for c in function.commands],
    }


def _fact(command: Command) -> dict[str, Any]:
    text = _command(command)
    row: dict[str, Any] = {"command": text.split()[0], "text": text}
    if isinstance(command, Conv):
        row |= {"words": [f"{int(w):016x}" for w in command.words], "fields": unpack(command.words)}
        row |= {"weights": len(command.weights)}
    return row
