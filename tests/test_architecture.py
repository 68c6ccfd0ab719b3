"""The architecture: which module may import which, and how long a file may be."""

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
# A module may import modules of earlier layers and of its own package.
LAYERS = [
    ("errors", "dtypes", "startup", "progress", "text_table"),
    ("formula",),
    ("symint",),
    ("ir", "files", "cpu_isa", "extras", "status"),
    ("arguments",),
    ("open_graph", "dlpack", "core_mask"),
    ("ops", "heap", "feeds", "array_files", "reserved_memory"),
    ("native_op",),
    ("interpret", "rewrite", "verify", "native", "plan"),
    ("custom", "catalogue"),
    ("targets", "frontends", "package", "npu.ops"),
    ("npu.lowering",),
    ("after_fork",),
    ("runtime", "padding", "shared_weights", "request_queue", "idle_stack", "result_memory"),
    ("thread_pool", "internal_memory"),
    ("session_settings", "numpy_struct"),
    ("native_session", "package_source"),
    ("input_layouts",),
    ("array_addresses",),
    ("direct_run",),
    ("bindings",),
    ("passes", "session"),
    ("session_pool", "open_session"),
    ("npu",),
    ("npu.chips",),
    ("tune",),
    ("compile_options", "size_lists", "find_padding", "model_inputs", "replace_constants"),
    ("batches", "recipe"),
    ("compiler", "export"),
    ("open_dimensions", "compile_cache", "weight_update"),
    ("model_plans",),
    ("model_session",),
    ("ort",),
    ("quant",),
    ("analysis", "vision"),
    ("matmul", "edit", "evaluation", "split"),
    ("compress",),
    ("compat", "serve", "ui"),
    ("client", "oci"),
    ("cli",),
    ("__main__", "__init__"),
]
EXCEPTIONS = {
    ("package", "analysis"),  # Package.performance() and Package.memory()
    ("package", "weight_update"),  # Package.with_weights() compiles
    ("session", "model_session"),  # Session("model.onnx") compiles
    ("targets", "npu.lowering"),  # targets.find() makes the target of a chip
}
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
PUBLIC_API = LAYER["compiler"]  # later layers use the public API: `import intaglio`
MODULES = sorted(p for p in SOURCE.rglob("*.py"))
WRITTEN = sorted(
    p
    for folder in ("src", "csrc", "tests", "benchmarks", "examples")
    for p in (ROOT / folder).rglob("*")
    if p.suffix in (".py", ".c", ".h", ".inc") and "__pycache__" not in p.parts
)


def name(path: Path) -> str:
    """The entry of LAYERS for a module: its sub-package if that has one, or its package."""
    return layer_of(path.relative_to(SOURCE).with_suffix("").parts)


def layer_of(parts: Sequence[str]) -> str:
    """The entry of LAYERS for the parts of a dotted name without "intaglio"."""
    within = ".".join(parts[:2])
    return within if within in LAYER else parts[0]


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
    """The modules of `from module import names`, down to entries of LAYERS."""
    within = {f"{module}.{n}" for n in names}
    if module == "intaglio":
        return within
    return {m if m.removeprefix("intaglio.") in LAYER else module for m in within}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = name(path)
    assert here in LAYER, f"src/intaglio/{here} is not in LAYERS"
    for module in imported(path) if here != "__init__" else ():
        parts = module.split(".")
        if len(parts) == 1 or parts[1] not in LAYER:  # intaglio itself, or a public name
            assert LAYER[here] >= PUBLIC_API, (
                f"{here} is an earlier layer than the public API and cannot import it"
            )
        elif (there := layer_of(parts[1:])) != here and (here, there) not in EXCEPTIONS:
            assert LAYER[there] < LAYER[here], f"{here} must not import {module}"


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small_and_say_what_they_are(path):
    assert path.stem not in ("utils", "util", "common", "base", "misc", "helpers")
    text = path.read_text()
    most = 400 if path.suffix == ".py" and "src" in path.relative_to(ROOT).parts else 500
    assert text.count("\n") <= most
    if path.name != "test_architecture.py":
        assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text)


def test_importing_is_light():
    """`import intaglio` does not import ONNX, the C library or the compiler."""
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
