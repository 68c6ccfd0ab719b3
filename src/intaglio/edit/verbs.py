"""The verbs of the script language, which are also the options of `intaglio edit`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intaglio.edit.formula import Shape
from intaglio.edit.node_expression import Word, parse_value
from intaglio.edit.script_text import names, unquoted
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.edit.editor import Editor

CUT_INPUTS, CUT_OUTPUTS = "cut inputs", "cut outputs"


@dataclass(frozen=True)
class Verb:
    """A kind of edit: how it is written, and what it does."""

    group: str  # of the help
    form: str  # what follows the words
    help: str
    run: Callable[[Editor, str, str], Any]

    @property
    def has_value(self) -> bool:
        return ":" in self.form

    @property
    def needs_value(self) -> bool:
        return self.has_value and "[:" not in self.form


def _shape(text: str) -> Shape:
    """`1x3x224x224`, or `[batch, 3, 224, 224]` with open dimensions; `?` has no symbol."""
    plain = text.strip()
    if plain in ("scalar", "[]"):
        return ()
    listed = plain.startswith("[") and plain.endswith("]")
    parts = [p.strip() for p in (plain[1:-1].split(",") if listed else re.split("[x,]", plain))]
    if not all(p == "?" or p.isdigit() or (listed and p) for p in parts):
        raise BadInput(
            f"'{text}' is no shape; write 1x3x224x224, or [batch, 3, 224, 224] with open dimensions"
        )
    return tuple(int(p) if p.isdigit() else "" if p == "?" else unquoted(p) for p in parts)


def _insert_before(editor: Editor, target: str, node: str) -> None:
    found = names(target)
    if len(found) > 2:
        raise BadInput(f"'{target}': give a node, or a node and one of its operands")
    editor.insert_before(found[0], node, tensor=found[1] if len(found) > 1 else None)


def _remove(editor: Editor, target: str, keep: str) -> None:
    for nodes in names(target):
        editor.remove(nodes, unquoted(keep) or None)


def _replace(editor: Editor, target: str, new: str) -> None:
    for nodes in names(target):
        editor.replace(nodes, new)


def _set_attribute(editor: Editor, target: str, value: str) -> None:
    nodes, dot, name = target.rpartition(".")
    if not dot or not nodes or not name.isidentifier():
        raise BadInput(f"'{target}' names no attribute; write NODE.ATTRIBUTE, as in conv1.pads")
    given = parse_value(value)
    absent = isinstance(given, Word) and not given.quoted and given.text.lower() == "none"
    editor.set_attribute(unquoted(nodes), name, None if absent else given)


def _set_constant(editor: Editor, target: str, value: str) -> None:
    given = parse_value(value if value.startswith("[") or "," not in value else f"[{value}]")
    editor.set_constant(unquoted(target), given.text if isinstance(given, Word) else given)


def _set_dim(editor: Editor, target: str, value: str) -> None:
    number = value.lstrip("-").isdigit()
    editor.set_dim(unquoted(target), int(value) if number else unquoted(value))


_CUT, _NODES = "Edits that cut", "Edits of nodes"
_PORTS, _VALUES = "Edits of inputs, outputs and names", "Edits of shapes and values"
VERBS: dict[str, Verb] = {
    CUT_INPUTS: Verb(
        _CUT,
        "TENSOR, ...",
        "Start the model at these tensors; the nodes before them are removed.",
        lambda e, target, _: e.cut(inputs=names(target)),
    ),
    CUT_OUTPUTS: Verb(
        _CUT,
        "TENSOR, ...",
        "End the model at these tensors; the nodes behind them are removed.",
        lambda e, target, _: e.cut(outputs=names(target)),
    ),
    "add output": Verb(
        _CUT,
        "TENSOR, ...",
        "Make inner tensors outputs, too.",
        lambda e, target, _: e.add_output(*names(target)),
    ),
    "insert after": Verb(
        _NODES,
        "TENSOR: NODE",
        "Put a node between a tensor and all that read it.",
        lambda e, target, node: e.insert_after(unquoted(target), node),
    ),
    "insert before": Verb(
        _NODES,
        "NAME[, TENSOR]: NODE",
        "Put a node between one node and its operand, the first by default.",
        _insert_before,
    ),
    "replace": Verb(
        _NODES,
        "NAMES: NODE",
        "Replace nodes; the new ones have the same results and, if none are given, operands.",
        _replace,
    ),
    "remove": Verb(
        _NODES,
        "NAMES[: TENSOR]",
        "Remove nodes: what reads their result reads their operand TENSOR, or the first.",
        _remove,
    ),
    "change input": Verb(
        _PORTS,
        "NAME: CHANGE",
        "Change the layout or type of an input: NHWC, uint8, or a formula.",
        lambda e, target, change: e.change_input(unquoted(target), change),
    ),
    "change output": Verb(
        _PORTS,
        "NAME: CHANGE",
        "Change the layout or type of an output.",
        lambda e, target, change: e.change_output(unquoted(target), change),
    ),
    "rename": Verb(
        _PORTS,
        "OLD: NEW",
        "Rename a tensor and a node; * stands for any text.",
        lambda e, old, new: e.rename(unquoted(old), unquoted(new)),
    ),
    "set shape": Verb(
        _VALUES,
        "INPUT: SHAPE",
        "Fix, change or open dimensions of an input: 1x3x64x64, [batch, 3, 64, 64].",
        lambda e, target, shape: e.set_shape(unquoted(target), _shape(shape)),
    ),
    "set dim": Verb(
        _VALUES,
        "SYMBOL: EXTENT",
        "Fix an open dimension everywhere, or give it another symbol.",
        _set_dim,
    ),
    "set attribute": Verb(
        _VALUES,
        "NAMES.ATTRIBUTE: VALUE",
        "Change or add an attribute of nodes; none removes it.",
        _set_attribute,
    ),
    "set constant": Verb(
        _VALUES,
        "TENSOR: VALUE",
        "Give a constant another value, or make a tensor constant: 0.5, [1, -1], w.npy.",
        _set_constant,
    ),
}
