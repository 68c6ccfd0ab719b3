"""A batch for a model that was made for one image: `compile(model, batch=4)`.

Every tensor that depends on the images gets the batch in one of its axes: images follow each other
along it. At the inputs that is the first axis; transposes and reshapes move it. That is possible if
no layer mixes images. Layers without a rule are tried on random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, IntaglioError, Unsupported, option
from intaglio.frontends.onnx.input_binding import open_shape
from intaglio.frontends.ranges import parse_range
from intaglio.ir import Array, Graph, Node, Value
from intaglio.model_inputs import ModelInputs
from intaglio.ops.registry import REGISTRY
from intaglio.symint import Symbols, SymInt, bound

TOLERANCE = 1e-4  # relative and absolute, of results in a trial
TRIED = 2  # images in a trial of a layer
PER_IMAGE = {  # ops whose first operand begins with the batch
    "conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "batch_norm", "group_norm",
    "instance_norm", "lrn", "depth_to_space", "space_to_depth", "channel_shuffle", "resize",
    "grid_sample", "qlinear_conv", "qlinear_avg_pool", "quantized_conv",
}  # fmt: skip
ALONG_AXES = {
    "softmax", "log_softmax", "hardmax", "layer_norm", "rms_norm", "concat", "lp_norm", "glu",
    "argmax", "argmin", "cumsum", "topk",
}  # fmt: skip
Places = dict[Value, int]  # the axis of each batched value along which images follow each other
Found = tuple[dict[str, Any], list[int]]  # attributes for the batch, and the axes of the results


def extent_of(batch: int | str) -> int:
    """The extent of the batch: a number, or the SymInt of a range."""
    if isinstance(batch, str):
        symbol = parse_range("batch", batch)
        return Symbols([symbol]).extent(symbol.name)
    return batch


def load_batch(model: Any, options: dict[str, Any], batch: int | str) -> Graph:
    """The graph of a model for a batch."""
    if isinstance(model, Graph):
        return rebatched(model, extent_of(batch))
    inputs = ModelInputs(model, options)
    first = {n: t.shape[0] for n, t in (inputs.types or {}).items() if t.rank}
    if any(isinstance(d, SymInt) for d in first.values()):
        return _bound(inputs, batch)
    return rebatched(inputs.load(), extent_of(batch))


def _bound(inputs: ModelInputs, batch: int | str) -> Graph:
    """The graph of a model that leaves its batch open."""
    dims: dict[str, Any] = {}
    shapes: dict[str, Any] = {}
    for info in inputs.model.proto.graph.input:
        declared = open_shape(info) if info.name in (inputs.types or {}) else None
        if declared and isinstance(declared[0], str):
            if declared[0]:
                dims[declared[0]] = batch
            elif all(isinstance(d, int) for d in declared[1:]):
                shapes[info.name] = (batch, *declared[1:])
    return inputs.load(dims=dims, **({"shapes": shapes} if shapes else {}))


def rebatched(graph: Graph, batch: int, now: dict[Value, Value] | None = None) -> Graph:
    """The graph of one image for `batch` images; Unsupported names the layer that mixes images.

    A dict given as `now` receives the value of the result for every value of `graph`.
    """
    for v in graph.inputs:
        if not v.shape or v.shape[0] != 1:
            raise BadInput(
                f"input '{v.name}' is {v.type}; {option('batch', bound(batch))} is for models of "
                "one image, whose inputs begin with an axis of extent 1; give the shapes with "
                f"{option('shapes')}"
            )
    if graph.state:
        raise Unsupported(
            f"the model carries the state '{next(iter(graph.state))}' from run to run, which would "
            "mix the images of a batch; run it once for each"
        )
    now = {} if now is None else now
    now |= {v: Value(v.type.but(shape=(batch, *v.shape[1:])), v.name) for v in graph.inputs}
    places = dict.fromkeys(graph.inputs, 0)
    for node in graph.nodes():
        _add(node, batch, now, places)
    outputs = [
        _first(name, v, batch, now, places)
        for name, v in zip(graph.output_names, graph.outputs, strict=True)
    ]
    inputs = [now[v] for v in graph.inputs]
    return Graph(inputs, outputs, graph.output_names, graph.name, graph.metadata)


def _first(name: str, v: Value, batch: int, now: Mapping[Value, Value], places: Places) -> Value:
    """An output with the batch as its first axis."""
    if v not in places:
        raise Unsupported(f"output '{name}' is a constant: it does not depend on the images")
    result, axis = now[v], places[v]
    if v.shape[axis] != 1:  # images lie behind each other: give them an axis
        shape = (*v.shape[:axis], batch, *v.shape[axis:])
        result = ops.reshape(result, shape=shape)
    if axis:
        rest = [i for i in range(result.type.rank) if i != axis]
        result = ops.transpose(result, perm=(axis, *rest))
    result.name = v.name
    return result


def _add(node: Node, batch: int, now: dict[Value, Value], places: Places) -> None:
    """Build a node for the batch from those before it."""
    if not any(v in places for v in node.inputs):
        return  # it computes with constants only, the same for all images
    where = f"{node.op} '{node.origin}'" if node.origin else node.op
    if node.bodies() or any(v.type.dynamic for v in node.outputs):
        raise _mixes(where, "each image decides the size of its results, or it is control flow")
    rule = _RULES.get(node.op) or (_elementwise if REGISTRY[node.op].elementwise else None)
    found = (rule or _tried)(node, places, batch)
    if isinstance(found, str) and rule is not None:
        tried = _tried(node, places, batch)
        found = found if isinstance(tried, str) else tried
    if isinstance(found, str):
        raise _mixes(where, found)
    attrs, axes = found
    given = [None if v is None else now.get(v, v) for v in node.inputs]
    try:
        result = REGISTRY[node.op].node(*given, origin=node.origin, **attrs).outputs
    except IntaglioError as e:
        raise _mixes(where, str(e)) from None
    for old, new, axis in zip(node.outputs, result, axes, strict=True):
        want = [d * batch if i == axis else d for i, d in enumerate(old.shape)]
        if list(new.shape) != want:
            raise _mixes(where, f"it makes {new.type} from the batch and {old.type} from one image")
        now[old], new.name, places[old] = new, old.name, axis
        new.type = new.type.but(quant=old.type.quant)


def _mixes(where: str, why: str) -> Unsupported:
    return Unsupported(
        f"a batch cannot be made: {where}: {why}; run the images one by one, or cut the model "
        f"before it with {option('outputs')}"
    )


# ---- rules: attributes and axes for the batch, or why images would be mixed ----------------------
def _moving(node: Node, places: Places) -> list[Value]:
    return [v for v in node.inputs if v is not None and v in places]


def _per_image(node: Node, places: Places, batch: int) -> Found | str:
    x = node.inputs[0]
    assert x is not None
    if _moving(node, places) != [x] or places[x] != 0 or x.shape[0] != 1:
        return "its operands do not begin with the batch"
    attrs = dict(node.attrs)
    if node.op == "resize" and 0 in attrs["axes"]:
        return "it resizes the batch axis"
    if attrs.get("with_indices"):
        return "its indices count over all images"
    return attrs, [0] * len(node.outputs)


def _elementwise(node: Node, places: Places, batch: int) -> Found | str:
    rank = node.outputs[0].type.rank
    behind = {v.type.rank - places[v] for v in _moving(node, places)}
    if len(behind) != 1:
        return "the batch lies in different axes of its operands"
    axis = rank - behind.pop()
    for other in node.inputs:
        if other is not None and other not in places:
            own = axis - (rank - other.type.rank)
            if own >= 0 and other.shape[own] != 1:
                return "a constant has a value for each element along the batch axis"
    return dict(node.attrs), [axis]


def _along(node: Node, places: Places, batch: int) -> Found | str:
    moving, a = _moving(node, places), node.attrs
    axes = {places[v] for v in moving}
    rank = node.inputs[0].type.rank  # type: ignore[union-attr]
    if len(axes) != 1 or (node.op == "concat" and len(moving) != len(node.inputs)):
        return "constants or other axes are joined with the images"
    axis = axes.pop()
    worked = {i % rank for i in (a["axes"] if "axes" in a else (a["axis"],))}
    last = node.op in ("layer_norm", "rms_norm")
    if not worked or axis in worked or (last and axis > min(worked)):
        return "it works along the batch axis"
    gone = 0 if a.get("keepdims", True) else sum(i < axis for i in worked)
    return dict(a), [axis - gone] * len(node.outputs)


def _transpose(node: Node, places: Places, batch: int) -> Found | str:
    return dict(node.attrs), [node.attrs["perm"].index(places[node.inputs[0]])]  # type: ignore[index]


def _reshape(node: Node, places: Places, batch: int) -> Found | str:
    x, out = node.inputs[0], node.outputs[0].shape
    assert x is not None
    before = math.prod(x.shape[: places[x]])
    for axis in range(len(out)):
        if math.prod(out[:axis]) == before:
            shape = tuple(d * batch if i == axis else d for i, d in enumerate(out))
            return {"shape": shape}, [axis]
    return "it joins the batch axis with an axis before it"


def _slice(node: Node, places: Places, batch: int) -> Found | str:
    x, a = node.inputs[0], node.attrs
    assert x is not None
    axis = places[x]
    if (a["start"][axis], a["step"][axis]) != (0, 1) or node.outputs[0].shape[axis] != x.shape[
        axis
    ]:
        return "it cuts the batch axis"
    stop = tuple(1 << 62 if i == axis else s for i, s in enumerate(a["stop"]))
    return {**a, "stop": stop}, [axis]


def _pad(node: Node, places: Places, batch: int) -> Found | str:
    axis = places[node.inputs[0]]  # type: ignore[index]
    if (
        _moving(node, places) != node.inputs[:1]
        or node.attrs["before"][axis] + node.attrs["after"][axis]
    ):
        return "it pads the batch axis"
    return dict(node.attrs), [axis]


def _expand(node: Node, places: Places, batch: int) -> Found | str:
    x, shape = node.inputs[0], node.outputs[0].shape
    assert x is not None
    axis = places[x] + len(shape) - x.type.rank
    if shape[axis] != x.shape[places[x]]:
        return "it repeats the images"
    return {"shape": tuple(d * batch if i == axis else d for i, d in enumerate(shape))}, [axis]


def _matmul(node: Node, places: Places, batch: int) -> Found | str:
    a, b = node.inputs
    rank = node.outputs[0].type.rank
    assert a is not None
    assert b is not None
    if a in places and b not in places and places[a] != a.type.rank - 1 and b.type.rank <= 2:
        return dict(node.attrs), [places[a]]
    both = a in places and b in places and a.type.rank == b.type.rank == rank
    if both and places[a] == places[b] < rank - 2:
        return dict(node.attrs), [places[a]]
    return "it multiplies images with each other"


def _gemm(node: Node, places: Places, batch: int) -> Found | str:
    a, added = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    assert a is not None
    each = added is not None and added.type.rank == 2 and added.shape[0] != 1
    if _moving(node, places) != [a] or places[a] != 0 or node.attrs["trans_a"] or each:
        return "it multiplies images with each other"
    return dict(node.attrs), [0]


_RULES: dict[str, Callable[[Node, Places, int], Found | str]] = {
    **dict.fromkeys(PER_IMAGE, _per_image),
    **dict.fromkeys(ALONG_AXES, _along),
    **{name: _along for name in REGISTRY if name.startswith("reduce_")},
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "expand": _expand,
    "matmul": _matmul,
    "gemm": _gemm,
}


# ---- trials --------------------------------------------------------------------------------------
def _tried(node: Node, places: Places, batch: int) -> Found | str:
    """Whether the numpy body computes each of some random images as if it were alone."""
    rng, body = np.random.default_rng(0), REGISTRY[node.op].body
    images: list[list[Any]] = []
    for _ in range(TRIED):
        images.append([
            None if v is None else v.data if v.data is not None else _random(v, rng)
            for v in node.inputs
        ])  # fmt: skip
    fixed = images[0]
    for operands in images:  # what does not depend on the images is the same for all
        for i, v in enumerate(node.inputs):
            if v is not None and v not in places:
                operands[i] = fixed[i]
    together = [
        np.concatenate([one[i] for one in images], places[v]) if v in places else fixed[i]
        for i, v in enumerate(node.inputs)
    ]
    try:
        with np.errstate(all="ignore"):
            alone = [_arrays(body(*one, **node.attrs)) for one in images]
            whole = _arrays(body(*together, **node.attrs))
    except Exception:  # a body may refuse random numbers in any way
        return f"it is not known whether {node.op} mixes images"
    axes = []
    for k, got in enumerate(whole):
        axis = next((q for q in range(got.ndim) if _same(got, [a[k] for a in alone], q)), None)
        if axis is None:
            return "it mixes images"
        axes.append(axis)
    return dict(node.attrs), axes


def _arrays(got: Any) -> list[Array]:
    return [np.asarray(a) for a in (got if isinstance(got, tuple | list) else (got,))]


def _same(got: Array, parts: list[Array], axis: int) -> bool:
    want = np.concatenate(parts, axis) if parts[0].ndim else parts[0]
    if got.shape != want.shape:
        return False
    return bool(np.allclose(got.astype(np.float64), want.astype(np.float64), TOLERANCE, TOLERANCE))


def _random(v: Value, rng: np.random.Generator) -> Array:
    kind = dtypes.numpy_of(v.dtype)
    if dtypes.is_float(v.dtype):
        return rng.standard_normal(v.shape).astype(kind)
    low, high = dtypes.limits(v.dtype) if kind.itemsize == 1 and v.dtype != "bool" else (0, 1)
    return rng.integers(low, high + 1, v.shape).astype(kind)
