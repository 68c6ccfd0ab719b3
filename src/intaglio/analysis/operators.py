"""docs/operators.md: every op, what frameworks call it, and what runs it.

python -m intaglio.analysis.operators docs/operators.md
"""

from __future__ import annotations

import dis
import functools
import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from intaglio import native, targets
from intaglio.analysis.on_npu import CHIPS, units
from intaglio.files import write_atomically
from intaglio.ops.registry import REGISTRY, Op

COMMAND = "python -m intaglio.analysis.operators docs/operators.md"
FRAMEWORKS = {
    "ONNX": "onnx",
    "TFLite": "tflite",
    "PyTorch": "torch",
    "TensorFlow": "tensorflow",
    "Caffe": "caffe",
    "Darknet": "darknet",
}
MOST = 4  # names in a cell
HEAD = f"""<!-- Made by `{COMMAND}`; change the importers, not this file. Where two versions of it
meet, run the command again instead of merging them. -->
# Operators

What a model may consist of. A name under a framework is an operator of that framework that becomes
this op, alone or with others (at most {MOST} are named; the lists below have all). *native*: what
runs it on CPUs, a kernel of its own or those of ops that it is made of. The last columns name the
units of an NPU that do it in a model of 8 bits (`intaglio quantize --target`), as a small layer on
{", ".join(CHIPS.values())} shows; "-" stays on the CPU beside it, "free" moves
nothing. Limits of sizes are in the chips' files: `intaglio targets CHIP`.

"""


# ---- what importers build ------------------------------------------------------------------------
def importers(framework: str) -> dict[str, tuple[set[str], set[str]]]:
    """Operators of a framework: the ops that each names, and those of what it calls too."""
    module = importlib.import_module(f"intaglio.frontends.{framework}")
    for part in pkgutil.iter_modules(module.__path__):  # importers are registered on import
        importlib.import_module(f"{module.__name__}.{part.name}")
    if framework in ("caffe", "darknet"):
        layers = importlib.import_module(f"{module.__name__}.layers").LAYERS
        return {name: _made(function) for name, function in layers.items()}
    found: dict[str, tuple[set[str], set[str]]] = {}
    if framework == "onnx":
        from intaglio.frontends.onnx import importer as onnx

        written: Mapping[Any, Any] = {k: v[-1][1] for k, v in onnx._IMPORTERS.items()}
        written = {f"{d}.{n}" if d else n: f for (d, n), f in written.items()}
    else:
        where = "importer" if framework == "torch" else "node"
        written = importlib.import_module(f"{module.__name__}.{where}").IMPORTERS
    for op in REGISTRY.values():
        name = op.names.get("tf" if framework == "tensorflow" else framework)
        if name and name not in written:
            found[name] = ({op.name}, {op.name})
    return found | {name: _made(function) for name, function in written.items()}


@functools.cache
def _made(function: Any) -> tuple[set[str], set[str]]:
    """The ops that a function names, itself or through those of its module, and all it reaches."""
    homes = {f.__module__ for f in _plain(function)}
    direct, reached = set(_named(function)), set(_named(function))
    seen, stack = {function}, [function]
    while stack:
        for other in _called(stack.pop()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
                reached |= set(_named(other))
                direct |= set(_named(other)) if other.__module__ in homes else set()
    return direct, reached


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for c in code.co_consts:
        if isinstance(c, CodeType):
            yield from _codes(c)


def _plain(function: Any) -> Iterator[FunctionType]:
    """The Python functions in it: of partials, closures and their kin."""
    if isinstance(function, functools.partial):
        yield from _plain(function.func)
    elif isinstance(function, FunctionType):
        yield function


def _held(function: Any) -> Iterator[Any]:
    """What a function is given beside its arguments: closures and parts of partials."""
    if isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values())
    for f in _plain(function):
        for cell in f.__closure__ or ():
            yield cell.cell_contents


def _named(function: Any) -> Iterator[str]:
    """The ops that it names: `ops.conv`, an Op of its module, or one that it holds."""
    if isinstance(function, Op):
        yield function.name
    for held in _held(function):
        yield from (o.name for o in _every(held) if isinstance(o, Op))
    for f in _plain(function):
        for code in _codes(f.__code__):
            before = ""
            for step in dis.get_instructions(code):
                if before == "ops" and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    name = str(step.argval)
                    found = next((n for n in (name, name.rstrip("_")) if n in REGISTRY), None)
                    yield from (found,) if found else ()
                before = str(step.argval) if step.opname == "LOAD_GLOBAL" else ""
                if step.opname == "LOAD_GLOBAL":
                    thing = f.__globals__.get(str(step.argval))
                    yield from (o.name for o in _every(thing) if isinstance(o, Op))


def _every(thing: Any) -> Iterator[Any]:
    """The thing, or what a table holds."""
    if isinstance(thing, Mapping) and thing is not REGISTRY:
        yield from thing.values()
    elif isinstance(thing, list | tuple):
        yield from thing
    else:
        yield thing


def _called(function: Any) -> Iterator[Any]:
    """Functions of the frontends that it names or holds."""
    for held in _held(function):
        yield from (o for o in _every(held) if isinstance(o, FunctionType))
    for f in _plain(function):
        for code in _codes(f.__code__):
            for name in code.co_names:
                thing = f.__globals__.get(name)
                if isinstance(thing, FunctionType) and "frontends" in thing.__module__:
                    yield thing


# ---- what runs an op -----------------------------------------------------------------------------
def runs(op: str, of_rules: set[str]) -> str:
    """How a CPU runs it."""
    if op in native.ops() or op in of_rules:
        return "kernel"
    return "-" if REGISTRY[op].lower is None else "from others"


def document() -> str:
    """The text of docs/operators.md."""
    known = {title: importers(name) for title, name in FRAMEWORKS.items()}
    cpu = targets.find("cpu", "scalar")
    of_rules = {o for r in cpu.lower for o in r.pattern.ops}
    neutral = sorted(o for o in REGISTRY if "." not in o)
    on_npu = {chip: units(chip, neutral) for chip in CHIPS}
    titles = [*FRAMEWORKS, "native", *CHIPS.values()]
    lines = [f"| op | {' | '.join(titles)} |", f"|---{'|---' * len(titles)}|"]
    for op in neutral:
        cells = [_cell(op, table) for table in known.values()]
        cells += [runs(op, of_rules), *(on_npu[chip].get(op, "-") for chip in CHIPS)]
        lines.append(f"| `{op}` | {' | '.join(cells)} |")
    parts = [HEAD, "\n".join(lines), "\n"]
    for title, table in known.items():
        names = sorted(table, key=str.lower)
        parts.append(f"\n## {title}: {len(names)} operators\n\n{', '.join(names)}\n")
    return "".join(parts)


def _cell(op: str, table: Mapping[str, tuple[set[str], set[str]]]) -> str:
    """The operators that are this op; those that merely use it where there are none."""

    def order(name: str) -> tuple[bool, str]:
        """What is called alike, then the others."""
        same = _letters(name) in (_letters(op), *map(_letters, REGISTRY[op].names.values()))
        return not same, name.lower()

    names = [n for n, (direct, _) in table.items() if op in direct]
    names = sorted(names or [n for n, (_, reached) in table.items() if op in reached], key=order)
    if not names:
        return "-"
    more = f", +{len(names) - MOST}" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_atomically(sys.argv[1], document().encode())
    else:
        print(document(), end="")
