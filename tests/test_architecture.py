"""The plan of the house: which module may know which, and how large a file may grow."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "intaglio"
# What stands further down may import what stands above it, and what is of its own name.
FLOORS = [
    ("errors", "dtypes"),
    ("ir", "files", "cpu_isa"),
    ("ops", "heap"),
    ("interpret", "rewrite", "verify", "native", "plan"),
    ("targets", "frontends", "package", "npu.ops"),
    ("npu.lowering",),
    ("runtime",),
    ("passes", "session"),
    ("npu",),
    ("tune",),
    ("compile_options",),
    ("compiler", "export"),
    ("quant",),
    ("analysis",),
    ("matmul",),
    ("cli",),
    ("__main__", "__init__"),
]
UPSTAIRS = {
    ("package", "analysis"),  # a package makes its own reports, when asked
    ("targets", "npu.lowering"),  # targets.find() opens a chip by its name
}
FLOOR = {name: i for i, names in enumerate(FLOORS) for name in names}
FACADE = FLOOR["compiler"]  # from here up, `import intaglio` is the way to load, run and so on
MODULES = sorted(p for p in SOURCE.rglob("*.py"))
WRITTEN = sorted(
    p
    for folder in ("src", "csrc", "tests", "benchmarks", "examples")
    for p in (ROOT / folder).rglob("*")
    if p.suffix in (".py", ".c", ".h", ".inc") and "__pycache__" not in p.parts
)


def name(path: Path) -> str:
    """The entry of FLOORS that a module belongs to: a sub-package's own, or its package's."""
    return floor_of(path.relative_to(SOURCE).with_suffix("").parts)


def floor_of(parts: Sequence[str]) -> str:
    """The same of a dotted name, without "intaglio"."""
    within = ".".join(parts[:2])
    return within if within in FLOOR else parts[0]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            module = node.module or ""
            found.update(_modules(module, [a.name for a in node.names]))
    return {m for m in found if m.split(".")[0] == "intaglio"}


def _modules(module: str, names: list[str]) -> set[str]:
    """What `from module import names` brings in, down to what has a floor of its own."""
    within = {f"{module}.{n}" for n in names}
    if module == "intaglio":
        return within
    return {m if m.removeprefix("intaglio.") in FLOOR else module for m in within}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = name(path)
    assert here in FLOOR, f"src/intaglio/{here} has no floor yet: add it to FLOORS"
    for module in imported(path) if here != "__init__" else ():
        parts = module.split(".")
        if len(parts) == 1 or parts[1] not in FLOOR:  # intaglio itself, or a name of its façade
            assert FLOOR[here] >= FACADE, f"{here} is below the public API, it cannot import it"
        elif (there := floor_of(parts[1:])) != here and (here, there) not in UPSTAIRS:
            assert FLOOR[there] < FLOOR[here], f"{here} must not know {module}"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small_and_say_what_they_are(path):
    assert path.stem not in ("utils", "util", "common", "base", "misc", "helpers")
    text = path.read_text()
    assert text.count("\n") <= 500
    if path.name != "test_architecture.py":
        assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)


def test_importing_is_light():
    """What a command does not need is not loaded: ONNX, the C library, the compiler."""
    code = "import sys, intaglio; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"onnx", "rich", "click", "intaglio.native", "intaglio.compiler"}


def test_only_the_ir_edits_uses():
    """Graph.set_input, Graph.replace and detach keep `uses` complete; nothing else writes to it."""
    edit = re.compile(r"\.uses(\[.*\] = |\.(pop|clear|update|setdefault)\(| = )|del .*\.uses\[")
    files = [p for p in MODULES if p.name != "ir.py"]
    edits = [
        f"{p.relative_to(SOURCE)}:{i}: {line.strip()}"
        for p in files
        for i, line in enumerate(p.read_text().splitlines(), 1)
        if edit.search(line)
    ]
    assert not edits, "rewire with Graph.set_input instead"
