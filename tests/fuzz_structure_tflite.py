"""TFLite models for tests.fuzz_structure: small models of the tests, changed by their structure."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from tests.shared_models import SHARED

MAX_ELEMENTS = 1 << 20  # of all inputs of a mutant
TYPES = {0: np.float32, 2: np.int32, 3: np.uint8, 4: np.int64, 6: np.bool_, 7: np.int16, 9: np.int8}
INTEGERS = (-1, 0, 1, 2, 3, 7, 1 << 30)
FILES = ("kws_ref_model.tflite", "trained_lstm_int8.tflite", "pretrainedResnet_quant.tflite")


class Tflite:
    """Seeds, mutations, inputs and reference of the format."""

    @staticmethod
    def models() -> list[bytes]:
        from tests.frontends import test_tflite_ops as t
        from tests.frontends.tflite_build import T, model, op

        cases = next(m.args[1] for m in t.test_one.pytestmark if m.name == "parametrize")
        found = []
        for name, operands, result, table, options in cases:
            results = result if isinstance(result, list) else [result]
            given = [T(data=a[0]) if isinstance(a, list) else T(a.shape, a.dtype) for a in operands]
            every = list(range(len(given) + len(results)))
            step = op(name, every[: len(given)], every[len(given) :], table, **options)
            inputs = [i for i, a in enumerate(operands) if not isinstance(a, list)]
            if inputs:
                found.append(model([*given, *results], [step], inputs, every[len(given) :]))
        shared = (SHARED / "models" / "tflite" / name for name in FILES)
        return found + [p.read_bytes() for p in shared if p.exists()]

    @staticmethod
    def warm_up() -> None:
        import ai_edge_litert.interpreter  # noqa: F401  # before the first fork

    @staticmethod
    def mutate(model: bytes, rng: random.Random, models: list[bytes]) -> bytes | None:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema

        made = schema.ModelT.InitFromPackedBuf(model, 0)
        for _ in range(rng.choice([1, 1, 2, 3])):
            rng.choice(MUTATIONS)(made, rng)
        builder = flatbuffers.Builder(1 << 16)
        try:
            builder.Finish(made.Pack(builder), file_identifier=b"TFL3")
        except Exception:  # a number that its field cannot hold
            return None
        return bytes(builder.Output())

    @staticmethod
    def feeds(data: bytes, rng: np.random.Generator) -> list[np.ndarray] | None:
        from ai_edge_litert import schema_py_generated as schema

        graph = schema.ModelT.InitFromPackedBuf(data, 0).subgraphs[0]
        made = []
        for t in (graph.tensors[i] for i in graph.inputs):
            shape = [] if t.shape is None else list(t.shape)
            size = np.prod([max(d, 0) for d in shape], dtype=float)
            if t.type not in TYPES or size > MAX_ELEMENTS or any(d < 0 for d in shape):
                return None
            dtype = np.dtype(TYPES[t.type])
            if dtype.kind == "f":
                made.append(rng.uniform(-2, 2, shape).astype(dtype))
            else:
                whole = dtype.itemsize == 1 and dtype.kind in "iu"
                low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if whole else (0, 2)
                made.append(rng.integers(low, high, shape).astype(dtype))
        return made

    @staticmethod
    def reference(data: bytes, feeds: list[np.ndarray]) -> list[np.ndarray]:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kind = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        it = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kind)
        it.allocate_tensors()
        for d, x in zip(it.get_input_details(), feeds, strict=True):
            it.set_tensor(d["index"], x)
        it.invoke()
        return [it.get_tensor(d["index"]) for d in it.get_output_details()]


# ---- mutations -----------------------------------------------------------------------------------
def _option(model: Any, rng: random.Random) -> None:
    options = rng.choice(rng.choice(model.subgraphs).operators).builtinOptions
    names = [k for k, v in vars(options).items() if isinstance(v, int | float)] if options else []
    if not names:
        return
    name = rng.choice(names)
    old = getattr(options, name)
    if isinstance(old, bool):
        setattr(options, name, not old)
    elif name.endswith("Mask"):
        setattr(options, name, old ^ 1 << rng.randrange(3))
    elif isinstance(old, int):
        setattr(options, name, rng.choice([old + 1, max(old - 1, 0), *INTEGERS]))
    else:
        setattr(options, name, rng.choice([0.0, 0.5, 1.0, 3.0]))


def _tensor(model: Any, rng: random.Random) -> Any:
    return rng.choice(rng.choice(model.subgraphs).tensors)


def _extent(model: Any, rng: random.Random) -> None:
    """Another extent of all axes of inputs and results that are like one of them."""
    graph = rng.choice(model.subgraphs)
    chosen = _tensor(model, rng)
    if chosen.shape is None or not len(chosen.shape):
        return
    old = int(rng.choice(list(chosen.shape)))
    new = rng.choice([1, 2, 5, old * 2, 0])
    every = rng.random() < 0.5
    for t in graph.tensors if every else [chosen]:
        held = model.buffers[t.buffer].data
        if t.shape is not None and (held is None or not len(held)):
            t.shape = [new if d == old else int(d) for d in t.shape]


def _element_type(model: Any, rng: random.Random) -> None:
    chosen = _tensor(model, rng)
    old, new = chosen.type, rng.choice(list(TYPES))
    for t in rng.choice(model.subgraphs).tensors if rng.random() < 0.5 else [chosen]:
        if t.type == old:
            t.type = new


def _scale(model: Any, rng: random.Random) -> None:
    q = _tensor(model, rng).quantization
    if q is None or q.scale is None or not len(q.scale):
        return
    if rng.random() < 0.5:
        q.scale = [float(s) * rng.choice([0.5, 2.0, 1.1]) for s in q.scale]
    elif q.zeroPoint is not None:
        q.zeroPoint = [int(z) + rng.choice([-1, 1, 5]) for z in q.zeroPoint]


def _constant(model: Any, rng: random.Random) -> None:
    t = _tensor(model, rng)
    held = model.buffers[t.buffer].data
    if held is None or not len(held) or t.type not in TYPES:
        return
    dtype = np.dtype(TYPES[t.type])
    if dtype.kind not in "iu" or dtype.itemsize < 4 or len(held) % dtype.itemsize:
        return
    array = np.frombuffer(bytes(bytearray(held)), dtype).copy()
    array[rng.randrange(len(array))] += rng.choice([-1, 1, 2, -5])
    model.buffers[t.buffer].data = list(array.tobytes())


def _connection(model: Any, rng: random.Random) -> None:
    graph = rng.choice(model.subgraphs)
    step = rng.choice(graph.operators)
    if step.inputs is not None and len(step.inputs):
        inputs = [int(i) for i in step.inputs]
        inputs[rng.randrange(len(inputs))] = rng.choice([-1, *range(len(graph.tensors))])
        step.inputs = inputs


MUTATIONS = [_option] * 3 + [_extent] * 2 + [_constant] * 2 + [_element_type, _scale, _connection]
