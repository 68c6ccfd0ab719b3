"""Names in README and docs exist: options, commands, functions, keywords, rules, files."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from tests.test_docs import NAMES, ROOT

import intaglio
from intaglio.cli import COMMANDS, cli
from intaglio.compat.conformance import facades
from intaglio.compile_options import OPTION_NAMES
from intaglio.frontends.preprocess import OPTIONS as PREPROCESSING
from intaglio.quant import Options

CURRENT = [n for n in NAMES if n != "CHANGELOG.md"]  # which also names what was renamed


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


# ---- options -------------------------------------------------------------------------------------
def options_of_commands() -> set[str]:
    commands = [cli, *(cli.get_command(click.Context(cli), name) for name in COMMANDS)]
    params = [p for c in commands if c is not None for p in c.params]
    return {o for p in params for o in (*p.opts, *p.secondary_opts)} | {"--help"}


def options_of_modules() -> set[str]:
    """Options of the modules that pages run with `python -m`."""
    files = [p for folder in ("benchmarks", "tests") for p in (ROOT / folder).rglob("*.py")]
    return {o for p in files for o in re.findall(r'"(--[a-z][\w-]*)"', p.read_text())}


def options_of_vendors() -> set[str]:
    """Options of the vendors' command lines that `intaglio compat` runs."""
    return {n for c in facades()["sophgo"].commands for o in c.options for n in o.names}


OTHER_TOOLS = {
    "--all",
    "--oneline",
    "--config",
    "--prefix",
    "--install",
    "--build",
    "--cflags",
    "--libs",
    "--model-repository",  # of tritonserver
    "--backend-directory",
    "--model-control-mode",
    "--load-model",
    "--call-graph",  # of perf
}


@pytest.mark.parametrize("name", CURRENT)
def test_options(name: str):
    shown = set(re.findall(r"(?<![\w-])(--[a-z][\w-]*)", text_of(name)))
    known = options_of_commands() | options_of_modules() | options_of_vendors() | OTHER_TOOLS
    unknown = shown - known
    assert not unknown, f"{name}: no command has {', '.join(sorted(unknown))}"


# ---- rules ---------------------------------------------------------------------------------------
@functools.cache
def rules() -> set[str]:
    """All rules: those of docs/rules.md, and those of targets that the page does not show."""
    source = "\n".join(p.read_text() for p in (ROOT / "src/intaglio").rglob("*.py"))
    decorated = set(re.findall(r"^@rule\(.*?^def (\w+)", source, re.M | re.S))
    return decorated | set(re.findall(r"^### (\w+)$", text_of("docs/rules.md"), re.M))


@pytest.mark.parametrize("name", CURRENT)
def test_rules_that_are_switched_off(name: str):
    given = set(re.findall(r"--disable[ =]([a-z]\w*)", text_of(name)))
    given |= set(re.findall(r"disable=\[\"(\w+)\"", text_of(name)))
    assert given <= rules(), f"{name}: there is no rule {', '.join(given - rules())}"


def test_every_rule_that_pages_switch_off_can_be_switched_off_by_compile(tmp_path: Path):
    """A page says `--disable NAME` without a command: `intaglio compile` must take it."""
    shown = {r for n in CURRENT for r in re.findall(r"--disable ([a-z]\w*)", text_of(n))}
    assert len(shown) >= 3
    given = [w for rule in sorted(shown) for w in ("--disable", rule)]
    model = str(ROOT / "examples/digits/digits.onnx")
    made = str(tmp_path / "made.itg")
    cli.main(
        ["compile", model, "--dim", "batch=1", "-q", "-o", made, *given], standalone_mode=False
    )
    assert Path(made).exists()


def test_renamed_rules_have_the_names_of_the_changelog():
    section = text_of("CHANGELOG.md").split("Rules renamed")[1].split("\n### ")[0]
    renamed = re.findall(r"`(\w+)`\s+→\s+`(\w+)`", section)
    assert len(renamed) > 100
    gone = {new for _, new in renamed} - rules()
    assert not gone, f"CHANGELOG.md: there is no rule {', '.join(sorted(gone))}"
    assert not {old for old, _ in renamed} & rules()


# ---- the Python API ------------------------------------------------------------------------------
FILES = {"h", "fish", "pc", "so", "a", "plugins"}  # intaglio.h is a file, plugins entry points


def found(name: str) -> bool:
    """Whether a dotted name is a module or leads to an object."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        module = ".".join(parts[:cut])
        try:
            thing: Any = importlib.import_module(module)
        except ModuleNotFoundError as e:
            if e.name == "torch" and len(parts) == cut + 1 and defines(module, parts[cut]):
                return True
            continue
        for part in parts[cut:]:
            if not hasattr(thing, part):
                break
            thing = getattr(thing, part)
        else:
            return True
    return False


def defines(module: str, name: str) -> bool:
    """Whether the source of a module that cannot be imported here has this class or function."""
    tree = ast.parse((ROOT / "src" / Path(*module.split(".")).with_suffix(".py")).read_text())
    return any(isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name for n in tree.body)


@pytest.mark.parametrize("name", CURRENT)
def test_functions_and_classes(name: str):
    for dotted in set(re.findall(r"\bintaglio(?:\.[A-Za-z_]\w*)+", text_of(name))):
        if dotted.split(".")[1] not in FILES:
            assert found(dotted), f"{name}: there is no {dotted}"


def test_a_name_that_does_not_exist_is_found():
    assert found("intaglio.compile")
    assert found("intaglio.quant.Options.method")
    assert not found("intaglio.compil")
    assert not found("intaglio.quant.Options.methodology")


def keywords() -> set[str]:
    """Keyword arguments of the functions that pages call."""
    functions = (
        intaglio.load,
        intaglio.open,
        intaglio.Matmul,
        intaglio.save_onnx,
        intaglio.quant.calibrate,
        intaglio.quant.until,
        intaglio.Session.run,
        intaglio.SessionPool,
        intaglio.ThreadPool,
        intaglio.InternalMemory,
        importlib.import_module("intaglio.analysis.performance").performance,
        importlib.import_module("intaglio.analysis.whatif").WhatIf,
        importlib.import_module("intaglio.tune").Tuning,
        importlib.import_module("intaglio.edit.editor").Editor.save,
        importlib.import_module("intaglio.compress.pruning").prune,
        importlib.import_module("intaglio.compress.sparsity").sparsify,
        importlib.import_module("intaglio.model_session").ModelSession,
    )
    named = {p for f in functions for p in inspect.signature(f).parameters}
    named.add("half")  # of compress.Training, whose module needs torch
    return named | {*OPTION_NAMES, *PREPROCESSING, "target"} | {f.name for f in fields(Options)}


# `name=` that is no keyword of a function: formats in `@op(...)`, the syntax of --accuracy.
OTHER_KEYWORDS = {"onnx", "torch", "cosine"}


@pytest.mark.parametrize("name", CURRENT)
def test_keywords(name: str):
    """Code in the text that begins with `name=`, as in `dims={"batch": 1}`."""
    prose = re.sub(r"```.*?```", "", text_of(name), flags=re.S)
    shown = set(re.findall(r"`([a-z_]+)=[^`\n=]*`", prose))
    unknown = shown - keywords() - OTHER_KEYWORDS
    assert not unknown, f"{name}: no function takes {', '.join(sorted(unknown))}"


# ---- files of the source -------------------------------------------------------------------------
PLACES = ("", "src/intaglio", "csrc", "docs", "examples", "tests", "benchmarks")


@pytest.mark.parametrize("name", CURRENT)
def test_files_of_the_source(name: str):
    """`npu/lowering/` and `passes/partition.py` in code are there, from one of PLACES.

    A lone folder (`images/`) may be the reader's own.
    """
    prose = re.sub(r"```.*?```", "", text_of(name), flags=re.S)
    for path in set(re.findall(r"`((?:[\w.-]+/)+(?:[\w.-]+\.(?:py|c|h|inc|toml|md))?)`", prose)):
        if path.startswith(".venv/") or path.count("/") == 1 == path.endswith("/"):
            continue
        there = [p for place in PLACES if (p := ROOT / place / path).exists()]
        assert there, f"{name}: there is no {path}"
