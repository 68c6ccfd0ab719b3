"""The registry of TFLite importers, and TfliteNode, the view of an operation that importers get.

Importers get quantised operands dequantised, and their results are quantised with the scale of the
output tensor; the passes turn this into integer arithmetic. An op that we have one to one needs no
importer; `Op.names["tflite"]` names it. Any other op has a function in the module of its family:

    @importer("CONV_2D")
    def conv_2d(n: TfliteNode) -> Value: ...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intaglio import dtypes, ops
from intaglio.errors import BadInput, Unsupported
from intaglio.frontends import custom_ops
from intaglio.frontends.importers import Importers
from intaglio.frontends.tflite.file import Operator, Tensor
from intaglio.ir import Array, Quant, Value, constant
from intaglio.ops.registry import Op, evaluate_node

if TYPE_CHECKING:
    from intaglio.frontends.tflite.scope import Scope, State

Import = Callable[["TfliteNode"], Any]
IMPORTERS: Importers[Import] = Importers("tflite", lambda op, n: n.activated(op(*n.operands())))
CUSTOM: Importers[Import] = Importers()  # custom ops
STORED: set[str] = set()  # ops whose importers take and return stored integers


def importer(*names: str, stored: bool = False, custom: bool = False) -> Callable[[Import], Import]:
    """Register the decorated function as the importer of these builtin or custom ops."""
    STORED.update(names if stored else ())
    return (CUSTOM if custom else IMPORTERS).register(*names)


def find_importer(name: str, custom: bool = False) -> Import | None:
    """The importer of an op, or None."""
    if not custom:
        return IMPORTERS.find(name)
    if (own := custom_ops.registered("tflite", name)) is None and name not in CUSTOM:
        own = custom_ops.search("tflite", name)
    return CUSTOM.find(name) if own is None else functools.partial(_import_custom, own)


def _import_custom(op: Op, n: TfliteNode) -> list[Value]:
    """The results of an operator that the user registered."""
    return custom_ops.make_nodes(op, n.inputs, custom_options(n) if n.op.custom_options else {})


def custom_options(n: TfliteNode) -> dict[str, Any]:
    """The FlexBuffer map of a custom op's options."""
    from flatbuffers import flexbuffers  # type: ignore[import-untyped]

    try:
        result = flexbuffers.Loads(n.op.custom_options)
    except Exception as e:
        raise BadInput(f"its options are damaged ({' '.join(str(e).split())[:80]})") from None
    if not isinstance(result, dict):
        raise BadInput("its options are not a map")
    return result


@dataclass(frozen=True)
class Complex:
    """A complex tensor during the import."""

    real: Value
    imag: Value

    def parts(self) -> tuple[Value, Value]:
        return self.real, self.imag


class TfliteNode:
    """One operation of the model and its operands."""

    def __init__(
        self,
        op: Operator,
        inputs: Sequence[Value | None],
        tensors: Sequence[Tensor],
        origin: str,
        scope: Scope,
    ):
        self.op, self.inputs, self.tensors, self.origin = op, list(inputs), tensors, origin
        self.scope = scope

    def input(self, i: int) -> Value | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def required(self, i: int) -> Value:
        v = self.input(i)
        if v is None:
            index = self.op.inputs[i] if i < len(self.op.inputs) else -1
            if index >= 0:
                raise BadInput(f"'{self.tensors[index].name}' is read before it is computed")
            raise BadInput(f"operand {i} is missing; {self.op.op} needs it")
        return v

    def tensor(self, i: int) -> Tensor | None:
        """The tensor table of operand `i`, which holds numbers; None if it is absent."""
        index = self.op.inputs[i] if i < len(self.op.inputs) else -1
        if index < 0:
            return None
        t = self.tensors[index]
        if t.dtype not in dtypes.TABLE:
            raise BadInput(f"operand {i} is of {t.dtype}; {self.op.op} needs numbers")
        return t

    def is_complex(self, i: int) -> bool:
        return i < len(self.op.inputs) and self.op.inputs[i] in self.scope.complex

    def complex(self, i: int) -> Complex:
        """Operand `i`, a complex tensor."""
        found = self.scope.complex.get(self.op.inputs[i]) if self.is_complex(i) else None
        if found is None:
            raise BadInput(f"operand {i} is not complex; {self.op.op} needs a complex one")
        return found

    def real(self, i: int) -> Value | None:
        """Operand `i` of an op on stored integers, dequantised."""
        v, t = self.input(i), self.tensor(i)
        return None if v is None or t is None else real(v, t.quant)

    def state(self, i: int) -> State:
        """Operand `i`, a state that the op updates."""
        if self.tensor(i) is None:
            raise BadInput(f"operand {i}, a state, is missing; the op needs it")
        return self.scope.state(self.op.inputs[i])

    def operands(self) -> list[Value]:
        return [self.required(i) for i in range(len(self.inputs))]

    def const(self, i: int) -> Array:
        """The array of an operand that must be constant."""
        v = self.required(i)
        if v.data is None:
            self.unsupported(
                f"operand {i} ('{v.name}') must be constant, but is known only at run time"
            )
        return v.data

    def ints(self, i: int) -> tuple[int, ...]:
        """A constant operand as a tuple of integers."""
        return tuple(int(d) for d in np.asarray(self.const(i)).reshape(-1))

    def out(self, i: int = 0) -> Tensor:
        """The tensor table of output `i`."""
        if i >= len(self.op.outputs) or self.op.outputs[i] < 0:
            raise BadInput(f"output {i} is missing; {self.op.op} needs it")
        return self.tensors[self.op.outputs[i]]

    def weights(self, i: int, perm: tuple[int, ...]) -> Value:
        """Transposed weights; for quantised ones the stored integers are transposed."""
        v, t = self.required(i), self.tensors[self.op.inputs[i]]
        if t.data is None or t.quant is None:
            result: Value = ops.transpose(v, perm=perm)
            return result
        q = t.quant
        axis = None if q.axis is None else perm.index(q.axis)
        return real(
            constant(np.ascontiguousarray(t.data.transpose(perm))), Quant(q.scale, q.zero, axis)
        )

    def bias(self, i: int, x: int = 0, w: int = 1) -> Value | None:
        """The bias of a product; integers are in units of the accumulator."""
        v, index = self.input(i), self.op.inputs[i] if i < len(self.op.inputs) else -1
        if v is None or self.tensors[index].dtype not in ("i32", "i64"):
            return v
        units = [self.tensors[self.op.inputs[k]].quant for k in (x, w)]
        data = self.tensors[index].data
        if units[0] is None or units[1] is None or data is None:
            self.unsupported(f"its bias '{self.tensors[index].name}' is {v.dtype} without a scale")
        unit = np.multiply(units[0].scale, units[1].scale).astype(np.float32)
        whole = constant(data.astype(np.int32))
        result: Value = ops.dequantize_linear(
            whole, constant(unit if len(unit) > 1 else unit.reshape(())), None, axis=0
        )
        return result

    def dynamic(self, x: Value, w: int, axis: int) -> Value:
        """x dynamically quantised as in LiteRT for products with 8-bit weights; slices from `axis`
        on have one range."""
        t = self.tensor(w)
        if x.dtype != "f32" or t is None or t.dtype != "i8" or t.quant is None or self._exact(x):
            return x
        result: Value = ops.dynamic_fake_quantize(x, axis=axis)
        return result

    def _exact(self, x: Value) -> bool:
        """Whether x is dequantised from integers, so that it is not rounded again."""
        index = self.op.inputs[0]
        return self.tensors[index].quant is not None

    def option(self, name: str, default: Any = 0) -> Any:
        """A field of the op's options, or its default."""
        if self.op.options is None:
            return default
        return getattr(self.op.options, name)()

    def activated(self, y: Any) -> Any:
        """The result with the fused activation of the op."""
        kind = self.option("FusedActivationFunction", 0) if _has_activation(self) else 0
        if kind == 0:
            return y
        if kind == 1:
            return ops.relu(y)
        if kind in (2, 3):
            return ops.clip(y, lo=-1.0 if kind == 2 else 0.0, hi=1.0 if kind == 2 else 6.0)
        if kind == 4:
            return ops.tanh(y)
        self.unsupported(f"fused activation {kind} is not supported")

    def unsupported(self, why: str) -> NoReturn:
        raise Unsupported(f"tflite: {self.op.op} '{self.origin}': {why}")


def _has_activation(n: TfliteNode) -> bool:
    return n.op.options is not None and hasattr(n.op.options, "FusedActivationFunction")


# ---- quantise and dequantise -------------------------------------------------------------------
def parameters(q: Quant, dtype: str) -> tuple[Value, Value, dict[str, Any]]:
    """Scale, zero point and granularity for quantize_linear and dequantize_linear."""
    scale, zero = np.array(q.scale, np.float32), np.array(q.zero)
    low, high = dtypes.limits(dtype)
    if zero.min() < low or zero.max() > high:
        raise BadInput(f"zero point {zero.min()} or {zero.max()} does not fit into {dtype}")
    if q.axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    attrs = {"axis": q.axis or 0, "block_size": 0}
    return constant(scale), constant(zero.astype(dtypes.numpy_of(dtype))), attrs


def real(v: Value, q: Quant | None) -> Value:
    """A stored tensor, dequantised."""
    if q is None:
        return v
    scale, zero, attrs = parameters(q, v.dtype)
    result: Value = ops.dequantize_linear(v, scale, zero, **attrs)
    return result


def stored(v: Value, t: Tensor) -> Value:
    """Real numbers quantised as tensor `t`."""
    if t.quant is None or not dtypes.is_float(v.dtype):
        return v
    scale, zero, attrs = parameters(t.quant, t.dtype)
    result: Value = ops.quantize_linear(v, scale, zero, dtype=t.dtype, **attrs)
    return result


def folded(v: Value) -> Value:
    """`v` as a constant if it depends on constants only."""
    node = v.producer
    if (
        node is None or v.name or node.op == "dequantize_linear"
    ):  # named already, or quantised weights
        return v
    inputs = [None if x is None else folded(x) for x in node.inputs]
    if any(x is not None and x.data is None for x in inputs):
        return v
    arrays = [None if x is None else x.data for x in inputs]
    return constant(evaluate_node(node, arrays)[v.index])
