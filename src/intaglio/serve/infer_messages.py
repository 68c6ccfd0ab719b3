"""Requests and answers of the protocol over HTTP: JSON, and binary tensors behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from intaglio.ir import Array
from intaglio.serve.classification import DATATYPE, as_bytes, best_classes, classes_wanted
from intaglio.serve.jobs import Arrays
from intaglio.serve.refusals import bad_request
from intaglio.serve.served_model import ServedModel
from intaglio.serve.signature import Signature
from intaglio.serve.tensors import TensorSpec

HEADER_LENGTH = b"inference-header-content-length"  # bytes of JSON before the binary part
MAX_TENSORS = 256  # inputs or requested outputs of one request
Parameters = dict[str, Any]


class InputTensor(msgspec.Struct):
    """A tensor of a request."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: msgspec.Raw = msgspec.Raw()


class OutputTensor(msgspec.Struct):
    """An output that a request asks for."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct):
    """The JSON part of a request."""

    inputs: list[InputTensor]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[OutputTensor] = []


class OutputTensorAnswer(msgspec.Struct, omit_defaults=True):
    """A tensor of an answer."""

    name: str
    datatype: str
    shape: list[int]
    parameters: Parameters = {}
    data: list[Any] | None = None


class InferAnswer(msgspec.Struct, omit_defaults=True):
    """The JSON part of an answer."""

    model_name: str
    model_version: str
    outputs: list[OutputTensorAnswer]
    id: str = ""


_decode = msgspec.json.Decoder(InferRequest).decode
_decode_data = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def parse(body: bytes, json_size: int | None) -> tuple[InferRequest, memoryview]:
    """The JSON part of a body, and the binary part."""
    view = memoryview(body)
    if json_size is None:
        json_size = len(body)
    if json_size > len(body):
        raise bad_request(
            f"Inference-Header-Content-Length is {json_size}; the body has {len(body)} bytes"
        )
    try:
        return _decode(view[:json_size]), view[json_size:]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        words = str(e) if isinstance(e, msgspec.DecodeError) else "its values are nested too deep"
        raise bad_request(f"the request is no inference request in JSON: {words}") from None


def inputs_of(request: InferRequest, binary: memoryview, signature: Signature) -> Arrays:
    """The checked inputs; binary ones are not copied."""
    arrays: Arrays = {}
    at = 0
    if len(request.inputs) > MAX_TENSORS:
        raise bad_request(f"the request has {len(request.inputs)} inputs; at most {MAX_TENSORS}")
    for given in request.inputs:
        spec = spec_of(given.name, signature, arrays)
        shape = tuple(given.shape)
        size = spec.bytes_of(given.datatype, shape)
        if given.parameters:
            refuse_extensions(given.name, given.parameters)
        stated = given.parameters.get("binary_data_size")
        if stated is None:
            arrays[spec.name] = _from_json(given, spec, shape)
            continue
        if stated.__class__ is not int or stated != size:
            raise wrong_size(spec, stated, shape, size)
        if given.data:
            raise bad_request(f"input '{spec.name}' has both data and binary_data_size; give one")
        if at + size > len(binary):
            raise bad_request(
                f"the binary part has {len(binary)} bytes; input '{spec.name}' ends at {at + size}"
            )
        arrays[spec.name] = spec.from_bytes(binary[at : at + size], shape)
        at += size
    if at != len(binary):
        raise bad_request(f"the binary part has {len(binary)} bytes; the inputs name {at} of them")
    require_all(arrays, signature)
    return arrays


def spec_of(name: str, signature: Signature, given: Arrays) -> TensorSpec:
    """The input of this name, which a request gives once."""
    spec = signature.inputs.get(name)
    if spec is None:
        known = ", ".join(f"'{n}'" for n in signature.inputs)
        raise bad_request(f"the model has no input '{name[:64]}'; its inputs are {known}")
    if name in given:
        raise bad_request(f"input '{name}' is given twice")
    return spec


def wrong_size(spec: TensorSpec, stated: object, shape: tuple[int, ...], size: int) -> Exception:
    """The error for an input whose bytes do not fit its shape."""
    return bad_request(
        f"input '{spec.name}' has {str(stated)[:20]} bytes; {spec.datatype} of shape "
        f"{list(shape)} has {size}"
    )


def require_all(given: Arrays, signature: Signature) -> None:
    """Refuse a request that lacks an input."""
    if len(given) < len(signature.inputs):
        missing = next(n for n in signature.inputs if n not in given)
        raise bad_request(f"input '{missing}' is missing")


def _from_json(given: InputTensor, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    if not given.data:
        raise bad_request(f"input '{spec.name}' has no data; give data, or binary_data_size")
    try:
        numbers = _decode_data(given.data)
    except RecursionError:
        raise bad_request(f"input '{spec.name}' has data that are nested too deep") from None
    except (msgspec.DecodeError, ValueError) as e:
        raise bad_request(f"input '{spec.name}' has data that cannot be read: {e}") from None
    if not isinstance(numbers, list):
        raise bad_request(f"input '{spec.name}' has data that are no list")
    return spec.from_numbers(numbers, shape)


def answer(
    model: ServedModel, request: InferRequest, outputs: Arrays
) -> tuple[bytes, list[bytes] | None]:
    """The JSON part of an answer, and its binary tensors; None if there are none."""
    specs = model.signature.outputs
    all_binary = request.parameters.get("binary_data_output") is True
    binary: list[bytes] = []
    tensors = []
    for name, wants_binary, classes in requested(request, specs, all_binary):
        a, datatype = outputs[name], specs[name].datatype
        tensor = OutputTensorAnswer(name, datatype, list(a.shape))
        if classes:
            shape, words = best_classes(a, classes, bool(model.signature.plans), model.labels)
            tensor = OutputTensorAnswer(name, DATATYPE, shape)
            if not wants_binary:
                tensor.data = [w.decode() for w in words]
                tensors.append(tensor)
                continue
        if wants_binary:
            raw = as_bytes(words) if classes else a.tobytes()
            tensor.parameters = {"binary_data_size": len(raw)}
            binary.append(raw)
        else:
            tensor.data = (a.astype(np.float32) if datatype == "BF16" else a).ravel().tolist()
        tensors.append(tensor)
    head = _encode(InferAnswer(model.name, model.version, tensors, request.id))
    return head, binary or None


def requested(
    request: InferRequest, specs: dict[str, TensorSpec], all_binary: bool = False
) -> list[tuple[str, bool, int]]:
    """The outputs that a request asks for, whether as bytes, and how many classes of them (0: the
    tensor); Refused if there is no such."""
    if not request.outputs:
        return [(n, all_binary, 0) for n in specs]
    if len(request.outputs) > MAX_TENSORS:
        raise bad_request(f"the request has {len(request.outputs)} outputs; at most {MAX_TENSORS}")
    found = []
    for output in request.outputs:
        classes = check_output(output.name, output.parameters, specs)
        binary = output.parameters.get("binary_data", all_binary) is True
        found.append((output.name, binary, classes))
    if len({n for n, *_ in found}) < len(found):
        raise bad_request("an output is requested twice")
    return found


def check_output(name: str, parameters: Mapping[str, Any], specs: dict[str, TensorSpec]) -> int:
    """How many classes are asked for; 0: the tensor. Refuses outputs and extensions that are not
    here."""
    if name not in specs:
        known = ", ".join(f"'{n}'" for n in specs)
        raise bad_request(f"the model has no output '{name[:64]}'; its outputs are {known}")
    refuse_extensions(name, parameters)
    return classes_wanted(name, parameters)


def refuse_extensions(name: str, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters of extensions that would change the answer, and are not here."""
    if parameters.get("shared_memory_region"):
        raise bad_request(
            f"tensor '{name[:64]}' has the parameter shared_memory_region; this server does not "
            "have that extension; leave it out"
        )
