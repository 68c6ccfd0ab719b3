"""Importers of the prepacked ops of PyTorch's mobile optimiser: conv and linear with clamp."""

from __future__ import annotations

from typing import Any

from intaglio.errors import BadFile
from intaglio.frontends.torch.compare import clamp
from intaglio.frontends.torch.conv import convolved, spread
from intaglio.frontends.torch.importer import importer
from intaglio.frontends.torch.linear import linear
from intaglio.frontends.torch.packed_params import state_of, value_of
from intaglio.ir import Value


def _unpacked(packed: Any, count: int) -> list[Any]:
    """The stored weight, bias, window attributes, and clamp bounds."""
    state = state_of(packed)
    if not isinstance(state, tuple | list) or len(state) != count:
        raise BadFile(f"a packed layer has {len(state)} items; {count} are needed")
    return [value_of(x) for x in state]


def _clamped(y: Value, low: Any, high: Any) -> Value:
    return y if low is None and high is None else clamp(y, low, high)


@importer("prepacked::conv2d_clamp_run")
def conv2d_clamp_run(X: Value, W_prepack: Any) -> Value:
    weight, bias, stride, padding, dilation, groups, low, high = _unpacked(W_prepack, 8)
    return _clamped(convolved(X, weight, bias, stride, padding, dilation, groups), low, high)


@importer("prepacked::conv2d_transpose_clamp_run")
def conv2d_transpose_clamp_run(X: Value, W_prepack: Any) -> Value:
    weight, bias, stride, padding, more, dilation, groups, low, high = _unpacked(W_prepack, 9)
    return _clamped(spread(X, weight, bias, stride, padding, more, groups, dilation), low, high)


@importer("prepacked::linear_clamp_run")
def linear_clamp_run(X: Value, W_prepack: Any) -> Value:
    weight, bias, low, high = _unpacked(W_prepack, 4)
    return _clamped(linear(X, weight, bias), low, high)
