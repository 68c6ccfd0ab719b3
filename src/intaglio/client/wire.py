"""Requests and answers of the Open Inference Protocol with binary tensors, on the client's side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from intaglio import dtypes
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.serve.tensors import DATATYPES

MAX_RANK = 32
OURS = {theirs: ours for ours, theirs in DATATYPES.items()}
JSON_SIZE = "Inference-Header-Content-Length"


class WrongAnswer(Exception):
    """The server's answer does not follow the protocol."""


class _Output(msgspec.Struct):
    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] = {}
    data: list[Any] | None = None


class _Answer(msgspec.Struct):
    outputs: list[_Output]


_decode = msgspec.json.Decoder(_Answer).decode


def request(feeds: Mapping[str, Array]) -> tuple[bytes, int]:
    """The body of a request, and the size of its JSON part."""
    inputs, raw = [], []
    for name, given in feeds.items():
        a = np.ascontiguousarray(given)
        ours = dtypes.name_of(a.dtype)
        if ours not in DATATYPES:
            raise BadInput(f"input '{name}' is {ours}; the protocol has no such data type")
        data = a.tobytes()
        inputs.append(
            {
                "name": name,
                "shape": list(a.shape),
                "datatype": DATATYPES[ours],
                "parameters": {"binary_data_size": len(data)},
            }
        )
        raw.append(data)
    head = msgspec.json.encode({"inputs": inputs, "parameters": {"binary_data_output": True}})
    return b"".join([head, *raw]), len(head)


def outputs_of(body: bytes, json_size: int | None) -> dict[str, Array]:
    """The outputs of an answer; WrongAnswer if its sizes do not fit."""
    size = len(body) if json_size is None else json_size
    if not 0 <= size <= len(body):
        raise WrongAnswer(f"{JSON_SIZE} is {size}, the body has {len(body)} bytes")
    try:
        found = _decode(body[:size])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as e:
        raise WrongAnswer(f"its JSON is wrong: {e}") from None
    outputs: dict[str, Array] = {}
    at = size
    for o in found.outputs:
        dtype, shape = _checked(o)
        stated = o.parameters.get("binary_data_size")
        if stated is None:
            try:
                outputs[o.name] = np.asarray(o.data, dtype).reshape(shape)
            except (ValueError, TypeError, OverflowError):
                raise WrongAnswer(f"data of output '{o.name}' do not fit {shape}") from None
            continue
        bytes_of = math.prod(shape) * dtype.itemsize
        if stated != bytes_of or at + bytes_of > len(body):
            raise WrongAnswer(f"output '{o.name}' has {stated} bytes, {shape} has {bytes_of}")
        raw = body[at : at + bytes_of]
        outputs[o.name] = np.frombuffer(raw, dtype).reshape(shape)
        at += bytes_of
    return outputs


def _checked(output: _Output) -> tuple[np.dtype[Any], tuple[int, ...]]:
    if output.datatype not in OURS:
        raise WrongAnswer(f"output '{output.name}' has data type '{output.datatype[:16]}'")
    if len(output.shape) > MAX_RANK or any(n < 0 for n in output.shape):
        raise WrongAnswer(f"output '{output.name}' has shape {output.shape[:8]}")
    return dtypes.numpy_of(OURS[output.datatype]), tuple(output.shape)
