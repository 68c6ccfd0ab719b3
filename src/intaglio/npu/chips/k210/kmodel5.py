"""Reads and writes kmodel 5, the file of nncase 1.x and of the nncase runtime on the chip.

A file holds modules; a module holds mempools, functions and sections. The code of a k210 function
is a list of records, each with its opcode in the first byte. All numbers are little-endian.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, NamedTuple

from intaglio.errors import BadFile, Unsupported
from intaglio.npu.chips.k210.bytes_reader import Bytes
from intaglio.npu.chips.k210.fields import CURVE_BYTES, WORDS
from intaglio.npu.chips.k210.layer import as_words
from intaglio.npu.chips.k210.layer import read as read_layer
from intaglio.npu.chips.k210.model import (
    LOCATION_NUMBERS,
    LOCATIONS,
    Command,
    Conv,
    Copy,
    Download,
    Function,
    Kmodel,
    Module,
    Port,
    Range,
    Upload,
)
from intaglio.npu.chips.k210.ram import LINE

MAGIC = 0x4B4D444C
VERSION = 5
ALIGNMENT = 256  # of sections; curves lie on such addresses
MODEL_HEADER, MODULE_HEADER, FUNCTION_HEADER = 32, 48, 32
MERGED = 1  # flag of a section that lies inside of .rdata
DTYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16")
RECORDS = {0: 44, 1: 44, 2: 152, 3: 76}  # bytes of a record by opcode
ABOUT = ".intaglio"  # our own section: names, scales and zero points, which the chip skips
MAIN_MEMORY = 1 << 28  # bytes, at most; the chip has 6 MiB
MOST = 1 << 16  # modules, functions, ports and dimensions of a file


# ---- writing -------------------------------------------------------------------------------------
def write(model: Kmodel) -> bytes:
    """The bytes of a model with one k210 module and one function."""
    (module,) = model.modules
    (function,) = module.functions
    rdata, text = bytearray(), bytearray()
    known: dict[bytes, Range] = {}
    for command in function.commands:
        text += _record(command, rdata, known)
    pools = {
        "input": _end(function.inputs),
        "output": _end(function.outputs),
        "rdata": len(rdata),
        "data": module.pools.get("data", 0),
        "kpu": module.pools.get("kpu", 0),
    }
    pools = {place: size for place, size in pools.items() if size}
    sections = {".rdata": bytes(rdata), ".text": bytes(text)}
    if model.about:
        sections[ABOUT] = json.dumps(model.about, separators=(",", ":")).encode()
    out = bytearray(MODEL_HEADER + MODULE_HEADER)
    for place, size in pools.items():
        out += struct.pack("<B3xI", LOCATION_NUMBERS[place], size)
    out += _function(function, len(text), pools)
    for name, body in sections.items():
        first = len(out) + 32
        gap = -first % ALIGNMENT
        out += struct.pack("<16s4I", name.encode(), 0, gap, len(body), 0) + bytes(gap) + body
    out += bytes(-len(out) % 8)
    struct.pack_into("<8I", out, 0, MAGIC, VERSION, MODEL_HEADER, 0, ALIGNMENT, 1, 0, 0)
    size = len(out) - MODEL_HEADER
    struct.pack_into(
        "<16s8I",
        out,
        MODEL_HEADER,
        b"k210",
        1,
        MODULE_HEADER,
        size,
        len(pools),
        0,
        len(sections),
        1,
        0,
    )
    return bytes(out)


def _end(ports: list[Port]) -> int:
    return max(p.range.start + p.range.size for p in ports)


def _function(function: Function, text: int, pools: dict[str, int]) -> bytes:
    body = b""
    for ports in (function.inputs, function.outputs):
        body += b"".join(_range(p.range) for p in ports)
        body += b"".join(
            struct.pack(f"<{1 + len(p.shape)}I", len(p.shape), *p.shape) for p in ports
        )
    body += bytes(-len(body) % 8)
    return (
        struct.pack(
            "<8I",
            FUNCTION_HEADER,
            FUNCTION_HEADER + len(body),
            pools["input"],
            pools["output"],
            len(function.inputs),
            len(function.outputs),
            0,
            text,
        )
        + body
    )


def _range(r: Range | None) -> bytes:
    if r is None:
        return bytes(12)
    return struct.pack(
        "<BBHII", LOCATION_NUMBERS[r.place], DTYPES.index(r.dtype), 0, r.start, r.size
    )


def _kpu(line: int, shape: tuple[int, ...]) -> Range:
    from intaglio.npu.chips.k210.ram import lines

    return Range("kpu", line * LINE, shape[0] * lines(*shape[1:]) * LINE)


def _record(command: Command, rdata: bytearray, known: dict[bytes, Range]) -> bytes:
    def constant(data: bytes, alignment: int) -> Range:
        """A place in .rdata; equal constants share one."""
        if data not in known:
            rdata.extend(bytes(-len(rdata) % alignment))
            known[data] = Range("rdata", len(rdata), len(data))
            rdata.extend(data)
        return known[data]

    match command:
        case Upload(source, line, shape):
            ranges = _range(source) + _range(_kpu(line, shape))
            return struct.pack("<I", 0) + ranges + struct.pack("<4I", *shape)
        case Download(line, target, shape):
            ranges = _range(_kpu(line, shape)) + _range(target)
            return struct.pack("<I", 1) + ranges + struct.pack("<4I", *shape)
        case Conv(words, weights, norm, curve, output, batches):
            places = [constant(weights, 128), constant(norm, 128), constant(curve, ALIGNMENT)]
            head = struct.pack("<I", 2) + b"".join(_range(r) for r in (*places, output))
            return head + struct.pack("<I", batches) + words.astype("<u8").tobytes()
        case Copy(source, target, shape, in_strides, out_strides):
            numbers = struct.pack("<12I", *shape, *in_strides, *out_strides)
            return struct.pack("<I", 3) + _range(source) + _range(target) + numbers
    raise Unsupported(f"kmodel 5 has no command for {command}")


# ---- reading -------------------------------------------------------------------------------------
class _Header(NamedTuple):
    entry: int
    text_size: int
    inputs: list[Port]
    outputs: list[Port]


def read(data: bytes) -> Kmodel:
    """The model in a file; BadFile says what is wrong with it."""
    file = Bytes(data)
    magic, version, size, flags, alignment, modules, entry_module, entry = file.numbers("8I", 0)
    if magic != MAGIC or version != VERSION:
        raise BadFile(
            f"kmodel: identifier {magic:#x}, version {version}; version {VERSION} is known"
        )
    if size < MODEL_HEADER or not 0 < modules <= MOST:
        raise BadFile(f"kmodel: a header of {size} bytes, {modules} modules")
    at, found = size, []
    for _ in range(modules):
        module, at = _module(file, at)
        found.append(module)
    if entry_module >= len(found) or entry >= len(found[entry_module].functions):
        raise BadFile(
            f"kmodel: it starts in function {entry} of module {entry_module}; none is there"
        )
    header = {"alignment": alignment, "flags": flags}
    return Kmodel(version, found, (entry_module, entry), header, _about(found))


def _about(modules: list[Module]) -> dict[str, Any]:
    for module in modules:
        if ABOUT in module.sections:
            try:
                about = json.loads(module.sections[ABOUT])
            except ValueError:
                raise BadFile(f"kmodel: section {ABOUT} is not JSON") from None
            return check_about(about)
    return {}


def check_about(about: Any) -> dict[str, Any]:
    """What Intaglio wrote beside the commands; BadFile if it is something else."""
    if not isinstance(about, dict):
        raise BadFile("kmodel: what Intaglio wrote about the model is no object")
    for ports in ("inputs", "outputs"):
        rows = about.get(ports, [])
        right = isinstance(rows, list) and all(isinstance(r, dict) and "name" in r for r in rows)
        if not right:
            raise BadFile(f"kmodel: '{ports}' of what Intaglio wrote is no list of names")
    return about


def _module(file: Bytes, at: int) -> tuple[Module, int]:
    kind, _, header, size, pools, shared, sections, functions, _ = file.numbers("16s8I", at)
    end = at + size
    if header < MODULE_HEADER or size < header or max(pools, shared, sections, functions) > MOST:
        raise BadFile(f"kmodel: the module at {at} has {size} bytes and a header of {header}")
    file.need(at, size, "a module")
    name, at = _text(kind), at + header
    module = Module(name, [])
    for _ in range(pools):
        location, amount = file.numbers("B3xI", at)
        if amount > MAIN_MEMORY:
            raise BadFile(f"kmodel: it asks for {amount} bytes of memory; at most {MAIN_MEMORY}")
        module.pools[LOCATIONS.get(location, str(location))] = amount
        at += 8
    at += 8 * shared
    heads = []
    for _ in range(functions):
        head, at = _function_header(file, at)
        heads.append(head)
    rdata_start = 0
    for _ in range(sections):
        raw, flags, start, amount, _ = file.numbers("16s4I", at)
        at += 32
        if flags & MERGED:
            body = file.part(rdata_start + start, amount, "a section within .rdata")
        else:
            body = file.part(at + start, amount, "a section")
            rdata_start = at + start if _text(raw) == ".rdata" else rdata_start
            at += start + amount
        module.sections[_text(raw)] = body
    if at > end:
        raise BadFile(f"kmodel: the sections of a module end at {at}, the module at {end}")
    text = Bytes(module.sections.get(".text", b""))
    for head in heads:
        commands = _commands(text, head, module) if name == "k210" else []
        made = Function(head.inputs, head.outputs, commands, head.entry, head.text_size)
        module.functions.append(made)
    return module, end


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace")


def _function_header(file: Bytes, at: int) -> tuple[_Header, int]:
    header, size, _, _, inputs, outputs, entry, text = file.numbers("8I", at)
    if header < FUNCTION_HEADER or size < header or max(inputs, outputs) > MOST:
        raise BadFile(f"kmodel: the function at {at} has {size} bytes and a header of {header}")
    file.need(at, size, "a function")
    place, ports = at + header, []
    for count in (inputs, outputs):
        ranges = [_read_range(file, place + 12 * i) for i in range(count)]
        place += 12 * count
        shapes = []
        for _ in range(count):
            (rank,) = file.numbers("I", place)
            if rank > 8:
                raise BadFile(f"kmodel: a port has rank {rank}; at most 8 is known")
            shapes.append(file.numbers(f"{rank}I", place + 4))
            place += 4 + 4 * rank
        ports.append([Port(s, r) for s, r in zip(shapes, ranges, strict=True)])
    if place > at + size:
        raise BadFile(
            f"kmodel: the ports of a function end at {place}, the function at {at + size}"
        )
    for port in (*ports[0], *ports[1]):
        _check_port(port)
    return _Header(entry, text, *ports), at + size


def _check_port(port: Port) -> None:
    from intaglio.ir import Type

    need = Type(port.range.dtype, port.shape).bytes
    if port.range.size != need:
        raise BadFile(f"kmodel: a port {port.shape} has {port.range.size} bytes; {need} are needed")


def _read_range(file: Bytes, at: int) -> Range:
    location, dtype, _, start, size = file.numbers("BBHII", at)
    if location not in LOCATIONS or dtype >= len(DTYPES):
        raise BadFile(f"kmodel: a range has location {location}, element type {dtype}")
    return Range(LOCATIONS[location], start, size, DTYPES[dtype])


def _commands(text: Bytes, head: _Header, module: Module) -> list[Command]:
    text.need(head.entry, head.text_size, "the code of a function")
    at, end, found = head.entry, head.entry + head.text_size, []
    rdata = Bytes(module.sections.get(".rdata", b""))
    while at < end:
        (opcode,) = text.numbers("B", at)
        if opcode not in RECORDS or at + RECORDS[opcode] > end:
            raise BadFile(f"kmodel: opcode {opcode} at byte {at} of the code is unknown or cut off")
        found.append(_command(text, at + 4, opcode, rdata))
        at += RECORDS[opcode]
    return found


def _command(text: Bytes, at: int, opcode: int, rdata: Bytes) -> Command:
    ranges = [_read_range(text, at + 12 * i) for i in range(4 if opcode == 2 else 2)]
    at += 12 * len(ranges)
    if opcode == 2:
        return _read_conv(text, at, ranges, rdata)
    numbers = text.numbers("12I" if opcode == 3 else "4I", at)
    if opcode == 3:
        copy = Copy(ranges[0], ranges[1], numbers[:4], numbers[4:8], numbers[8:])
        check_copy(copy)
        return copy
    main, kpu = ranges if opcode == 0 else ranges[::-1]
    check_transfer(main, kpu, numbers)
    if opcode == 0:
        return Upload(main, kpu.start // LINE, numbers)
    return Download(kpu.start // LINE, main, numbers)


def _read_conv(text: Bytes, at: int, ranges: list[Range], rdata: Bytes) -> Conv:
    (batches,) = text.numbers("I", at)
    text.need(at + 4, 8 * WORDS, "a layer")
    words = as_words(text.data, at + 4)
    layer = read_layer(words)
    check_batches(layer, batches)
    weights, norm, curve, output = ranges
    o, i, k, _ = layer.weight_shape
    needs = (o * i * k * k, 8 * layer.out_channels, CURVE_BYTES)
    for r, need in zip((weights, norm, curve), needs, strict=True):
        if r.place != "rdata" or r.size < need:
            raise BadFile(
                f"kmodel: a layer's constants have {r.size} bytes of {r.place}; needs {need}"
            )
    w_bytes, n_bytes, c_bytes = (
        rdata.part(r.start, need, "a layer's constants")
        for r, need in zip((weights, norm, curve), needs, strict=True)
    )
    c, h, w = layer.out_shape
    if output.size and output.size < batches * c * h * w:
        raise BadFile(f"kmodel: a layer's result has {output.size} bytes; {c * h * w} are needed")
    return Conv(words, w_bytes, n_bytes, c_bytes, output if output.size else None, batches)


def check_batches(layer: Any, batches: int) -> None:
    """BadFile where a layer's maps of all batches are not in the KPU's RAM."""
    from intaglio.npu.chips.k210 import ram

    for line, shape in ((layer.src, layer.in_shape), (layer.dst, layer.out_shape)):
        if not 1 <= batches <= ram.LINES or line + batches * ram.lines(*shape) > ram.LINES:
            raise BadFile(f"kmodel: {batches} maps {shape} at line {line} are beyond the KPU's RAM")


def check_transfer(main: Range, kpu: Range, shape: tuple[int, ...]) -> None:
    """BadFile where a transfer's map does not fit its ranges."""
    from intaglio.npu.chips.k210 import ram

    n, c, h, w = shape
    if min(shape) < 1 or kpu.place != "kpu" or kpu.start % LINE:
        raise BadFile(f"kmodel: a transfer of {shape} between {main.place} and {kpu.place}")
    line = kpu.start // LINE
    if n * c * h * w != main.size or line + n * ram.lines(c, h, w) > ram.LINES:
        raise BadFile(f"kmodel: a map {shape} does not fit {main.size} bytes, or the RAM at {line}")


def check_copy(copy: Copy) -> None:
    """BadFile where a copy is empty, does not copy bytes, or is larger than main memory."""
    if min(copy.shape) < 1 or math.prod(copy.shape) > MAIN_MEMORY:
        raise BadFile(f"kmodel: a copy has the shape {copy.shape}")
    for where in (copy.source, copy.target):
        if where.dtype not in ("u8", "i8"):
            raise BadFile(f"kmodel: a copy of {where.dtype}; bytes are copied only")
