"""Arrays of the caller as the runtime reads and writes them: in place, by their addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from intaglio.arguments import described
from intaglio.errors import BadInput
from intaglio.feeds import array_for, no_such_name
from intaglio.ir import Array, Type
from intaglio.native_session import Sized

C_CONTIGUOUS_AND_ALIGNED = 0x101  # bits of numpy's flags.num


def fitting(sized: Sized, inputs: Mapping[str, Array]) -> list[Array] | None:
    """The inputs in order if they can be used as they are: the fast path of a run."""
    arrays = []
    for name, dtype, shape in sized.takes:
        a = inputs.get(name)
        fits = type(a) is np.ndarray and a.dtype == dtype and a.shape == shape
        if not fits or a.flags.num & C_CONTIGUOUS_AND_ALIGNED != C_CONTIGUOUS_AND_ALIGNED:  # type: ignore[union-attr]
            return None
        arrays.append(a)
    return arrays if len(arrays) == len(inputs) else None  # type: ignore[return-value]


def _data_offset() -> int | None:
    """Where numpy's C struct of an array has the address of its elements: after the head of every
    object. None if that is not so in this interpreter."""
    offset = getattr(object, "__basicsize__", 0)
    some = (np.zeros(3), np.zeros((4, 5), np.uint8)[1:, 2:], np.empty(0), np.arange(9)[::-2])
    found = all(word_at(id(a) + offset).value == a.ctypes.data for a in some) if offset else False
    return offset if found else None


word_at = ctypes.c_size_t.from_address
DATA_OFFSET = _data_offset()


def address_of(a: Array) -> int:
    """The address of an array's elements; six times as fast as `a.ctypes.data`."""
    return a.ctypes.data if DATA_OFFSET is None else word_at(id(a) + DATA_OFFSET).value


def leading(buffer: Array, shape: tuple[int, ...]) -> Array:
    """The leading elements of `buffer` as an array of this shape."""
    return (
        buffer
        if shape == buffer.shape
        else buffer.reshape(-1)[: int(np.prod(shape))].reshape(shape).copy()
    )


def output_buffers(
    sized: Sized,
    types: Mapping[str, Type],
    out: Mapping[str, Array] | None,
    inputs: Sequence[Array],
) -> dict[str, Array]:
    """One array per output: from `out`, or a new one."""
    if not out:
        return {name: sized.new_result(name, dtype, s) for name, dtype, s in sized.makes}
    if not isinstance(out, Mapping):
        raise BadInput(
            f"out is {described(out)}; it maps names of outputs to arrays, or is left out: "
            "the result of `run` has all outputs"
        )
    if unknown := [n for n in out if n not in types]:
        raise no_such_name("output", unknown[0], types)
    buffers = {}
    for name, dtype, shape in sized.makes:
        if name not in out:
            buffers[name] = sized.new_result(name, dtype, shape)
            continue
        a = buffers[name] = array_for(name, "out", out[name], types[name].but(shape=shape))
        if any(np.may_share_memory(a, b) for b in inputs):
            raise BadInput(f"out['{name}'] shares memory with an input; give it its own")
    return buffers


def as_given(results: dict[str, Array], out: Mapping[str, Array]) -> dict[str, Array]:
    """The results, with the caller's own objects for arrays that were written in place."""
    for name, given in out.items():
        if results[name].shape == tuple(given.shape):
            results[name] = given
    return results
