"""The registry of operations, and the `@op` decorator that defines one.

The Python signature is the schema: positional parameters are tensors (default None: optional;
`*name`: any number), keyword-only parameters are attributes. The body is the meaning, in numpy:
the interpreter and the constant folder run it, int8 tables are made with it, and every kernel is
tested against it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from intaglio import dtypes, symint
from intaglio.errors import BadInput, IntaglioError, RunError, Unsupported
from intaglio.ir import Array, Graph, Node, Type, Value, constant

Infer = Callable[..., Type | list[Type]]
REGISTRY: dict[str, Op] = {}
CUSTOM_NAMES: dict[tuple[str, str], Op] = {}  # of custom ops: (format, name there)


@dataclass
class Op:
    """One operation: numpy body, type inference, and its names in other formats."""

    name: str
    body: Callable[..., Any]  # numpy arrays in, numpy array or tuple of arrays out
    infer: Infer  # input Values and attributes in, output Type or list of Types out
    names: dict[str, str] = field(default_factory=dict)  # format -> its name there, if it is 1:1
    commutes: bool = False  # f(a, b) = f(b, a)
    foldable: bool = True  # False: keep it even when every input is constant (dequantize)
    elementwise: bool = False  # output element i depends on input elements i (after broadcast) only
    macs: Callable[[Node], int] = lambda node: 0  # multiply-accumulates
    lower: Callable[..., Any] | None = None  # the same in simpler ops; set by `@name.lowers`
    keeps_scale: bool = False  # every output value is one of the values of the first input
    custom: bool = False  # the user wrote it: its mistakes are errors of the model, not of ours

    def lowers(self, build: Callable[..., Any]) -> Callable[..., Any]:
        """Define how to build this op of simpler ones, for targets that have no kernel for it.

        `@depth_to_space.lowers` decorates a function with the op's signature that takes Values and
        returns a Value, a list of Values, or None if it does not apply.
        """
        self.lower = build
        return build

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @cached_property
    def attr_names(self) -> tuple[str, ...]:
        keyword = inspect.Parameter.KEYWORD_ONLY
        return tuple(p.name for p in self.signature.parameters.values() if p.kind is keyword)

    def __call__(self, *inputs: Any, origin: str = "", **attrs: Any) -> Any:
        """Make a node; returns its output Value, or the list if there is not exactly one."""
        node = self.node(*inputs, origin=origin, **attrs)
        return node.outputs[0] if len(node.outputs) == 1 else node.outputs

    def node(self, *inputs: Any, origin: str = "", **attrs: Any) -> Node:
        """Make a node. Python numbers and numpy arrays among the inputs become constants."""
        values = [v if isinstance(v, Value) or v is None else constant(v) for v in inputs]
        try:
            bound = self.signature.bind(*values, **attrs)
        except TypeError as e:
            raise BadInput(f"{self.name}: {e}") from None
        bound.apply_defaults()
        types = self.types(bound.args, bound.kwargs)
        return Node(self.name, bound.args, bound.kwargs, types, origin)

    def types(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[Type]:
        """The output types. Axes whose extent depends on a run-time extent are marked dynamic."""
        return _infer_with_extents(self, inputs, attrs)


def op(
    infer: Infer,
    *,
    name: str = "",
    commutes: bool = False,
    foldable: bool = True,
    elementwise: bool = False,
    macs: Callable[[Node], int] | None = None,
    **names: str,
) -> Callable[[Callable[..., Any]], Op]:
    """Define an operation: `@op(same, onnx="Relu", torch="relu")` above its numpy body."""

    def define(body: Callable[..., Any]) -> Op:
        result = Op(name or body.__name__, body, infer, names, commutes, foldable, elementwise)
        if macs is not None:
            result.macs = functools.partial(at_upper_bound, macs)
        if result.name in REGISTRY:
            raise ValueError(f"op {result.name!r} is defined twice")
        REGISTRY[result.name] = result
        return result

    return define


def at_upper_bound(count: Callable[[Node], int], node: Node) -> int:
    """A count of a node, at the upper bound of open dimensions."""
    with symint.estimates():
        return int(count(node))


def named(vocabulary: str) -> dict[str, Op]:
    """Ops that a format has one to one, by their name there: `named("onnx")["Relu"]`."""
    ops = [o for o in REGISTRY.values() if vocabulary in o.names and not o.custom]
    return {o.names[vocabulary]: o for o in ops}


# ---- type inference ------------------------------------------------------------------------------
def same(x: Value, *rest: Any, **attrs: Any) -> Type:
    """The type of the first input."""
    return x.type.but(quant=None)


def broadcast(*values: Value, **attrs: Any) -> Type:
    """The broadcast shape of all inputs, which must have the same element type."""
    kinds = {v.dtype for v in values}
    if len(kinds) > 1:
        raise BadInput(f"operands have element types {' and '.join(sorted(kinds))}; insert a cast")
    return Type(values[0].dtype, broadcast_shapes(*values))


def compare(*values: Value, **attrs: Any) -> Type:
    """Like `broadcast`, with a bool result."""
    return broadcast(*values).but(dtype="bool")


def broadcast_shapes(*values: Value) -> tuple[int, ...]:
    try:
        return symint.broadcast(*(v.shape for v in values))
    except ValueError:
        shapes = " and ".join(str(v.shape) for v in values)
        raise BadInput(f"shapes {shapes} cannot be broadcast together") from None


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front; BadInput if it is outside of [-rank, rank)."""
    if not -rank <= axis < rank:
        raise BadInput(
            f"axis {axis} is outside of [{-rank}, {rank - 1}] for a tensor of rank {rank}"
        )
    return axis + rank if axis < 0 else axis


def _infer_with_extents(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> list[Type]:
    """Infer types; if inputs have run-time extents, find the output axes that depend on them.

    Inference runs on the upper bounds; then again with every dynamic extent one smaller, and with
    half of it. An output axis that changes is dynamic. Ops need no code for this.
    """
    types = _as_list(op.infer(*args, **attrs))
    dynamic = [v for v in args if isinstance(v, Value) and v.type.dynamic and v.data is None]
    if not dynamic or any(t.dynamic for t in types):
        return types

    def shrunk(v: Any, less: Callable[[int], int]) -> Any:
        if not isinstance(v, Value) or not v.type.dynamic or v.data is not None:
            return v
        t = v.type
        shape = tuple(less(d) if i in t.dynamic else d for i, d in enumerate(t.shape))
        return Value(t.but(shape=shape), v.name)

    def probe(less: Callable[[int], int]) -> list[Type]:
        return _as_list(op.infer(*[shrunk(v, less) for v in args], **attrs))

    try:
        probes = [probe(lambda d: max(d - 1, 0))]
    except BadInput as e:
        what = ", ".join(f"'{v.name}' {v.type}" for v in dynamic)
        raise Unsupported(
            f"{op.name} reads {what}, whose extent is known only at run time; another operand "
            f"needs it to be fixed ({e}); cut the graph before this node"
        ) from None
    with contextlib.suppress(BadInput):  # for example, smaller than a window
        probes.append(probe(lambda d: d // 2))
    return [
        t.but(
            dynamic=tuple(i for i, d in enumerate(t.shape) if any(s.shape[i] != d for s in small))
        )
        for t, *small in zip(types, *probes, strict=True)
    ]


def _as_list(types: Type | list[Type]) -> list[Type]:
    return types if isinstance(types, list) else [types]


# ---- running bodies ----------------------------------------------------------------------------
def evaluate_node(node: Node, arrays: Sequence[Array | None]) -> tuple[Array, ...]:
    """Run one node's numpy body and check the results against the inferred types."""
    op, where = REGISTRY[node.op], f"{node.op} '{node.origin or node.outputs[0].name}'"
    try:
        with np.errstate(all="ignore"):
            got = op.body(*arrays, **node.attrs)
        return _checked(node, got, where)
    except Exception as e:
        if not op.custom:
            raise
        if isinstance(e, WrongResult):
            raise RunError(str(e)) from None
        raise RunError(f"{where}: {described_error(e)}") from e


class WrongResult(AssertionError):
    """A body made something else than its op infers: a bug in Intaglio, or in a custom op."""


def described_error(e: BaseException) -> str:
    """An exception of a user's function, in one line."""
    words = " ".join(str(e).split())[:160]
    if isinstance(e, IntaglioError):
        return words
    return f"its Python function raised {type(e).__name__}{': ' * bool(words)}{words}"


def _checked(node: Node, got: Any, where: str) -> tuple[Array, ...]:
    """The results of a body; WrongResult if they do not fit the inferred types."""
    out = tuple(np.asarray(a) for a in (got if isinstance(got, tuple | list) else (got,)))
    if len(out) != len(node.outputs):
        raise WrongResult(
            f"{where}: its body made {len(out)} results; its shape function says "
            f"{len(node.outputs)}"
        )
    for a, v in zip(out, node.outputs, strict=True):
        t = v.type
        fits = len(a.shape) == t.rank and all(
            a.shape[i] <= d if i in t.dynamic else a.shape[i] == d for i, d in enumerate(t.shape)
        )
        if not fits or a.dtype != dtypes.numpy_of(t.dtype):
            raise WrongResult(
                f"{where}: its body made {a.dtype}{list(a.shape)}; its shape function says {t}"
            )
    return out


def evaluate(
    graph: Graph, inputs: Sequence[Array], keep: Mapping[str, Any] | None = None
) -> list[Array]:
    """Run a graph on arrays in the order of its inputs. `keep` collects results by name."""
    env: dict[Value, Array] = dict(zip(graph.inputs, inputs, strict=True))
    nodes = list(graph.nodes())
    last = {v: i for i, n in enumerate(nodes) for v in n.inputs if v is not None}
    needed = set(graph.outputs)

    def get(v: Value | None) -> Array | None:
        return None if v is None else v.data if v.data is not None else env[v]

    for i, node in enumerate(nodes):
        out = evaluate_node(node, [get(v) for v in node.inputs])
        env.update(zip(node.outputs, out, strict=True))
        if keep is not None:
            keep.update({v.name: a for v, a in zip(node.outputs, out, strict=True) if v.name})  # type: ignore[attr-defined]
        for v in node.inputs:  # free arrays that no later node reads
            if v in env and last[v] == i and v not in needed:
                del env[v]
    return [get(v) for v in graph.outputs]  # type: ignore[misc]
