"""Writes PyTorch files for tests without PyTorch."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "int64": "LongStorage",
    "int8": "QInt8Storage",
    "uint8": "ByteStorage",
    "float64": "DoubleStorage",
}
EXPORT_CODES = {"float32": 7, "int64": 5, "int8": 2, "uint8": 1, "bool": 12}


@dataclass
class Object:
    """A module or other object; `state` is the operand of BUILD."""

    name: str
    state: Any


@dataclass
class Quantized:
    data: np.ndarray
    scale: Any
    zero: Any
    axis: int | None = None


@dataclass
class Raw:
    """Raw opcodes."""

    code: bytes


@dataclass
class Pickler:
    """A pickle of protocol 2 in the dialect of TorchScript; storages go to `records`."""

    folder: str
    records: dict[str, bytes] = field(default_factory=dict)

    def dump(self, x: Any) -> bytes:
        return b"\x80\x02" + self.put(x) + b"."

    def put(self, x: Any) -> bytes:
        if isinstance(x, Raw):
            return x.code
        if x is None or isinstance(x, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[x]
        if isinstance(x, int):
            return b"J" + struct.pack("<i", x)
        if isinstance(x, float):
            return b"G" + struct.pack(">d", x)
        if isinstance(x, str):
            return b"X" + struct.pack("<I", len(x.encode())) + x.encode()
        if isinstance(x, tuple):
            return b"(" + b"".join(map(self.put, x)) + b"t"
        if isinstance(x, list):
            return b"](" + b"".join(map(self.put, x)) + b"e"
        if isinstance(x, dict):
            items = b"".join(self.put(k) + self.put(v) for k, v in x.items())
            return b"}(" + items + b"u"
        if isinstance(x, Object):
            return self.name(x.name) + b")\x81" + self.put(x.state) + b"b"
        if isinstance(x, Quantized):
            return self.quantized(x)
        return self.name("torch._utils._rebuild_tensor_v2") + self.tensor(np.asarray(x)) + b"R"

    def name(self, qualified: str) -> bytes:
        module, _, name = qualified.rpartition(".")
        return b"c" + f"{module}\n{name}\n".encode()

    def storage(self, x: np.ndarray) -> bytes:
        key = str(len(self.records))
        self.records[f"{self.folder}/{key}"] = x.tobytes()
        kind = self.name(f"torch.{STORAGES[x.dtype.name]}")
        return (
            b"("
            + self.put("storage")
            + kind
            + self.put(key)
            + self.put("cpu")
            + self.put(int(x.size))
            + b"tQ"
        )

    def tensor(self, x: np.ndarray, extra: bytes = b"") -> bytes:
        stride = tuple(s // x.itemsize for s in np.ascontiguousarray(x).reshape(x.shape).strides)
        hooks = self.name("collections.OrderedDict") + b")R"
        return (
            b"("
            + self.storage(x)
            + self.put(0)
            + self.put(tuple(int(d) for d in x.shape))
            + self.put(stride)
            + extra
            + b"\x89"
            + hooks
            + b"t"
        )

    def quantized(self, q: Quantized) -> bytes:
        kind = "per_tensor_affine" if q.axis is None else "per_channel_affine"
        rest = (q.scale, q.zero) if q.axis is None else (q.scale, q.zero, q.axis)
        extra = b"(" + self.name(f"torch.{kind}") + b"".join(map(self.put, rest)) + b"t"
        return self.name("torch._utils._rebuild_qtensor") + self.tensor(q.data, extra) + b"R"


def zipped(records: dict[str, bytes], root: str = "m") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as z:
        for name, data in records.items():
            z.writestr(f"{root}/{name}", data)
    return file.getvalue()


def records_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        return {n.partition("/")[2]: z.read(n) for n in z.namelist()}


def script(
    code: dict[str, str],
    root: Any,
    constants: tuple[Any, ...] = (),
    traced: list[Any] | None = None,
) -> bytes:
    """A TorchScript archive; `code` by module: "__torch__" -> the text of its classes."""
    data, stored, samples = Pickler("data"), Pickler("constants"), Pickler("traced_inputs")
    records = {"data.pkl": data.dump(root), "constants.pkl": stored.dump(constants)}
    if traced is not None:
        records["traced_inputs.pkl"] = samples.dump({"forward": traced})
    for module, text in code.items():
        records[f"code/{module.replace('.', '/')}.py"] = text.encode()
    return zipped(records | data.records | stored.records | samples.records)


def weights(state: Any) -> bytes:
    """A torch.save archive."""
    data = Pickler("data")
    return zipped({"data.pkl": data.dump(state), **data.records, "version": b"3\n"})


def meta(x: np.ndarray | tuple[Any, ...], dtype: str = "float32") -> dict[str, Any]:
    """A tensor's description in a .pt2 file; a string among the extents is a symbol."""
    shape = x if isinstance(x, tuple) else x.shape
    kind = dtype if isinstance(x, tuple) else x.dtype.name
    sizes = [
        {"as_expr": {"expr_str": d, "hint": {"as_int": 2}}}
        if isinstance(d, str)
        else {"as_int": int(d)}
        for d in shape
    ]
    steps = [
        {"as_int": int(np.prod(shape[i + 1 :]))}
        if not any(isinstance(d, str) for d in shape[i + 1 :])
        else {"as_int": 1}
        for i in range(len(shape))
    ]
    return {
        "dtype": EXPORT_CODES[kind],
        "sizes": sizes,
        "strides": steps,
        "storage_offset": {"as_int": 0},
    }


def exported(
    inputs: dict[str, tuple[Any, ...]],
    tensors: dict[str, np.ndarray],
    nodes: list[tuple[str, list[Any], str]],
    outputs: list[str],
    old: bool = False,
) -> bytes:
    """A .pt2 file, or one as before PyTorch 2.8.

    A node is (operator, arguments, name of its result); strings among arguments name tensors.
    """

    def arg(x: Any) -> dict[str, Any]:
        if isinstance(x, str):
            return {"as_tensor": {"name": x}}
        if isinstance(x, bool):
            return {"as_bool": x}
        if isinstance(x, int):
            return {"as_int": x}
        if isinstance(x, float):
            return {"as_float": x}
        return {"as_none": True} if x is None else {"as_ints": list(x)}

    values = {n: meta(s) for n, s in inputs.items()} | {n: meta(a) for n, a in tensors.items()}
    specs = [{"parameter": {"arg": {"name": n}, "parameter_name": n}} for n in tensors]
    specs += [{"user_input": {"arg": {"as_tensor": {"name": n}}}} for n in inputs]
    graph = {
        "inputs": [{"as_tensor": {"name": n}} for n in (*tensors, *inputs)],
        "outputs": [{"as_tensor": {"name": n}} for n in outputs],
        "nodes": [
            {
                "target": target,
                "outputs": [{"as_tensor": {"name": result}}],
                "metadata": {},
                "inputs": [{"name": str(i), "arg": arg(a), "kind": 1} for i, a in enumerate(args)],
            }
            for target, args, result in nodes
        ],
        "tensor_values": values,
        "sym_int_values": {},
        "sym_bool_values": {},
    }
    program = {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": specs,
                "output_specs": [
                    {"user_output": {"arg": {"as_tensor": {"name": n}}}} for n in outputs
                ],
            },
        }
    }
    if old:
        text = json.dumps(program).encode()
        state = weights(dict(tensors))
        return zipped({"serialized_exported_program.json": text, "serialized_state_dict.pt": state})
    config = {
        n: {
            "path_name": f"weight_{i}",
            "is_param": True,
            "use_pickle": False,
            "tensor_meta": meta(a),
        }
        for i, (n, a) in enumerate(tensors.items())
    }
    stored = {f"data/weights/weight_{i}": a.tobytes() for i, a in enumerate(tensors.values())}
    return zipped(
        {
            "archive_format": b"pt2",
            "models/model.json": json.dumps(program).encode(),
            "data/weights/model_weights_config.json": json.dumps({"config": config}).encode(),
            **stored,
        }
    )
