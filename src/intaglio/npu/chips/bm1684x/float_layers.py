"""f32 ops between the chip's layers, and reshapes and transposes, as layers of the chip.

Lowering leaves them on the CPU. A file holds no ops of the CPU, so a transformer needs them on the
chip: layer norm, attention, softmax, sums, rounding to bytes, and the moves between them.
"""

from __future__ import annotations

from intaglio import ops
from intaglio.errors import BadInput
from intaglio.ir import Graph, Node, Value
from intaglio.npu.chips.bm1684x.float_conversions import CONVERSIONS
from intaglio.npu.chips.bm1684x.float_ops import FLOATS
from intaglio.npu.chips.bm1684x.float_types import FloatTypes
from intaglio.npu.chips.bm1684x.float_upsampling import EXPANSIONS
from intaglio.npu.chips.bm1684x.views import as_map, on_tpu, rank4, root_of
from intaglio.npu.lowering.builder import LAYOUT_CHANGES, Refused, is_npu
from intaglio.npu.ops import matmul
from intaglio.ops.quantized import BITS8
from intaglio.passes.partition import images

# ops of floats that the chip leaves to what comes before it
OUTSIDE = ("quantize_linear", "dequantize_linear")
FIRST = ("layer_norm", "attention")  # ops that run on the chip wherever they stand


class FloatLayers:
    """The conversion of a graph; `why` has the ops that stay on the CPU, with special reasons."""

    def __init__(self, graph: Graph, types: FloatTypes):
        self.graph, self.types = graph, types
        self.why: dict[Node, str] = {}
        self.late: set[Value] = set()  # results of the CPU that depend on layers

    def run(self) -> None:
        """Convert node by node, producers first."""
        for node in list(self.graph.nodes()):
            self._visit(node)
        for v in list(self.graph.outputs):
            self._output(v)
        self.graph.tidy()

    def _visit(self, node: Node) -> None:
        given = [v for v in node.inputs if v is not None]
        if node.op in LAYOUT_CHANGES:
            return
        if any(root_of(v)[0] in self.late for v in given):
            self.late.update(node.outputs)
            return
        if is_npu(node):
            self._layer(node)
            return
        behind = any(on_tpu(v) for v in given)
        begins = node.op in FIRST or (self.types.every and _of_numbers(node))
        if (behind or begins) and (parts := self._expanded(node)):
            for part in parts:
                self._visit(part)
            return
        done = (behind or begins) and self._converted(node)
        if behind and not done:
            self.late.update(node.outputs)

    def _expanded(self, node: Node) -> list[Node]:
        """The ops of which a node of floats is made, producers first; none: it stays one op."""
        expand, y = EXPANSIONS.get(node.op), node.outputs[0]
        if expand is None or any(v.type.dynamic for v in (y, *_given(node))):
            return []
        try:
            made = expand(node)
        except Refused as e:
            self.why[node] = str(e)
            return []
        if made is None:
            return []
        parts = _between(made, _given(node))
        for part in parts:
            part.origin = node.origin
        self.graph.replace(y, made)
        return parts

    def _output(self, v: Value) -> None:
        """Give an output the order of elements that the model has."""
        steps = root_of(v)[1]
        if on_tpu(v) and any(kind == "transpose" for kind, _ in steps):
            made = as_map(v, v.shape, tuple(range(v.type.rank)), rank4(v.shape))
            self.graph.replace(v, ops.reshape(made, shape=v.shape))

    def _layer(self, node: Node) -> None:
        """Give a layer its operands as feature maps in DDR, where they are reshaped ones."""
        if node.op == "npu.matmul" and node.attrs["turned"]:
            _straighten(self.graph, node)
            return
        parameters = set(node.inputs) - set(images(node))
        for i, v in enumerate(node.inputs):
            if v is None or v in parameters or v.data is not None:
                continue
            if (moved := _same(v)) is not v:
                self.graph.set_input(node, i, moved)

    def _converted(self, node: Node) -> bool:
        found = CONVERSIONS.get(node.op)
        if found is None:
            self.why[node] = ""
            return False
        self.types.make.made = []
        try:
            result = found(node, self.types)
            made = self.types.back(result, node.outputs[0])
        except (Refused, BadInput) as e:
            self.why[node] = str(e)
            return False
        for new in self.types.make.made:
            if is_npu(new):
                self._layer(new)
        self.graph.replace(node.outputs[0], made)
        root = root_of(result)[0].producer
        if root is not None and not root.origin:
            root.origin = node.origin
        return True


def _given(node: Node) -> list[Value]:
    return [v for v in node.inputs if v is not None]


def _between(y: Value, given: list[Value]) -> list[Node]:
    """The nodes that make a value from given ones, producers first."""
    found: dict[Node, None] = {}

    def visit(v: Value) -> None:
        node = v.producer
        if node is None or node in found or v in given:
            return
        for u in _given(node):
            visit(u)
        found[node] = None

    visit(y)
    return list(found)


def _of_numbers(node: Node) -> bool:
    """Whether a node computes with floats or bytes, such as pixels, that are no constants."""
    given = [v for v in node.inputs if v is not None and v.data is None]
    return node.op not in OUTSIDE and any(v.dtype in (*FLOATS, *BITS8) for v in given)


def straight_products(graph: Graph) -> None:
    """Transpose the second operand of products in DDR, where commands need that."""
    for node in [n for n in graph.nodes() if n.op == "npu.matmul" and n.attrs["turned"]]:
        _straighten(graph, node)


def _straighten(graph: Graph, node: Node) -> None:
    a, b = node.inputs[:2]
    assert a is not None
    assert b is not None
    n, k, c, _ = b.shape
    other = as_map(b, (n, k, c), (0, 2, 1), (n, c, k, 1))
    made = matmul(_same(a), other, **{**node.attrs, "turned": False})
    made.producer.origin = node.origin
    graph.replace(node.outputs[0], made)


def _same(v: Value) -> Value:
    """A feature map as it is; reshapes and transposes before it run on the chip."""
    return as_map(v, v.shape, tuple(range(v.type.rank)), v.shape)
