"""Reads and writes kmodel 3, the file of the standalone SDK and of MaixPy.

A header, the outputs, the headers of all layers, then their bodies. A convolution's body holds its
12 words and constants; offsets count from the start of the file. Layers of other types run on the
chip's CPU (layer_types3.py).
"""

from __future__ import annotations

import json
import struct
from typing import Any

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.bytes_reader import Bytes
from intaglio.npu.chips.k210.cpu_layers import check, result_type
from intaglio.npu.chips.k210.fields import CURVE_BYTES, WORDS, unpack
from intaglio.npu.chips.k210.kmodel5 import check_about
from intaglio.npu.chips.k210.layer import as_words
from intaglio.npu.chips.k210.layer import read as read_layer
from intaglio.npu.chips.k210.layer_types3 import CONV, MAIN_MEM_OUT, NUMBERS, TYPES, UPLOAD
from intaglio.npu.chips.k210.model import (
    Command,
    Conv,
    CpuLayer,
    Function,
    Kmodel,
    Module,
    Port,
    Range,
    Upload,
)

VERSION = 3
EIGHT_BITS = 1  # flag of the header
HEADER, OUTPUT, LAYER_HEADER = 28, 8, 8
ALIGN = {"layer": 8, "weights": 128, "norm": 128, "curve": 256}
TRAILER = b"intaglio"  # before what we write about the model, after the last layer
MAX_LAYERS = 1 << 16
LAST_PADDING = 7  # bytes


# ---- writing -------------------------------------------------------------------------------------
def write(model: Kmodel) -> bytes:
    """The bytes of a model. The runtime itself uploads the input of the first convolution."""
    function, memory = model.main, model.modules[0].pools["data"]
    commands = function.commands
    first = commands[0] if commands else None
    if len(function.inputs) != 1 or not isinstance(first, Conv):
        raise Unsupported("a kmodel 3 has one input, which its first layer, a convolution, reads")
    start = HEADER + OUTPUT * len(function.outputs) + LAYER_HEADER * len(commands)
    out = bytearray(start)
    flags = model.header.get("flags", EIGHT_BITS)
    lowest = min(unpack(c.words)["src"] for c in commands if isinstance(c, Conv))
    numbers = VERSION, flags, 0, len(commands), lowest, memory, len(function.outputs)
    struct.pack_into("<7I", out, 0, *numbers)
    at = HEADER
    for port in function.outputs:
        struct.pack_into("<2I", out, at, port.range.start, port.range.size)
        at += OUTPUT
    for command in commands:
        begin = len(out)
        kind = _body(out, command)
        out += bytes(-len(out) % 8)
        struct.pack_into("<2I", out, at, kind, len(out) - begin)
        at += LAYER_HEADER
    if model.about:
        text = json.dumps(model.about, separators=(",", ":")).encode()
        out += TRAILER + struct.pack("<I", len(text)) + text
    return bytes(out)


def _body(out: bytearray, command: Command) -> int:
    """Append the body of a layer; returns its type."""
    match command:
        case Conv(words, weights, norm, curve, output, 1):
            head = len(out)
            out += bytes(24)
            parts = {
                "layer": words.astype("<u8").tobytes(),
                "weights": weights,
                "norm": norm,
                "curve": curve,
            }
            places = []
            for name, body in parts.items():
                out += bytes(-len(out) % ALIGN[name])
                places.append(len(out))
                out += body
            flags, address = (0, 0) if output is None else (MAIN_MEM_OUT, output.start)
            struct.pack_into("<6I", out, head, flags, address, *places)
            return CONV
        case Upload(source, line, (1, channels, height, width)):
            out += struct.pack("<6I", 0, source.start, line, width, height, channels)
            return UPLOAD
        case CpuLayer(kind, fields):
            form = "<" + "".join(f for _, f in TYPES[NUMBERS[kind]].fields)
            values = (fields.get(name, 0) for name, _ in TYPES[NUMBERS[kind]].fields)
            out += struct.pack(form, *values) + fields.get("rest", b"")
            return NUMBERS[kind]
    raise Unsupported(f"kmodel 3 has no layer for {command}")


# ---- reading -------------------------------------------------------------------------------------
def read(data: bytes) -> Kmodel:
    """The model in a file; BadFile says what is wrong with it."""
    file = Bytes(data)
    version, flags, arch, layers, max_start, memory, outputs = file.numbers("7I", 0)
    if version != VERSION or arch:
        raise BadFile(f"kmodel: version {version} for architecture {arch}; 3 for 0 is known")
    if not 0 < layers <= MAX_LAYERS or not 0 < outputs <= MAX_LAYERS:
        raise BadFile(f"kmodel: {layers} layers and {outputs} outputs")
    if memory > 1 << 28:
        raise BadFile(f"kmodel: it asks for {memory} bytes of main memory")
    at = HEADER
    places = [file.numbers("2I", at + OUTPUT * i) for i in range(outputs)]
    at += OUTPUT * outputs
    heads = [file.numbers("2I", at + LAYER_HEADER * i) for i in range(layers)]
    at += LAYER_HEADER * layers
    commands = []
    for number, (kind, size) in enumerate(heads):
        if number == layers - 1:  # nncase leaves out the padding of the last one
            size -= min(max(at + size - len(data), 0), LAST_PADDING)
        file.need(at, size, f"layer {number}")
        commands.append(_layer(file, at, kind, size, memory))
        at += size
    ports = [_output(commands, start, size, memory) for start, size in places]
    function = Function([_input(commands[0])], ports, commands)
    header = {"flags": flags, "max_start_address": max_start}
    module = Module("k210", [function], {"data": memory})
    return Kmodel(version, [module], (0, 0), header, _about(file, at, ports))


def _layer(file: Bytes, at: int, kind: int, size: int, memory: int) -> Command:
    if kind not in TYPES:
        raise BadFile(f"kmodel: layer type {kind} is unknown")
    name, fields = TYPES[kind]
    form = "".join(f for _, f in fields)
    length = struct.calcsize("<" + form)
    if length > size:
        raise BadFile(f"kmodel: a {name} layer has {size} bytes; {length} are needed")
    values = dict(zip((n for n, _ in fields), file.numbers(form, at), strict=True))
    if kind == CONV:
        return _conv(file, values, memory)
    if kind == UPLOAD:
        return _upload(values, memory)
    values["rest"] = file.part(at + length, size - length, name)
    layer = CpuLayer(name, values)
    check(layer, memory)
    return layer


def _conv(file: Bytes, v: dict[str, Any], memory: int) -> Conv:
    file.need(v["layer"], 8 * WORDS, "the words of a layer")
    words = as_words(file.data, v["layer"])
    layer = read_layer(words)
    o, i, k, _ = layer.weight_shape
    weights = file.part(v["weights"], o * i * k * k, "a layer's weights")
    norm = file.part(v["norm"], 8 * layer.out_channels, "a layer's batch norm")
    curve = file.part(v["curve"], CURVE_BYTES, "a layer's curve")
    output = None
    if v["flags"] & MAIN_MEM_OUT:
        c, h, w = layer.out_shape
        output = Range("data", v["main_out"], c * h * w)
        if output.start + output.size > memory:
            raise BadFile(f"kmodel: a layer writes beyond the {memory} bytes of main memory")
    return Conv(words, weights, norm, curve, output)


def _upload(v: dict[str, Any], memory: int) -> Upload:
    shape = (1, v["channels"], v["height"], v["width"])
    size = shape[1] * shape[2] * shape[3]
    if min(shape) < 1 or v["main_in"] + size > memory or size > ram.BYTES:
        raise BadFile(f"kmodel: an upload of {shape} is beyond the {memory} bytes of main memory")
    if v["kpu_out"] + ram.lines(*shape[1:]) > ram.LINES:
        raise BadFile(f"kmodel: an upload of {shape} is beyond the KPU's RAM")
    return Upload(Range("data", v["main_in"], size), v["kpu_out"], shape)


def _input(first: Command) -> Port:
    if isinstance(first, Conv):
        c, h, w = read_layer(first.words).in_shape
        return Port((1, c, h, w), Range("input", 0, c * h * w))
    if isinstance(first, CpuLayer) and first.kind == "fully_connected":
        count = first.fields["in_channels"]
        return Port((count,), Range("input", 0, 4 * count, "f32"))
    raise BadFile("kmodel: its first layer is neither a convolution nor fully connected")


def _output(commands: list[Command], start: int, size: int, memory: int) -> Port:
    dtype = result_type(commands, start)
    if start + size > memory or not size or (dtype == "f32" and (size % 4 or start % 4)):
        raise BadFile(f"kmodel: an output of {size} bytes at {start}; main memory has {memory}")
    return Port((size // (4 if dtype == "f32" else 1),), Range("data", start, size, dtype))


def _about(file: Bytes, at: int, ports: list[Port]) -> dict[str, Any]:
    """What Intaglio wrote after the last layer, if it did."""
    if file.data[at : at + len(TRAILER)] != TRAILER:
        return {}
    (size,) = file.numbers("I", at + len(TRAILER))
    text = file.part(at + len(TRAILER) + 4, size, "what Intaglio wrote about the model")
    try:
        about = check_about(json.loads(text))
    except ValueError:
        raise BadFile("kmodel: what Intaglio wrote about the model is not JSON") from None
    return about
