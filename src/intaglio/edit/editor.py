"""The editor of an ONNX model: its methods are the edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intaglio.arguments import list_of_names
from intaglio.edit import cutting, declared, ports, renaming, surgery
from intaglio.edit.cancel import cancel
from intaglio.edit.inference import Inference, Types
from intaglio.edit.model_file import Source, save
from intaglio.edit.node_expression import Word
from intaglio.edit.script_text import (
    expression,
    node_text,
    quoted,
    selector,
    shape_value,
    value_text,
)
from intaglio.edit.set_constant import set_constant
from intaglio.edit.state import State
from intaglio.errors import BadInput

if TYPE_CHECKING:
    from intaglio.edit.check_result import Check
    from intaglio.ir import Array, Graph


@dataclass(frozen=True)
class Edit:
    """An edit that was made, as a line of a script, and its effect."""

    line: str
    effect: str
    where: str = ""  # file and line of the script, or the option of the command


class Editor:
    """Edits an ONNX model. Each method is one edit and returns the editor.

    An edit that fails raises BadInput and changes nothing. Parts of the model that no edit names
    stay as they are: names, metadata, opsets, constants, open dimensions, functions, sub-graphs.
    """

    def __init__(self, source: Source):
        self.source = source
        self.edits: list[Edit] = []
        self.states: list[State] = []  # the model after each edit
        self._state = State.of(source.proto)
        self._inference = Inference(self._state, source.folder)
        self._types = self._inference.types(self._state)

    # ---- cut -------------------------------------------------------------------------------------
    def cut(
        self, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> Editor:
        """Let the model start at the tensors `inputs` and end at the tensors `outputs`.

        Nodes and constants that the outputs do not need are removed.
        """
        if inputs is None and outputs is None:
            raise BadInput('cut needs tensors; give inputs=["a"] or outputs=["b"], or both')
        parts = [
            f"cut {what} {', '.join(map(quoted, list_of_names(what, names)))}"
            for what, names in (("outputs", outputs), ("inputs", inputs))
            if names is not None
        ]
        return self._edit(
            "; ".join(parts),
            lambda s: cutting.cut(s, self._types, self._inference, inputs, outputs),
        )

    def add_output(self, *tensors: str) -> Editor:
        """Make tensors outputs, after those that the model has."""
        return self._edit(
            f"add output {', '.join(map(quoted, tensors))}",
            lambda s: cutting.add_outputs(s, self._types, self._inference, tensors),
        )

    # ---- nodes -----------------------------------------------------------------------------------
    def insert_after(self, tensor: str, node: str, *operands: Any, **attributes: Any) -> Editor:
        """Insert a node between a tensor and all that read it.

        `node` is an operator or an expression: `insert_after("c1", "Clip(min=0, max=6)")` is
        `insert_after("c1", "Clip", min=0, max=6)`. Operands may be names of tensors, `"_"` for the
        tensor itself, numbers or arrays.
        """
        made = expression(node, operands, attributes)
        return self._edit(
            f"insert after {quoted(tensor)}: {node_text(node, operands, attributes)}",
            lambda s: surgery.insert_after(s, self._types, tensor, made),
        )

    def insert_before(
        self, node: str, new: str, *operands: Any, tensor: str | None = None, **attributes: Any
    ) -> Editor:
        """Insert a node `new` between a node and its operand `tensor`, the first by default."""
        made = expression(new, operands, attributes)
        place = quoted(node) + (f", {quoted(tensor)}" if tensor else "")
        return self._edit(
            f"insert before {place}: {node_text(new, operands, attributes)}",
            lambda s: surgery.insert_before(s, self._types, node, tensor, made),
        )

    def replace(self, nodes: str, new: str, *operands: Any, **attributes: Any) -> Editor:
        """Replace nodes: a name, a pattern (`"*/Act*"`) or an operator (`"every HardSwish"`).

        The new node has the name and the results of the old one, and all of its operands unless
        some are given: `"_"` or `"_0"` is the first operand of the old node, `"_1"` the second.
        """
        made = expression(new, operands, attributes)
        return self._edit(
            f"replace {selector(nodes)}: {node_text(new, operands, attributes)}",
            lambda s: surgery.replace(s, self._types, nodes, made),
        )

    def remove(self, nodes: str, keep: str | None = None) -> Editor:
        """Remove nodes: what reads their result reads their operand instead.

        The operand is the first one that is not a constant, or `keep`.
        """
        return self._edit(
            f"remove {selector(nodes)}" + (f": {quoted(keep)}" if keep else ""),
            lambda s: surgery.remove(s, nodes, keep),
        )

    def set_attribute(self, nodes: str, name: str, value: Any) -> Editor:
        """Change or add an attribute of nodes; None removes it."""
        text = "none" if value is None else value_text(value)
        return self._edit(
            f"set attribute {selector(nodes)}.{name}: {text}",
            lambda s: surgery.set_attribute(s, nodes, name, value),
        )

    def set_constant(self, tensor: str, value: Any) -> Editor:
        """Give a tensor a constant value: a number, a list, an array or the name of a .npy file.

        An input or the result of a node becomes a constant; a constant gets another value. A single
        number fills the shape.
        """
        given = Word(value) if isinstance(value, str) else value
        return self._edit(
            f"set constant {quoted(tensor)}: {value_text(value)}",
            lambda s: set_constant(s, self._types, tensor, given),
        )

    # ---- names, inputs and outputs ---------------------------------------------------------------
    def rename(self, old: str, new: str) -> Editor:
        """Rename a tensor and a node; `*` stands for any text: `rename("model/*", "*")`."""
        return self._edit(
            f"rename {quoted(old)}: {quoted(new)}", lambda s: renaming.rename(s, old, new)
        )

    def change_input(self, name: str, *changes: str) -> Editor:
        """Change the layout or element type of an input: `"NHWC"`, `"uint8"`, or a formula.

        A formula names the axes before and after: `"a,b,c,d->a,c,d,b"`. Nodes behind the input
        restore what the model needs.
        """
        parsed = [c for text in changes for c in ports.parse_changes(text)]
        return self._edit(
            f"change input {quoted(name)}: {' '.join(changes)}",
            lambda s: ports.change_input(s, self._types, name, parsed),
            tidy=True,
        )

    def change_output(self, name: str, *changes: str) -> Editor:
        """Change the layout or element type of an output, as `change_input`."""
        parsed = [c for text in changes for c in ports.parse_changes(text)]
        return self._edit(
            f"change output {quoted(name)}: {' '.join(changes)}",
            lambda s: ports.change_output(s, self._types, self._inference, name, parsed),
            tidy=True,
        )

    def set_shape(self, name: str, shape: Sequence[int | str]) -> Editor:
        """Fix, change or open dimensions of an input: `(1, 3, 224, 224)`, `("batch", 3, 64, 64)`.

        A text is the symbol of an open dimension, `""` one without a symbol.
        """
        given = ports.checked_shape(shape)
        return self._edit(
            f"set shape {quoted(name)}: {shape_value(given)}",
            lambda s: ports.set_shape(s, self._types, name, given),
        )

    def set_dim(self, symbol: str, extent: int | str) -> Editor:
        """Fix an open dimension in all inputs and outputs, or give it another symbol."""
        return self._edit(
            f"set dim {quoted(symbol)}: {extent}", lambda s: ports.set_dim(s, symbol, extent)
        )

    def apply(self, script: str) -> Editor:
        """Make the edits of a script, one on each line."""
        from intaglio.edit.script import run

        run(self, script)
        return self

    def _edit(self, line: str, change: Callable[[State], str], tidy: bool = False) -> Editor:
        """Make an edit on a copy of the model; with `tidy`, nodes that it makes useless go."""
        before = self._state
        made = before.copy()
        effect = change(made)
        if _differ(made, before):
            made.prune(before.unneeded())
            made.nodes.sort()
        types = self._inference.types(made)
        if tidy and (pairs := cancel(made, types, set(before.nodes))):
            effect += f"; {pairs} pair{'s' * (pairs > 1)} of nodes cancelled"
            made.prune(before.unneeded())
            types = self._inference.types(made)
        declared.update(before, self._types, made, types, self._inference)
        self._state, self._types = made, types
        self.edits.append(Edit(line, effect))
        self.states.append(made)
        return self

    def snapshot(self) -> Any:
        """The present model, for `restore`."""
        return self._state, self._types, len(self.edits)

    def restore(self, snapshot: Any) -> None:
        """Undo all edits since a snapshot."""
        self._state, self._types, count = snapshot
        del self.edits[count:], self.states[count:]

    # ---- the model -------------------------------------------------------------------------------
    @property
    def state(self) -> State:
        """The model as it is now."""
        return self._state

    @property
    def types(self) -> Types:
        """Types of all tensors, by name."""
        return self._types

    def __str__(self) -> str:
        """Inputs, outputs and nodes with the names by which edits call them."""
        from intaglio.edit.summary import listing

        return listing(self)

    # ---- results ---------------------------------------------------------------------------------
    def to_onnx(self) -> Any:
        """The edited model as an ONNX ModelProto, with external data inside of it."""
        return self.source.with_data(self._state.proto())

    def graph(self, **options: Any) -> Graph:
        """The edited model as a Graph; the options are those of `intaglio.load`."""
        import intaglio

        return intaglio.load(self.to_onnx(), **options)

    def check(
        self, engine: str = "interpreter", seed: int = 0, data: Mapping[str, Array] | None = None
    ) -> Check:
        """Run the original and the edited model on the same inputs, and compare their outputs.

        Inputs are random, or `data` by the names of the edited model. `engine="native"` compiles
        both models instead of interpreting them in numpy, which is faster for large ones.
        """
        from intaglio.edit.check import check

        return check(self, engine, seed, data)

    def save(self, path: str | Path, check: bool = True) -> None:
        """Write the edited model to an ONNX file; first `check` it by running both models."""
        if check:
            self.check().require()
        save(self.source, self._state.proto(), path)

    def convert(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs of the original model as inputs of the edited model.

        If the model now starts at an inner tensor, the original is run up to it.
        """
        from intaglio.edit.samples import convert

        return convert(self, inputs)


def _differ(one: State, other: State) -> bool:
    """Whether nodes, outputs or constants changed."""
    outputs = [o.name for o in one.outputs] == [o.name for o in other.outputs]
    return not (
        outputs and one.tensors.keys() == other.tensors.keys() and one.nodes.same(other.nodes)
    )
