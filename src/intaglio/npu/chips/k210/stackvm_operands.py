"""Reads and writes the operands of stackvm's tensor functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.k210.kmodel5 import DTYPES
from intaglio.npu.chips.k210.stackvm import Address, StackVm

Fields = dict[str, Any]
FLOAT = DTYPES.index("f32")


def source(vm: StackVm, f: Fields, where: Address, number: str = "") -> Array:
    """An operand at an address."""
    shape, strides = vm.shape(f[f"rshape{number}"]), vm.shape(f[f"rstride{number}"])
    return vm.view(where, f.get("dtype", FLOAT), shape, strides)


def store(vm: StackVm, f: Fields, where: Address, made: Array) -> None:
    """Write a result to an address."""
    dtype = int(f["dtype_to"] if "dtype_to" in f else f.get("dtype", FLOAT))
    vm.view(where, dtype, made.shape, vm.shape(f["rto"]), write=True)[...] = made


def only(name: str, f: Fields, dtypes: tuple[str, ...] = ("f32",)) -> None:
    """Unsupported where an operand has another type than these."""
    found = DTYPES[f["dtype"]] if f["dtype"] < len(DTYPES) else str(f["dtype"])
    if found not in dtypes:
        known = " and ".join(dtypes)
        raise Unsupported(f"kmodel: tensor.{name} of {found} is not simulated; {known} is")


def same_rank(name: str, shape: tuple[int, ...], *others: tuple[Any, ...]) -> None:
    """BadFile where a list has another length than the shape."""
    if any(len(o) != len(shape) for o in others):
        raise BadFile(f"kmodel: the operands of tensor.{name} have other ranks than {shape}")


def clamped(y: Array, f: Fields) -> Array:
    """A result within the limits that are fused with a function."""
    return np.asarray(np.clip(y, np.float32(f["low"]), np.float32(f["high"])))
