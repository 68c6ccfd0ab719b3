"""Changed requests to a server, over HTTP and gRPC: each gets an answer or a refusal.

    python -m tests.serve.fuzz_requests [--count 2000] [--seed 7] [--sanitized]

With --sanitized the runtime has AddressSanitizer and UBSan, which see what it does with the
tensors of requests; the library is built first.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.frontends.onnx_text import model
from tests.serve.models import rows_model
from tests.serve.running import Running
from tests.test_state import counting

import intaglio
from intaglio.serve.grpc_schema import CLASSES, METHODS, SERVICE
from intaglio.serve.repository import Repository
from intaglio.serve.settings import ModelSettings, ServeSettings

HEAD = "Inference-Header-Content-Length"
STATUSES = {200, 400, 404, 405, 413, 415, 429, 431, 501}
CODES = {
    "OK", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
}  # fmt: skip
MODELS = {
    "rows": lambda: rows_model((1, 2, 4)),
    "open": lambda: intaglio.compile(
        model("(float[N,3] x) => (float[N,3] y) { y = Relu(x) }"), dims={"N": (1, 8)}
    ),
    "bytes": lambda: intaglio.compile(
        model("(uint8[2,5] a, int64[1] i) => (uint8[1,5] y) { y = Gather(a, i) }")
    ),
    "count": lambda: intaglio.compile(counting()),
}


def requests(rng: random.Random) -> tuple[str, list[tuple[str, str, np.ndarray]], dict[str, Any]]:
    """A right request: the model, its tensors, its parameters."""
    name = rng.choice(list(MODELS))
    n = rng.randint(1, 4)
    if name == "bytes":
        a, i = np.arange(10, dtype=np.uint8).reshape(2, 5), np.array([rng.randint(0, 1)], np.int64)
        return name, [("a", "UINT8", a), ("i", "INT64", i)], {}
    if name == "count":
        parameters = {"sequence_id": rng.randint(1, 9), "sequence_start": rng.random() < 0.7}
        parameters["sequence_end"] = rng.random() < 0.3
        return name, [("x", "FP32", np.ones(3, np.float32))], parameters
    return name, [("x", "FP32", np.ones((n, 3), np.float32))], {}


def over_http(rng: random.Random) -> tuple[str, bytes, dict[str, str]]:
    """A path, a body and headers: of a right request, changed in one or more places."""
    name, tensors, parameters = requests(rng)
    inputs: list[dict[str, Any]] = []
    raw = b""
    binary = rng.random() < 0.6
    for tensor, datatype, a in tensors:
        made: dict[str, Any] = {"name": tensor, "shape": list(a.shape), "datatype": datatype}
        if binary:
            made["parameters"] = {"binary_data_size": a.nbytes}
            raw += a.tobytes()
        else:
            made["data"] = a.ravel().tolist()
        inputs.append(made)
    for _ in range(rng.randint(0, 2)):  # of one value
        changed = rng.choice(inputs)
        key = rng.choice(list(changed))
        odd = [None, -1, 0, 1 << 40, 1 << 63, 1e300, "", "x", [], [0], [-1, 3], [1 << 62] * 4, {}]
        odd += ["FP64", "BYTES", [[1, 2, 3]], [1e400], [True], [[[]]], {"binary_data_size": -4}]
        changed[key] = rng.choice(odd)
    request: dict[str, Any] = {"inputs": inputs, "parameters": parameters}
    if rng.random() < 0.3:
        asked = {"classification": rng.choice([1, 2, 9, 1 << 31, -1, 0.5, "x", None, True])}
        asked["binary_data"] = rng.random() < 0.5
        request["outputs"] = [{"name": rng.choice("yyyx"), "parameters": asked}]
    body = json.dumps(request).encode()
    size = len(body)
    body += raw
    if rng.random() < 0.4:
        body = changed_bytes(rng, body)
    headers = {HEAD: str(size + rng.choice([0, 0, 0, 1, -1, 8, 1 << 40]))} if binary else {}
    return f"/v2/models/{name}/infer", body, headers


def over_grpc(rng: random.Random) -> tuple[str, bytes]:
    """A method and a message."""
    name, tensors, parameters = requests(rng)
    made = CLASSES["ModelInferRequest"](model_name=name)
    for key, value in parameters.items():
        kind = "bool_param" if isinstance(value, bool) else "int64_param"
        setattr(made.parameters[key], kind, value)
    for tensor, datatype, a in tensors:
        shape = list(a.shape)
        if rng.random() < 0.2:
            shape = [rng.choice([0, -1, 2, 1 << 40, 1 << 62]) for _ in shape]
        made.inputs.add(name=tensor, datatype=datatype, shape=shape)
        made.raw_input_contents.append(a.tobytes()[: None if rng.random() < 0.8 else -1])
    if rng.random() < 0.3:
        output = made.outputs.add(name=rng.choice("yyyx"))
        output.parameters["classification"].int64_param = rng.choice([1, 2, 9, -1, 1 << 40])
    sent = made.SerializeToString()
    method = "ModelInfer" if rng.random() < 0.7 else rng.choice(METHODS)
    return method, changed_bytes(rng, sent) if rng.random() < 0.6 else sent


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made))
        match rng.randrange(4):
            case 0:
                made[at] = rng.randrange(256)
            case 1:
                del made[at : at + rng.randint(1, 9)]
            case 2:
                made[at:at] = made[at : at + rng.randint(1, 9)]
            case _:
                made[at] ^= 1 << rng.randrange(8)
        made = made or bytearray(b"{")
    return bytes(made)


def fuzz(count: int, seed: int) -> Counter[str]:
    """How often each status came; an AssertionError names a request with another one."""
    import grpc

    rng, found = random.Random(seed), Counter[str]()
    repository = Repository(None, ModelSettings(threads=1))
    for name, make in MODELS.items():
        repository.add(name, make())
    server = Running(repository, ServeSettings(http_port=0, grpc_port=0))
    server.start()
    try:
        connection = http.client.HTTPConnection("127.0.0.1", server.server.http_port, timeout=30)
        with grpc.insecure_channel(server.grpc) as channel:
            for _ in range(count):
                if rng.random() < 0.6:
                    path, body, headers = over_http(rng)
                    connection.request("POST", path, body, headers)
                    answer = connection.getresponse()
                    said = answer.read()
                    assert answer.status in STATUSES, (answer.status, body, headers, said)
                    found[f"HTTP {answer.status}"] += 1
                else:
                    method, sent = over_grpc(rng)
                    call = channel.unary_unary(f"/{SERVICE}/{method}").future(sent, timeout=30)
                    call.exception()
                    assert call.code().name in CODES, (call.code(), call.details(), method, sent)
                    found[call.code().name] += 1
        connection.close()
        assert server.request("GET", "/v2/health/ready")[0] == 200
    finally:
        server.end()
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sanitized", action="store_true")
    options = parser.parse_args(argv)
    if options.sanitized:
        from tests.fuzz_package import build_driver
        from tests.package.test_sanitized import sanitized

        again = ("--count", str(options.count), "--seed", str(options.seed))
        done = sanitized(
            build_driver(), "-m", "tests.serve.fuzz_requests", *again, seconds=60 + options.count
        )
        print(done.stdout, done.stderr[-4000:] if done.returncode else "", sep="")
        return done.returncode
    print(json.dumps(dict(sorted(fuzz(options.count, options.seed).items()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
