"""Packed parameters of PyTorch's quantised operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.frontends.torch.mutable_tensor import MutableTensor
from intaglio.frontends.torch.script import Module
from intaglio.frontends.torch.tensors import Quantized
from intaglio.ir import Value

Ints = tuple[int, ...]


@dataclass
class ConvParams:
    """Weights and window attributes of a convolution."""

    weight: Quantized | Value
    bias: Value | None
    stride: Ints
    padding: Ints
    dilation: Ints
    output_padding: Ints
    groups: int
    transposed: bool


@dataclass
class LinearParams:
    """Weights of a linear layer."""

    weight: Quantized | Value
    bias: Value | None


def state_of(packed: Any) -> Any:
    """The stored state of a packed-parameter object."""
    while isinstance(packed, Module) and packed.state is None and packed.attributes:
        packed = next((v for v in packed.attributes.values() if isinstance(v, Module)), None)
    if not isinstance(packed, Module) or packed.state is None:
        raise BadFile("packed weights are missing; the file is damaged")
    return packed.state


def value_of(x: Any) -> Any:
    """The value of a MutableTensor; any other object unchanged."""
    return x.held if isinstance(x, MutableTensor) else x


def _bias(x: Any) -> Value | None:
    bias = value_of(x)
    if bias is not None and not isinstance(bias, Value):
        raise BadFile("a packed bias is not a tensor; the file is damaged")
    return bias


def linear_params(packed: Any) -> tuple[Quantized | Value, Value | None]:
    """Weight and bias."""
    if isinstance(packed, LinearParams):
        return packed.weight, packed.bias
    state = state_of(packed)
    if isinstance(state, tuple | list) and len(state) == 1:
        state = state[0]
    if not isinstance(state, tuple | list) or len(state) < 2:
        raise BadFile("packed weights of a linear layer are damaged")
    weight = value_of(state[0])
    if not isinstance(weight, Quantized | Value):
        raise BadFile("packed weights of a linear layer are not a tensor; the file is damaged")
    return weight, _bias(state[1])


def conv_params(packed: Any) -> ConvParams:
    """Version 2: ("2", [numbers, weight], [bias]); version 3: (3, numbers, [.., weight, bias])."""
    if isinstance(packed, ConvParams):
        return packed
    state = state_of(packed)
    if not isinstance(state, tuple | list) or len(state) != 3:
        raise Unsupported(
            "packed weights of a convolution from before PyTorch 1.6 are not supported; "
            "save the model again with a newer version"
        )
    if str(state[0]) == "2":
        numbers, weight, bias = value_of(state[1][0]), value_of(state[1][1]), _bias(state[2][0])
        given = [int(v) for v in np.asarray(numbers.data).reshape(-1)]
    elif str(state[0]) == "3":
        given, weight, bias = [int(v) for v in state[1]], value_of(state[2][1]), _bias(state[2][2])
    else:
        raise Unsupported(f"packed weights of version {state[0]!r:.20} are not supported")
    if not isinstance(weight, Quantized | Value) or not given:
        raise BadFile("packed weights of a convolution are not a tensor; the file is damaged")
    n = given[0]
    if not 1 <= n <= 3 or len(given) < 4 * n + 3:
        raise BadFile(
            f"packed weights of a convolution have invalid attributes {given[:8]}; the file is "
            "damaged"
        )
    parts = [tuple(given[1 + i * n : 1 + (i + 1) * n]) for i in range(4)]
    stride, padding, dilation, more = parts
    groups, turned = given[1 + 4 * n], bool(given[2 + 4 * n])
    return ConvParams(weight, bias, stride, padding, dilation, more, groups, turned)
