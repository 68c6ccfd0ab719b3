"""Binding of the model's inputs: symbolic dimensions, constant values, and new cut points."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported, option
from intaglio.frontends.onnx import tensors
from intaglio.frontends.onnx.unsupported_ops import REASONS
from intaglio.frontends.options import ImportOptions, refuse_unknown_dims
from intaglio.ir import Array, Type, Value, constant

Shape = tuple[int | str, ...]  # per axis: extent, symbol, or "" for a nameless dimension
ANONYMOUS = {"None", "none", "null", "nil", "unk", "unknown"}  # names that name nothing


def check_options(options: ImportOptions, graph: Any) -> None:
    """BadInput if an option names a tensor or dimension that the model does not have."""
    known = tensor_names(graph)
    for what, names in {
        "shapes": options.shapes,
        "values": options.values,
        "inputs": options.inputs or (),
        "outputs": options.outputs or (),
    }.items():
        twice = [name for name, count in Counter(list(names)).items() if count > 1]
        if twice:
            raise BadInput(f"onnx: {what}: '{twice[0]}' is given twice; give it once")
        for name in names:
            if name not in known:
                raise BadInput(
                    f"onnx: {what}: the model has no tensor '{name}'; {_nearest(name, known)}"
                )
    infos = (*graph.input, *graph.output, *graph.value_info)
    symbols = {s for i in infos for s in open_shape(i) or () if isinstance(s, str) and s}
    refuse_unknown_dims("onnx", options, symbols)


def tensor_names(graph: Any) -> set[str]:
    """Names of all tensors of the graph."""
    result = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    result |= {s.values.name for s in graph.sparse_initializer}
    return result | {name for n in graph.node for name in n.output if name}


def _nearest(name: str, names: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, sorted(names), 1)
    if near:
        return f"did you mean '{near[0]}'?"
    shown = ", ".join(sorted(names)[:8])
    return f"it has {shown}{', ...' if len(names) > 8 else ''}" if names else "it has none"


def open_shape(info: Any) -> Shape | None:
    """The declared shape of an input, open dimensions as strings; None if the rank is unknown."""
    return shape_of_type(info.type)


def shape_of_type(type: Any) -> Shape | None:
    """The shape in a TypeProto, open dimensions as strings; None if the rank is unknown."""
    t = type.tensor_type
    if not t.HasField("shape"):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else symbol_of(d.dim_param)
        for d in t.shape.dim
    )


def symbol_of(name: str) -> str:
    """The symbol of an open dimension; "" for placeholders (`?`, `-1`, `None`).

    Exporters write a placeholder at every dimension that they do not know, so that two dimensions
    of that name need not be equal.
    """
    word = name.strip()
    placeholder = not any(c.isalpha() or c == "_" for c in word) or word in ANONYMOUS
    return "" if placeholder else name


def input_dtype(info: Any) -> str:
    """The element type of a graph input; Unsupported if it is not a tensor."""
    kind = info.type.WhichOneof("value")
    if kind is None:
        raise BadFile(f"onnx: input '{info.name}' has no type; the file is damaged")
    if kind != "tensor_type":
        word = kind.removesuffix("_type").removesuffix("_tensor")
        why = REASONS.get(f"{word}s", ("only dense tensors are supported",))[0]
        raise Unsupported(f"onnx: input '{info.name}' has type {word}: {why}")
    return tensors.element_type(info.type.tensor_type.elem_type, f"input '{info.name}'")


def bind_dims(infos: Sequence[Any], options: ImportOptions) -> tuple[dict[str, int], bool]:
    """Extents of the symbolic dimensions, and whether a given shape changes a static dimension."""
    dims = dict(options.dims)
    changed = False
    for info in infos:
        declared = open_shape(info)
        if info.name in options.shapes:
            given = tuple(options.shapes[info.name])
        elif info.name in options.values:
            given = np.shape(options.values[info.name])
        else:
            continue
        if declared is None:
            continue
        if len(declared) != len(given):
            if info.name in options.values:
                continue
            raise BadInput(
                f"onnx: shape {_shape_text(given)} for input '{info.name}' has {len(given)} "
                "dimensions, "
                f"the model declares {_shape_text(declared)}; give {len(declared)}"
            )
        for symbol, extent in zip(declared, given, strict=True):
            if isinstance(symbol, int):
                changed |= symbol != extent
            elif symbol and dims.setdefault(symbol, extent) != extent:
                raise BadInput(
                    f"onnx: dimension '{symbol}' is {dims[symbol]}, but {extent} by the shape of "
                    f"input '{info.name}'; give one value"
                )
    return dims, changed


def bind_inputs(
    infos: Sequence[Any], options: ImportOptions, dims: Mapping[str, int]
) -> list[Value]:
    """A Value for each input; a constant if the user bound its value."""
    result, unbound = [], {}
    for info in infos:
        dtype = input_dtype(info)
        declared = open_shape(info)
        shape: Shape | None
        if info.name in options.values:
            array = bound_array(info.name, options.values[info.name], dtype, declared)
            result.append(constant(array, info.name))
            continue
        if info.name in options.shapes:
            shape = tuple(options.shapes[info.name])
        elif declared is None:
            shape = None
        else:
            shape = tuple(dims.get(d, d) if isinstance(d, str) else d for d in declared)
        if shape is None or any(isinstance(d, str) for d in shape):
            unbound[info.name] = shape
            continue
        fixed: tuple[int, ...] = shape  # type: ignore[assignment]
        tensors.check_size(fixed, dtype, f"input '{info.name}'")
        result.append(Value(Type(dtype, fixed), info.name))
    if unbound:
        raise BadInput(_unbound(unbound))
    return result


def _shape_text(shape: Sequence[Any]) -> str:
    return "x".join(str(d) if d != "" else "?" for d in shape) or "a scalar"


def _unbound(inputs: Mapping[str, Shape | None]) -> str:
    """The error message for open dimensions, with the option that binds them."""
    what = ", ".join(
        f"'{name}' {'(no shape declared)' if s is None else _shape_text(s)}"
        for name, s in inputs.items()
    )
    dims: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in inputs.items():
        example = [
            d if isinstance(d, int) else _example(shape, i) for i, d in enumerate(shape or ())
        ]
        if shape is None:
            shapes[name] = (1, 3, 224, 224)
        elif "" in shape:
            shapes[name] = tuple(example)
        else:
            dims |= {d: e for d, e in zip(shape, example, strict=True) if isinstance(d, str)}
    given = {"dims": dims, "shapes": shapes}
    typed = " and ".join(option(name, value) for name, value in given.items() if value)
    batch = all(
        s is not None and [i for i, d in enumerate(s) if isinstance(d, str)] == [0]
        for s in inputs.values()
    )
    rule = "a batch size is never guessed; add" if batch else "give each a size,"
    ranged = next(((n, d) for n, d in reversed(dims.items())), None)
    also = (
        "" if ranged is None else f", or a range: {option('dims', {ranged[0]: _range(ranged[1])})}"
    )
    return f"onnx: the model leaves dimensions open: {what}; {rule} for example {typed}{also}"


def _range(example: int) -> str:
    return "1..8" if example == 1 else "64..640:32" if example == 224 else "1..512"


def _example(shape: Shape | None, axis: int) -> int:
    return 1 if axis == 0 else 224 if len(shape or ()) == 4 else 128


def bound_array(name: str, given: Any, dtype: str, declared: Shape | None) -> Array:
    """The value that the user bound to tensor `name`, in its element type and rank."""
    array = np.asarray(given)
    want = dtypes.numpy_of(dtype)
    if array.dtype.kind in "OUS":
        raise BadInput(f"onnx: value of '{name}' is {given!r}; numbers are needed")
    cast = array.astype(want)
    if array.dtype.kind in "iufb" and want.kind in "iub" and not np.array_equal(cast, array):
        raise BadInput(f"onnx: value of '{name}' does not fit its element type {dtype}")
    if declared is not None and len(declared) != array.ndim:
        fits = [d if isinstance(d, int) else array.size for d in declared]
        if math.prod(fits) != array.size:
            raise BadInput(
                f"onnx: value of '{name}' has shape {_shape_text(array.shape)}, the model declares "
                f"{_shape_text(declared)}"
            )
        return cast.reshape(fits)
    return cast


def chosen_inputs(
    graph: Any, options: ImportOptions, infer: Callable[[str], Type | None]
) -> tuple[list[Any], list[Value]]:
    """(kept inputs of the model, new inputs at inner tensors) for `options.inputs`."""
    infos = {i.name: i for i in graph.input}
    if options.inputs is None:
        return list(infos.values()), []
    kept, new = [], []
    for name in options.inputs:
        if name in infos:
            kept.append(infos[name])
            continue
        t, given = infer(name), options.shapes.get(name)
        if t is None and given is None:
            raise BadInput(
                f"onnx: the shape of the new input '{name}' is not known; "
                f"add {option('shapes', {name: ...})}"
            )
        dtype = t.dtype if t else _declared_dtype(graph, name)
        shape = tuple(int(d) for d in given) if given is not None else t.shape if t else ()
        tensors.check_size(shape, dtype, f"input '{name}'")
        new.append(Value(Type(dtype, shape), name))
    return kept, new


def _declared_dtype(graph: Any, name: str) -> str:
    for info in (*graph.value_info, *graph.output):
        if info.name == name:
            return input_dtype(info)
    warnings.warn(
        f"onnx: the element type of the new input '{name}' is not known; f32 is assumed",
        stacklevel=6,
    )
    return "f32"
