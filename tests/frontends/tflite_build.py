"""Builds TFLite files for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import ml_dtypes
import numpy as np
import tflite

TYPES = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 1,
    np.dtype(np.int32): 2,
    np.dtype(np.uint8): 3,
    np.dtype(np.int64): 4,
    np.dtype(np.bool_): 6,
    np.dtype(np.int16): 7,
    np.dtype(np.complex64): 8,
    np.dtype(np.int8): 9,
    np.dtype(ml_dtypes.int4): 17,
}


@dataclass
class Sparse:
    """Sparsity: traversal order, block axes, and per axis its length or CSR rows."""

    order: list[int]
    blocks: list[int]
    levels: list[int | tuple[list[int], list[int]]]


@dataclass
class T:
    """A tensor: shape and type, or data; scale, zero and axis if it is quantised."""

    shape: tuple[int, ...] = ()
    dtype: Any = np.float32
    data: Any = None
    scale: Any = None
    zero: Any = 0
    axis: int = 0
    variable: bool = False  # state that an op updates
    resource: bool = False  # the handle of a variable
    strings: bool = False  # elements are strings
    variant: bool = False  # a list of tensors
    sparse: Sparse | None = None  # then `data` has the stored values and `shape` the dense shape
    name: str = ""  # usually t and its number

    def __post_init__(self) -> None:
        if self.data is not None:
            self.data = np.asarray(self.data)
            self.dtype = self.data.dtype
            self.shape = self.shape if self.sparse else self.data.shape


@dataclass
class Op:
    """`Op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", StrideW=1, ...)`; tensors by index."""

    name: str
    inputs: list[int]
    outputs: list[int]
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    custom: bytes = b""  # the options of a custom op
    inside: list[int] = field(default_factory=list)  # tensors with the scales of inner values


@dataclass
class G:
    """A graph of a file."""

    tensors: list[T]
    operators: list[Op]
    inputs: list[int]
    outputs: list[int]


def op(name: str, inputs: list[int], outputs: list[int], table: str = "", **options: Any) -> Op:
    return Op(name, inputs, outputs, table, options)


def model(tensors: list[T], operators: list[Op], inputs: list[int], outputs: list[int]) -> bytes:
    """The bytes of a file with one graph."""
    return models([G(tensors, operators, inputs, outputs)])


Ends = dict[str, int]


def models(graphs: list[G], signatures: dict[str, tuple[int, Ends, Ends]] | None = None) -> bytes:
    """The bytes of a file with several graphs; signatures name tensors of one of them."""
    b = flatbuffers.Builder(1024)
    codes = sorted({o.name for g in graphs for o in g.operators})
    buffers = [_buffer(b, None)]
    parts = [_graph(b, g, i, codes, buffers) for i, g in enumerate(graphs)]
    known = [_table(b, "OperatorCode", **_code(b, name)) for name in codes]
    entries = [_signature(b, name, *s) for name, s in (signatures or {}).items()]
    fields = {"SignatureDefs": _offsets(b, entries)} if entries else {}
    root = _table(
        b,
        "Model",
        Version=3,
        OperatorCodes=_offsets(b, known),
        Subgraphs=_offsets(b, parts),
        Buffers=_offsets(b, buffers),
        **fields,
    )
    b.Finish(root, file_identifier=b"TFL3")
    return bytes(b.Output())


def _graph(b: Any, g: G, number: int, codes: list[str], buffers: list[int]) -> int:
    made = []
    for i, t in enumerate(g.tensors):
        if t.data is not None:
            buffers.append(_buffer(b, t.data))
        made.append(_tensor(b, t, t.name or f"t{i}", len(buffers) - 1 if t.data is not None else 0))
    steps = [_operator(b, o, codes) for o in g.operators]
    return _table(
        b,
        "SubGraph",
        Tensors=_offsets(b, made),
        Inputs=_ints(b, g.inputs),
        Outputs=_ints(b, g.outputs),
        Operators=_offsets(b, steps),
        Name=b.CreateString(f"graph{number}" if number else "main"),
    )


def _signature(b: Any, name: str, graph: int, inputs: Ends, outputs: Ends) -> int:
    ends = [
        _offsets(
            b,
            [
                _table(b, "TensorMap", Name=b.CreateString(k), TensorIndex=t)
                for k, t in each.items()
            ],
        )
        for each in (inputs, outputs)
    ]
    key = b.CreateString(name)
    return _table(
        b, "SignatureDef", Inputs=ends[0], Outputs=ends[1], SignatureKey=key, SubgraphIndex=graph
    )


def _code(b: Any, name: str) -> dict[str, Any]:
    code = getattr(tflite.BuiltinOperator, name, None)
    if code is None:
        return {"CustomCode": b.CreateString(name), "BuiltinCode": 32, "DeprecatedBuiltinCode": 32}
    return {"BuiltinCode": code, "DeprecatedBuiltinCode": min(code, 127)}


def _table(b: Any, table: str, **fields: Any) -> int:
    getattr(tflite, f"{table}Start")(b)
    for name, value in fields.items():
        getattr(tflite, f"{table}Add{name}")(b, value)
    return int(getattr(tflite, f"{table}End")(b))


def _ints(b: Any, values: Any) -> int:
    return int(b.CreateNumpyVector(np.asarray(values, np.int32)))


def _offsets(b: Any, items: list[int]) -> int:
    b.StartVector(4, len(items), 4)
    for item in reversed(items):
        b.PrependUOffsetTRelative(item)
    return int(b.EndVector())


def _buffer(b: Any, data: Any) -> int:
    if data is None:
        return _table(b, "Buffer")
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
    if data.dtype == ml_dtypes.int4:  # two per byte, the first in the low bits
        pairs = np.append(raw & 15, np.zeros(raw.size % 2, np.uint8)).reshape(-1, 2)
        raw = np.ascontiguousarray(pairs[:, 0] | pairs[:, 1] << 4)
    return _table(b, "Buffer", Data=b.CreateNumpyVector(raw))


def _tensor(b: Any, t: T, name: str, buffer: int) -> int:
    fields = {"Shape": _ints(b, [max(d, 1) if -1 in t.shape else d for d in t.shape])}
    fields["Name"] = b.CreateString(name)
    if -1 in t.shape:  # an extent known only at run time
        fields["ShapeSignature"] = _ints(b, t.shape)
    if t.scale is not None:
        scale = np.atleast_1d(np.asarray(t.scale, np.float32))
        zero = np.broadcast_to(np.asarray(t.zero, np.int64), scale.shape)
        fields["Quantization"] = _table(
            b,
            "QuantizationParameters",
            Scale=b.CreateNumpyVector(scale),
            ZeroPoint=b.CreateNumpyVector(np.ascontiguousarray(zero)),
            QuantizedDimension=t.axis,
        )
    if t.sparse is not None:
        levels = _offsets(b, [_level(b, v) for v in t.sparse.levels])
        order, blocks = _ints(b, t.sparse.order), _ints(b, t.sparse.blocks)
        fields["Sparsity"] = _table(
            b, "SparsityParameters", TraversalOrder=order, BlockMap=blocks, DimMetadata=levels
        )
    special = 13 if t.resource else 5 if t.strings else 14 if t.variant else None
    kind = TYPES[np.dtype(t.dtype)] if special is None else special
    return _table(b, "Tensor", Type=kind, Buffer=buffer, IsVariable=t.variable, **fields)


def _level(b: Any, level: int | tuple[list[int], list[int]]) -> int:
    if isinstance(level, int):
        return _table(b, "DimensionMetadata", Format=0, DenseSize=level)
    rows = [_table(b, "Int32Vector", Values=_ints(b, v)) for v in level]
    return _table(
        b,
        "DimensionMetadata",
        Format=1,
        ArraySegmentsType=1,
        ArraySegments=rows[0],
        ArrayIndicesType=1,
        ArrayIndices=rows[1],
    )


def _operator(b: Any, o: Op, codes: list[str]) -> int:
    fields: dict[str, Any] = {"Inputs": _ints(b, o.inputs), "Outputs": _ints(b, o.outputs)}
    if o.table:
        options = {
            k: _ints(b, v)
            if isinstance(v, list)
            else b.CreateString(v)
            if isinstance(v, str)
            else v
            for k, v in o.options.items()
        }
        fields["BuiltinOptions"] = _table(b, o.table, **options)
        fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, o.table)
    if o.custom:
        fields["CustomOptions"] = b.CreateNumpyVector(np.frombuffer(o.custom, np.uint8))
    if o.inside:
        fields["Intermediates"] = _ints(b, o.inside)
    return _table(b, "Operator", OpcodeIndex=codes.index(o.name), **fields)
