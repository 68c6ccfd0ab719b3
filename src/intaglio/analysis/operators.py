"""Generates docs/operators.md: every op, its names in frameworks, and the units that run it.

python -m intaglio.analysis.operators docs/operators.md
"""

from __future__ import annotations

import dis
import functools
import importlib
import pkgutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from types import CodeType, FunctionType
from typing import Any

from intaglio import native, targets
from intaglio.analysis.npu_coverage import CHIPS, units
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
MAX_NAMES = 1  # in a table cell
WIDTH = 150  # columns of the lists
HEAD = f"""<!-- Made by `{COMMAND}`; change the importers, not this file. Where two versions of it
conflict, run the command again instead of merging. -->
# Operators

The operators that a model may contain, one row per Intaglio op. A name under a framework is an
operator that becomes this op, alone or with others; "+3" counts three more of them. The lists below
name all operators. *native* is how CPUs run the op: with its own kernel, or lowered to other ops.
The last columns name the NPU unit that runs the op in an int8 model (`intaglio quantize --target`),
tried with a small layer on {", ".join(CHIPS.values())}. "-" means that the op runs on the
CPU, "free" that it needs no instruction. Size limits are in the chip files:
`intaglio targets CHIP`.

"""


# ---- the ops that importers build ----------------------------------------------------------------
def importers(framework: str) -> dict[str, tuple[set[str], set[str]]]:
    """For each operator of a framework: the ops its importer names, and all ops it can reach."""
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
    """The ops that a function names, itself or through its module, and all ops it can reach."""
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
    """The Python function inside of nested partials."""
    if isinstance(function, functools.partial):
        yield from _plain(function.func)
    elif isinstance(function, FunctionType):
        yield function


def _held(function: Any) -> Iterator[Any]:
    """Objects that a function holds: closure cells and arguments of partials."""
    if isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values())
    for f in _plain(function):
        for cell in f.__closure__ or ():
            yield cell.cell_contents


def _named(function: Any) -> Iterator[str]:
    """Names of ops that a function uses: `ops.conv`, an Op global, or an Op that it holds."""
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
    """The object itself, or the items of a mapping, list or tuple."""
    if isinstance(thing, Mapping) and thing is not REGISTRY:
        yield from thing.values()
    elif isinstance(thing, list | tuple):
        yield from thing
    else:
        yield thing


def _called(function: Any) -> Iterator[Any]:
    """Frontend functions that a function names or holds."""
    for held in _held(function):
        yield from (o for o in _every(held) if isinstance(o, FunctionType))
    for f in _plain(function):
        for code in _codes(f.__code__):
            for name in code.co_names:
                thing = f.__globals__.get(name)
                if isinstance(thing, FunctionType) and "frontends" in thing.__module__:
                    yield thing


# ---- the table -----------------------------------------------------------------------------------
def runs(op: str, of_rules: set[str]) -> str:
    """How CPUs run an op: its own kernel, lowered to other ops, or not at all."""
    if op in native.ops() or op in of_rules:
        return "kernel"
    return "-" if REGISTRY[op].lower is None else "lowered"


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
        listed = textwrap.fill(", ".join(names), WIDTH, break_on_hyphens=False)
        parts.append(f"\n## {title}: {len(names)} operators\n\n```text\n{listed}\n```\n")
    return "".join(parts)


def _cell(op: str, table: Mapping[str, tuple[set[str], set[str]]]) -> str:
    """Operators that become this op; if there are none, those that use it."""

    def order(name: str) -> tuple[bool, bool, float, str]:
        """Operators with the op's name first, then public and similar names."""
        same = _letters(name) in (_letters(op), *map(_letters, REGISTRY[op].names.values()))
        alike = SequenceMatcher(None, _letters(name), _letters(op)).ratio()
        return not same, name.startswith("_"), -alike, name.lower()

    names = [n for n, (direct, _) in table.items() if op in direct]
    names = sorted(names or [n for n, (_, reached) in table.items() if op in reached], key=order)
    if not names:
        return "-"
    more = f" +{len(names) - MAX_NAMES}" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_atomically(sys.argv[1], document().encode())
    else:
        print(document(), end="")
