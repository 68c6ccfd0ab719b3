"""What an edit did to a model, as text and as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio.edit.formula import shape_text
from intaglio.edit.origin import Origin
from intaglio.edit.state import State
from intaglio.edit.tensor_types import dtype_of, shape_of, type_text
from intaglio.text_table import aligned

if TYPE_CHECKING:
    from intaglio.edit.check_result import Check
    from intaglio.edit.editor import Editor


def facts(editor: Editor, check: Check | None = None) -> dict[str, Any]:
    """Edits, sizes, inputs and outputs before and after, and the comparison."""
    before, after = State.of(editor.source.proto), editor.state
    return {
        "format": editor.source.format,
        "edits": [{"edit": e.line, "effect": e.effect} for e in editor.edits],
        "nodes": [len(before.nodes), len(after.nodes)],
        "constants": [len(before.tensors), len(after.tensors)],
        "inputs": _before_and_after(before.inputs, after.inputs, after.origin),
        "outputs": _before_and_after(before.outputs, after.outputs, after.origin),
        "opset": after.opset(),
        "check": check.to_dict() if check else None,
    }


def _before_and_after(old: list[Any], new: list[Any], origin: Origin) -> list[dict[str, Any]]:
    """Inputs or outputs of both models; `was` is the former name of one that was renamed."""
    before, after = _ports(old), _ports(new)
    for name, port in after.items():
        view = origin.views.get(name)
        if name not in before and view is not None and view.tensor in before.keys() - after.keys():
            port["was"] = view.tensor
    return [before, after]


def _ports(infos: list[Any]) -> dict[str, Any]:
    return {i.name: {"dtype": dtype_of(i.type), "shape": _listed(shape_of(i.type))} for i in infos}


def _listed(shape: Any) -> list[Any] | None:
    return None if shape is None else [d if d != "" else None for d in shape]


def text(found: dict[str, Any]) -> str:
    """The facts as lines."""
    lines = [f"{'converted':11} from {found['format']}"] if found["format"] != "ONNX" else []
    width = max((len(e["edit"]) for e in found["edits"]), default=0)
    for i, e in enumerate(found["edits"]):
        lines.append(f"{'' if i else 'edits':11} {e['edit']:{min(width, 48)}}  {e['effect']}")
    for key in ("nodes", "constants"):
        before, after = found[key]
        lines.append(f"{key:11} {before:,}" + (f" -> {after:,}" if after != before else ""))
    for key in ("inputs", "outputs"):
        lines += _port_lines(key, *found[key])
    if "data" in found:
        lines.append(f"{'data':11} {found['data']['samples']} samples: {found['data']['list']}")
    if found["check"]:
        lines.append(f"{'checked':11} {found['check']['words']}")
    return "\n".join(lines)


def _port_lines(title: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """One line for each input or output, with its type before if that changed."""
    rows, kept = [], set()
    for name, now in after.items():
        was = now.get("was", name)
        kept.add(was)
        told = f"{was} -> {name}" if was != name else name
        if was not in before:
            rows.append(f"{told}  {_type(now)}  (new)")
        elif _type(before[was]) != _type(now):
            rows.append(f"{told}  {_type(before[was])} -> {_type(now)}")
        else:
            rows.append(f"{told}  {_type(now)}")
    rows += [f"{n}  {_type(old)}  (removed)" for n, old in before.items() if n not in kept]
    return [f"{'' if i else title:11} {row}" for i, row in enumerate(rows)]


def _type(port: dict[str, Any]) -> str:
    shape = port["shape"]
    spelled = "..." if shape is None else shape_text([d if d is not None else "" for d in shape])
    return f"{port['dtype'] or '?'}[{spelled}]"


def size_line(path: Path, opset: int | None) -> str:
    """The written file."""
    data = path.with_name(path.name + ".data")
    size = path.stat().st_size / 1e6
    return f"{path}: {size:.2f} MB, opset {opset}" + (
        f", with {data.name}" if data.exists() else ""
    )


def names(editor: Editor) -> dict[str, Any]:
    """Inputs, outputs and nodes, with the names by which edits call them."""
    state, types = editor.state, editor.types
    return {
        "inputs": _ports(state.inputs),
        "outputs": _ports(state.outputs),
        "nodes": [
            {
                "name": label,
                "operator": n.op_type,
                "reads": list(n.input),
                "results": {o: type_text(types.get(o)) for o in n.output if o},
            }
            for label, n in state.nodes.items()
        ],
    }


def listing(editor: Editor) -> str:
    """The same as text; constants that a node reads are left out."""
    found, constants = names(editor), editor.state.tensors
    rows = [("node", "operator", "reads", "results")]
    for n in found["nodes"]:
        reads = ", ".join(name for name in n["reads"] if name and name not in constants)
        made = ", ".join(f"{name} {type}" for name, type in n["results"].items())
        rows.append((n["name"], n["operator"], reads, made))
    ports = [
        f"{title:11} {name}  {_type(port)}"
        for title, key in (("input", "inputs"), ("output", "outputs"))
        for name, port in found[key].items()
    ]
    return "\n".join([*ports, "", *aligned(rows, ())])
