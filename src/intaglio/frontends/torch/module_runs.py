"""Runs of a live module: its example inputs, its outputs, and its buffers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio.frontends.options import ImportOptions

TOLERANCE = 1e-3  # of the outputs of an export, relative to their largest element
# Our names of element types, by the names of PyTorch.
_NAMES = {
    "torch.uint8": "u8",
    "torch.int8": "i8",
    "torch.int16": "i16",
    "torch.int32": "i32",
    "torch.int64": "i64",
    "torch.float16": "f16",
    "torch.bfloat16": "bf16",
    "torch.float32": "f32",
    "torch.float64": "f64",
    "torch.bool": "bool",
}


def script_options(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: ImportOptions
) -> ImportOptions:
    """The options with the shapes, element types and numbers of the examples.

    A scripted module has no examples of its own. Options that the user gave are kept.
    """
    import torch

    names = list(inspect.signature(model.forward).parameters)
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    shapes: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    values: dict[str, Any] = {}

    def describe(name: str, x: Any) -> None:
        if isinstance(x, torch.Tensor):
            shapes[name], kinds[name] = tuple(x.shape), _NAMES.get(str(x.dtype), "f32")
        elif isinstance(x, list | tuple):
            for i, y in enumerate(x):
                describe(f"{name}.{i}", y)
        elif isinstance(x, Mapping):
            for k, y in x.items():
                describe(f"{name}.{k}", y)
        elif isinstance(x, bool | int | float):
            values[name] = np.asarray(x)

    for name, x in named.items():
        describe(name, x)
    return replace(
        options,
        shapes={**shapes, **options.shapes},
        dtypes={**kinds, **options.dtypes},
        values={**values, **options.values},
    )


@contextlib.contextmanager
def plain_outputs(model: Any) -> Iterator[None]:
    """Within, the module returns tuples and dicts instead of named tuples, dataclasses and others.

    torch.export and torch.jit.trace know only some of the classes that a module may return.
    """
    before, own = model.forward, "forward" in vars(model)

    @functools.wraps(before)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return _plain(before(*args, **kwargs))

    model.forward = forward
    try:
        yield
    finally:
        if own:
            model.forward = before
        else:
            del model.forward


def _plain(x: Any) -> Any:
    """Nested outputs as tuples and dicts with the names of fields and keys as their keys."""
    if isinstance(x, Mapping):
        return {str(k): _plain(v) for k, v in x.items()}
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        named = {f.name: getattr(x, f.name) for f in dataclasses.fields(x)}
        return {k: _plain(v) for k, v in named.items() if v is not None}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return {k: _plain(v) for k, v in zip(x._fields, x, strict=True) if v is not None}
    if isinstance(x, list | tuple):
        return tuple(_plain(v) for v in x)
    return x


@contextlib.contextmanager
def kept_buffers(model: Any) -> Iterator[None]:
    """Runs of the module within do not change its buffers."""
    before = [
        (m, name, t, t.clone())
        for m in model.modules()
        for name, t in m._buffers.items()
        if t is not None
    ]
    try:
        yield
    finally:
        for m, name, t, stored in before:
            m._buffers[name] = t
            t.copy_(stored)


def negated(x: Any) -> Any:
    """The examples with the other sign, by which a branch on a value often goes the other way."""
    import torch
    from torch.utils import _pytree

    return _pytree.tree_map(
        lambda t: -t if isinstance(t, torch.Tensor) and t.is_floating_point() else t, x
    )


def outputs_agree(got: Any, want: Any) -> bool:
    """Whether all tensors of two results are equal within TOLERANCE."""
    import torch
    from torch.utils import _pytree

    pairs = [[t for t in _pytree.tree_leaves(x) if torch.is_tensor(t)] for x in (got, want)]
    return len(pairs[0]) == len(pairs[1]) and all(
        a.shape == b.shape and torch.allclose(a.double(), b.double(), TOLERANCE, _margin(b), True)
        for a, b in zip(*pairs, strict=True)
    )


def _margin(t: Any) -> float:
    return TOLERANCE * float(t.double().abs().max()) if t.numel() else 0.0
