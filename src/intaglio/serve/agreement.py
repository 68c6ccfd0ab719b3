"""Whether two versions of a model give the same answer to a request."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from intaglio.ir import Array
from intaglio.serve.classification import DATATYPE, class_numbers, strings_of

CLOSE = 0.05  # of the output's range: numbers that are no scores of classes may differ that much
MAX_CLASSES = 1 << 17


def agree(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Whether all outputs of the first answer agree with those of the second."""
    return first.keys() == second.keys() and all(_agrees(a, second[n]) for n, a in first.items())


def _agrees(a: Array, b: Array) -> bool:
    """Scores of classes agree in the class; other numbers are near; whole numbers are equal."""
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isfinite(x), np.isfinite(y)):
        return False
    if not np.isfinite(x).all():
        x, y = np.nan_to_num(x), np.nan_to_num(y)
    if x.ndim == 2 and 1 < x.shape[1] <= MAX_CLASSES:
        return bool(np.array_equal(x.argmax(1), y.argmax(1)))
    spread = max(np.ptp(x), abs(x).max()) if x.size else 0.0
    return bool(np.allclose(x, y, rtol=0, atol=CLOSE * spread))


def outputs_of(body: bytes, json_size: int | None) -> dict[str, Array]:
    """The outputs of an answer over HTTP. ValueError if it is none."""
    head = msgspec.json.decode(body[: len(body) if json_size is None else json_size])
    at, found = len(body) if json_size is None else json_size, {}
    for tensor in head["outputs"]:
        datatype, shape = tensor["datatype"], tensor["shape"]
        size = tensor.get("parameters", {}).get("binary_data_size")
        if datatype == DATATYPE:  # the best class of each row
            words = tensor["data"] if size is None else strings_of(bytes(body[at : at + size]))
            a, shape = class_numbers(words).reshape(shape)[..., :1], [*shape[:-1], -1]
        elif size is None:
            a = np.array(tensor["data"])
        elif datatype == "BF16":
            wide = np.frombuffer(body, "<u2", size // 2, at).astype(np.uint32) << 16
            a = wide.view(np.float32)
        else:
            kind = _NUMPY_KINDS[datatype]
            a = np.frombuffer(body, kind, size // np.dtype(kind).itemsize, at)
        at += size or 0
        found[tensor["name"]] = a.reshape(shape)
    return found


_NUMPY_KINDS = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1",
    "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
