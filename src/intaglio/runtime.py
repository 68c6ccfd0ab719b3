"""The ctypes binding of the C runtime: the structs and functions of csrc/include/intaglio.h."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.custom.callback import take_exception
from intaglio.custom.discover import from_environment as prepare_custom_ops
from intaglio.custom.discover import look_again
from intaglio.errors import BadFile
from intaglio.ir import Quant, Type
from intaglio.package import Package
from intaglio.package.format import ALIGN
from intaglio.package.keys import KeySource, PublicKeySource, open_options
from intaglio.status import NO_PLUGIN
from intaglio.status import CError as CError
from intaglio.status import error_of as error_of
from intaglio.symint import Symbol, Symbols

_SKIP_CHECKSUM = 1  # flag of itg_model_open: do not read the weights to check them
_COPY = 2  # flag of itg_model_open_file: read the file instead of mapping it
_Shape = ctypes.c_int64 * native.MAX_RANK


class CInfo(ctypes.Structure):
    """itg_info: name, type and quantisation of an input or output."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("dynamic", ctypes.c_uint8),
        ("shape", _Shape),
        ("bytes", ctypes.c_uint64),
        ("scale", ctypes.POINTER(ctypes.c_double)),
        ("zero", ctypes.POINTER(ctypes.c_int64)),
        ("n_scale", ctypes.c_uint32),
        ("quant_axis", ctypes.c_int32),
        ("symbol", ctypes.c_int32 * native.MAX_RANK),
    ]


class CSymbol(ctypes.Structure):
    """itg_symbol: an open dimension."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
        ("multiple", ctypes.c_int64),
    ]


class COptions(ctypes.Structure):
    """itg_options: how a session is created."""

    _fields_ = [
        ("plan", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("profile", ctypes.c_uint32),
        ("external_io", ctypes.c_uint32),
        ("max_steps", ctypes.c_uint64),
        ("memory", ctypes.c_void_p),
        ("memory_size", ctypes.c_uint64),
        ("weights", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
        ("internal_size", ctypes.c_uint64),
        ("internal_later", ctypes.c_uint32),
        ("core_mask", ctypes.c_uint32),
    ]


class CPoolOptions(ctypes.Structure):
    """itg_pool_options: how a thread pool is created."""

    _fields_ = [
        ("threads", ctypes.c_uint32),
        ("cpus", ctypes.POINTER(ctypes.c_uint32)),
        ("n_cpus", ctypes.c_uint32),
    ]


class CMemory(ctypes.Structure):
    """itg_memory: bytes by purpose."""

    _fields_ = [
        (n, ctypes.c_uint64)
        for n in ("weights", "arena", "scratch", "io", "tables", "session", "internal")
    ]


class CView(ctypes.Structure):
    """itg_view: an output or a state, where it lies in memory."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("shape", _Shape),
        ("bytes", ctypes.c_uint64),
    ]


class CState(ctypes.Structure):
    """itg_state: the input and the output between which a session carries a tensor."""

    _fields_ = [
        ("input", ctypes.c_uint32),
        ("output", ctypes.c_uint32),
        ("initial", ctypes.c_void_p),
    ]


class CProfile(ctypes.Structure):
    """itg_profile: the time of one step."""

    _fields_ = [
        ("op", ctypes.c_char_p),
        ("origin", ctypes.c_char_p),
        ("kernel_isa", ctypes.c_char_p),
        ("plan", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("macs", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("ns", ctypes.c_uint64),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """The C library with the signatures of its session functions set."""
    lib = native.library()
    pointer, u32, size = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t
    signatures: list[tuple[Any, ...]] = [  # name, result, arguments
        ("itg_model_open_file_with", u32, ctypes.c_char_p, pointer, pointer, pointer),
        ("itg_model_open_with", u32, pointer, size, pointer, pointer, pointer),
        ("itg_model_close", None, pointer),
        ("itg_model_inputs", u32, pointer, u32),
        ("itg_model_outputs", u32, pointer, u32),
        ("itg_model_meta", pointer, pointer, pointer),
        ("itg_model_plans", u32, pointer),
        ("itg_model_input", u32, pointer, u32, u32, pointer),
        ("itg_model_output", u32, pointer, u32, u32, pointer),
        ("itg_model_states", u32, pointer, u32),
        ("itg_model_state", u32, pointer, u32, u32, pointer),
        ("itg_get_state", u32, pointer, u32, pointer),
        ("itg_set_state", u32, pointer, u32, pointer, size),
        ("itg_reset_states", None, pointer),
        ("itg_model_memory", u32, pointer, pointer, pointer, pointer),
        ("itg_pool_create", u32, pointer, pointer, pointer),
        ("itg_pool_destroy", None, pointer),
        ("itg_session_create", u32, pointer, pointer, pointer, pointer),
        ("itg_session_destroy", None, pointer),
        ("itg_set_internal", u32, pointer, pointer, size),
        ("itg_input_layout", u32, pointer, u32, pointer),
        ("itg_set_input_layout", u32, pointer, u32, u32),
        ("itg_session_error", ctypes.c_char_p, pointer),
        ("itg_session_steps", u32, pointer),
        ("itg_run_with", u32, pointer, pointer, pointer),
        ("itg_set_shapes", u32, pointer, pointer),
        ("itg_session_plan", u32, pointer),
        ("itg_model_symbols", u32, pointer, u32),
        ("itg_model_symbol", u32, pointer, u32, u32, pointer),
        ("itg_get_output", u32, pointer, u32, pointer),
        ("itg_get_profile", u32, pointer, u32, pointer),
        ("itg_reset_profile", None, pointer),
        ("itg_output_unread", u32, pointer, u32),
    ]
    for name, result, *arguments in signatures:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Model:
    """An open package; closed when the last session that uses it is gone."""

    def __init__(
        self,
        source: str | Path | bytes | Package,
        verify: bool,
        copy: bool = False,
        key: KeySource | None = None,
        public_key: PublicKeySource | None = None,
        weights: str | Path | None = None,
    ):
        prepare_custom_ops()
        lib, error, handle = library(), CError(), ctypes.c_void_p()
        if isinstance(source, Package) and not source.sealed:
            verify = False  # it never left this process
        flags = (0 if verify else _SKIP_CHECKSUM) | (_COPY if copy else 0)
        with open_options(key, public_key, flags, weights) as options:
            results = ctypes.byref(options), ctypes.byref(handle), ctypes.byref(error)
            where = ""
            if isinstance(source, Package | bytes | bytearray | memoryview):
                data = source.image if isinstance(source, Package) else bytes(source)
                given = np.frombuffer(data, np.uint8)
                address = given.ctypes.data
                self._keep = None if address % ALIGN else given  # unaligned bytes are copied
                call = functools.partial(lib.itg_model_open_with, address, len(data), *results)
            else:
                where = str(source)
                path = os.fsencode(source)
                call = functools.partial(lib.itg_model_open_file_with, path, *results)
            if (status := call()) == NO_PLUGIN and look_again():
                status = call()
            if status:
                raise error_of(status, error.words, where) from take_exception()
        self.handle = handle
        weakref.finalize(self, lib.itg_model_close, handle)

    @functools.cached_property
    def meta(self) -> dict[str, Any]:
        """The package's metadata: section META."""
        size = ctypes.c_size_t()
        text = library().itg_model_meta(self.handle, ctypes.byref(size))
        try:
            meta = json.loads(ctypes.string_at(text, size.value)) if text else {}
        except ValueError as e:
            raise BadFile(f"section META is not JSON ({e}); compile again") from None
        if not isinstance(meta, dict):
            raise BadFile("section META is not a JSON object; compile again")
        return meta

    def types(self, inputs: bool, plan: int) -> dict[str, Type]:
        """The types of a plan's inputs or outputs by name."""
        lib = library()
        count, get = (
            (lib.itg_model_inputs, lib.itg_model_input)
            if inputs
            else (lib.itg_model_outputs, lib.itg_model_output)
        )
        found: dict[str, Type] = {}
        info, extents = CInfo(), self.open_extents(plan) if inputs else []
        for i in range(count(self.handle, plan)):
            get(self.handle, plan, i, ctypes.byref(info))
            name = info.name.decode("utf-8", "replace")
            if name in found:
                raise BadFile(f"package has two {'in' if inputs else 'out'}puts called '{name}'")
            found[name] = _type(info, extents)
        return found

    @property
    def plans(self) -> int:
        """The number of main plans."""
        return int(library().itg_model_plans(self.handle))

    def open_extents(self, plan: int) -> list[int]:
        """The extents of a plan's open dimensions, as SymInts."""
        lib, symbol, found = library(), CSymbol(), []
        for i in range(lib.itg_model_symbols(self.handle, plan)):
            lib.itg_model_symbol(self.handle, plan, i, ctypes.byref(symbol))
            name = symbol.name.decode("utf-8", "replace")
            found.append(Symbol(name, symbol.low, symbol.high, symbol.multiple))
        symbols = Symbols(found)
        return [symbols.extent(s.name) for s in found]

    def memory(self, options: COptions) -> CMemory:
        """The bytes that a session with these options takes, by purpose."""
        found, error = CMemory(), CError()
        status = library().itg_model_memory(
            self.handle, ctypes.byref(options), ctypes.byref(found), ctypes.byref(error)
        )
        if status:
            raise error_of(status, error.words)
        return found

    def states(self, plan: int) -> list[tuple[int, int]]:
        """The input and output numbers of every state."""
        lib, state, found = library(), CState(), []
        for i in range(lib.itg_model_states(self.handle, plan)):
            lib.itg_model_state(self.handle, plan, i, ctypes.byref(state))
            found.append((int(state.input), int(state.output)))
        return found


def _type(info: CInfo, extents: Sequence[int]) -> Type:
    """The type of an input or output; `extents` are those of the open dimensions."""
    quant = None
    if info.scale:
        n = info.n_scale
        axis = None if info.quant_axis < 0 else info.quant_axis
        quant = Quant(tuple(info.scale[:n]), tuple(info.zero[:n]), axis)
    shape, axes = list(info.shape[: info.rank]), []
    for i, number in enumerate(info.symbol[: info.rank]):
        if number >= 0:
            shape[i] = extents[number]
        elif info.dynamic >> i & 1:
            axes.append(i)
    return Type(dtypes.BY_CODE[info.dtype].name, tuple(shape), quant, tuple(axes))
