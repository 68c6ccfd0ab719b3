"""Values as f16: casts of operands and results, and values that an NPU op makes in f16."""

from __future__ import annotations

import numpy as np

from intaglio import ops
from intaglio.ir import Array, Node, Value
from intaglio.npu.lowering.builder import Builder, Refused, data, is_npu, table_input
from intaglio.ops.registry import REGISTRY

FLOATS = ("f16", "f32")
DATA_MOVEMENT = (
    "concat",
    "slice",
    "resize",
    "channel_shuffle",
    "gather",
    "space_to_depth",
    "reshape",
    "transpose",
)
WITH_EPILOGUE = ("npu.conv", "npu.depthwise", "npu.eltwise", "npu.pool")


def as_f16(v: Value) -> Value | None:
    """The value itself if it is f16, or the f16 value that a cast to f32 made it from."""
    result = v.producer
    if v.dtype == "f16":
        return v
    if v.dtype == "f32" and result is not None and result.op == "cast":
        before = result.inputs[0]
        return before if before is not None and before.dtype == "f16" else None
    return None


def made_on_npu(v: Value | None) -> bool:
    """Does an NPU op make this value in f16, maybe with data movement in between?"""
    found = None if v is None else as_f16(v)
    while found is not None and found.producer is not None and found.producer.op in DATA_MOVEMENT:
        found = found.producer.inputs[0]
    return found is not None and found.producer is not None and is_npu(found.producer)


class F16Casts:
    """Casts operands to f16 and results back; `every` allows it for operands that are f32."""

    def __init__(self, make: Builder, every: bool):
        self.make, self.every = make, every

    def __call__(self, v: Value) -> Value:
        """A value as f16; Refused if it has to stay f32."""
        if (found := as_f16(v)) is not None:
            return found
        if v.dtype != "f32" or not self.every:
            raise Refused(f"it computes in {v.dtype}; units work on f16")
        return self.make.on_cpu(ops.cast, v, dtype="f16")

    def back(self, y: Value, like: Value) -> Value:
        """A result in the shape and type of `like`."""
        shaped = self.make.reshaped(y, like.shape)
        return shaped if like.dtype == "f16" else self.make.on_cpu(ops.cast, shaped, dtype="f32")

    def weights(self, w: Value) -> Array:
        """Constant weights as f16; Refused if that overflows, or rounds without being allowed."""
        full = data(w).astype(np.float32)
        with np.errstate(over="ignore"):
            small = full.astype(np.float16)
        if not np.isfinite(small).all():
            raise Refused("a weight is larger than f16 can hold")
        if not self.every and not np.array_equal(small.astype(np.float32), full):
            raise Refused("its weights are not exact in f16")
        return small


def epilogue_owner(x: Value) -> Node | None:
    """The NPU op that makes `x` in f16 for one reader and has no table yet; None: there is none."""
    small, readers = as_f16(x), list(x.uses)
    result = small.producer if small is not None else None
    if result is None or result.op not in WITH_EPILOGUE or len(readers) != 1:
        return None
    assert small is not None
    if result.attrs["dtype"] != "f16" or (small is not x and len(small.uses) != 1):
        return None
    has_table = result.op != "npu.pool" and result.inputs[table_input(result.op)] is not None
    return None if has_table else result


def function_operand(node: Node) -> Value | None:
    """The one tensor of floats that an element-wise node is a function of; None: it is none."""
    read = [v for v in node.inputs if v is not None and v.data is None]
    rest = [v for v in node.inputs if v is not None and v.data is not None]
    plain = REGISTRY[node.op].elementwise and len(node.outputs) == 1 and len(read) == 1
    if not plain or node.op == "cast" or any(v.type.size != 1 for v in rest):
        return None
    fits = read[0].type == node.outputs[0].type and read[0].dtype in FLOATS
    return read[0] if fits else None
