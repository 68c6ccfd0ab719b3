"""Keys of encrypted and signed packages: where they come from. Their bytes are never shown."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeAlias

from intaglio import native
from intaglio.arguments import described
from intaglio.errors import BadInput, BadKey, IntaglioError, Unsupported, option
from intaglio.extras import install_command
from intaglio.status import BAD_KEY, CError, error_of

BYTES = 32  # of a key, and of a public key
ENVIRONMENT = "env:"  # before the name of a variable

KeySource: TypeAlias = "bytes | bytearray | str | os.PathLike[str] | Callable[[], bytes] | Key"
PublicKeySource: TypeAlias = "bytes | bytearray | str | os.PathLike[str] | Any"

_KeyFunction = ctypes.CFUNCTYPE(
    ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(CError)
)


class COpenOptions(ctypes.Structure):
    """itg_open_options: how a package is opened."""

    _fields_ = [
        ("flags", ctypes.c_uint32),
        ("key", ctypes.c_void_p),
        ("key_from", _KeyFunction),
        ("key_context", ctypes.c_void_p),
        ("public_key", ctypes.c_void_p),
        ("weights", ctypes.c_char_p),
        ("weights_data", ctypes.c_void_p),
        ("weights_size", ctypes.c_uint64),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """The C library with the signatures of its functions for keys set."""
    lib = native.library()
    pointer, size = ctypes.c_void_p, ctypes.c_uint64
    for name in ("itg_key_from_file", "itg_key_from_env", "itg_public_key_from_file"):
        function = getattr(lib, name)
        function.restype, function.argtypes = ctypes.c_uint32, [ctypes.c_char_p, pointer, pointer]
    lib.itg_wipe.restype, lib.itg_wipe.argtypes = None, [pointer, ctypes.c_size_t]
    lib.itg_secret_free.restype, lib.itg_secret_free.argtypes = None, [pointer, ctypes.c_size_t]
    lib.itg_hkdf_sha256.restype = None
    lib.itg_hkdf_sha256.argtypes = [pointer, pointer, ctypes.c_char_p, pointer]
    lib.itg_decrypt.restype = ctypes.c_uint32
    lib.itg_decrypt.argtypes = [pointer, size, pointer, pointer, pointer, pointer]
    lib.itg_check_signature.restype = ctypes.c_uint32
    lib.itg_check_signature.argtypes = [pointer, size, pointer, pointer]
    return lib


class Key:
    """The key of an encrypted package: 32 bytes, or where to read them each time they are needed.

    A source is the bytes, the path of a key file, `env:NAME` for an environment variable, or a
    function that returns the bytes.
    """

    __slots__ = ("_source",)

    def __init__(self, source: KeySource):
        self._source: Any = source._source if isinstance(source, Key) else source
        if isinstance(self._source, bytes | bytearray | memoryview):
            if len(self._source) != BYTES:
                raise BadKey(f"key has {len(self._source)} bytes; a key has {BYTES}")
        elif not (callable(self._source) or _is_path(self._source)):
            raise BadInput(
                f"key is {described(type(source))}; give {BYTES} bytes, the path of a key file, "
                f'"{ENVIRONMENT}NAME" or a function that returns the bytes'
            )

    def __repr__(self) -> str:
        kind = "bytes" if isinstance(self._source, bytes | bytearray | memoryview) else "function"
        if _is_path(self._source):
            kind = "variable" if _variable(self._source) else "file"
        return f"Key({kind})"

    def __reduce__(self) -> Any:
        raise TypeError("a Key is not pickled, so that it is not written anywhere")

    @contextmanager
    def revealed(self) -> Iterator[Any]:
        """The bytes as a ctypes array in memory that core dumps leave out; wiped afterwards."""
        page = mmap.mmap(-1, mmap.PAGESIZE)
        if hasattr(mmap, "MADV_DONTDUMP"):
            page.madvise(mmap.MADV_DONTDUMP)
        key = (ctypes.c_uint8 * BYTES).from_buffer(page)
        try:
            with self.options() as o:
                if o.key:
                    ctypes.memmove(key, o.key, BYTES)
                else:
                    error = CError()
                    if status := o.key_from(o.key_context, ctypes.addressof(key), error):
                        raise error_of(status, error.words)
            yield key
        finally:
            library().itg_wipe(key, BYTES)

    @contextmanager
    def options(self) -> Iterator[COpenOptions]:
        """The options of the C library with this key, for a call within the block."""
        source = self._source
        if _is_path(source):
            name = _variable(source)
            get = "itg_key_from_env" if name else "itg_key_from_file"
            function = ctypes.cast(getattr(library(), get), _KeyFunction)
            context = ctypes.c_char_p(os.fsencode(name or source))
            yield COpenOptions(0, None, function, ctypes.cast(context, ctypes.c_void_p))
        elif callable(source):
            called = _Called(source)
            try:
                yield COpenOptions(0, None, _KeyFunction(called))
            except IntaglioError:
                if called.error is not None:
                    raise called.error from None
                raise
        else:
            key = (ctypes.c_uint8 * BYTES).from_buffer_copy(source)
            try:
                yield COpenOptions(0, ctypes.addressof(key))
            finally:
                library().itg_wipe(key, BYTES)


class _Called:
    """A Python function that the C library calls for the key; keeps the exception it raised."""

    def __init__(self, function: Callable[[], bytes]):
        self.function = function
        self.error: BaseException | None = None

    def __call__(self, context: int, key: int, error: object) -> int:
        try:
            given = self.function()
            if not isinstance(given, bytes | bytearray | memoryview) or len(given) != BYTES:
                raise BadKey(f"function of key= returns {_length(given)}; a key has {BYTES} bytes")
            ctypes.memmove(key, bytes(given), BYTES)
            return 0
        except BaseException as e:  # ctypes would print it
            self.error = e
            return BAD_KEY


@contextmanager
def open_options(
    key: KeySource | None,
    public_key: PublicKeySource | None,
    flags: int = 0,
    weights: str | os.PathLike[str] | None = None,
) -> Iterator[COpenOptions]:
    """The options of a call that opens a package, with the keywords of the API."""
    signer = None if public_key is None else public_key_of(public_key)
    with nullcontext(COpenOptions()) if key is None else Key(key).options() as o:
        o.flags = flags
        o.weights = None if weights is None else os.fsencode(weights)
        if signer is not None:
            kept = (ctypes.c_uint8 * BYTES).from_buffer_copy(signer)
            o.public_key = ctypes.addressof(kept)
        yield o


def public_key_of(source: Any) -> bytes:
    """An Ed25519 public key: its 32 bytes, or from a PEM or key file."""
    if hasattr(source, "public_bytes_raw"):  # of the package cryptography
        return bytes(source.public_bytes_raw())
    if isinstance(source, bytes | bytearray | memoryview):
        if len(source) != BYTES:
            raise BadKey(f"public_key has {len(source)} bytes; an Ed25519 key has {BYTES}")
        return bytes(source)
    if not _is_path(source):
        raise BadInput(
            f"{option('public_key')} is {described(type(source))}; give {BYTES} bytes or the path "
            "of a PEM file"
        )
    key, error = (ctypes.c_uint8 * BYTES)(), CError()
    path = os.fsencode(source)
    if status := library().itg_public_key_from_file(path, key, ctypes.byref(error)):
        raise error_of(status, error.words)
    return bytes(key)


def missing_extra(what: str) -> Unsupported:
    """The error where the package `cryptography` is not installed."""
    command = install_command("secrets")
    return Unsupported(f"{what} needs the cryptography package, which is missing; {command}")


def _is_path(source: object) -> bool:
    return isinstance(source, str | os.PathLike) and bool(os.fspath(source))


def _variable(source: Any) -> str:
    """The name of the environment variable; "" if the source is a file."""
    is_variable = isinstance(source, str) and source.startswith(ENVIRONMENT)
    return source.removeprefix(ENVIRONMENT) if is_variable else ""


def _length(value: Any) -> str:
    sized = isinstance(value, bytes | bytearray | memoryview)
    return f"{len(value)} bytes" if sized else described(type(value))
