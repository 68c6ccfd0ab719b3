"""Builds small NPU programs instruction by instruction, with SRAM addresses and waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from intaglio import dtypes, native
from intaglio.ir import Type, constant
from intaglio.npu.ops import f16_arithmetic
from intaglio.npu.own.isa import QUEUES, Feature, Instruction, Port, Program
from intaglio.npu.simulate.run import npu_run
from intaglio.npu.sparse_weights import FORMS, best_mask, compress
from intaglio.npu.weight_packing import Atoms
from intaglio.npu.weight_packing import packed as pack
from intaglio.ops.registry import evaluate_node
from intaglio.plan import Plan, Step, Tensor

ALIGN = 16


def plain(space: str, slot: int, dtype: str, shape: tuple[int, ...]) -> Feature:
    """A whole NCHW tensor of one image, in DDR."""
    c, h, w = shape[1:]
    item = dtypes.numpy_of(dtype).itemsize
    return Feature(space, 0, dtype, c, h, w, 1, h * w * item, w * item, item, slot=slot)


class Builder:
    """Collects instructions; by default each waits for all before it."""

    def __init__(self, seed: int = 0, cores: int = 1):
        self.random = np.random.default_rng(seed)
        self.program = Program("test", cores, 0, 0, 0, [], [], align=ALIGN)
        self.count = [[0, 0, 0] for _ in range(cores)]
        self.weights, self.inputs = bytearray(), []
        self.core = 0

    # ---- memory --------------------------------------------------------------------------------
    def room(self, size: int) -> int:
        at = self.program.sram
        self.program.sram += -(-size // ALIGN) * ALIGN
        return at

    def feature(
        self,
        dtype: str,
        shape: tuple[int, int, int],
        c2: int = 16,
        first: int = 0,
        space: str = "sram",
        slack: int = 0,
    ) -> Feature:
        """A new feature; `slack` pixels lie unused at the end of each row."""
        c, h, w = shape
        pixel = c2 * dtypes.numpy_of(dtype).itemsize
        row = (w + slack) * pixel
        size = -(-(first + c) // c2) * row * h
        if space == "sram":
            at = self.room(size)
        else:
            at, self.program.internal = self.program.internal, self.program.internal + size
        return Feature(space, at, dtype, c, h, w, c2, h * row, row, pixel, first)

    # ---- instructions --------------------------------------------------------------------------
    def emit(
        self, op: str, *, wait: tuple[int, ...] | None = None, barrier: int = 0, **fields: Any
    ) -> Instruction:
        done = self.count[self.core]
        if op in ("conv", "depthwise", "pool", "eltwise", "matmul"):
            fields = {"least": -np.inf, "most": np.inf, **fields}
        made = Instruction(op, fields, self.core, 0, tuple(done) if wait is None else wait, barrier)  # type: ignore[arg-type]
        done[QUEUES.index(made.queue)] += 1
        self.program.instructions.append(made)
        return made

    def numbers(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if dtype == "f16":
            return self.random.normal(0, 2, shape).astype(np.float16)
        low, high = dtypes.limits(dtype)
        return self.random.integers(low, high + 1, shape).astype(dtypes.numpy_of(dtype))

    def load(self, to: Feature, data: np.ndarray | None = None) -> np.ndarray:
        """A new input of the program, brought to `to`."""
        shape = (1, to.channels, to.height, to.width)
        data = self.numbers(to.dtype, shape) if data is None else data.reshape(shape)
        self.inputs.append(data)
        self.program.inputs.append(Port(to.dtype, shape))
        self.emit("load", src=plain("input", len(self.inputs) - 1, to.dtype, shape), dst=to)
        return data

    def operand(self, dtype: str, shape: tuple[int, int, int], **layout: Any) -> Feature:
        f = self.feature(dtype, shape, **layout)
        self.load(f)
        return f

    def constant(self, data: np.ndarray) -> int:
        """Bytes of the weights, brought to SRAM; where they are there."""
        raw = np.ascontiguousarray(data).tobytes()
        at, to = len(self.weights), self.room(len(raw))
        self.weights += raw + bytes(-len(raw) % ALIGN)
        line = (1, 1, len(raw), 1, len(raw), len(raw), 1)
        src, dst = Feature("weights", at, "u8", *line), Feature("sram", to, "u8", *line)
        self.emit("load", src=src, dst=dst)
        return to

    def store(self, f: Feature) -> None:
        """A new output of the program, from `f`."""
        shape = (1, f.channels, f.height, f.width)
        self.program.outputs.append(Port(f.dtype, shape))
        self.emit(
            "store", src=f, dst=plain("output", len(self.program.outputs) - 1, f.dtype, shape)
        )

    def product(
        self,
        op: str,
        src: Feature,
        dst: Feature,
        kernel: tuple[int, int] = (3, 3),
        atoms: tuple[int, int] = (16, 16),
        sparse: int = 0,
        weights: str = "",
        **fields: Any,
    ) -> None:
        """conv or depthwise with random weights and parameters that use the range of dst."""
        real = src.dtype == "f16"
        kind = weights or ("f16" if real else "i8")
        outs, ins = dst.channels, src.channels if op == "conv" else 1
        if sparse:
            outs, ins = -(-outs // atoms[0]) * atoms[0], -(-ins // atoms[1]) * atoms[1]
        w = self.numbers(kind, (outs, ins, *kernel))
        w[dst.channels :] = 0
        if op == "conv":
            w[:, src.channels :] = 0
        packed = pack(w, Atoms(atoms[1], atoms[0]), op == "depthwise")
        if sparse:
            packed = self.thinned(packed.reshape(-1, *atoms), sparse)
        scales = 1 if fields.get("one_scale") else dst.channels
        spread = (
            (1.0 if real else 5e4)
            * (256 if kind == "i16" else 1)
            * np.sqrt(kernel[0] * kernel[1] * (src.channels if op == "conv" else 1))
        )
        wide = 256.0 if src.dtype == "i16" else 1.0
        full = 2e4 if dst.dtype == "i16" else 100.0
        full = 1.0 if dst.dtype == "f16" or (real and dst.dtype == "f32") else full
        scale = self.random.uniform(0.3, 1.5, scales) * full / spread / wide
        bias = self.random.integers(-3000, 3000, dst.channels) * (full / 3e3 if real else 1)
        bias = bias.astype(np.float32 if real else np.int32)
        params = scale.astype(np.float32).tobytes() + bias.tobytes()
        at, data = self.constant(np.frombuffer(params, np.uint8)), packed.nbytes
        limits = (0, 0) if dtypes.is_float(dst.dtype) else dtypes.limits(dst.dtype)
        usual: dict[str, Any] = {
            "stride": (1, 1),
            "dilation": (1, 1),
            "pad": (0, 0),
            "residual": None,
            "x_zero": 0 if real else 3,
            "y_zero": 5,
            "low": limits[0],
            "high": limits[1],
            "weight_type": dtypes.TABLE[kind].code,
        }
        self.emit(
            op,
            src=src,
            dst=dst,
            kernel=kernel,
            weights=self.constant(packed),
            weight_bytes=data,
            params=at,
            sparse=sparse,
            out_atom=atoms[0],
            in_atom=atoms[1],
            **{**usual, **fields},
        )

    def thinned(self, atoms: np.ndarray, form: int) -> np.ndarray:
        """Some weights of each group made 0, so that the form can store the rest."""
        f = FORMS[form]
        if f.block:
            made = compress(atoms * best_mask(self.random.random(atoms.shape[1:]), f), form)
            assert made is not None
            return made
        lines = atoms.swapaxes(1, 2) if f.outputs else atoms
        some = np.tile(np.arange(f.of) < f.many, (lines.size // f.of, 1))
        keep = self.random.permuted(some, axis=1)
        lines = np.where(keep.reshape(lines.shape), lines, 0)
        made = compress(lines.swapaxes(1, 2) if f.outputs else lines, form)
        assert made is not None
        return made

    # ---- running -------------------------------------------------------------------------------
    def arrays(self) -> list[np.ndarray]:
        self.program.weights = len(self.weights)
        weights = np.frombuffer(bytes(self.weights), np.uint8)
        return [self.program.encode(), weights, *self.inputs]

    def plan(self) -> Plan:
        """One step, which runs the program."""
        code, weights = self.arrays()[:2]
        first = [
            Tensor(Type("u8", code.shape), "code", data=code),
            Tensor.const(weights, Type("u8", weights.shape)),
        ]
        ins = [
            Tensor(Type(p.dtype, p.shape), "input", slot=i, name=f"x{i}")
            for i, p in enumerate(self.program.inputs)
        ]
        outs = [
            Tensor(Type(p.dtype, p.shape), "output", slot=i, name=f"y{i}")
            for i, p in enumerate(self.program.outputs)
        ]
        return Plan([*ins], outs, [Step("npu.run", [*first, *ins], outs, origin="module_0")])

    def check(self) -> list[np.ndarray]:
        """numpy and every kernel of this machine agree to the bit; what they make."""
        arrays = self.arrays()
        node = npu_run.node(*[constant(a) for a in arrays])
        want = evaluate_node(node, arrays)
        for kernel in KERNELS:
            got = native.run_kernel(kernel, arrays, {}, len(want))
            for g, w in zip(got, want, strict=True):
                assert (g.dtype, g.shape) == (w.dtype, w.shape)
                np.testing.assert_array_equal(g, w, err_msg=kernel.isa)
        return list(want)


KERNELS = [
    k for k in native.kernels() if k.op.name == "npu.run" and not k.needs & ~native.machine()
]


def everything(seed: int = 0, c2: int = 16) -> Builder:
    """Every instruction once, on two cores with a barrier between them."""
    b = Builder(seed, cores=2)
    x = b.operand("i8", (20, 6, 6), c2=c2)
    y, z = b.feature("i8", (24, 6, 6), c2=c2), b.feature("i8", (24, 3, 3), c2=c2)
    table = b.constant(b.numbers("i8", (256,)))
    ends = {"low": -128, "high": 127}
    looked_up = {"table": table, "entries": 256, "base": -128}
    b.product("conv", x, y, pad=(1, 1), **looked_up)
    b.product("conv", x, y, pad=(1, 1), sparse=1)
    b.product("depthwise", y, z, stride=(2, 2), pad=(1, 1), residual=None)
    p, e = b.feature("i8", (24, 3, 3), c2=c2), b.feature("i8", (24, 3, 3), c2=c2)
    b.emit(
        "pool",
        src=y,
        dst=p,
        kernel=(3, 3),
        stride=(2, 2),
        dilation=(1, 1),
        pad=(1, 1),
        kind=1,
        x_scale=1.0,
        y_scale=0.5,
        **ends,
    )
    b.emit("eltwise", src=z, other=p, dst=e, kind=0, a_factor=0.5, b_factor=0.7, **ends)
    b.emit(
        "pool",
        src=y,
        dst=z,
        kernel=(2, 2),
        stride=(2, 2),
        dilation=(1, 1),
        pad=(0, 0),
        kind=0,
        low=-50,
        high=60,
    )
    b.emit("eltwise", src=e, other=z, dst=e, kind=1, a_factor=0.01, **ends)
    b.emit("lut", src=e, dst=z, **looked_up)
    large, again = b.feature("i8", (24, 6, 6), c2=c2), b.feature("i8", (24, 6, 6), c2=c2)
    b.emit("resize", src=z, dst=large, factor=(2, 2), phase=(0, 0))
    b.emit("copy", src=large, dst=again)
    outside = b.feature("i8", (24, 6, 6), c2=c2, space="internal")
    b.emit("store", src=again, dst=outside)
    b.emit("barrier")
    b.core = 1
    b.emit("barrier")
    b.emit("load", src=outside, dst=again, barrier=1)
    rows = [replace(again, height=n, width=1) for n in (6, 6)]
    made = b.feature("f32", (6, 6, 1), c2=c2)
    b.emit("matmul", src=rows[0], other=rows[1], dst=made, turned=1, factor=0.01)
    b.store(made)
    b.store(again)
    for x, kind in (("f16", "f16"), ("i16", "i16"), ("i16", "i8")):
        _of_16_bits(b, x, kind, c2)
    return b


def _of_16_bits(b: Builder, x: str, kind: str, c2: int) -> None:
    """All compute instructions, on feature maps of `x` and weights of `kind`."""
    shape = (20, 5, 5)
    image, y, z = b.operand(x, shape, c2=c2), b.feature(x, shape, c2=c2), b.feature(x, shape, c2=c2)
    ends = {} if x == "f16" else {"low": -32768, "high": 32767}
    table = f16_arithmetic.piecewise_table(np.tanh)[0] if x == "f16" else b.numbers(x, (256,))
    looked_up = {"table": b.constant(table), "entries": len(table)}
    b.product("conv", image, y, pad=(1, 1), weights=kind, **looked_up)
    b.product("depthwise", y, z, pad=(1, 1), weights=kind, residual=image, r_factor=0.5)
    b.emit(
        "pool",
        src=z,
        dst=y,
        kernel=(3, 3),
        stride=(1, 1),
        dilation=(1, 1),
        pad=(1, 1),
        kind=1,
        x_scale=1.0,
        y_scale=0.5,
        **ends,
    )
    b.emit("eltwise", src=y, other=z, dst=z, kind=1, a_factor=0.01, b_factor=0.7, **ends)
    b.emit(
        "pool",
        src=z,
        dst=y,
        kernel=(3, 3),
        stride=(1, 1),
        dilation=(1, 1),
        pad=(1, 1),
        kind=0,
        x_scale=1.0,
        y_scale=1.0,
        **ends,
    )
    b.emit("eltwise", src=y, other=z, dst=z, kind=0, a_factor=0.5, b_factor=0.5, **ends)
    b.emit("lut", src=z, dst=y, **looked_up)
    rows = replace(y, width=1)
    made = b.feature(x, (5, 5, 1), c2=c2)
    b.emit("matmul", src=rows, other=rows, dst=made, turned=1, factor=1e-4, **ends)
    b.store(made)
    b.store(y)
