"""Program: calls the importers of operators, folds constants, and handles in-place updates."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, IntaglioError, RunError, Unsupported, option
from intaglio.frontends import custom_ops
from intaglio.frontends.torch import scalars
from intaglio.frontends.torch.importer import (
    IGNORED,
    RAW,
    Import,
    as_dtype,
    find_importer,
    quantized_like,
    real,
    signature_of,
)
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.tensors import Complex, Quantized
from intaglio.frontends.torch.views import VIEWS, make_views
from intaglio.ir import Graph, Node, Value, constant
from intaglio.ops.registry import REGISTRY, evaluate_node

MAX_FOLDED_ELEMENTS = 1 << 24  # of a constant that is folded
MAX_FOLDED_BYTES = 1 << 30  # of all folded constants
MAX_FOLDING_COST = 1 << 30  # elements and MACs; after that, nodes stay in the graph
MAX_LIST_ITEMS = 1_000_000  # of nested lists
MAX_CALLS = 100_000  # of operators
DAMAGE = (
    ValueError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    ZeroDivisionError,
    MemoryError,
    AssertionError,
    RecursionError,
)


COPIES = {
    "clone",
    "copy",
    "_to_copy",
    "lift_fresh_copy",
    "detach_copy",
}  # operators whose result is a new tensor


class Unknown:
    """The result of an unsupported operator."""


UNKNOWN = Unknown()


def flat_items(x: Any) -> list[Any]:
    """All items of nested lists and mappings; BadFile if there are too many (shared or cyclic)."""
    results: list[Any] = []
    stack, seen = [x], 0
    while stack:
        y = stack.pop()
        seen += 1
        if seen > MAX_LIST_ITEMS:
            raise BadFile(
                f"nested lists hold more than {MAX_LIST_ITEMS} items; the file is malicious"
            )
        if isinstance(y, list | tuple):
            stack.extend(reversed(y))
        elif isinstance(y, dict):
            stack.extend(reversed(y.values()))
        else:
            results.append(y)
    return results


class Program:
    """Imports operator calls; collects unsupported operators for one error message."""

    def __init__(self) -> None:
        self.unknown: Counter[str] = Counter()
        self.settled: set[Value] = set()
        self.names: dict[str, Value] = {}  # tensors that a user can choose as inputs and outputs
        self._taken: Counter[str] = Counter()
        self.writes = 0  # number of in-place writes
        self.calls = 0  # number of operators on tensors
        self.cost = self.bytes = 0  # of folded constants

    def call(self, name: str, args: list[Any], kwargs: dict[str, Any], label: str) -> Any:
        """The result of an operator; `name` has no overload: "conv2d", "quantized::add"."""
        flat = flat_items([args, kwargs])
        with_tensors = any(isinstance(x, MutableTensor | Complex) for x in flat)
        poisoned = any(x is UNKNOWN for x in flat)
        try:
            if not with_tensors and not poisoned and name in scalars.NUMBERS:
                return scalars.in_64_bits(scalars.NUMBERS[name](*args, **kwargs))
            if name in scalars.QUESTIONS and self._is_python_op(name, args):
                if poisoned:
                    return UNKNOWN
                return scalars.QUESTIONS[name](*args, **kwargs)
            function, changes = find_importer(name), False
            if function is None and name.endswith("_") and not name.endswith("__"):
                function, changes = find_importer(name[:-1]), True
            if function is None and name not in VIEWS:
                self.unknown[name] += 1
                return UNKNOWN
            if poisoned:
                return UNKNOWN
            assert function is not None
            self.calls += 1
            if self.calls > MAX_CALLS:
                raise BadFile(
                    f"more than {MAX_CALLS} operators; the file is malicious, or a loop is "
                    "too long to unroll"
                )
            return self._run(name, function, changes, args, kwargs, label)
        except IntaglioError as e:
            if str(e).startswith("torch: "):
                raise
            kind = type(e) if isinstance(e, BadFile | BadInput | Unsupported) else BadFile
            raise kind(f"torch: {name} ('{label}'): {e}") from None
        except DAMAGE as e:
            words = " ".join(str(e).split())[:160]
            raise BadFile(
                f"torch: {name} ('{label}') cannot be imported ({type(e).__name__}: {words})"
            ) from e

    def _is_python_op(self, name: str, args: list[Any]) -> bool:
        """Whether a name that lists and tensors share is a Python operation here."""
        return name not in ("copy", "values") or not (args and isinstance(args[0], MutableTensor))

    def refuse_unknown(self) -> None:
        """Raise one error that lists all unsupported operators and their counts."""
        if self.unknown:
            names = ", ".join(f"{n} ({c}x)" for n, c in self.unknown.most_common())
            own = next((n for n in self.unknown if "::" in n), None)
            add = "" if own is None else f"{custom_ops.remedy('torch', own)}, "
            raise Unsupported(
                f"torch: these operators are not supported: {names}; {add}cut the model before "
                f"them with {option('outputs')}, or replace them in the model"
            )

    # ---- one operator ----
    def _run(
        self,
        name: str,
        function: Import,
        changes: bool,
        args: list[Any],
        kwargs: dict[str, Any],
        label: str,
    ) -> Any:
        known = signature_of(function).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            kwargs = {k: v for k, v in kwargs.items() if k not in IGNORED or k in known}
        raw = (name[:-1] if changes else name) in RAW
        cells = [a for a in args if isinstance(a, MutableTensor)]
        grid = None if raw else self._grid(args)
        plain = [self._plain(a, raw) for a in args]
        result = function(*plain, **{k: self._plain(v, raw) for k, v in kwargs.items()})
        if grid is not None:
            result = self._on_grid(result, grid)
        result = self._settled(result, label)
        if result is not None and cells and result is cells[0].held and name not in COPIES:
            return cells[0]
        if changes or name in ("copy_", "fill_", "zero_", "index_put_"):
            return self._overwrite(args[0], result)
        if name in VIEWS and cells and args and args[0] is cells[0]:
            rest, words = args[1:], kwargs

            def again(v: Value) -> Any:
                plain = [self._plain(a, raw) for a in rest]
                new = function(v, *plain, **{k: self._plain(w, raw) for k, w in words.items()})
                return self._settled(new, label)

            return make_views(
                name, cells[0], result, again, [self._plain(a, raw) for a in rest], words
            )
        return self._wrapped(result, label)

    def _grid(self, args: list[Any]) -> Quantized | None:
        for x in flat_items(args):
            if isinstance(x, MutableTensor) and isinstance(x.held, Quantized):
                return x.held
        return None

    def _plain(self, x: Any, raw: bool) -> Any:
        if isinstance(x, MutableTensor):
            held = x.held
            return real(held) if isinstance(held, Quantized) and not raw else held
        if isinstance(x, list | tuple):
            return type(x)(self._plain(y, raw) for y in x)
        return x

    def _on_grid(self, made: Any, grid: Quantized) -> Any:
        """A float operator on quantised tensors; the result has the scale of the first one."""
        if isinstance(made, list | tuple):
            return type(made)(self._on_grid(m, grid) for m in made)
        if isinstance(made, Value) and dtypes.is_float(made.dtype):
            return quantized_like(made, grid)
        return made

    def _overwrite(self, cell: Any, made: Any) -> Any:
        if not isinstance(cell, MutableTensor) or not isinstance(made, Value | Quantized):
            raise Unsupported("an in-place operator on an object that is not a tensor")
        held = cell.held
        if isinstance(made, Value) and isinstance(held, Value):
            if made.shape != held.shape:
                raise BadInput(
                    f"{held.type} is overwritten by {made.type}; shape and element type must fit"
                )
            made = as_dtype(made, held.dtype)
        cell.write(made)
        self.writes += 1
        return cell

    def _wrapped(self, made: Any, label: str) -> Any:
        if isinstance(made, Value | Quantized):
            return MutableTensor(made, label)
        if isinstance(made, list | tuple):
            return type(made)(self._wrapped(m, label) for m in made)
        return made

    # ---- results ----
    def _settled(self, made: Any, label: str) -> Any:
        """Results with constants folded, names and origins set."""
        if isinstance(made, Quantized):
            stored = self._settled(made.stored, label)
            return Quantized(stored, made.scale, made.zero, made.axis)
        if isinstance(made, Complex):
            return Complex(self._settled(made.pairs, label))
        if isinstance(made, list | tuple):
            return type(made)(self._settled(m, label) for m in made)
        if not isinstance(made, Value) or made in self.settled:
            return made
        made = self._folded(made, label)
        if made.data is not None:
            self._count(made)
        if made.data is None and not made.name:
            made.name = self.unique(label)
            self.names[made.name] = made
        return made

    def _count(self, made: Value) -> None:
        self.settled.add(made)
        self.bytes += made.type.bytes
        if self.bytes > MAX_FOLDED_BYTES:
            raise BadFile(
                f"constants of more than {MAX_FOLDED_BYTES >> 20} MiB are computed; the file is "
                "malicious"
            )

    def _folded(self, v: Value, label: str) -> Value:
        node = v.producer
        if v in self.settled or node is None:
            return v
        self.settled.add(v)
        node.origin = node.origin or label
        inputs = [None if x is None else self._folded(x, label) for x in node.inputs]
        if not self._foldable(node, inputs):
            self._replace(node, inputs)
            return v
        arrays = [None if x is None else x.data for x in inputs]
        try:
            return constant(evaluate_node(node, arrays)[v.index])
        except RunError as e:
            raise BadInput(f"a constant cannot be computed: {e}") from None

    def _replace(self, node: Node, inputs: list[Value | None]) -> None:
        """Replace inputs of a node by the constants that they were folded to."""
        for i, (old, new) in enumerate(zip(node.inputs, inputs, strict=True)):
            if old is not new and old is not None and new is not None:
                Graph.set_input(node, i, new)

    def _foldable(self, node: Node, inputs: list[Value | None]) -> bool:
        if node.op == "dequantize_linear" or not inputs:  # weights stay as stored
            return False
        if any(x is not None and x.data is None for x in inputs):
            return False
        size = sum(v.type.size for v in node.outputs)
        if size > MAX_FOLDED_ELEMENTS or node.bodies():
            return False
        self.cost += size + REGISTRY[node.op].macs(node)
        return self.cost <= MAX_FOLDING_COST

    def unique(self, label: str) -> str:
        self._taken[label] += 1
        count = self._taken[label]
        return label if count == 1 and label not in self.names else f"{label}.{count - 1}"

    def input(self, value: Value) -> MutableTensor:
        """An input of the model."""
        self.settled.add(value)
        self._taken[value.name] += 1
        self.names[value.name] = value
        return MutableTensor(value, value.name)


@contextlib.contextmanager
def printable_errors() -> Iterator[None]:
    """Make error messages printable: names in a file may hold anything."""
    try:
        yield
    except IntaglioError as e:
        words = "".join(c if c.isprintable() else " " for c in str(e))
        e.args = (words if len(words) <= 1000 else words[:996] + " ...", *e.args[1:])
        raise
