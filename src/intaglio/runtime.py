"""The ctypes binding of the C runtime: the structs and functions of csrc/include/intaglio.h."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.errors import BadFile, BadInput, IntaglioError, RunError, Unsupported
from intaglio.ir import Quant, Type
from intaglio.package import Package
from intaglio.package.format import ALIGN

_ERRORS: dict[int, type[IntaglioError]] = {  # by itg_status
    1: BadFile,
    2: BadInput,
    3: Unsupported,
    4: RunError,
    5: RunError,  # out of memory
}
_BUSY = 6  # ITG_BUSY, the one status without words of the session
_SKIP_CHECKSUM = 1  # flag of itg_model_open: do not read the weights to check them
_COPY = 2  # flag of itg_model_open_file: read the file instead of mapping it
_Shape = ctypes.c_int64 * native.MAX_RANK


class CError(ctypes.Structure):
    """itg_error: the words of a failed call."""

    _fields_ = [("words", ctypes.c_char * 256)]


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
    ]


class CMemory(ctypes.Structure):
    """itg_memory: bytes by purpose."""

    _fields_ = [
        (n, ctypes.c_uint64) for n in ("weights", "arena", "scratch", "io", "tables", "session")
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
        ("itg_model_open_file", u32, ctypes.c_char_p, u32, pointer, pointer),
        ("itg_model_open", u32, pointer, size, u32, pointer, pointer),
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
        ("itg_session_create", u32, pointer, pointer, pointer, pointer),
        ("itg_session_destroy", None, pointer),
        ("itg_session_error", ctypes.c_char_p, pointer),
        ("itg_session_steps", u32, pointer),
        ("itg_run_with", u32, pointer, pointer, pointer),
        ("itg_get_output", u32, pointer, u32, pointer),
        ("itg_get_profile", u32, pointer, u32, pointer),
        ("itg_reset_profile", None, pointer),
    ]
    for name, result, *arguments in signatures:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def error_of(status: int, words: bytes, where: str = "") -> IntaglioError:
    """The exception for a status of the runtime, with the runtime's words."""
    if status == _BUSY:
        return BadInput(
            "session is already running: another thread called it; a session runs once at a time; "
            "use one session per thread"
        )
    message = words.decode("utf-8", "replace") or f"the runtime failed with status {status}"
    prefix = f"{where}: " if where and where not in message else ""
    return _ERRORS[status](prefix + message)


class Model:
    """An open package; closed when the last session that uses it is gone."""

    def __init__(self, source: str | Path | bytes | Package, verify: bool, copy: bool = False):
        lib, error, handle = library(), CError(), ctypes.c_void_p()
        if isinstance(source, Package) and not source.sealed:
            verify = False  # it never left this process
        flags = (0 if verify else _SKIP_CHECKSUM) | (_COPY if copy else 0)
        where = ""
        if isinstance(source, Package | bytes | bytearray | memoryview):
            data = source.image if isinstance(source, Package) else bytes(source)
            given = np.frombuffer(data, np.uint8)
            address = given.ctypes.data
            self._keep = None if address % ALIGN else given  # unaligned bytes are copied
            status = lib.itg_model_open(
                address, len(data), flags, ctypes.byref(handle), ctypes.byref(error)
            )
        else:
            where = str(source)
            path = os.fsencode(source)
            status = lib.itg_model_open_file(path, flags, ctypes.byref(handle), ctypes.byref(error))
        if status:
            raise error_of(status, error.words, where)
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
        info = CInfo()
        for i in range(count(self.handle, plan)):
            get(self.handle, plan, i, ctypes.byref(info))
            name = info.name.decode("utf-8", "replace")
            if name in found:
                raise BadFile(f"package has two {'in' if inputs else 'out'}puts called '{name}'")
            found[name] = _type(info)
        return found

    def states(self, plan: int) -> list[tuple[int, int]]:
        """The input and output numbers of every state."""
        lib, state, found = library(), CState(), []
        for i in range(lib.itg_model_states(self.handle, plan)):
            lib.itg_model_state(self.handle, plan, i, ctypes.byref(state))
            found.append((int(state.input), int(state.output)))
        return found


def _type(info: CInfo) -> Type:
    quant = None
    if info.scale:
        n = info.n_scale
        axis = None if info.quant_axis < 0 else info.quant_axis
        quant = Quant(tuple(info.scale[:n]), tuple(info.zero[:n]), axis)
    axes = tuple(i for i in range(info.rank) if info.dynamic >> i & 1)
    return Type(dtypes.BY_CODE[info.dtype].name, tuple(info.shape[: info.rank]), quant, axes)
