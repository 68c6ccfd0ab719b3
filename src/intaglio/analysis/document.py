"""docs/rules.md: every rule with its picture, when it declines, and its level.

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

Every optimisation is one rule: a pattern, and a function that builds what takes its place. A rule
is tried where its pattern fits; it fires, or declines and says why (`intaglio optimize --explain`
counts both). `--disable NAME` keeps one from firing, `--level` all above a level:

| level | what it may change |
|---|---|
| 0 | nothing |
| 1 | nothing that shows in the results, not even their last bit |
| 2 | the order of floating-point operations, so their last bits |
| 3 | also what is good for one target; integers compute what a model says of them in floats |

How to read a pattern: `mul(conv(x, W!), S!)` is a product of a convolution and a constant. A name
is any tensor, with `!` a constant one, with `?` one that may be absent; `a|b(x)` is either op;
`{{a(x) or b(x)}}` either way of writing an operand; `*` is any node. What is inside must have no
other reader, or the rule would compute it twice; `&` marks what may have.
"""


# The op that functions with which rules build make.
MADE = {"shaped": "reshape", "turned": "transpose", "cut": "slice", "again": "the same op"}


@dataclass
class Section:
    """Rules that are tried together."""

    title: str
    level: int | None
    why: str
    rules: list[Rule]


def sections() -> list[Section]:
    """The rules of the pipeline in its order, each where it is tried first."""
    seen: set[int] = set()

    def new(rules: Iterable[Rule]) -> list[Rule]:
        found = [r for r in rules if id(r) not in seen]
        seen.update(map(id, found))
        return found

    cpu = targets.find("cpu", "scalar")
    made = []
    for p in [*passes.neutral(), *passes.lowering(cpu)]:
        if isinstance(p.run, passes.Rules) and not isinstance(p.run, passes.Legal):
            made.append(Section(p.name, p.level, "", new(p.run.every)))
        elif p.rule and p.rule not in {r.name for s in made for r in s.rules}:
            why = "Looks at the whole graph at once; `--disable` leaves it out by this name."
            made.append(Section(p.name, p.level, why, [Rule(ANY, p.run)]))
    why = "What turns ops of the graph into those of the CPU, at every level."
    made.append(Section("legalize for the CPU", None, why, new(cpu.lower)))
    why = "What turns ops of quantised graphs into those of an NPU's units, within their limits."
    npu = targets.find("rk3588", "scalar")
    made.append(Section("lower to an NPU", None, why, new(npu.lower)))
    why = "What `--precision bf16` does to the CPU's ops, at every level."
    bf16 = targets.find("cpu", "avx512bf16", "bf16")
    made.append(Section("narrow to bf16", None, why, new((*bf16.choose, *bf16.narrow))))
    why = "What `--precision fp16` does; the rules that move casts are those of bf16."
    made.append(
        Section("narrow to f16", None, why, new(targets.find("cpu", "scalar", "f16").narrow))
    )
    why = "From these a target picks what it needs, with its own limits; see docs/compiler.md."
    made.append(Section("replace, for targets that ask for it", None, why, new(replace.REPLACE)))
    why = "What ONNX has one operator for, at every level, when a graph is written as ONNX."
    made.append(Section("spell as ONNX", None, why, new(EXPORT_RULES)))
    why = "What onnxruntime has operators of its own for; `--contrib` asks for them."
    made.append(Section("spell for onnxruntime", None, why, new(CONTRIB)))
    return [s for s in made if s.rules]


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
    patterns = [str(r.pattern) for r in rules]
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
        lines.append("\nDeclines: " + "; ".join(f"*{words}*" for words in declined) + ".")
    return "\n".join(lines) + "\n"


# ---- what the function of a rule says ------------------------------------------------------------
def _refusals(function: ast.AST) -> Iterator[str]:
    """The words of every `no(...)`, with … for what is filled in."""
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
    """What the function returns, as far as it is an op or one of the pattern's tensors."""
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
    """`conv(x, w, b)` of the call that makes it; attributes only where they are plain numbers."""
    if isinstance(e, ast.Name):
        return e.id
    if isinstance(e, ast.Constant):
        return "-" if e.value is None else str(e.value)
    op = _called(e) if isinstance(e, ast.Call) else None
    if not isinstance(e, ast.Call) or op is None:
        return "…"
    made = e.args
    if isinstance(e.func, ast.Name):  # what it is made of; the rest says how
        made = e.args[1:] if e.func.id == "again" else e.args[:1]
    args = [_picture(a) for a in made]
    args += [
        f"{k.arg}={k.value.value!s}"
        for k in e.keywords
        if k.arg and isinstance(k.value, ast.Constant)
    ]
    return f"{op}({', '.join(args)})"


def _called(e: ast.Call) -> str | None:
    """The op that a call makes a node of."""
    f = e.func
    if isinstance(f, ast.Name):
        return MADE.get(f.id)
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
