"""The layers of kmodel 3 that the chip's CPU computes: their checks, and their meaning in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.errors import BadFile, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.k210 import ram
from intaglio.npu.chips.k210.model import Command, Conv, CpuLayer, Range

if TYPE_CHECKING:
    from intaglio.npu.chips.k210.kpu import Kpu

Fields = dict[str, Any]
Memory = Callable[[str, str, int], Array]  # the field of an address, the type, the count
F32 = np.float32
ROWS = 4  # of the map that holds one pixel


def _counts(kind: str, f: Fields) -> dict[str, tuple[str, int]]:
    """The elements of main memory that a layer uses: by address field, type and number."""
    n = int(f["count"] if "count" in f else f.get("channels", 0))
    pixels = f.get("in_width", 0) * f.get("in_height", 0) * f.get("in_channels", 0)
    resized = f.get("out_width", 0) * f.get("out_height", 0) * f.get("in_channels", 0)
    area = f.get("width", 0) * f.get("height", 0) * f.get("channels", 0)
    many = f.get("channels", 0) * f.get("channel_size", 0)
    return {
        "add": dict.fromkeys(("main_in_a", "main_in_b", "main_out"), ("f32", n)),
        "quantized_add": dict.fromkeys(("main_in_a", "main_in_b", "main_out"), ("u8", n)),
        "global_average_pool2d": {
            "main_in": ("f32", n * f.get("kernel_size", 0)),
            "main_out": ("f32", n),
        },
        "quantize": {"main_in": ("f32", n), "main_out": ("u8", n)},
        "dequantize": {"main_in": ("u8", n), "main_out": ("f32", n)},
        "requantize": {"main_in": ("u8", n), "main_out": ("u8", n)},
        "l2_normalization": {"main_in": ("f32", n), "main_out": ("f32", n)},
        "softmax": {"main_in": ("f32", n), "main_out": ("f32", n)},
        "logistic": {"main_in": ("f32", n), "main_out": ("f32", n)},
        "fully_connected": {
            "main_in": ("f32", f.get("in_channels", 0)),
            "main_out": ("f32", f.get("out_channels", 0)),
        },
        "tensorflow_flatten": {"main_in": ("f32", area), "main_out": ("f32", area)},
        "resize_nearest_neighbor": {"main_in": ("f32", pixels), "main_out": ("f32", resized)},
        "quantized_resize_nearest_neighbor": {
            "main_in": ("u8", pixels),
            "main_out": ("u8", resized),
        },
        "channelwise_dequantize": {"main_in": ("u8", many), "main_out": ("f32", many)},
        "k210_add_padding": {"main_in": ("u8", n)},
        "k210_remove_padding": {"main_in": ("u8", n * 16), "main_out": ("u8", n)},
        "concat": {},
        "quantized_concat": {},
    }.get(kind, {})


def check(layer: CpuLayer, memory: int) -> None:
    """BadFile where a layer uses bytes outside of main memory, or its body is too short."""
    f = layer.fields
    for name, (dtype, count) in _counts(layer.kind, f).items():
        size = count * (4 if dtype == "f32" else 1)
        if f[name] + size > memory or (dtype == "f32" and f[name] % 4):
            raise BadFile(
                f"kmodel: a {layer.kind} layer uses {size} bytes at {f[name]}; "
                f"main memory has {memory}"
            )
    need = {
        "fully_connected": 4 * f.get("out_channels", 0) * (f.get("in_channels", 0) + 1),
        "channelwise_dequantize": 8 * f.get("channels", 0),
        "concat": 8 * f.get("count", 0),
        "quantized_concat": 8 * f.get("count", 0),
    }.get(layer.kind, 0)
    if len(f["rest"]) < need:
        raise BadFile(f"kmodel: a {layer.kind} layer has {len(f['rest'])} bytes; needs {need}")
    if layer.kind.endswith("concat"):
        parts = np.frombuffer(f["rest"], "<u4", 2 * f["count"]).reshape(-1, 2).astype(np.int64)
        total = int(parts[:, 1].sum())
        if (parts.sum(1) > memory).any() or f["main_out"] + total > memory:
            raise BadFile(f"kmodel: a {layer.kind} layer is beyond the {memory} bytes of memory")
    if layer.kind == "k210_add_padding":
        end = f["kpu_out"] + ram.lines(max(f["channels"], 1), ROWS, ROWS)
        if end > ram.LINES:
            raise BadFile("kmodel: a k210_add_padding layer is beyond the KPU's RAM")


def result_type(commands: Sequence[Command], start: int) -> str:
    """The element type of what the last layer wrote at an address of main memory."""
    for command in reversed(commands):
        if isinstance(command, Conv) and command.output and command.output.start == start:
            return "u8"
        if isinstance(command, CpuLayer) and command.fields.get("main_out") == start:
            counts = _counts(command.kind, command.fields)
            return counts.get("main_out", ("u8", 0))[0]
    return "u8"


def execute(machine: Kpu, kind: str, f: Fields) -> None:
    """Compute one layer."""
    counts = _counts(kind, f)

    def at(name: str) -> Array:
        dtype, count = counts[name]
        size = count * (4 if dtype == "f32" else 1)
        raw = machine.bytes(Range("data", f[name], size))
        return raw.view(F32) if dtype == "f32" else raw

    if kind == "k210_add_padding":
        maps = np.zeros((f["channels"], ROWS, ROWS), np.uint8)
        maps[:, 0, 0] = at("main_in")
        ram.upload(machine.ram, f["kpu_out"], maps)
    elif kind.endswith("concat"):
        parts = np.frombuffer(f["rest"], "<u4", 2 * f["count"]).reshape(-1, 2)
        pieces = [machine.bytes(Range("data", int(s), int(n))) for s, n in parts]
        joined = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        machine.bytes(Range("data", f["main_out"], len(joined)))[...] = joined
    elif kind in MEANINGS:
        inputs = [at(name) for name in counts if name != "main_out"]
        try:
            with np.errstate(all="ignore"):
                at("main_out")[...] = MEANINGS[kind](f, *inputs)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            raise BadFile(f"kmodel: the numbers of a {kind} layer do not fit together") from None
    else:
        raise Unsupported(f"layers of type {kind} are not simulated")


def _quantized_add(f: Fields, a: Array, b: Array) -> Array:
    x = (a.astype(np.int64) + f["in_a_offset"]) * f["in_a_mul"]
    y = (b.astype(np.int64) + f["in_b_offset"]) * f["in_b_mul"]
    shifts = f["in_a_shift"], f["in_b_shift"]
    v = x + y >> shifts[0] if shifts[0] == shifts[1] else (x >> shifts[0]) + (y >> shifts[1])
    v = v * f["out_mul"]
    if f["out_shift"] > 0:
        v = v >> (f["out_shift"] - 1)
        v = np.where(v & 1, np.where(v < 0, (v >> 1) - 1, (v >> 1) + 1), v >> 1)
    return np.asarray(np.clip(v + f["out_offset"], 0, 255))


def _quantize(f: Fields, x: Array) -> Array:
    real = (x - F32(f["bias"])) * (F32(1) / F32(f["scale"]))
    away = np.where(real < 0, np.ceil(real - F32(0.5)), np.floor(real + F32(0.5)))
    return np.asarray(np.clip(away, 0, 255))


def _softmax(f: Fields, x: Array) -> Array:
    powers = np.exp(x - max(x.max(initial=0), np.finfo(F32).tiny))
    result: Array = powers / powers.sum()
    return result


def _fully_connected(f: Fields, x: Array) -> Array:
    i, o = f["in_channels"], f["out_channels"]
    numbers = np.frombuffer(f["rest"], "<f4", o * (i + 1))
    y = numbers[: o * i].reshape(o, i) @ x + numbers[o * i :]
    if f["act"]:
        y = np.clip(y, 0, 6 if f["act"] == 2 else None)
    return np.asarray(y)


def _flatten(f: Fields, x: Array) -> Array:
    return x.reshape(f["channels"], f["height"], f["width"]).transpose(1, 2, 0).reshape(-1)


def _resize(f: Fields, x: Array) -> Array:
    planes = x.reshape(f["in_channels"], f["in_height"], f["in_width"])
    rows, columns = (
        np.minimum(np.floor(np.arange(o) * (F32(i) / F32(o))), i - 1).astype(int)
        for i, o in ((f["in_height"], f["out_height"]), (f["in_width"], f["out_width"]))
    )
    return planes[:, rows][:, :, columns].reshape(-1)


def _channelwise(f: Fields, x: Array) -> Array:
    pairs = np.frombuffer(f["rest"], "<f4", 2 * f["channels"]).reshape(-1, 2)
    y = x.reshape(f["channels"], f["channel_size"]) * pairs[:, :1] + pairs[:, 1:]
    return np.asarray(y).reshape(-1)


MEANINGS: dict[str, Callable[..., Array]] = {
    "add": lambda f, a, b: a + b,
    "quantized_add": _quantized_add,
    "global_average_pool2d": lambda f, x: x.reshape(f["channels"], -1).mean(1),
    "quantize": _quantize,
    "dequantize": lambda f, x: x * F32(f["scale"]) + F32(f["bias"]),
    "requantize": lambda f, x: np.frombuffer(f["table"], np.uint8)[x],
    "l2_normalization": lambda f, x: x / np.sqrt(max(float((x * x).sum()), 1e-10)),
    "softmax": _softmax,
    "logistic": lambda f, x: 1 / (1 + np.exp(-x)),
    "fully_connected": _fully_connected,
    "tensorflow_flatten": _flatten,
    "resize_nearest_neighbor": _resize,
    "quantized_resize_nearest_neighbor": _resize,
    "channelwise_dequantize": _channelwise,
    "k210_remove_padding": lambda f, x: x.reshape(-1, 16)[:, 0],
}
