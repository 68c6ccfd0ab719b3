"""Generates docs/rules.md: every rule with its pattern, its refusals and its level.

python -m intaglio.analysis.document docs/rules.md
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from intaglio import passes, targets
from intaglio.export.onnx.export_rules import CONTRIB, EXPORT_RULES
from intaglio.files import write_atomically
from intaglio.rewrite import ANY, Rule
from intaglio.targets import replace

COMMAND = "python -m intaglio.analysis.document docs/rules.md"
HEAD = f"""<!-- Made by `{COMMAND}`; change the rules, not this file. -->
# Rules

Every optimisation is one rule: a pattern, and a function that builds the replacement. A rule is
tried at every node that matches its pattern. It fires, or it declines and says why; `intaglio
optimize --explain` counts both. `--disable NAME` switches one rule off. `--level` switches off all
rules above a level:

| level | what rules may change |
|---|---|
| 0 | nothing |
| 1 | only exact rewrites: results keep every bit |
| 2 | also the order of floating-point operations, so the last bits of results |
| 3 | also rewrites for one target, and integer arithmetic for quantised graphs |

How to read a pattern: `mul(conv(x, W!), S!)` is a convolution times a constant. A name is any
tensor; `!` marks a constant and `?` an optional operand. `a|b(x)` is either op, `{{a(x) or b(x)}}`
is either spelling of an operand, and `*` is any node. Inner nodes must have no other reader,
because the rule would compute them twice; `&` marks inner nodes that may have other readers.
"""


MAX_COLUMNS = 150  # of a printed pattern
# The op that each helper function builds.
BUILDERS = {
    "reshaped": "reshape",
    "transposed": "transpose",
    "sliced": "slice",
    "cut": "slice",
    "rebuilt": "the same op",
}


@dataclass
class Section:
    """Rules that are tried together."""

    title: str
    level: int | None
    why: str
    rules: list[Rule]


def sections() -> list[Section]:
    """The rules of the pipeline in its order, each in the first pass that tries it."""
    seen: set[int] = set()

    def new(rules: Iterable[Rule]) -> list[Rule]:
        found = [r for r in rules if id(r) not in seen]
        seen.update(map(id, found))
        return found

    cpu = targets.find("cpu", "scalar")
    results = []
    for p in [*passes.neutral(), *passes.lowering(cpu)]:
        if isinstance(p.run, passes.Rules) and not isinstance(p.run, passes.Legal):
            results.append(Section(p.name, p.level, "", new(p.run.every)))
        elif p.rule and p.rule not in {r.name for s in results for r in s.rules}:
            why = "A pass over the whole graph; `--disable` switches it off by this name."
            results.append(Section(p.name, p.level, why, [Rule(ANY, p.run)]))
    why = "Lower neutral ops to cpu.* ops, at every level."
    results.append(Section("legalize for the CPU", None, why, new(cpu.lower)))
    why = "Lower quantised graphs to npu.* ops, within the limits of the chip's units."
    npu = targets.find("rk3588", "scalar")
    results.append(Section("lower to an NPU", None, why, new(npu.lower)))
    why = "Applied with `--precision bf16`, at every level."
    bf16 = targets.find("cpu", "avx512bf16", "bf16")
    results.append(Section("half precision: bf16", None, why, new((*bf16.choose, *bf16.narrow))))
    why = "Applied with `--precision fp16`; the rules that move casts are those of bf16."
    results.append(
        Section("half precision: f16", None, why, new(targets.find("cpu", "scalar", "f16").narrow))
    )
    why = "A target selects the rules it needs, with its own limits; see docs/compiler.md."
    results.append(Section("library of replacements", None, why, new(replace.REPLACE)))
    why = "Applied at every level when a graph is written as ONNX."
    results.append(Section("export to ONNX", None, why, new(EXPORT_RULES)))
    why = "onnxruntime's own operators, used with `--contrib`."
    results.append(Section("export for onnxruntime", None, why, new(CONTRIB)))
    return [s for s in results if s.rules]


def document() -> str:
    """The text of docs/rules.md."""
    parts = [HEAD]
    for s in sections():
        level = "" if s.level is None else f" (level {s.level})"
        parts.append(f"\n## {s.title}{level}\n")
        if s.why:
            parts.append(f"\n{s.why}\n")
        by_name: dict[str, list[Rule]] = {}
        for r in s.rules:
            by_name.setdefault(r.name, []).append(r)
        parts += [_rule(name, rules) for name, rules in by_name.items()]
    return "".join(parts)


def _rule(name: str, rules: list[Rule]) -> str:
    first = rules[0]
    function = ast.parse(textwrap.dedent(inspect.getsource(first.build)))
    becomes = " or ".join(dict.fromkeys(_results(function, first)))
    patterns = [_wrapped(str(r.pattern)) for r in rules]
    if becomes:
        patterns[-1] += f"\n  -> {becomes}"
    lines = [f"\n### {name}\n", f"{' '.join(first.doc.split())}\n", "```", *patterns, "```"]
    maker = getattr(replace, name, None)
    if any(r.name == name for r in replace.REPLACE) and inspect.isfunction(maker):
        called = ", ".join(
            f"{p.name}={p.default}" for p in inspect.signature(maker).parameters.values()
        )
        lines.append(f"\n`{name}({called})`: {inspect.getdoc(maker)}")
    declined = list(dict.fromkeys(_refusals(function)))
    if declined:
        lines += ["\nDeclines:\n", *(f"- {words}" for words in declined)]
    return "\n".join(lines) + "\n"


def _wrapped(pattern: str) -> str:
    return "\n".join(textwrap.wrap(pattern, MAX_COLUMNS, subsequent_indent="    "))


# ---- text from the source of a rule --------------------------------------------------------------
def _refusals(function: ast.AST) -> Iterator[str]:
    """The text of every `no(...)`, with … for inserted values."""
    for node in ast.walk(function):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if called and node.func.id == "no" and node.args:  # type: ignore[attr-defined]
            words = _words(node.args[0])  # type: ignore[attr-defined]
            if words:
                yield words


def _words(text: ast.expr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    if isinstance(text, ast.JoinedStr):
        return "".join(_words(v) if isinstance(v, ast.Constant) else "…" for v in text.values)
    return ""


def _results(function: ast.AST, rule: Rule) -> Iterator[str]:
    """The ops, or tensors of the pattern, that the function returns."""
    for node in ast.walk(function):
        for e in _branches(node.value) if isinstance(node, ast.Return) and node.value else ():
            shown = _picture(e)
            if "(" in shown or shown in rule.takes:
                yield shown


def _branches(e: ast.expr) -> Iterator[ast.expr]:
    if isinstance(e, ast.IfExp):
        yield from _branches(e.body)
        yield from _branches(e.orelse)
    else:
        yield e


def _picture(e: ast.expr) -> str:
    """A call as text, such as `conv(x, w, b)`, with attributes only if they are literals."""
    if isinstance(e, ast.Name):
        return e.id
    if isinstance(e, ast.Constant):
        return "-" if e.value is None else str(e.value)
    op = _called(e) if isinstance(e, ast.Call) else None
    if not isinstance(e, ast.Call) or op is None:
        return "…"
    results = e.args
    if isinstance(e.func, ast.Name):  # the first argument is the operand, the rest are options
        results = e.args[1:] if e.func.id == "rebuilt" else e.args[:1]
    args = [_picture(a) for a in results]
    args += [
        f"{k.arg}={k.value.value!s}"
        for k in e.keywords
        if k.arg and isinstance(k.value, ast.Constant)
    ]
    return f"{op}({', '.join(args)})"


def _called(e: ast.Call) -> str | None:
    """The op of the node that a call builds, or None."""
    f = e.func
    if isinstance(f, ast.Name):
        return BUILDERS.get(f.id)
    if isinstance(f, ast.Subscript) and ast.unparse(f.value).endswith("REGISTRY"):
        return "the same op"
    if isinstance(f, ast.Attribute) and ast.unparse(f.value) == "ops":
        return f.attr.rstrip("_")
    return None


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write_atomically(sys.argv[1], document().encode())
    else:
        print(document(), end="")
