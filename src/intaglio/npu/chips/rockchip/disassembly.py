"""A file of Rockchip's compiler as text and as JSON: tensors, operators, and every command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from intaglio.npu.chips.rockchip.rknn_file import RknnFile, Task, Tensor
from intaglio.npu.chips.rockchip.words import BLOCKS, Word

CORES = ("1 core", "core 0 of 2", "core 1 of 2", "core 0 of 3", "core 1 of 3", "core 2 of 3")
MOST_KINDS = 10  # kinds of operators that are listed


def lines(file: RknnFile, words: bool = False) -> Iterator[str]:
    """A file as text; `words`: with every command."""
    chip = f"{file.target} ({file.generator})"
    yield f"rknn        version {file.version} for {chip}, from {file.framework}"
    yield f"compiler    {file.compiler}"
    for title in ("input", "output"):
        for tensor in file.tensors:
            if tensor.kind == title:
                yield f"{title:11} {_tensor(tensor)}"
    yield (
        f"memory      {file.weight_bytes:,} bytes of weights, {file.internal_bytes:,} between "
        f"layers, {file.command_bytes:,} of commands"
    )
    on_npu = [o for o in file.operators if o.on_npu]
    kinds = Counter(o.kind for o in on_npu).most_common()
    more = f", {len(kinds) - MOST_KINDS} other kinds" if len(kinds) > MOST_KINDS else ""
    listed = ", ".join(f"{count} {kind}" for kind, count in kinds[:MOST_KINDS])
    yield f"npu         {len(on_npu)} operators: {listed}{more}"
    for operator in file.operators:
        if not operator.on_npu and operator.inputs and operator.outputs:
            yield f"cpu         {operator.kind} {operator.name}"
    yield f"tasks       {len(file.tasks)}: {_started(file.tasks)}"
    if words:
        if file.target != "rk3588":
            yield "            names of registers are the RK3588's; some differ here"
        yield from _commands(file)


def _tensor(t: Tensor) -> str:
    dims, stored = ("x".join(map(str, d)) for d in (t.shape, t.stored))
    real = f"; real = {t.scale:.6g} * (value - {t.zero})" if t.scale else ""
    return f"{t.name}  {t.dtype}[{dims}], stored as [{stored}]{real}"


def _started(tasks: list[Task]) -> str:
    counts = Counter(block_names(t.blocks) for t in tasks).most_common()
    return ", ".join(f"{count} x {blocks}" for blocks, count in counts)


def block_names(mask: int) -> str:
    """The blocks of a mask."""
    names = [name for bit, name in BLOCKS.items() if mask & bit]
    return "+".join(names) or f"{mask:#x}"


def _commands(file: RknnFile) -> Iterator[str]:
    addresses = {word: (r.tensor, offset) for r in file.relocations for offset, word in r.places}
    for number, (task, cores) in enumerate(zip(file.tasks, owners(file), strict=True)):
        name = ""
        if task.operator < len(file.operators):
            name = file.operators[task.operator].name
        yield f"task {number}  {name}  {block_names(task.blocks)}  {cores}"
        for i, word in enumerate(task.words):
            place = addresses.get(task.offset // 8 + i)
            yield f"  {text(word, place)}"


def owners(file: RknnFile) -> list[str]:
    """Which core runs each task, as files for several cores hold tasks for every number of them."""
    columns = max((len(o.tasks) for o in file.operators), default=0)
    found: list[str] = []
    for column in range(columns):
        title = CORES[column] if columns == len(CORES) else f"list {column}" if columns > 1 else ""
        count = sum(o.tasks[column] for o in file.operators if column < len(o.tasks))
        found += [title] * min(count, len(file.tasks))  # a damaged file may count any number
    return (found + [""] * len(file.tasks))[: len(file.tasks)]


def text(word: Word, place: tuple[str, int] | None = None) -> str:
    """A command in one line: block, register, value, and the fields that are not 0."""
    if place:
        where = f"{place[0]}+{place[1]:#x}" if place[1] else place[0]
        return f"{word.block:8} {word.name:22} {word.value:#010x}  address of {where}"
    fields = " ".join(f"{k}={v}" for k, v in word.fields().items() if v)
    if word.block == "ENABLE":
        fields = block_names(word.value)
    return f"{word.block:8} {word.name:22} {word.value:#010x}  {fields}".rstrip()


def facts(file: RknnFile) -> dict[str, Any]:
    """A file as data for JSON."""
    return {
        "version": file.version,
        "target": file.target,
        "generator": file.generator,
        "compiler": file.compiler,
        "framework": file.framework,
        "memory": {
            "weights": file.weight_bytes,
            "internal": file.internal_bytes,
            "commands": file.command_bytes,
        },
        "tensors": [
            {
                "name": t.name,
                "kind": t.kind,
                "dtype": t.dtype,
                "shape": list(t.shape),
                "stored": list(t.stored),
                "scale": t.scale,
                "zero": t.zero,
                "bytes": t.size,
                "offset": t.offset,
            }
            for t in file.tensors
        ],
        "operators": [
            {
                "kind": o.kind,
                "name": o.name,
                "on_npu": o.on_npu,
                "inputs": o.inputs,
                "outputs": o.outputs,
                "tasks": o.tasks,
            }
            for o in file.operators
        ],
        "relocations": [
            {"tensor": r.tensor, "places": [list(p) for p in r.places]} for r in file.relocations
        ],
        "tasks": [
            {
                "operator": t.operator,
                "blocks": block_names(t.blocks),
                "offset": t.offset,
                "commands": [_fact(w) for w in t.words],
            }
            for t in file.tasks
        ],
    }


def _fact(word: Word) -> dict[str, Any]:
    return {
        "block": word.block,
        "register": word.name,
        "value": word.value,
        "fields": word.fields(),
    }
