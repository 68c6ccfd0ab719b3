"""Custom operators in Python as kernels of the runtime: callbacks that a native session calls.

A call takes some 5 us more than its numpy function, because arrays over the memory of a step are
kept: as long as the bytes of a C struct are the same, so is the array that was made from it.
"""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.custom.definition import Operand
from intaglio.custom.handover import hand_over
from intaglio.ir import Array, Type
from intaglio.native import CCall, CTensor
from intaglio.native_op import NativeOp, as_tuples
from intaglio.ops.registry import described_error

MAX_STEPS = 1024  # whose arrays are kept
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_CALL, _TENSOR = ctypes.sizeof(CCall), ctypes.sizeof(CTensor)
# The words of an error are returned as an address: ctypes cannot return bytes from a callback.
InferBack = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
RunBack = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)
Types = Callable[[list[Operand | None], dict[str, Any]], list[Type]]
_raised = threading.local()  # the last exception of a callback on this thread, and its words


def take_exception() -> BaseException | None:
    """The exception that a callback on this thread met since the last call, or None."""
    found: BaseException | None = getattr(_raised, "exception", None)
    _raised.exception = None
    if isinstance(found, Exception):
        return found
    if found is not None:  # KeyboardInterrupt and the like are not ours
        raise found
    return None


class Callbacks:
    """The C functions of one operator, which call its Python functions.

    Attributes are text, or with `struct` those of its C struct.
    """

    def __init__(
        self,
        compute: Callable[..., Any],
        types: Types,
        dynamic: bool = False,
        out: bool = False,
        struct: NativeOp | None = None,
    ):
        self.compute, self.types, self.struct = compute, types, struct
        self.dynamic = dynamic
        self.out = out and not dynamic  # it writes its results where they belong
        self.infer = InferBack(self._infer)
        self.run = RunBack(self._run)
        self._steps: dict[int, _Operands] = {}  # by the address of a step's itg_call

    def _run(self, address: int, part: int, parts: int) -> int | None:
        try:
            step = self._steps.get(address)
            if step is None or not step.holds():
                if len(self._steps) >= MAX_STEPS:
                    self._steps.clear()
                step = self._steps[address] = _Operands(address, self.struct)
            inputs = [None if place is None else place.array() for place in step.inputs]
            with np.errstate(all="ignore"):
                if self.out:
                    places = [place.array() for place in step.outputs]
                    to = places[0] if len(places) == 1 else places
                    results = _listed(self.compute(*inputs, **step.attrs, out=to))
                else:
                    results = _listed(self.compute(*inputs, **step.attrs))
            return step.store(results, self.dynamic)
        except BaseException as e:
            return _fail(e)

    def _infer(self, address: int, result: int) -> int | None:
        """The types of the results, for a package that is opened or resized."""
        try:
            call = CCall.from_address(address)
            attrs, _ = _read(call.attrs, self.struct)
            inputs = [_pointed(call.inputs, i) for i in range(call.n_in)]
            fixed = range(call.n_in) if self.struct else _constants(_text(call.attrs))
            operands = [
                None if at is None else _operand(CTensor.from_address(at), i in fixed)
                for i, at in enumerate(inputs)
            ]
            found = self.types(operands, attrs)
            if len(found) != call.n_out:
                return _words(f"it makes {len(found)} results, the package has {call.n_out}")
            for i, t in enumerate(found):
                out = CTensor.from_address(result + i * _TENSOR)
                out.dtype, out.rank = dtypes.TABLE[t.dtype].code, t.rank
                out.shape[: t.rank] = list(t.shape)
            return None
        except BaseException as e:
            return _fail(e)


class _Operands:
    """The arrays and attributes of one step, kept from call to call."""

    __slots__ = ("attrs", "inputs", "outputs", "raw")

    def __init__(self, address: int, struct: NativeOp | None):
        call = CCall.from_address(address)
        self.attrs, size = _read(call.attrs, struct)
        counts = ((call.inputs, call.n_in), (call.outputs, call.n_out))
        lists = [(ctypes.cast(p, ctypes.c_void_p).value or 0, n * _POINTER) for p, n in counts]
        ins, outs = ([_pointed(p, i) for i in range(n)] for p, n in counts)
        self.inputs = [None if at is None else _Place(at, False) for at in ins]
        self.outputs = [_Place(at, True) for at in outs if at is not None]
        # The call, then what it points to, and the length of the attributes before all of them.
        pieces = [(address, _CALL), *lists, (call.attrs, min(size, 8)), (call.attrs, size)]
        self.raw = [(at, size, ctypes.string_at(at, size)) for at, size in pieces if size]

    def holds(self) -> bool:
        """Is it still the step that it was? Memory may have gone to another session.

        Each piece is read only if all before it, which say where it is, are as they were.
        """
        string_at = ctypes.string_at
        return all(string_at(at, size) == raw for at, size, raw in self.raw)

    def store(self, results: list[Any], dynamic: bool) -> int | None:
        """Copy the results to where the session wants them, unless its caller takes them."""
        if len(results) != len(self.outputs):
            return _words(
                f"its body made {len(results)} results; its shape function says {len(self.outputs)}"
            )
        for i, place in enumerate(self.outputs):
            out = place.array()
            a = results[i]
            if a.dtype != out.dtype or (a.shape != out.shape and not (dynamic and _within(a, out))):
                return _words(
                    f"its body made {a.dtype}{list(a.shape)}; its shape function says "
                    f"{dtypes.name_of(out.dtype)}{list(out.shape)}"
                )
            if a is out:
                continue
            if a.shape == out.shape:
                del a
                if not hand_over(results, i, place.data):
                    out[...] = results[i]
            else:  # dense for its true shape
                out.reshape(-1)[: a.size] = a.reshape(-1)
                CTensor.from_address(place.address).shape[: a.ndim] = list(a.shape)
        return None


class _Place:
    """A tensor of a step, and its array as long as it stays where it is."""

    __slots__ = ("_array", "_dtype", "_memory", "_raw", "_shape", "_writable", "address", "data")

    def __init__(self, address: int, writable: bool):
        self.address, self._writable, self._raw = address, writable, b""
        self.data = 0  # where its elements are

    def array(self) -> Array:
        raw = ctypes.string_at(self.address, _TENSOR)
        if raw == self._raw:
            return self._array
        t = CTensor.from_address(self.address)
        if raw[_POINTER:] != self._raw[_POINTER:]:
            self._shape, self._dtype = tuple(t.shape[: t.rank]), dtypes.BY_CODE[t.dtype].numpy
            size = int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize
            self._memory: Any = ctypes.c_char * size if size else None
        if self._memory is None:
            self._array: Array = np.empty(self._shape, self._dtype)
        else:
            memory = self._memory.from_address(t.data)
            self._array = np.ndarray(self._shape, self._dtype, memory)
        self._array.flags.writeable = self._writable  # constants lie in a file mapped to be read
        self._raw, self.data = raw, t.data or 0
        return self._array


def _listed(got: Any) -> list[Any]:
    """The results of a body as a list of arrays, which has no reference to them but its own."""
    results = got if isinstance(got, tuple | list) else (got,)
    return [a if isinstance(a, np.ndarray) else np.asarray(a) for a in results]


def _within(a: Array, out: Array) -> bool:
    return a.ndim == out.ndim and all(d <= e for d, e in zip(a.shape, out.shape, strict=True))


# ---- reading C structs -------------------------------------------------------------------------
def _pointed(pointers: Any, i: int) -> int | None:
    """The address in entry `i` of a list of pointers to tensors; None if it is absent."""
    return ctypes.cast(pointers[i], ctypes.c_void_p).value


def _operand(t: CTensor, constant: bool) -> Operand:
    data = _Place(ctypes.addressof(t), False).array() if constant and t.data else None
    return Operand(dtypes.BY_CODE[t.dtype].name, tuple(t.shape[: t.rank]), data)


def _text(attrs: int) -> bytes:
    """The attributes of a step: text with its length before it."""
    return ctypes.string_at(attrs + 8, ctypes.c_int64.from_address(attrs).value)


@functools.lru_cache(MAX_STEPS)
def _parsed(text: bytes) -> Any:
    return json.loads(text)


def _read(attrs: int, struct: NativeOp | None) -> tuple[dict[str, Any], int]:
    """The attributes at an address, and their bytes."""
    if struct is None:
        text = _text(attrs)
        return _attributes(text), len(text) + 8
    size = 8 * sum(f.count for f in struct.fields)
    return struct.unpack_attrs(ctypes.string_at(attrs, size)), size


def _constants(text: bytes) -> list[int]:
    """The numbers of the inputs that are constant."""
    found: list[int] = _parsed(text)["constants"]
    return found


def _attributes(text: bytes) -> dict[str, Any]:
    return {name: as_tuples(value) for name, value in _parsed(text)["attributes"]}


# ---- errors --------------------------------------------------------------------------------------
def _fail(e: BaseException) -> int:
    _raised.exception = e
    return _words(described_error(e))


def _words(words: str) -> int:
    """The address of words that stay in memory until the next error on this thread."""
    _raised.words = ctypes.create_string_buffer(words.encode("utf-8", "replace"))
    return ctypes.addressof(_raised.words)
