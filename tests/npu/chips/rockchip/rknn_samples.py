"""Files in the form of Rockchip's compiler, made by the schema that reads them."""

import json
import struct

from intaglio.npu.chips import flatbuffer
from intaglio.npu.chips.rockchip.rknn_file import HEADER, MEMORY_HEADER, TASK
from intaglio.npu.chips.rockchip.rknn_tables import COMPACT, FULL
from intaglio.npu.chips.rockchip.words import NUMBERS, Word

WORDS = [
    Word(NUMBERS["CNA"], 0x1040, 0xB1),
    Word(NUMBERS["CNA"], 0x1070, 0),
    Word(NUMBERS["DPU"], 0x40C4, 7),  # a register without a name
    Word(NUMBERS["PC"], 0x10, 0),
    Word(NUMBERS["PC"], 0x14, 0),
    Word(NUMBERS["SYNC"], 0, 0),
    Word(NUMBERS["ENABLE"], 8, 0x0D),
]
COMMANDS = struct.pack(f"<{len(WORDS)}Q", *(w.encode() for w in WORDS))
TASKS = TASK.pack(0, 1, 0x0D, 0x300, 0x1FFFF, 0, len(WORDS) - 4, 0, 0)
WEIGHTS = bytes(range(16))


def _tensors(extra):
    """Rows: an empty one, an input, an output, weights, and those of commands and tasks."""
    real = {"scale": [0.5], "zero": [3]}
    shape = {"shape": [1, 4, 2, 2], "stored": [1, 1, 2, 2, 16], "dtype": 3}
    return [
        {"name": ""},
        {"name": "x", "kind": 1, "bytes": 64, **shape, **real},
        {"name": "y", "kind": 2, "bytes": 64, "offset": 64, **shape, **real},
        {"name": "w", "kind": 4, "bytes": 16, "dtype": 3, "shape": [4, 4, 1, 1], **extra},
    ]


def _model(tensors, relocations):
    conv = {"kind": "Conv", "name": "Conv:y", "device": 2, "inputs": [1, 3], "outputs": [2]}
    graph = {"tensors": tensors, "operators": [{"kind": "InputOperator", "tasks": [0]}]}
    graph["operators"].append({**conv, "tasks": [1]})
    graph |= relocations
    about = {"compiler": "2.5.0", "framework": "ONNX", "generator": "RKNPU"}
    return {"version": 6, "graphs": [graph], **about}


def tables(target="rk3588"):
    """A file whose flatbuffer holds everything."""
    rows = _tensors({"blob": 1})
    rows.append({"name": "regcmd", "kind": 9, "blob": 2})
    rows.append({"name": "task", "kind": 10, "blob": 3})
    places = {"relocations": [{"tensor": "x", "places": [{"offset": 32, "word": 1}]}]}
    model = _model(rows, places) | {"target": target, "memory": {"weights": 16, "internal": 128}}
    model["blobs"] = [{}, {"data": WEIGHTS}, {"data": COMMANDS}, {"data": TASKS}]
    body = flatbuffer.write(model, FULL, "Model")
    return _header(6, len(body)) + body + _json(target)


def in_memory(target="rv1106"):
    """A file that begins with tasks, commands and weights."""
    body = flatbuffer.write(_model(_tensors({}), {}) | {"target": target}, COMPACT, "Model")
    others = bytes(64)  # constants that the compiler has made
    parts = TASKS + bytes(24) + COMMANDS + others + WEIGHTS
    counts = 64, 1, len(COMMANDS), 128, len(WEIGHTS), len(others)
    sizes = MEMORY_HEADER.pack(len(body), *counts)
    content = sizes.ljust(64, b"\0") + parts + body
    return _header(0x1004, len(content)) + content + _json(target)


def _header(version, size):
    return HEADER.pack(b"RKNN", version, size).ljust(64, b"\0")


def _json(target):
    return struct.pack("<Q", 0) + json.dumps({"target_platform": [target]}).encode()
