"""Reader of TFLite files (schema 3): flatbuffer tables as Python objects, checked on reading.

See tensorflow/lite/schema/schema.fbs. Every count is checked against the size of the file, so that
a damaged file cannot cause long loops or large allocations.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, IntaglioError
from intaglio.extras import install_command
from intaglio.frontends.tflite.labels import labels
from intaglio.frontends.tflite.sparse import densified
from intaglio.ir import Array, Quant

DTYPES = {  # TensorType of the schema
    0: "f32",
    1: "f16",
    2: "i32",
    3: "u8",
    4: "i64",
    6: "bool",
    7: "i16",
    9: "i8",
    10: "f64",
    12: "u64",
    15: "u32",
    16: "u16",
    17: "i4",
    18: "bf16",
}
OTHERS = {5: "string", 8: "complex64", 11: "complex128", 13: "resource", 14: "variant"}
ZERO_SCALE = 1e-30  # replaces a scale of 0, that of a channel that is always 0
CUSTOM = 32  # BuiltinOperator of the schema

DAMAGE = (
    struct.error,
    IndexError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    MemoryError,
)  # exceptions that damaged files cause


@dataclass
class Tensor:
    """One tensor: type, quantisation, and data if it is constant."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Array | None = None
    quant: Quant | None = None
    variable: bool = False


@dataclass
class Operator:
    """One operation: name in the schema, operands by index (-1: absent), options."""

    op: str
    inputs: list[int]
    outputs: list[int]
    options: Any = None  # the schema's table for this op, or None
    custom: bool = False
    custom_options: bytes = b""  # of a custom op, usually a FlexBuffer map
    intermediates: list[int] = field(
        default_factory=list
    )  # tensors with the scales of inner values


@dataclass
class Subgraph:
    name: str
    tensors: list[Tensor]
    inputs: list[int]
    outputs: list[int]
    operators: list[Operator] = field(default_factory=list)


@dataclass
class Signature:
    """A signature: inputs and outputs of one graph by name."""

    name: str
    subgraph: int
    inputs: dict[str, int]
    outputs: dict[str, int]
    damage: str = ""  # why it cannot be used; LiteRT runs such a file without its signature


@dataclass
class File:
    subgraphs: list[Subgraph]
    description: str = ""
    signatures: list[Signature] = field(default_factory=list)
    labels: list[str] | None = None  # names of classes, from the archive behind the model


def library() -> Any:
    """The tflite package, which has the accessors of the schema."""
    try:
        import tflite
    except ImportError:
        raise IntaglioError(
            f"TFLite models need the tflite package, which is missing; {install_command('tflite')}"
        ) from None
    return tflite


def parse(data: bytes, what: str) -> File:
    """The content of a file; BadFile if it is truncated or damaged."""
    tflite = library()
    if len(data) < 8 or data[4:8] != b"TFL3":
        raise BadFile(f"{what} is not a TFLite model of schema 3")
    try:
        return _Reader(tflite, data).file()
    except DAMAGE as e:
        words = " ".join(str(e).split())[:120]
        raise BadFile(f"{what} is a truncated or damaged TFLite model ({words})") from None


class _Reader:
    def __init__(self, tflite: Any, data: bytes):
        self.tflite, self.data = tflite, data
        self.model = tflite.Model.GetRootAs(data, 0)
        self.names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}
        self.tables = {v: k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}

    def file(self) -> File:
        codes = self._each(self.model.OperatorCodesLength(), lambda i: self._code(i))
        graphs = self._each(
            self.model.SubgraphsLength(), lambda i: self._subgraph(self.model.Subgraphs(i), codes)
        )
        if not graphs:
            raise ValueError("it has no graph")
        signatures = self._each(
            self.model.SignatureDefsLength(),
            lambda i: self._signature(self.model.SignatureDefs(i), graphs),
        )
        return File(graphs, _text(self.model.Description()), signatures, labels(self.data))

    def _signature(self, s: Any, graphs: list[Subgraph]) -> Signature:
        result = Signature(_text(s.SignatureKey()), s.SubgraphIndex(), {}, {})
        if not 0 <= result.subgraph < len(graphs):
            result.damage = f"it names graph {result.subgraph} of {len(graphs)}"
            return result
        for count, get, to in (
            (s.InputsLength(), s.Inputs, result.inputs),
            (s.OutputsLength(), s.Outputs, result.outputs),
        ):
            for entry in self._each(count, get):
                to[_text(entry.Name())] = entry.TensorIndex()
        tensors = len(graphs[result.subgraph].tensors)
        for t in (*result.inputs.values(), *result.outputs.values()):
            if not 0 <= t < tensors:
                result.damage = f"it names tensor {t} of {tensors}"
        return result

    def _each(self, count: int, read: Callable[[int], Any]) -> list[Any]:
        """`read(0)` to `read(count - 1)`; every entry of a table takes at least four bytes."""
        if not 0 <= count <= len(self.data) // 4:
            raise ValueError(f"a list of {count} entries is longer than the file")
        return [read(i) for i in range(count)]

    def _code(self, i: int) -> tuple[str, bool]:
        c = self.model.OperatorCodes(i)
        code = max(c.BuiltinCode(), c.DeprecatedBuiltinCode())
        if code == CUSTOM:
            return _text(c.CustomCode() or b"?"), True
        return self.names.get(code, f"operator {code}"), False

    def _ints(self, count: int, get: Callable[[int], int]) -> list[int]:
        return [int(v) for v in self._each(count, get)]

    def _subgraph(self, g: Any, codes: list[tuple[str, bool]]) -> Subgraph:
        tensors = self._each(g.TensorsLength(), lambda i: self._tensor(g.Tensors(i)))
        inputs = self._ints(g.InputsLength(), g.Inputs)
        outputs = self._ints(g.OutputsLength(), g.Outputs)
        result = Subgraph(_text(g.Name()), tensors, inputs, outputs)
        result.operators = self._each(
            g.OperatorsLength(), lambda i: self._operator(g.Operators(i), codes)
        )
        for op in result.operators:
            for t in (*op.inputs, *op.outputs, *op.intermediates):
                if not -1 <= t < len(tensors):
                    raise ValueError(f"{op.op} names tensor {t} of {len(tensors)}")
        for t in (*inputs, *outputs):
            if not 0 <= t < len(tensors):
                raise ValueError(f"the graph names tensor {t} of {len(tensors)}")
        return result

    def _operator(self, o: Any, codes: list[tuple[str, bool]]) -> Operator:
        index = o.OpcodeIndex()
        if not 0 <= index < len(codes):
            raise ValueError(f"operator code {index} of {len(codes)}")
        name, custom = codes[index]
        inputs = self._ints(o.InputsLength(), o.Inputs)
        outputs = self._ints(o.OutputsLength(), o.Outputs)
        result = Operator(name, inputs, outputs, self._options(o), custom)
        result.intermediates = self._ints(o.IntermediatesLength(), o.Intermediates)
        if custom and o.CustomOptionsLength():
            result.custom_options = o.CustomOptionsAsNumpy().tobytes()
        return result

    def _options(self, o: Any) -> Any:
        table, kind = o.BuiltinOptions(), self.tables.get(o.BuiltinOptionsType(), "NONE")
        if table is None or kind == "NONE" or not hasattr(self.tflite, kind):
            return None
        options = getattr(self.tflite, kind)()
        options.Init(table.Bytes, table.Pos)
        return options

    def _tensor(self, t: Any) -> Tensor:
        name = _text(t.Name())
        shape = tuple(self._ints(t.ShapeLength(), t.Shape))
        dtype = DTYPES.get(t.Type())
        if dtype is None:  # resource handles of variables
            return Tensor(name, OTHERS.get(t.Type(), f"type {t.Type()}"), shape)
        result = Tensor(name, dtype, shape, quant=self._quant(t.Quantization(), dtype, shape))
        result.variable = bool(t.IsVariable())
        buffer = t.Buffer()
        if not 0 <= buffer < max(self.model.BuffersLength(), 1):
            raise ValueError(f"tensor '{name}' names buffer {buffer}")
        raw = self._bytes(buffer)
        sparse = t.Sparsity()
        if raw is not None and sparse is not None:
            kind = dtypes.numpy_of(dtype)
            values = np.frombuffer(raw.tobytes(), kind)
            result.data = densified(self.tflite, sparse, values, shape)
        elif raw is not None:
            result.data = _array(raw, dtype, shape, name)
        return result

    def _bytes(self, index: int) -> Array | None:
        """The bytes of a buffer; 0 is empty, and large files store buffers behind the tables."""
        if index == 0 or index >= self.model.BuffersLength():
            return None
        b = self.model.Buffers(index)
        offset, size = (getattr(b, f, lambda: 0)() for f in ("Offset", "Size"))
        if offset > 1:
            if offset + size > len(self.data):
                raise ValueError(f"buffer {index} lies beyond the file's end")
            return np.frombuffer(self.data, np.uint8, size, offset)
        if not b.DataLength():
            return None
        result: Array = b.DataAsNumpy()
        return result

    def _quant(self, q: Any, dtype: str, shape: tuple[int, ...]) -> Quant | None:
        if q is None or not q.ScaleLength() or not dtypes.is_integer(dtype):
            return None
        scale = tuple(float(v) for v in self._each(q.ScaleLength(), q.Scale))
        zero = tuple(self._ints(q.ZeroPointLength(), q.ZeroPoint)) or (0,) * len(scale)
        axis = q.QuantizedDimension() if len(scale) > 1 else None
        if len(zero) == 1 and len(scale) > 1:
            zero *= len(scale)
        if len(zero) != len(scale):
            raise ValueError(f"{len(scale)} scales with {len(zero)} zero points")
        if axis is not None and not (0 <= axis < len(shape) and shape[axis] == len(scale)):
            raise ValueError(f"{len(scale)} scales along axis {axis} of {shape}")
        if not all(abs(s) < float("inf") for s in scale):
            raise ValueError("a scale is not finite")
        return Quant(tuple(s or ZERO_SCALE for s in scale), zero, axis)


def _text(raw: bytes | None) -> str:
    """A name of the file; what a line of text cannot show is a question mark."""
    text = (raw or b"").decode("utf-8", "replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def _array(raw: Array, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    kind = dtypes.numpy_of(dtype)
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    if count < 0 or min(shape, default=1) < 0:
        raise ValueError(f"constant '{name}' has shape {shape}")
    if dtype == "i4":
        if len(raw) * 2 < count:
            raise ValueError(f"constant '{name}' has {len(raw)} bytes for {count} numbers")
        halves = np.stack([raw & 15, raw >> 4], -1).reshape(-1)[:count].astype(np.int8)
        return ((halves ^ 8) - 8).astype(kind).reshape(shape)
    if len(raw) != count * kind.itemsize:
        raise ValueError(f"constant '{name}' has {len(raw)} bytes, {count} {dtype} need others")
    return np.frombuffer(raw.tobytes(), kind).reshape(shape)
