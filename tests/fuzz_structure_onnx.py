"""ONNX models for tests.fuzz_structure: the node tests of onnx, changed by their structure."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

MAX_ELEMENTS = 1 << 20  # of all inputs of a mutant
KINDS = (1, 1, 1, 10, 11, 6, 7, 3, 2, 9)  # element types: f32, f16, f64, integers, bool
INTEGERS = (-1, 0, 1, 2, 3, 7, 1 << 31, -(1 << 40))
FLOATS = (0.0, 0.5, 1e-3, 1.0, 3.0)


class Onnx:
    """Seeds, mutations, inputs and reference of the format."""

    @staticmethod
    def models() -> list[Any]:
        from tests.onnx_conformance import cases, out_of_scope

        found = []
        for case in cases():
            if out_of_scope(case) or _random(case.model):
                continue
            model = _with_constants(case)
            if model is not None:
                found.append(model)
        return found

    @staticmethod
    def warm_up() -> None:
        import onnxruntime  # noqa: F401  # before the first fork

    @staticmethod
    def mutate(model: Any, rng: random.Random, models: list[Any]) -> bytes | None:
        made = type(model)()
        made.CopyFrom(model)
        for _ in range(rng.choice([1, 1, 2, 3])):
            rng.choice(MUTATIONS)(made, rng, models)
        del made.graph.value_info[:]
        for info in made.graph.output:
            info.type.tensor_type.ClearField("shape")
        try:
            return bytes(made.SerializeToString())
        except ValueError:
            return None

    @staticmethod
    def feeds(data: bytes, rng: np.random.Generator) -> list[np.ndarray] | None:
        import onnx

        graph = onnx.ModelProto.FromString(data).graph
        held = {t.name for t in graph.initializer}
        made = []
        for info in graph.input:
            if info.name in held:
                continue
            kind = info.type.tensor_type
            shape = [d.dim_value for d in kind.shape.dim]
            if np.prod([max(d, 0) for d in shape], dtype=float) > MAX_ELEMENTS:
                return None
            made.append(_sample(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type), rng))
        return made

    @staticmethod
    def reference(data: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        return list(session.run(None, dict(zip(names, feeds, strict=True))))


def _sample(shape: list[int], dtype: Any, rng: np.random.Generator) -> np.ndarray:
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 3, shape).astype(dtype)
    return rng.uniform(-2, 2, shape).astype(dtype)


def _random(model: Any) -> bool:
    names = ("Random", "Bernoulli", "Multinomial", "Dropout")
    return any(n.op_type.startswith(names) for n in model.graph.node)


def _with_constants(case: Any) -> Any:
    """The model with its integer inputs as constants: they often decide shapes."""
    from onnx import numpy_helper

    model = type(case.model)()
    model.CopyFrom(case.model)
    graph = model.graph
    arrays = case.data_sets[0][0]
    kept = []
    for info, array in zip(list(graph.input), arrays, strict=True):
        whole = isinstance(array, np.ndarray) and array.dtype in (np.int64, np.int32)
        if whole and len(graph.input) > 1:
            graph.initializer.append(numpy_helper.from_array(array, info.name))
        else:
            kept.append(info)
    if not kept or any(not i.type.tensor_type.HasField("shape") for i in kept):
        return None
    inputs = [type(i).FromString(i.SerializeToString()) for i in kept]
    del graph.input[:]
    graph.input.extend(inputs)
    return model


# ---- mutations -----------------------------------------------------------------------------------
def _attribute(model: Any, rng: random.Random, models: list[Any]) -> None:
    node = rng.choice(model.graph.node)
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    match a.type:
        case 1:
            a.f = rng.choice(FLOATS)
        case 2:
            flag = a.i in (0, 1)  # runtimes differ on flags with other values
            a.i = 1 - a.i if flag else rng.choice([a.i + 1, a.i - 1, *INTEGERS])
        case 3:
            a.s = rng.choice(_strings(a.name, models))
        case 7 if a.ints:
            k = rng.randrange(len(a.ints))
            a.ints[k] = rng.choice([a.ints[k] + 1, a.ints[k] - 1, *INTEGERS])
            if rng.random() < 0.2:
                del a.ints[k]
        case 6 if a.floats:
            a.floats[rng.randrange(len(a.floats))] = rng.choice(FLOATS)


def _strings(name: str, models: list[Any]) -> list[bytes]:
    every = {
        a.s for m in models for n in m.graph.node for a in n.attribute if a.name == name and a.s
    }
    return sorted(every) or [b""]


def _without_attribute(model: Any, rng: random.Random, models: list[Any]) -> None:
    node = rng.choice(model.graph.node)
    if node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]


def _operator(model: Any, rng: random.Random, models: list[Any]) -> None:
    """Another operator with as many operands."""
    node = rng.choice(model.graph.node)
    other = rng.choice(rng.choice(models).graph.node)
    if len(other.input) == len(node.input) and other.domain == node.domain:
        node.op_type = other.op_type


def _extent(model: Any, rng: random.Random, models: list[Any]) -> None:
    """Another extent of one axis of an input, or of every axis like it."""
    dims = [d for i in model.graph.input for d in i.type.tensor_type.shape.dim]
    if not dims:
        return
    chosen = rng.choice(dims)
    old, new = chosen.dim_value, rng.choice([0, 1, 2, 5, chosen.dim_value * 2])
    for d in dims if rng.random() < 0.5 else [chosen]:
        if d.dim_value == old:
            d.dim_value = new


def _rank(model: Any, rng: random.Random, models: list[Any]) -> None:
    dim = rng.choice(model.graph.input).type.tensor_type.shape.dim
    if dim and rng.random() < 0.5:
        del dim[rng.randrange(len(dim))]
    elif len(dim) < 6:
        dim.add().dim_value = rng.choice([1, 1, 2])


def _element_type(model: Any, rng: random.Random, models: list[Any]) -> None:
    types = [i.type.tensor_type for i in model.graph.input]
    old, new = rng.choice(types).elem_type, rng.choice(KINDS)
    for t in (*types, *(o.type.tensor_type for o in model.graph.output)):
        if t.elem_type == old:
            t.elem_type = new


def _constant(model: Any, rng: random.Random, models: list[Any]) -> None:
    from onnx import numpy_helper

    if not model.graph.initializer:
        return
    t = rng.choice(model.graph.initializer)
    array = numpy_helper.to_array(t).copy()
    if not array.size or array.dtype.kind not in "fiu":
        return
    at = rng.randrange(array.size)
    with np.errstate(all="ignore"):
        array.reshape(-1)[at] = np.asarray(rng.choice([array.reshape(-1)[at] + 1, *INTEGERS[:6]]))
    t.CopyFrom(numpy_helper.from_array(array, t.name))


def _connection(model: Any, rng: random.Random, models: list[Any]) -> None:
    node = rng.choice(model.graph.node)
    names = [i.name for i in model.graph.input] + [t.name for t in model.graph.initializer]
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", *names])


def _chain(model: Any, rng: random.Random, models: list[Any]) -> None:
    """One more elementwise node behind an output."""
    out = rng.choice(model.graph.output)
    for node in model.graph.node:
        for k, name in enumerate(node.output):
            if name == out.name:
                node.output[k] = f"{name}_before"
                op = rng.choice(["Relu", "Neg", "Abs", "Sigmoid", "Identity", "Softmax", "Flatten"])
                model.graph.node.add(op_type=op, input=[node.output[k]], output=[name])
                return


MUTATIONS = [
    _attribute,
    _attribute,
    _attribute,
    _without_attribute,
    _operator,
    _extent,
    _extent,
    _rank,
    _element_type,
    _constant,
    _constant,
    _connection,
    _chain,
]
