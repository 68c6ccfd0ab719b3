"""Import of a graph: functions are inlined, constants folded, other nodes imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from intaglio import dtypes
from intaglio.errors import BadFile, IntaglioError, RunError, Unsupported
from intaglio.frontends.tensorflow.checkpoint import Checkpoint
from intaglio.frontends.tensorflow.file import Body, File, Node
from intaglio.frontends.tensorflow.node import (
    DEAD,
    UNKNOWN,
    Complex,
    EdgeValue,
    TensorList,
    TfNode,
    Variable,
    find_importer,
)
from intaglio.ir import Graph, Value, constant
from intaglio.ir import Node as Made
from intaglio.ops.registry import REGISTRY, evaluate_node

MAX_NODES = 1 << 17  # after inlining functions
MAX_CALL_DEPTH = 64  # of functions
MAX_ELEMENTS = 1 << 31  # of a result
FOLD_ELEMENTS = 1 << 22  # largest result that is folded, unless its operands are larger
FOLD_MACS = 1 << 28  # largest node that is folded
Ref = tuple[str, int]

DAMAGE = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    MemoryError,
    RecursionError,
)

# Output names of ops with several outputs, in order; function bodies refer to outputs by name.
OUTPUTS = {
    "TopKV2": ("values", "indices"),
    "Switch": ("output_false", "output_true"),
    "Merge": ("output", "value_index"),
    "Unique": ("y", "idx"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": (
        "nmsed_boxes",
        "nmsed_scores",
        "nmsed_classes",
        "valid_detections",
    ),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TensorArrayV3": ("handle", "flow"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
}
_NORM = (
    "y",
    "batch_mean",
    "batch_variance",
    "reserve_space_1",
    "reserve_space_2",
    "reserve_space_3",
)
_CELL = ("i", "cs", "f", "o", "ci", "co", "h")
OUTPUTS |= dict.fromkeys(("LSTMBlockCell", "BlockLSTM", "BlockLSTMV2"), _CELL)
OUTPUTS["GRUBlockCell"] = ("r", "u", "c", "h")
OUTPUTS |= {f"FusedBatchNorm{v}": _NORM for v in ("", "V2", "V3")}


@dataclass
class Model:
    """State that all scopes of one import share."""

    file: File
    variables: Checkpoint | None = None
    keys: dict[str, str] = field(default_factory=dict)  # variable -> key in the checkpoint
    unknown: dict[str, list[str]] = field(
        default_factory=dict
    )  # unsupported op -> names of its nodes
    written: set[str] = field(default_factory=set)  # variables that the model assigns
    assigned: dict[str, list[tuple[Scope, Node]]] = field(
        default_factory=dict
    )  # variable -> its assignments
    states: dict[str, Value] = field(default_factory=dict)  # assigned variables that are read
    inside: int = 0  # nesting depth of loop and branch bodies
    input: Callable[[str], Value] | None = None  # creates the input for a placeholder
    read: dict[str, Value] = field(default_factory=dict)
    count: int = 0
    depth: int = 0


class Capture:
    """The outer values that a body reads, as inputs of the body's graph."""

    def __init__(self) -> None:
        self.inside: dict[Value, Value] = {}  # outer value -> input of the body
        self.constants: dict[Value, Value] = {}

    def take(self, edge: EdgeValue) -> EdgeValue:
        if isinstance(edge, TensorList):
            return (
                edge
                if edge.value is None
                else TensorList(self._value(edge.value), edge.count, edge.dtype, edge.element)
            )
        if isinstance(edge, Complex):
            return Complex(self._value(edge.value))
        return self._value(edge) if isinstance(edge, Value) else edge

    def _value(self, v: Value) -> Value:
        held = self.inside if v.data is None else self.constants
        if v not in held:
            held[v] = Value(v.type, v.name, v.data)
        return held[v]


class Scope:
    """The nodes of a graph or function, and their imported results."""

    def __init__(
        self,
        model: Model,
        nodes: dict[str, Node],
        prefix: str = "",
        outer: Scope | None = None,
        capture: Capture | None = None,
    ):
        self.model, self.nodes, self.prefix = model, nodes, prefix
        self.outer, self.capture = outer, capture  # set for the body of a loop or branch
        self.args: dict[str, EdgeValue] = {}  # function arguments by name
        self.bound: dict[Ref, EdgeValue] = {}  # tensors that are given instead of computed
        self.made: dict[str, list[EdgeValue]] = {}
        self.frames: dict[str, dict[str, EdgeValue]] = {}  # results of imported loops
        self.exits: dict[str, list[str]] | None = None

    # ---- references ----------------------------------------------------------------------------
    def resolve(self, ref: str) -> Ref:
        """Node name and output index of a reference `name`, `name:1` or `name:output:1`."""
        name, *rest = ref.split(":")
        try:
            if not rest:
                return name, 0
            if len(rest) == 1:
                return name, int(rest[0])
            first = 0
            node = self.nodes.get(name)
            if node is not None and node.op in OUTPUTS:
                first = OUTPUTS[node.op].index(rest[0])
            return name, first + int(rest[1])
        except (ValueError, IndexError):
            raise BadFile(f"tensorflow: '{ref}' is not a tensor reference") from None

    def source(self, ref: str) -> Node | None:
        """The node that computes a tensor; None for arguments and given tensors."""
        at = self.resolve(ref)
        return None if at in self.bound or at[0] in self.args else self.nodes.get(at[0])

    def get(self, ref: str) -> EdgeValue:
        """The imported value of a tensor."""
        at = self.resolve(ref)
        if not self._done(at):
            self._compute(at[0])
        return self._look_up(at)

    def _done(self, at: Ref) -> bool:
        return at in self.bound or at[0] in self.made or at[0] in self.args

    def _look_up(self, at: Ref) -> EdgeValue:
        if at in self.bound:
            return self.bound[at]
        if at[0] in self.args:
            return self.args[at[0]]
        result = self.made[at[0]]
        if not 0 <= at[1] < len(result):
            if UNKNOWN in result:
                return UNKNOWN
            if DEAD in result:
                return DEAD
            raise BadFile(
                f"tensorflow: '{at[0]}' has no output {at[1]}; it has {len(result)} outputs"
            )
        return result[at[1]]

    # ---- nodes ---------------------------------------------------------------------------------
    def _compute(self, name: str) -> None:
        stack, open_ = [name], set()
        while stack:
            now = stack[-1]
            if now in self.made:
                stack.pop()
                continue
            node = self.nodes.get(now)
            if node is None:
                raise BadFile(f"tensorflow: '{now}' is read, but the graph has no such node")
            todo = [at[0] for at in map(self.resolve, self._needs(node)) if not self._done(at)]
            if not todo:
                stack.pop()
                self._import(node)
            elif now in open_:
                raise BadFile(
                    f"tensorflow: '{now}' depends on its own result; the graph has a cycle"
                )
            else:
                open_.add(now)
                stack.extend(todo)

    def _needs(self, node: Node) -> list[str]:
        """The tensors that must be imported before a node."""
        if node.op in ("Enter", "RefEnter") and self.outer is not None:
            return []
        if node.op in ("Exit", "RefExit"):
            from intaglio.frontends.tensorflow.loops_v1 import entries

            return [e.inputs[0] for e in entries(self, node) if e.inputs]
        return [*node.inputs, *self._pivots(node)]

    def _pivots(self, node: Node) -> list[str]:
        """Control inputs that put a node on one side of a branch."""
        found = []
        for c in node.controls:
            pivot = self.nodes.get(c)
            if pivot is not None and pivot.op == "Identity" and pivot.inputs:
                source = self.source(pivot.inputs[0])
                if source is not None and source.op in ("Switch", "RefSwitch"):
                    found.append(c)
        return found

    def _import(self, node: Node) -> None:
        model, origin = self.model, self.prefix + node.name
        model.count += 1
        if model.count > MAX_NODES:
            raise Unsupported(
                f"tensorflow: the model has more than {MAX_NODES} nodes after inlining functions"
            )
        if node.op in ("Exit", "RefExit", "Enter", "RefEnter"):
            inputs: list[EdgeValue] = []
        else:
            inputs = [self._look_up(self.resolve(r)) for r in node.inputs]
            pivots = [self._look_up(self.resolve(r)) for r in self._pivots(node)]
            if DEAD in pivots or (DEAD in inputs and node.op not in ("Merge", "RefMerge")):
                self.made[node.name] = [DEAD]
                return
        function = find_importer(node.op)
        if function is None and node.op in model.file.functions:
            function = call_by_name
        if function is None:
            model.unknown.setdefault(node.op, []).append(origin)
        if function is None or (UNKNOWN in inputs and node.op not in ("Merge", "RefMerge")):
            self.made[node.name] = [UNKNOWN]
            return
        n = TfNode(node, inputs, origin, self)
        try:
            result = function(n)
            results = list(result) if isinstance(result, list | tuple) else [result]
            self.made[node.name] = self._settle(results, origin)
        except IntaglioError as e:
            if str(e).startswith("tensorflow: "):
                raise
            kind = BadFile if isinstance(e, RunError) else type(e)
            raise kind(f"tensorflow: {node.op} '{origin}': {e}") from None
        except DAMAGE as e:
            words = " ".join(f"{type(e).__name__}: {e}".split())[:120]
            raise BadFile(f"tensorflow: {node.op} '{origin}' is invalid ({words})") from None

    # ---- results -------------------------------------------------------------------------------
    def _settle(self, results: Sequence[EdgeValue], origin: str) -> list[EdgeValue]:
        """Set names and origins of results, and fold constant ones."""
        known: dict[Made, list[Value]] = {}
        out: list[EdgeValue] = []
        for i, edge in enumerate(results):
            if isinstance(edge, TensorList) and edge.value is not None:
                held = folded(edge.value, origin, known)
                edge = TensorList(held, edge.count, edge.dtype, edge.element)
            elif isinstance(edge, Complex):
                edge = Complex(folded(edge.value, origin, known))
            elif isinstance(edge, Value):
                edge = folded(edge, origin, known)
                if edge.type.size > MAX_ELEMENTS:
                    raise BadFile(
                        f"its result is {edge.type}; at most {MAX_ELEMENTS} elements are supported"
                    )
                edge.name = edge.name or (origin if i == 0 else f"{origin}:{i}")
            out.append(edge)
        return out

    # ---- functions -----------------------------------------------------------------------------
    def body(self, name: str) -> Body:
        if name not in self.model.file.functions:
            raise BadFile(f"tensorflow: there is no function '{name}'")
        return self.model.file.functions[name]

    def call(self, name: str, inputs: Sequence[EdgeValue], origin: str) -> list[EdgeValue]:
        """The results of a function, inlined."""
        body, model = self.body(name), self.model
        if len(inputs) != len(body.args):
            raise BadFile(
                f"function '{name}' takes {len(body.args)} arguments; {len(inputs)} are given"
            )
        inner = Scope(model, body.nodes, f"{origin}/")
        inner.args = dict(zip(body.args, inputs, strict=True))
        self._note_assignments(inner, body)
        model.depth += 1
        if model.depth > MAX_CALL_DEPTH:
            raise Unsupported(
                f"tensorflow: function calls are nested more than {MAX_CALL_DEPTH} deep"
            )
        try:
            return [inner.get(body.returns.get(r, r)) for r in body.results]
        finally:
            model.depth -= 1

    def _note_assignments(self, inner: Scope, body: Body) -> None:
        from intaglio.frontends.tensorflow.state import ASSIGNS, written_in

        if not self.model.depth:  # called functions are included
            self.model.written |= written_in(self.model.file, body, inner.args)
        for node in body.nodes.values():
            held = inner.args.get(node.inputs[0]) if node.op in ASSIGNS and node.inputs else None
            if isinstance(held, Variable):
                self.model.assigned.setdefault(held.name, []).append((inner, node))


def call_by_name(n: TfNode) -> list[EdgeValue]:
    """A node whose op is the name of a function of the file."""
    return n.scope.call(n.op, n.inputs, n.origin)


def folded(v: Value, origin: str, known: dict[Made, list[Value]]) -> Value:
    """`v` as a constant if it depends on constants only."""
    node = v.producer
    if node is None:
        return v
    if node in known:
        return known[node][v.index]
    if node.origin:  # already folded or named
        return v
    node.origin = origin
    known[node] = node.outputs
    for i, x in enumerate(node.inputs):
        if x is not None and (better := folded(x, origin, known)) is not x:
            Graph.set_input(node, i, better)
    if all(x is None or x.data is not None for x in node.inputs) and _worth_folding(node):
        arrays = [None if x is None else x.data for x in node.inputs]
        known[node] = [
            constant(a, dtype=w.dtype)
            for a, w in zip(evaluate_node(node, arrays), node.outputs, strict=True)
        ]
    return known[node][v.index]


def _worth_folding(node: Made) -> bool:
    op = REGISTRY[node.op]
    if node.bodies():
        return False
    size = sum(w.type.size for w in node.outputs)
    given = sum(x.type.size for x in node.inputs if x is not None)
    if size > max(FOLD_ELEMENTS, 4 * given) or op.macs(node) > FOLD_MACS:
        return False
    return op.foldable


def dtype_of(node: Node) -> str | None:
    """The element type of a node's first output, if its attributes tell it."""
    for name in ("dtype", "DstT", "output_type", "out_type", "Tout", "T", "element_dtype"):
        found = node.attrs.get(name)
        if isinstance(found, str) and found in dtypes.TABLE:
            return found
    return None
