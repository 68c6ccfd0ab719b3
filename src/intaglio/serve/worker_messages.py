"""Messages between the server and a process that runs a model: MessagePack behind their length."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from intaglio import dtypes
from intaglio.serve.jobs import Arrays
from intaglio.serve.tensors import DATATYPES, TensorSpec

LENGTH = struct.Struct("<Q")
MAX_MESSAGE = 1 << 36
DTYPES = {word: dtype for dtype, word in DATATYPES.items()}
T = TypeVar("T")


class Tensor(msgspec.Struct, array_like=True):
    """A tensor's type, extents and bytes."""

    name: str
    datatype: str
    shape: list[int]
    data: bytes


class Spec(msgspec.Struct):
    """A TensorSpec."""

    name: str
    datatype: str
    shape: list[int]
    highest: list[int]


class Open(msgspec.Struct):
    """The first message: which package the process runs; a path, or its bytes."""

    path: str
    package: bytes
    threads: int


class Opened(msgspec.Struct):
    """The answer when the package is warm, or why it cannot be served."""

    error: str = ""
    inputs: list[Spec] = []
    outputs: list[Spec] = []
    plans: dict[int, int | None] = {}
    stateful: bool = False
    times: dict[int, float] = {}


class Request(msgspec.Struct):
    """A request of a batch; sequences above 0 have a session each."""

    rows: int
    inputs: list[Tensor]
    sequence: int = 0
    reset: bool = False


class Run(msgspec.Struct):
    """A batch, and sequences that have ended."""

    size: int
    requests: list[Request]
    ended: list[int]


class Answer(msgspec.Struct):
    """The outputs of a request, or its error: the status of a refusal, 0 for an internal one."""

    outputs: list[Tensor] = []
    error: str = ""
    status: int = 0


class Done(msgspec.Struct):
    """The answers of a batch, and its times in ns."""

    input_ns: int
    infer_ns: int
    output_ns: int
    answers: list[Answer]


def send(connection: socket.socket, message: Any) -> None:
    """Send a message."""
    raw = msgspec.msgpack.encode(message)
    connection.sendall(LENGTH.pack(len(raw)))
    connection.sendall(raw)


def receive(connection: socket.socket, kind: type[T]) -> T:
    """The next message. EOFError if the other process has ended."""
    (size,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    if size > MAX_MESSAGE:
        raise EOFError(f"a message of {size} bytes")
    return msgspec.msgpack.decode(_exactly(connection, size), type=kind)


def _exactly(connection: socket.socket, size: int) -> bytearray:
    made = bytearray(size)
    view, at = memoryview(made), 0
    while at < size:
        n = connection.recv_into(view[at:])
        if not n:
            raise EOFError("the process has ended")
        at += n
    return made


def packed(arrays: Mapping[str, Any], specs: Mapping[str, TensorSpec]) -> list[Tensor]:
    """Arrays as a message has them."""
    return [Tensor(n, specs[n].datatype, list(a.shape), a.tobytes()) for n, a in arrays.items()]


def unpacked(tensors: list[Tensor]) -> Arrays:
    """The arrays of a message."""
    return {
        t.name: np.frombuffer(t.data, dtypes.numpy_of(DTYPES[t.datatype])).reshape(t.shape)
        for t in tensors
    }


def specs_of(given: Mapping[str, TensorSpec]) -> list[Spec]:
    """Descriptions of tensors as a message has them."""
    return [Spec(s.name, s.datatype, list(s.shape), list(s.highest)) for s in given.values()]


def tensor_specs(given: list[Spec]) -> dict[str, TensorSpec]:
    """The descriptions in a message."""
    return {s.name: TensorSpec.of(s.name, DTYPES[s.datatype], s.shape, s.highest) for s in given}
