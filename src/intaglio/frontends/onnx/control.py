"""ONNX If, Loop and Scan."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from intaglio.errors import BadInput, option
from intaglio.frontends.onnx.dynamic_shapes import estimates
from intaglio.frontends.onnx.importer import NeedsValue, OnnxNode, importer, scalar
from intaglio.frontends.onnx.shape import sliced
from intaglio.frontends.value_bounds import upper_bound
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.cast import cast
from intaglio.ops.control import UNBOUNDED, if_, loop, scan
from intaglio.ops.elementwise import add, sub
from intaglio.ops.index import gather
from intaglio.ops.registry import normalize_axis
from intaglio.ops.shape import concat, expand, pad, reshape, slice_, transpose

BRANCHES = {"then_branch": True, "else_branch": False}  # and the condition of each
MAX_TRIPS = 1 << 31  # larger trip counts mean "no limit"


@importer("If")
def import_if(n: OnnxNode) -> list[Value]:
    if n.is_const(0):
        return n.inline("then_branch" if scalar(n.const(0)) else "else_branch")
    (then, other), captures = _branches(n)
    _unify_scalars(then, other)
    for a, b in zip(then.outputs, other.outputs, strict=True):
        if a.type.rank != b.type.rank:
            what = f"its branches make {a.type} and {b.type}: its condition"
            n.needs_value(n.required(0), what)
    result = if_(n.required(0), *captures, then_graph=then, else_graph=other)
    return result if isinstance(result, list) else [result]


def _unify_scalars(then: Graph, other: Graph) -> None:
    """Give results of one element the higher rank of both branches: [] and [1] become [1]."""
    for i, (a, b) in enumerate(zip(then.outputs, other.outputs, strict=True)):
        rank = max(a.type.rank, b.type.rank)
        if not a.type.size == b.type.size == 1 or a.type.dynamic or b.type.dynamic:
            continue
        for branch, v in ((then, a), (other, b)):
            if v.type.rank < rank:
                branch.set_input(branch.result, i, reshape(v, shape=(1,) * rank))


def _branches(n: OnnxNode) -> tuple[list[Graph], list[Value]]:
    """Both branches and their captured values.

    A branch that does not fit the shapes of its operands fails when it is run, as in onnxruntime:
    models for two sample rates have a branch for each, and a window fits only one of them.
    """
    try:
        return n.graphs(dict.fromkeys(BRANCHES, ()))
    except NeedsValue:
        raise
    except BadInput as e:
        error = e
    for name, side in BRANCHES.items():
        try:
            whole, captures = n.graph(name)
        except BadInput:
            continue
        cond = Value(n.required(0).type, "condition")
        whole.inputs.append(cond)
        inputs = [Value(v.type, v.name) for v in whole.inputs]
        failing = Graph(
            inputs,
            [_failing(v, inputs[-1], not side, n.origin) for v in whole.outputs],
            whole.output_names,
        )
        warnings.warn(f"{error}; the model fails if it takes this branch", stacklevel=2)
        return [whole, failing] if side else [failing, whole], [*captures, n.required(0)]
    raise error


def _failing(like: Value, cond: Value, side: bool, origin: str) -> Value:
    """A value of the type of `like` that cannot be computed when the condition is `side`."""
    whole = reshape(cast(cond, dtype="i64"), shape=(1,))
    beyond = add(whole, constant(1)) if side else sub(constant(2), whole)
    nothing = constant(np.zeros(2), dtype=like.dtype)
    result = gather(nothing, beyond, axis=0)
    assert result.producer is not None
    result.producer.origin = f"{origin}: the branch for {side} does not fit the shapes given"
    out: Value = expand(reshape(result, shape=(1,) * like.type.rank), shape=like.shape)
    return out


# ---- bodies with carried values ------------------------------------------------------------------
def body_with_fixed_types(
    n: OnnxNode,
    front: Sequence[Type],
    initial: Sequence[Type],
    back: Sequence[Type],
    first_output: int,
    trips: int | None,
) -> tuple[Graph, list[Value]]:
    """The body, imported so that every carried value has the same type as input and as output.

    A carried value whose extent changes gets a run-time extent. Its bound is the declared shape, or
    the extent after `trips` steps of the same growth.
    """
    types = list(initial)
    for _ in range(4):
        body, captures = n.graph("body", [*front, *types, *back])
        _keep_ranks_of_scalars(body, first_output, types)
        outs = body.outputs[first_output : first_output + len(types)]
        held = body.inputs[len(front) : len(front) + len(types)]
        wider = [
            v.type
            if v.type.rank != now.rank and not _is_read(body, held[i])
            else _widened(n, i, start, now, v.type, trips)
            for i, (start, now, v) in enumerate(zip(initial, types, outs, strict=True))
        ]
        if wider == types:
            return _clamped(body, first_output, types), captures
        types = wider
    n.unsupported(
        "a carried value changes its shape without a known limit; declare the shape of the output"
    )


def _keep_ranks_of_scalars(body: Graph, first: int, types: Sequence[Type]) -> None:
    """A carried value of one element keeps its rank: a result of [1] becomes [] again."""
    for i, t in enumerate(types, first):
        v = body.outputs[i]
        if v.type.rank != t.rank and v.type.size == t.size == 1 and not v.type.dynamic:
            body.set_input(body.result, i, reshape(v, shape=t.shape))


def _is_read(body: Graph, v: Value) -> bool:
    return v in body.outputs or any(v in node.inputs for node in body.nodes())


def _placeholders_replaced(carried: list[Value], held: Sequence[Value]) -> list[Value]:
    """Initial values, with zeros for those of another rank: the body writes them before it reads
    them, and exporters give them any scalar."""
    return [
        v if v.type.rank == h.type.rank else constant(np.zeros(h.shape), dtype=h.dtype)
        for v, h in zip(carried, held, strict=True)
    ]


def _widened(n: OnnxNode, i: int, start: Type, now: Type, out: Type, trips: int | None) -> Type:
    if out.dtype != now.dtype:
        raise BadInput(
            f"carried value {i} is {now} as input and {out} as output; element types must be equal"
        )
    if out.rank != now.rank:
        n.unsupported(
            f"carried value {i} changes its rank from {now} to {out}; ranks must be equal"
        )
    shape, dynamic = list(now.shape), set(now.dynamic)
    for axis, (a, b) in enumerate(zip(now.shape, out.shape, strict=True)):
        if axis in now.dynamic or (a == b and axis not in out.dynamic):
            continue
        dynamic.add(axis)
        declared = n.declared(i)
        if declared is not None:
            shape[axis] = max(declared.shape[axis], a)
        elif b > a and trips is None:
            n.unsupported(
                f"carried value {i} grows along axis {axis} ({now} becomes {out}) and the trip "
                "count is known only at run time; declare the shape of the loop's output, or "
                "bind the input "
                "that decides the trip count"
            )
        elif b > a:
            shape[axis] = start.shape[axis] + (trips or 0) * (b - a)
    return Type(now.dtype, tuple(shape), dynamic=tuple(sorted(dynamic)))


def _clamped(body: Graph, first: int, types: Sequence[Type]) -> Graph:
    """The body with carried outputs sliced to their bounds, so that their types fit."""
    outputs = list(body.outputs)
    for i, t in enumerate(types):
        v = outputs[first + i]
        if any(a > b for a, b in zip(v.shape, t.shape, strict=True)):
            rank = t.rank
            outputs[first + i] = slice_(v, start=(0,) * rank, stop=t.shape, step=(1,) * rank)
    return Graph(body.inputs, outputs, body.output_names, body.name)


# ---- loop ----------------------------------------------------------------------------------------
def _scalar_type(n: OnnxNode, i: int, dtype: str) -> Type:
    """The type of a scalar input of the body; models declare it with rank 0 or 1."""
    rank = len(n.attr("body").input[i].type.tensor_type.shape.dim)
    return Type(dtype, (1,) * rank)


@importer("Loop")
def import_loop(n: OnnxNode) -> list[Value]:
    trip, cond = n.input(0), n.input(1)
    carried = [v for v in n.inputs[2:] if v is not None]
    trips = _max_trips(n)
    front = [_scalar_type(n, 0, "i64"), _scalar_type(n, 1, "bool")]
    body, captures = body_with_fixed_types(n, front, [v.type for v in carried], [], 1, trips)
    carried = _placeholders_replaced(carried, body.inputs[2 : 2 + len(carried)])
    collects = len(body.outputs) - 1 > len(carried)
    if trips is None and collects:
        trips = _declared_length(n, len(carried))
    bound = UNBOUNDED if trips is None else trips
    result = loop(trip, cond, *carried, *captures, body=body, carried=len(carried), bound=bound)
    return result if isinstance(result, list) else [result]


def _max_trips(n: OnnxNode) -> int | None:
    """Upper bound of the trip count, if it is known."""
    if n.is_const(1) and not scalar(n.const(1)):
        return 0
    if n.is_const(0):
        count = int(scalar(n.const(0)))
        return max(count, 0) if count < MAX_TRIPS else None
    if n.input(0) is None:
        return None
    found = estimates(n.required(0))
    if found is None:
        bound = upper_bound(n.required(0))
        return None if bound is None else max(bound, 0)
    return max(int(scalar(a)) for a in found)


def _declared_length(n: OnnxNode, first: int) -> int:
    """The number of iterations by the declared shape of the first scan output."""
    for i in range(first, n.n_outputs):
        declared = n.declared(i)
        if declared is not None and declared.rank:
            return declared.shape[0]
    if n.input(0) is None or n.is_const(0):
        n.unsupported(
            "it has scan outputs, and neither a trip count nor a declared shape bounds their "
            "length; "
            "declare the shape of its outputs"
        )
    n.needs_value(n.required(0), "its trip count")


# ---- scan ----------------------------------------------------------------------------------------
def _bits(directions: Sequence[int]) -> int:
    return sum(1 << i for i, d in enumerate(directions) if d)


def _to_front(v: Value, axis: int) -> Value:
    axis = normalize_axis(axis, v.type.rank)
    if axis == 0:
        return v
    rest = [i for i in range(v.type.rank) if i != axis]
    return transpose(v, perm=(axis, *rest))


def _from_front(v: Value, axis: int) -> Value:
    axis = normalize_axis(axis, v.type.rank)
    perm = list(range(1, v.type.rank))
    perm.insert(axis, 0)
    return v if axis == 0 else transpose(v, perm=tuple(perm))


def _scan(
    n: OnnxNode,
    states: Sequence[Value],
    scanned: Sequence[Value],
    reverse_in: int,
    reverse_out: int,
) -> list[Value]:
    """A scan along axis 0 of every scanned input; one step needs no loop."""
    if scanned[0].shape[0] == 1 and not any(v.type.dynamic for v in scanned):
        steps = [reshape(v, shape=v.shape[1:]) for v in scanned]
        n.scope.model.fold.settle(steps, n.origin)
        result = n.inline("body", [*states, *steps])
        scans = [reshape(v, shape=(1, *v.shape)) for v in result[len(states) :]]
        return [*result[: len(states)], *scans]
    slices = [
        Type(v.dtype, v.shape[1:], dynamic=tuple(i - 1 for i in v.type.dynamic if i))
        for v in scanned
    ]
    trips = scanned[0].shape[0]
    body, captures = body_with_fixed_types(n, [], [v.type for v in states], slices, 0, trips)
    result = scan(
        *states,
        *scanned,
        *captures,
        body=body,
        states=len(states),
        scans=len(scanned),
        reverse_in=reverse_in,
        reverse_out=reverse_out,
    )
    return result if isinstance(result, list) else [result]


@importer("Scan", since=9)
def import_scan(n: OnnxNode) -> list[Value]:
    scans: int = n.attr("num_scan_inputs")
    states = len(n.inputs) - scans
    given = [n.required(i) for i in range(len(n.inputs))]
    axes_in = n.attr("scan_input_axes") or (0,) * scans
    scanned = [_to_front(v, a) for v, a in zip(given[states:], axes_in, strict=True)]
    result = _scan(
        n,
        given[:states],
        scanned,
        _bits(n.attr("scan_input_directions", ())),
        _bits(n.attr("scan_output_directions", ())),
    )
    collected = result[states:]
    axes_out = n.attr("scan_output_axes") or (0,) * len(collected)
    moved = [_from_front(v, a) for v, a in zip(collected, axes_out, strict=True)]
    return [*result[:states], *moved]


@importer("Scan", since=8)
def import_scan_8(n: OnnxNode) -> list[Value]:
    """Scan of opset 8, which has a batch axis in front and a length per batch entry."""
    scans: int = n.attr("num_scan_inputs")
    given = [n.required(i) for i in range(1, len(n.inputs))]
    states = len(given) - scans
    reverse = _bits(n.attr("directions", ()))
    batch, steps = given[states].shape[:2]
    if n.input(0) is not None and not n.is_const(0):
        remedy = f"bind them with {option('values')}"
        n.unsupported(f"its sequence lengths are known only at run time; {remedy}")
    lengths = np.full(batch, steps) if n.input(0) is None else n.const(0).reshape(-1)
    rows: list[list[Value]] = []
    for b, length in enumerate(lengths.tolist()):
        one = [_batch_entry(v, b) for v in given]
        scanned = [sliced(v, [0], [length], [0]) for v in one[states:]]
        result = _scan(n, one[:states], scanned, reverse, 0)
        collected = [_zero_padded(v, steps) for v in result[states:]]
        rows.append([reshape(v, shape=(1, *v.shape)) for v in (*result[:states], *collected)])
    return [column[0] if batch == 1 else concat(*column, axis=0) for column in zip(*rows)]  # noqa: B905


def _batch_entry(v: Value, b: int) -> Value:
    """Entry `b` of the batch, without the batch axis."""
    return reshape(sliced(v, [b], [b + 1], [0]), shape=v.shape[1:])


def _zero_padded(v: Value, steps: int) -> Value:
    """Zeros behind the last step of a shorter sequence."""
    if v.shape[0] == steps:
        return v
    none = (0,) * (v.type.rank - 1)
    return pad(v, before=(0, *none), after=(steps - v.shape[0], *none))
