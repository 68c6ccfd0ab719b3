"""The gRPC side of the server."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.serve import model_metadata
from intaglio.serve.classification import DATATYPE, as_bytes, best_classes
from intaglio.serve.grpc_schema import CLASSES, HEALTH, METHODS, MISSING, SERVICE
from intaglio.serve.http_app import check_token
from intaglio.serve.infer_messages import (
    MAX_TENSORS,
    check_output,
    refuse_extensions,
    require_all,
    spec_of,
    wrong_size,
)
from intaglio.serve.jobs import Arrays
from intaglio.serve.refusals import GRPC_CODES, Refused, bad_request, lacks
from intaglio.serve.request_log import log
from intaglio.serve.signature import Signature
from intaglio.serve.tensors import TensorSpec
from intaglio.serve.traces import Traced, Traces

if TYPE_CHECKING:
    from intaglio.serve.server import Server

OPEN_METHODS = ("ServerLive", "ServerReady")  # without the token
KIND_CPU = 2
SERVING, NOT_SERVING = 1, 2  # of gRPC's health service
FORMATS = ("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW")
CONTENTS = {  # the list of typed contents for each data type
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents",
    "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents",
}  # fmt: skip


class GrpcService:
    """One coroutine for each method of GRPCInferenceService."""

    def __init__(self, server: Server):
        self._server = server

    # ---- health and metadata -------------------------------------------------------------------
    async def server_live(self, _: Any) -> dict[str, Any]:
        return {"live": True}

    async def server_ready(self, _: Any) -> dict[str, Any]:
        return {"ready": self._server.is_ready()}

    async def server_metadata(self, _: Any) -> dict[str, Any]:
        return self._server.metadata()

    async def model_ready(self, request: Any) -> dict[str, Any]:
        try:
            return {"ready": self._server.repository.find(request.name, request.version).alive}
        except Refused:
            return {"ready": False}

    async def model_metadata(self, request: Any) -> dict[str, Any]:
        repository = self._server.repository
        model = repository.find(request.name, request.version)
        return model_metadata.metadata(model, repository.entries[request.name])

    async def model_config(self, request: Any) -> dict[str, Any]:
        found = model_metadata.config(self._server.repository.find(request.name, request.version))
        for group in found["instance_group"]:
            group["kind"] = KIND_CPU
        for tensor in found["input"]:
            tensor["format"] = FORMATS.index(tensor["format"])
        return {"config": found}

    async def model_statistics(self, request: Any) -> dict[str, Any]:
        repository = self._server.repository
        models = repository.models()
        if request.name:
            found = repository.find(request.name, request.version)
            models = [m for m in models if m.name == found.name]
            if request.version:
                models = [found]
        rows = [m.statistics.plain(m.name, m.version) for m in models]
        for row in rows:
            del row["memory_usage"], row["response_stats"], row["latency"]
        return {"model_stats": rows}

    # ---- repository ----------------------------------------------------------------------------
    async def repository_index(self, request: Any) -> dict[str, Any]:
        rows = self._server.repository.index()
        return {"models": [r for r in rows if not request.ready or r["state"] == "READY"]}

    async def repository_model_load(self, request: Any) -> dict[str, Any]:
        await self._server.control("load", request.model_name, parameters_of(request.parameters))
        return {}

    async def repository_model_unload(self, request: Any) -> dict[str, Any]:
        await self._server.control("unload", request.model_name)
        return {}

    # ---- inference -----------------------------------------------------------------------------
    async def model_infer(self, request: Any, traced: Traced | None = None) -> Any:
        model = self._server.repository.find(request.model_name, request.model_version)
        specs = model.signature.outputs
        try:
            inputs = inputs_of(request, model.signature)
            asked = _outputs(request, specs)
        except Refused as e:
            model.statistics.failed(e.reason)
            raise
        parameters = parameters_of(request.parameters) if request.parameters else None
        outputs = await model.infer(inputs, parameters, traced=traced)
        if traced is not None:
            traced.ended = perf_counter_ns()
        made = CLASSES["ModelInferResponse"](
            model_name=model.name, model_version=model.version, id=request.id
        )
        for name, classes in asked:
            a = outputs[name]
            if classes:
                shape, words = best_classes(a, classes, bool(model.signature.plans), model.labels)
                made.outputs.add(name=name, datatype=DATATYPE, shape=shape)
                made.raw_output_contents.append(as_bytes(words))
                continue
            made.outputs.add(name=name, datatype=specs[name].datatype, shape=a.shape)
            made.raw_output_contents.append(a.tobytes())
        return made


def _outputs(request: Any, specs: Mapping[str, TensorSpec]) -> list[tuple[str, int]]:
    """The outputs that a request asks for, and how many classes of them; 0: the tensor."""
    if not request.outputs:
        return [(name, 0) for name in specs]
    asked = [
        (o.name, check_output(o.name, parameters_of(o.parameters), dict(specs)))
        for o in request.outputs
    ]
    if len({name for name, _ in asked}) < len(asked):
        raise bad_request("an output is requested twice")
    return asked


def inputs_of(request: Any, signature: Signature) -> Arrays:
    """The checked inputs of a ModelInferRequest."""
    arrays: Arrays = {}
    raw = request.raw_input_contents
    if len(request.inputs) > MAX_TENSORS:
        raise bad_request(f"the request has {len(request.inputs)} inputs; at most {MAX_TENSORS}")
    if raw and len(raw) != len(request.inputs):
        raise bad_request(
            f"the request has {len(raw)} raw_input_contents for {len(request.inputs)} inputs; "
            "give one for each, or none"
        )
    for i, given in enumerate(request.inputs):
        spec = spec_of(given.name, signature, arrays)
        if given.parameters:
            refuse_extensions(given.name, parameters_of(given.parameters))
        shape = tuple(given.shape)
        size = spec.bytes_of(given.datatype, shape)
        if not raw:
            arrays[spec.name] = _typed(given, spec, shape)
        elif len(raw[i]) != size:
            raise wrong_size(spec, len(raw[i]), shape, size)
        else:
            arrays[spec.name] = spec.from_bytes(raw[i], shape)
    require_all(arrays, signature)
    return arrays


def _typed(given: Any, spec: TensorSpec, shape: tuple[int, ...]) -> Array:
    if spec.datatype not in CONTENTS:
        raise bad_request(f"input '{spec.name}' is {spec.datatype}; give raw_input_contents")
    numbers = getattr(given.contents, CONTENTS[spec.datatype])
    wide = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64}[spec.dtype.kind]
    return spec.from_numbers(np.array(numbers, wide), shape)


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as Python values."""
    found = {}
    for name, value in given.items():
        kind = value.WhichOneof("choice")
        found[name] = getattr(value, kind) if kind else None
    return found


def _handler(server: Server, service: GrpcService, method: str) -> Any:
    request, response = CLASSES[f"{method}Request"], CLASSES[f"{method}Response"]
    words = "".join(f"_{c.lower()}" if c.isupper() else c for c in method)[1:]
    call, token = getattr(service, words), server.settings.token
    guarded = token is not None and method not in OPEN_METHODS
    traces = server.traces if method == "ModelInfer" else None

    async def answer(message: bytes, context: Any) -> Any:
        try:
            if guarded:
                assert token is not None
                sent = dict(context.invocation_metadata() or ())
                check_token(token, str(sent.get("authorization", "")))
            given = decoded(message, request)
            found = await (call(given) if not traces else _traced(traces, call, given, context))
            if isinstance(found, dict):
                return json_format.ParseDict(found, response())
            return found
        except Refused as e:
            server.metrics.refused(e.reason)
            if e.retry_after is not None:
                context.set_trailing_metadata((("retry-after", str(e.retry_after)),))
            code = getattr(grpc.StatusCode, GRPC_CODES.get(e.status, "UNKNOWN"))
            await context.abort(code, str(e))
        except grpc.aio.AbortError:
            raise
        except Exception as e:
            log.error("internal error", method=method, error=repr(e))
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")

    return grpc.unary_unary_rpc_method_handler(
        answer, response_serializer=response.SerializeToString
    )


def decoded(message: bytes, kind: Any) -> Any:
    """The message in these bytes; Refused if it is none, where grpcio would log a traceback."""
    try:
        return kind.FromString(message)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise bad_request(f"the message of {len(message)} bytes is no {name}") from None


async def _traced(traces: Traces, call: Any, message: Any, context: Any) -> Any:
    """The answer of `ModelInfer`, with a span."""
    traced, started, status = Traced(), perf_counter_ns(), 200
    try:
        return await call(message, traced)
    except Refused as e:
        status = e.status
        raise
    finally:
        if traced.model is not None:
            sent = {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
            traces.record(sent, started, status, sent.get("x-request-id", ""), traced)


def _stream_handler(server: Server, service: GrpcService) -> Any:
    """ModelStreamInfer: requests one after the other; an error ends none but its own."""
    response, token = CLASSES["ModelStreamInferResponse"], server.settings.token

    async def answers(messages: Any, context: Any) -> Any:
        if token is not None:
            sent = dict(context.invocation_metadata() or ())
            try:
                check_token(token, str(sent.get("authorization", "")))
            except Refused as e:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(e))
        async for message in messages:
            try:
                given = decoded(message, CLASSES["ModelInferRequest"])
                made = await service.model_infer(given)
                made.parameters["triton_final_response"].bool_param = True
                yield response(infer_response=made)
            except Refused as e:
                server.metrics.refused(e.reason)
                yield response(error_message=str(e))
            except Exception as e:
                log.error("internal error", method="ModelStreamInfer", error=repr(e))
                yield response(error_message="internal error")

    return grpc.stream_stream_rpc_method_handler(
        answers, response_serializer=response.SerializeToString
    )


def _health_handler(server: Server) -> Any:
    """`Check` of gRPC's health service, for probes such as Kubernetes'; without the token."""

    async def check(message: bytes, context: Any) -> Any:
        try:
            asked = decoded(message, CLASSES["HealthCheckRequest"]).service
        except Refused as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
        if asked not in ("", SERVICE):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"this server has no {asked[:64]!r}")
        return CLASSES["HealthCheckResponse"](status=SERVING if server.is_ready() else NOT_SERVING)

    return grpc.unary_unary_rpc_method_handler(
        check, response_serializer=CLASSES["HealthCheckResponse"].SerializeToString
    )


def _missing_handler(extension: str) -> Any:
    async def refuse(_: bytes, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, lacks(extension))

    return grpc.unary_unary_rpc_method_handler(refuse)


async def start_grpc(server: Server) -> tuple[Any, int]:
    """The running gRPC server and its port."""
    settings, service = server.settings, GrpcService(server)
    limit = settings.max_body
    made = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            ("grpc.max_metadata_size", 64 << 10),
        ]
    )
    handlers = {method: _handler(server, service, method) for method in METHODS}
    handlers |= {method: _missing_handler(words) for method, words in MISSING.items()}
    handlers["ModelStreamInfer"] = _stream_handler(server, service)
    health = {"Check": _health_handler(server)}
    made.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(SERVICE, handlers),
            grpc.method_handlers_generic_handler(HEALTH, health),
        )
    )
    address = f"{settings.host}:{settings.grpc_port}"
    try:
        if settings.certificate is None:
            port = made.add_insecure_port(address)
        else:
            port = made.add_secure_port(address, _credentials(server))
    except RuntimeError as e:
        raise BadInput(f"cannot listen on {address} for gRPC: {e}; choose another port") from None
    await made.start()
    return made, port


def _credentials(server: Server) -> Any:
    settings = server.settings
    assert settings.certificate is not None

    def read(path: str | None) -> bytes | None:
        if path is None:
            return None
        with open(path, "rb") as file:
            return file.read()

    pair = (read(settings.private_key or settings.certificate), read(settings.certificate))
    authority = read(settings.client_authority)
    return grpc.ssl_server_credentials([pair], authority, require_client_auth=authority is not None)
