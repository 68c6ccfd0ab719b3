"""The functional simulator in numpy: the meaning of each instruction, on the bytes of memories.

Instructions run one by one, in program order. The simulator in C is tested against this one. It
also checks for hazards between queues; this one does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.ir import Array
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.own.isa import ELTWISE, POOLS, Feature, Instruction, Program
from intaglio.npu.sparse_weights import expand


def run(
    program: Program, weights: Array, inputs: Sequence[Array], cores: int | None = None
) -> list[Array]:
    """The outputs of a program; on `cores` cores if these are fewer than it is for."""
    fewer = cores is not None and cores < program.cores
    machine = Machine(program, weights, inputs, cores if fewer else None)
    for instruction in in_turn(program) if fewer else program.instructions:
        machine.step(instruction)
    return [
        raw.view(dtypes.numpy_of(port.dtype)).reshape(port.shape)
        for raw, port in zip(machine.memory["output"], program.outputs, strict=True)
    ]


def in_turn(program: Program) -> Iterator[Instruction]:
    """The instructions core by core between barriers, as fewer cores run them."""
    parts: dict[tuple[int, int], list[Instruction]] = {}
    passed = [0] * program.cores
    for i in program.instructions:
        parts.setdefault((passed[i.core], i.core), []).append(i)
        passed[i.core] += i.op == "barrier"
    for key in sorted(parts):
        yield from parts[key]


def _size(dtype: str, shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtypes.numpy_of(dtype).itemsize


class Machine:
    """The memories of a chip as bytes, and the effect of each instruction on them."""

    def __init__(
        self, program: Program, weights: Array, inputs: Sequence[Array], cores: int | None = None
    ):
        own = [np.zeros(program.sram, np.uint8) for _ in range(cores or program.cores)]
        self.sram = [own[k % len(own)] for k in range(program.cores)]  # fewer cores share theirs
        raw = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in inputs]
        self.memory: dict[str, list[Array]] = {
            "weights": [weights],
            "internal": [np.zeros(program.internal, np.uint8)],
            "input": raw,
            "output": [np.zeros(_size(p.dtype, p.shape), np.uint8) for p in program.outputs],
        }

    def step(self, i: Instruction) -> None:
        """Run one instruction."""
        if i.op != "barrier":
            getattr(self, f"_{i.op}")(i.core, i.fields)

    # ---- features ------------------------------------------------------------------------------
    def _place(self, core: int, f: Feature) -> tuple[Array, Array]:
        """The memory as elements of the feature's type, and the index of each of its elements."""
        raw = self.sram[core] if f.space == "sram" else self.memory[f.space][f.slot]
        dtype = dtypes.numpy_of(f.dtype)
        item = dtype.itemsize
        lane = f.first + np.arange(f.channels).reshape(-1, 1, 1)
        at = f.offset + lane // f.c2 * f.plane + lane % f.c2 * item
        at = at + np.arange(f.height).reshape(-1, 1) * f.row + np.arange(f.width) * f.pixel
        return raw[: len(raw) // item * item].view(dtype), at // item

    def get(self, core: int, f: Feature) -> Array:
        """The values of a feature, [channels, height, width]."""
        memory, at = self._place(core, f)
        return memory[at]

    def put(self, core: int, f: Feature, values: Array) -> None:
        memory, at = self._place(core, f)
        memory[at] = values

    def _bytes(self, core: int, at: int, count: int, dtype: Any = np.uint8) -> Array:
        size = count * np.dtype(dtype).itemsize
        return self.sram[core][at : at + size].copy().view(dtype)

    # ---- epilogues -----------------------------------------------------------------------------
    def _epilogue(self, core: int, f: dict[str, Any], real: Array) -> None:
        """Clamp, round and look up real-valued results, and write them."""
        dst, of_floats = f["dst"], f["src"].dtype in f16_arithmetic.TYPES
        if of_floats or (_is_float(dst) and not f.get("entries")):
            table = (
                self._bytes(core, f["table"], f["entries"], np.float32)
                if f.get("entries")
                else None
            )
            if _is_float(dst):
                bounds = f["least"], f["most"]
                self.put(core, dst, f16_arithmetic.epilogue(real, dst.dtype, *bounds, table))
                return
        low, high = (np.float32(f[k] - f["y_zero"]) for k in ("low", "high"))
        real = np.where(real > low, real, low)
        whole = np.rint(np.where(real < high, real, high)).astype(np.int32) + f["y_zero"]
        if f.get("entries"):
            whole = self._look_up(core, f, whole)
        self.put(core, dst, whole.astype(dtypes.numpy_of(dst.dtype)))

    def _look_up(self, core: int, f: dict[str, Any], numbers: Array) -> Array:
        table = self._bytes(core, f["table"], f["entries"], dtypes.numpy_of(f["dst"].dtype))
        found: Array = table[np.clip(numbers.astype(np.int64) - f["base"], 0, f["entries"] - 1)]
        return found

    # ---- instructions --------------------------------------------------------------------------
    def _load(self, core: int, f: dict[str, Any]) -> None:
        self.put(core, f["dst"], self.get(core, f["src"]))

    _store = _copy = _load

    def _conv(self, core: int, f: dict[str, Any]) -> None:
        src, dst = f["src"], f["dst"]
        oa, ia, (kh, kw) = f["out_atom"], f["in_atom"], f["kernel"]
        groups, depth = -(-dst.channels // oa), -(-src.channels // ia)
        raw = self._weights(core, f)
        if f.get("sparse"):
            raw = expand(raw, oa, ia, f["sparse"])
            w = raw.reshape(groups, kh, kw, depth, oa, ia).transpose(1, 2, 0, 4, 3, 5)
            w = w.reshape(kh, kw, groups * oa, depth * ia)[:, :, : dst.channels, : src.channels]
        else:
            w = self._unpacked(raw, (dst.channels, src.channels, kh, kw), oa, ia)
        if src.dtype in f16_arithmetic.TYPES:
            self._f16_product(core, f, w.astype(np.float32), src.channels)
            return
        exact = w.astype(np.float64)  # sums of products of 16 bits stay below 2^53
        self._product(core, f, lambda x, i, j: np.tensordot(exact[i, j], x, 1))

    def _depthwise(self, core: int, f: dict[str, Any]) -> None:
        oa, (kh, kw), channels = f["out_atom"], f["kernel"], f["dst"].channels
        w = self._unpacked(self._weights(core, f), (channels, 1, kh, kw), oa, 1)[:, :, :, 0]
        if f["src"].dtype in f16_arithmetic.TYPES:
            self._f16_product(core, f, w[:, :, :channels].astype(np.float32), 0)
            return
        exact = w[:, :, :channels].astype(np.float64)
        self._product(core, f, lambda x, i, j: exact[i, j].reshape(-1, 1, 1) * x)

    def _unpacked(self, raw: Array, shape: tuple[int, ...], oa: int, ia: int) -> Array:
        """Packed weights as [KH, KW, outputs, inputs]; the last atoms may be smaller."""
        outs, ins, kh, kw = shape
        w, at = np.zeros((kh * kw, outs, ins), raw.dtype), 0
        for o in range(0, outs, oa):
            for tap in range(kh * kw):
                for i in range(0, ins, ia):
                    to = w[tap, o : o + oa, i : i + ia]
                    to[:] = raw[at : at + to.size].reshape(to.shape)
                    at += to.size
        return w.reshape(kh, kw, outs, ins)

    def _params(self, core: int, f: dict[str, Any], kind: Any) -> tuple[Array, Array]:
        """Scales and biases of all output channels."""
        many = f["dst"].channels
        scales = 1 if f.get("one_scale") else many
        scale = self._bytes(core, f["params"], scales, np.float32)
        bias = self._bytes(core, f["params"] + 4 * scales, many, kind)
        return np.broadcast_to(scale, (many,)).reshape(-1, 1, 1), bias.reshape(-1, 1, 1)

    def _weights(self, core: int, f: dict[str, Any]) -> Array:
        kind = dtypes.BY_CODE[f["weight_type"]].numpy
        return self._bytes(core, f["weights"], f["weight_bytes"] // kind.itemsize, kind)

    def _f16_product(self, core: int, f: dict[str, Any], w: Array, deep: int) -> None:
        """f32 sums over rows, columns and then channels; padding is 0."""
        dst = f["dst"]
        x = self.get(core, f["src"]).astype(np.float32)
        scale, bias = self._params(core, f, np.float32)
        total = np.zeros((dst.channels, dst.height, dst.width), np.float32)
        for i, j, part, _ in _windows(x, f, every=True):
            if not deep:
                total += part * w[i, j].reshape(-1, 1, 1)
            for c in range(deep):
                total += part[c] * w[i, j, :, c].reshape(-1, 1, 1)
        real = total * scale + bias
        self._epilogue(core, f, self._add_residual(core, f, real))

    def _add_residual(self, core: int, f: dict[str, Any], real: Array) -> Array:
        if f["residual"] is None:
            return real
        r = self.get(core, f["residual"])
        centred = r if r.dtype == np.float16 else r.astype(np.int32) - f["r_zero"]
        return np.asarray(real + centred.astype(np.float32) * np.float32(f["r_factor"]))

    def _product(self, core: int, f: dict[str, Any], tap: Any) -> None:
        dst = f["dst"]
        x = self.get(core, f["src"]).astype(np.float64) - f["x_zero"]
        scale, bias = self._params(core, f, np.int32)
        total = np.zeros((dst.channels, dst.height, dst.width))
        for i, j, part, _ in _windows(x, f):
            total += tap(part, i, j)
        acc = total.astype(np.int64) + bias.astype(np.int64)
        if f["src"].dtype != "i16":
            acc = acc.astype(np.int32)
        if dst.dtype == "i32":  # not requantised
            self.put(core, dst, acc.astype(np.int32))
            return
        real = acc.astype(np.float32) * scale
        self._epilogue(core, f, self._add_residual(core, f, real))

    def _pool(self, core: int, f: dict[str, Any]) -> None:
        src, dst = f["src"], f["dst"]
        kind: Any = np.float32 if src.dtype in f16_arithmetic.TYPES else np.int64
        x = self.get(core, src).astype(kind)
        if POOLS[f["kind"]] == "max":
            low = -np.inf if _is_float(src) else dtypes.limits(src.dtype)[0]
            best = np.full((dst.channels, dst.height, dst.width), low, kind)
            for _, _, part, inside in _windows(x, f):
                best = np.where(inside & (part > best), part, best)
            if _is_float(src):
                self._epilogue(core, f, best)
                return
            best = np.clip(best, f["low"], f["high"])
            self.put(core, dst, best.astype(dtypes.numpy_of(dst.dtype)))
            return
        total = np.zeros((dst.channels, dst.height, dst.width), kind)
        count = np.zeros((dst.height, dst.width), np.int64)
        for _, _, part, inside in _windows(x - kind(f["x_zero"]), f):
            total += part
            count += inside
        if f["count_pad"]:
            count[:] = f["kernel"][0] * f["kernel"][1]
        many = np.maximum(count, 1).astype(np.float32)
        factor = np.float32(f["x_scale"]) / (np.float32(f["y_scale"]) * many)
        self._epilogue(core, f, total.astype(np.float32) * factor)

    def _eltwise(self, core: int, f: dict[str, Any]) -> None:
        kind: Any = np.float32 if f["src"].dtype in f16_arithmetic.TYPES else np.int64
        a = self.get(core, f["src"]).astype(kind) - kind(f["a_zero"])
        b = self.get(core, f["other"]).astype(kind) - kind(f["b_zero"])
        left, right = np.float32(f["a_factor"]), np.float32(f["b_factor"])
        if ELTWISE[f["kind"]] == "mul":
            real = (a * b).astype(np.float32) * left
        else:
            real = a.astype(np.float32) * left + b.astype(np.float32) * right
        self._epilogue(core, f, real)

    def _lut(self, core: int, f: dict[str, Any]) -> None:
        x = self.get(core, f["src"])
        if x.dtype == np.float16:
            self._epilogue(core, {**f, "least": -np.inf, "most": np.inf}, x.astype(np.float32))
            return
        self.put(core, f["dst"], self._look_up(core, f, x))

    def _resize(self, core: int, f: dict[str, Any]) -> None:
        dst, (fy, fx), (py, px) = f["dst"], f["factor"], f["phase"]
        y, x = (np.arange(dst.height) + py) // fy, (np.arange(dst.width) + px) // fx
        self.put(core, dst, self.get(core, f["src"])[:, y][:, :, x])

    def _matmul(self, core: int, f: dict[str, Any]) -> None:
        if f["src"].dtype in f16_arithmetic.TYPES:
            real, other = (
                self.get(core, f[k])[:, :, 0].astype(np.float32) for k in ("src", "other")
            )
            total = f16_arithmetic.matmul((other.T if f["turned"] else other)[None], real[None])[0]
            self._epilogue(core, f, total[:, :, None] * np.float32(f["factor"]))
            return
        a = self.get(core, f["src"])[:, :, 0].astype(np.float64) - f["a_zero"]
        b = self.get(core, f["other"])[:, :, 0].astype(np.float64) - f["b_zero"]
        acc = ((b.T if f["turned"] else b) @ a).astype(np.int64)
        if "i16" not in (f["src"].dtype, f["other"].dtype):
            acc = acc.astype(np.int32)
        if f["dst"].dtype == "i32":
            self.put(core, f["dst"], acc.astype(np.int32)[:, :, None])
            return
        self._epilogue(core, f, acc.astype(np.float32)[:, :, None] * np.float32(f["factor"]))


def _is_float(f: Feature) -> bool:
    return dtypes.is_float(f.dtype)


def _windows(x: Array, f: dict[str, Any], every: bool = False) -> Any:
    """For each tap: its row and column in the window, the elements under it, and a mask.

    The mask is False in the padding, where elements are 0. Taps that see only padding are skipped
    unless `every` is set.
    """
    dst, dilation, pad = f["dst"], f["dilation"], f["pad"]
    for i in range(f["kernel"][0]):
        y = np.arange(dst.height) * f["stride"][0] + i * dilation[0] - pad[0]
        in_y = (y >= 0) & (y < x.shape[1])
        if not in_y.any() and not every:
            continue
        for j in range(f["kernel"][1]):
            at = np.arange(dst.width) * f["stride"][1] + j * dilation[1] - pad[1]
            in_x = (at >= 0) & (at < x.shape[2])
            if not in_x.any() and not every:
                continue
            inside = in_y[:, None] & in_x
            part = x[:, np.where(in_y, y, 0)][:, :, np.where(in_x, at, 0)]
            yield i, j, np.where(inside, part, 0), inside
