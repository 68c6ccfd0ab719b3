"""The simulators in C and numpy: equal bits for every instruction, on every CPU instruction set."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.npu.instruction_builder import Builder

import intaglio
from intaglio import dtypes
from intaglio.errors import RunError
from intaglio.ir import Graph, Type, Value, constant
from intaglio.npu.simulate.run import npu_run
from intaglio.npu.sparse_weights import FORMS, compress, expand

LAYOUTS = [16, 8, 1, 32, 64, 5]
TYPES = ["i8", "u8", "i16"]


def table_of(b: Builder, dtype: str, entries: int) -> np.ndarray:
    values = b.random.normal(0, 60, entries)
    return (values if dtype == "f32" else values.astype(np.int64)).astype(dtypes.numpy_of(dtype))


def conv(
    b: Builder,
    op: str = "conv",
    *,
    x: str = "i8",
    y: str = "i8",
    ins: int = 20,
    outs: int = 24,
    c2: int = 16,
    first: int = 0,
    size: tuple[int, int] = (9, 11),
    **fields: object,
) -> np.ndarray:
    src = b.operand(x, (ins, *size), c2=c2, first=first)
    kernel, stride = fields.get("kernel", (3, 3)), fields.get("stride", (1, 1))
    dilation, pad = fields.get("dilation", (1, 1)), fields.get("pad", (0, 0))
    out = [
        (size[k] + 2 * pad[k] - (kernel[k] - 1) * dilation[k] - 1) // stride[k] + 1  # type: ignore[index]
        for k in range(2)
    ]
    dst = b.feature(y, (outs if op == "conv" else ins, *out), c2=c2, first=first)
    b.product(op, src, dst, **fields)  # type: ignore[arg-type]
    b.store(dst)
    made = b.check()[0]
    assert len(np.unique(made)) > 20 or made.size < 40, "the result hardly varies"
    return made


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", TYPES)
@pytest.mark.parametrize("y", [*TYPES, "f32"])
def test_types(op, x, y):
    conv(Builder(1), op, x=x, y=y, pad=(1, 1))


@pytest.mark.parametrize("x", TYPES)
@pytest.mark.parametrize("c2", [4, 16])
@pytest.mark.parametrize("outs", [16, 37])
def test_i32_results(x, c2, outs):
    conv(Builder(1), "conv", x=x, y="i32", c2=c2, outs=outs, pad=(1, 1))


def test_only_products_return_i32():
    with pytest.raises(RunError, match="dst is i32"):
        conv(Builder(1), "depthwise", y="i32")
    b = Builder(1)
    src, dst, r = (
        b.operand("i8", (8, 4, 4)),
        b.feature("i32", (8, 4, 4)),
        b.operand("i8", (8, 4, 4)),
    )
    b.product("conv", src, dst, pad=(1, 1), residual=r, r_zero=0, r_factor=1.0)
    b.store(dst)
    with pytest.raises(RunError, match="nothing is added to sums"):
        b.check()


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("c2", LAYOUTS)
@pytest.mark.parametrize("first", [0, 3])
def test_layouts(op, c2, first):
    conv(Builder(2), op, c2=c2, first=first % c2, pad=(1, 1), x="u8")
    conv(Builder(3), op, c2=c2, first=first % c2, ins=37, outs=65, size=(3, 4), kernel=(1, 1))


@pytest.mark.parametrize("atoms", [(16, 16), (32, 32), (8, 8), (64, 64), (1, 1), (5, 3), (16, 32)])
def test_atoms(atoms):
    conv(Builder(4), atoms=atoms, pad=(1, 1))
    conv(Builder(4), "depthwise", atoms=atoms, pad=(1, 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("x", ["u8", "i16"])
@pytest.mark.parametrize("atoms", [(16, 16), (32, 32), (4, 16)])
def test_sparse_weights(form, x, atoms):
    conv(Builder(18), x=x, sparse=form, atoms=atoms, ins=37, pad=(1, 1))


@pytest.mark.parametrize("form", FORMS)
def test_sparse_weights_survive_packing(form):
    b = Builder(19)
    f = FORMS[form]
    dense = b.numbers("i8", (5, 32, 16)).astype(np.int8)
    assert compress(dense, form) is None
    made = b.thinned(dense, form)
    assert made.shape == (5, f.bytes(32, 16))
    again = expand(made, 32, 16, form)
    assert 0 < np.count_nonzero(again) <= dense.size * f.many // f.of
    np.testing.assert_array_equal(compress(again, form), made)
    assert compress(dense[:, :3, :6], form) is None


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pad"),
    [
        ((1, 1), (1, 1), (1, 1), (0, 0)),
        ((1, 1), (2, 2), (1, 1), (0, 0)),
        ((3, 3), (2, 2), (1, 1), (1, 1)),
        ((5, 3), (1, 2), (1, 1), (2, 1)),
        ((3, 3), (1, 1), (3, 2), (3, 2)),
        ((7, 7), (2, 2), (1, 1), (3, 3)),
        ((9, 11), (1, 1), (1, 1), (0, 0)),
        ((3, 3), (1, 1), (1, 1), (-1, -2)),
        ((3, 3), (1, 1), (1, 1), (8, 9)),
    ],
)
def test_windows(op, kernel, stride, dilation, pad):
    conv(Builder(5), op, kernel=kernel, stride=stride, dilation=dilation, pad=pad)


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize("x", ["i8", "u8"])
def test_zeros_and_bounds(op, x):
    zero = -128 if x == "i8" else 255
    conv(Builder(6), op, x=x, x_zero=zero, pad=(1, 1), y_zero=-30, low=-50, high=90)


@pytest.mark.parametrize("r", TYPES)
@pytest.mark.parametrize("c2", [16, 8])
@pytest.mark.parametrize("y", ["i8", "u8", "f32"])
def test_residuals(r, c2, y):
    b = Builder(7)
    residual = b.operand(r, (24, 7, 9), c2=c2)
    factor = 0.4 / (256 if r == "i16" else 1)
    conv(b, y=y, c2=c2, residual=residual, r_zero=7, r_factor=factor)


def test_residual_in_place():
    b = Builder(8)
    src, dst = b.operand("i8", (16, 5, 5)), b.operand("i8", (40, 5, 5))
    b.product("conv", src, dst, (1, 1), residual=dst, r_zero=1, r_factor=0.5)
    b.store(dst)
    b.check()


@pytest.mark.parametrize("op", ["conv", "depthwise"])
@pytest.mark.parametrize(
    ("dtype", "entries", "base"),
    [("i8", 256, -128), ("u8", 1024, -512), ("i16", 300, -100), ("f32", 77, -40)],
)
def test_tables(op, dtype, entries, base):
    b = Builder(9)
    at = b.constant(table_of(b, dtype, entries))
    conv(
        b,
        op,
        y=dtype,
        table=at,
        entries=entries,
        base=base,
        low=base - 5,
        high=base + entries,
        pad=(1, 1),
    )


def test_tiles_with_halos():
    """A layer in three tiles with halos equals the whole layer."""
    whole = Builder(10)
    src = whole.operand("i8", (20, 12, 7))
    dst = whole.feature("i8", (17, 12, 7))
    whole.product("conv", src, dst, pad=(1, 1))
    whole.store(dst)
    want = whole.check()[0]
    b = Builder(10)
    src = b.operand("i8", (20, 12, 7))
    dst = b.feature("i8", (17, 12, 7))
    b.product("conv", src, dst, pad=(1, 1))
    layer = b.program.instructions.pop()
    b.count[0][1] -= 1
    for at in (0, 4, 8):
        low, high = max(at - 1, 0), min(at + 5, 12)
        rows = replace(src, offset=src.offset + low * src.row, height=high - low)
        to = replace(dst, offset=dst.offset + at * dst.row, height=4)
        fields = {**layer.fields, "src": rows, "dst": to, "pad": (1 if at == 0 else 0, 1)}
        b.emit("conv", **fields)
    b.store(dst)
    np.testing.assert_array_equal(b.check()[0], want)


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("c2", [16, 8, 1, 64])
def test_pools(kind, dtype, c2):
    b = Builder(11)
    src = b.operand(dtype, (21, 9, 8), c2=c2)
    usual = {"kind": kind, "x_scale": 0.7, "y_scale": 0.31, "x_zero": 4, "y_zero": 9}
    low, high = {"i8": (-100, 90), "u8": (9, 200), "i16": (-30000, 29000)}[dtype]
    for kernel, stride, pad, shape in (
        ((3, 3), (2, 2), (1, 1), (5, 4)),
        ((9, 8), (1, 1), (0, 0), (1, 1)),
        ((2, 3), (1, 2), (0, 5), (8, 8)),
    ):
        for count_pad in (0, 1):
            dst = b.feature(dtype, (21, *shape), c2=c2)
            b.emit(
                "pool",
                src=src,
                dst=dst,
                kernel=kernel,
                stride=stride,
                dilation=(1, 1),
                pad=pad,
                count_pad=count_pad,
                low=low,
                high=high,
                **usual,
            )
            b.store(dst)
    b.check()


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(
    "types",
    [
        ("i8", "i8", "i8"),
        ("u8", "i8", "u8"),
        ("i16", "u8", "i16"),
        ("u8", "u8", "f32"),
        ("i16", "i16", "i8"),
    ],
)
@pytest.mark.parametrize("c2", [16, 8, 5, 64])
def test_eltwise(kind, types, c2):
    b = Builder(12)
    a, wide = b.operand(types[0], (21, 4, 6), c2=c2), 256.0 if "i16" in types[:2] else 1.0
    low, high = {"i8": (-128, 120), "u8": (3, 255), "i16": (-32768, 32767), "f32": (0, 0)}[types[2]]
    factors = {"a_factor": (0.6 if kind == 0 else 0.01) / wide, "b_factor": -0.3 / wide}
    for shape in ((21, 4, 6), (21, 1, 1), (1, 4, 6), (1, 1, 1), (21, 4, 1)):
        other = b.operand(types[1], shape, c2=c2)
        dst = b.feature(types[2], (21, 4, 6), c2=c2)
        b.emit(
            "eltwise",
            src=a,
            other=other,
            dst=dst,
            kind=kind,
            a_zero=3,
            b_zero=5,
            y_zero=2,
            low=low,
            high=high,
            **factors,
        )
        b.store(dst)
    b.check()


def test_eltwise_with_tables_and_in_place():
    b = Builder(13)
    at = b.constant(b.numbers("i8", (256,)))
    a, other = b.operand("i8", (33, 4, 6)), b.operand("i8", (33, 4, 6))
    b.emit(
        "eltwise",
        src=a,
        other=other,
        dst=a,
        kind=0,
        a_factor=0.5,
        b_factor=0.25,
        low=-128,
        high=127,
        table=at,
        entries=256,
        base=-128,
    )
    b.emit("eltwise", src=other, other=a, dst=a, kind=1, a_factor=0.01, low=-128, high=127)
    b.store(a)
    b.check()


@pytest.mark.parametrize("x", TYPES)
@pytest.mark.parametrize("y", [*TYPES, "f32"])
@pytest.mark.parametrize("c2", [16, 3])
def test_lut(x, y, c2):
    b = Builder(14)
    at = b.constant(table_of(b, y, 256))
    src, dst = b.operand(x, (19, 5, 7), c2=c2), b.feature(y, (19, 5, 7), c2=c2)
    b.emit("lut", src=src, dst=dst, table=at, entries=200, base=-90)
    b.store(dst)
    b.check()


@pytest.mark.parametrize("dtype", ["i8", "i16", "f32"])
@pytest.mark.parametrize("c2", [16, 1, 3])
def test_moves_and_resizes(dtype, c2):
    b = Builder(15)
    shape = (19, 5, 7)
    numbers = b.random.normal(0, 50, (1, *shape)).astype(
        {"i8": np.int8, "i16": np.int16, "f32": np.float32}[dtype]
    )
    src = b.feature(dtype, shape, c2=c2)
    b.load(src, numbers)
    for other, first in ((16, 5), (8, 0), (c2, 0)):
        to = b.feature(dtype, shape, c2=other, first=first % other, slack=2)
        b.emit("copy", src=src, dst=to)
        outside = b.feature(dtype, shape, c2=other, space="internal")
        back = b.feature(dtype, shape, c2=c2)
        b.emit("store", src=to, dst=outside)
        b.emit("load", src=outside, dst=back)
        b.store(back)
    large = b.feature(dtype, (19, 9, 20), c2=c2)
    b.emit("resize", src=src, dst=large, factor=(2, 3), phase=(1, 0))
    b.store(large)
    made = b.check()
    for m in made[:3]:
        np.testing.assert_array_equal(m, numbers)
    want = numbers[:, :, (np.arange(9) + 1) // 2][:, :, :, np.arange(20) // 3]
    np.testing.assert_array_equal(made[3], want)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("types", [("i8", "i8"), ("u8", "i8"), ("i16", "i16")])
@pytest.mark.parametrize("c2", [16, 64, 7])
def test_matmul(turned, types, c2):
    b, (k, m, n) = Builder(16), (37, 11, 21)
    a = b.operand(types[0], (k, m, 1), c2=c2)
    other = b.operand(types[1], (k, n, 1) if turned else (n, k, 1), c2=c2)
    for y in ("i8", "f32", "i32"):
        dst = b.feature(y, (n, m, 1), c2=c2)
        factor = 1e-3 if types[0] != "i16" else 1e-8
        b.emit(
            "matmul",
            src=a,
            other=other,
            dst=dst,
            turned=turned,
            a_zero=2,
            b_zero=3,
            y_zero=1,
            low=-128,
            high=127,
            factor=factor,
        )
        b.store(dst)
    b.check()


def test_a_package_holds_the_program():
    """A graph with a program compiles, and its package runs like numpy."""
    b = Builder(17)
    src, dst = b.operand("i8", (20, 6, 5)), b.feature("i8", (16, 6, 5))
    b.product("conv", src, dst, pad=(1, 1))
    b.store(dst)
    want = b.check()[0]
    code, weights, x = b.arrays()
    given = Value(Type("i8", x.shape), "x")
    made = npu_run(constant(code), constant(weights), given)
    package = intaglio.compile(Graph([given], [made], ["y"], "program"))
    with intaglio.open(package.bytes, threads=2) as session:
        np.testing.assert_array_equal(session.run({"x": x})["y"], want)
    assert package.plan.steps[0].macs == 16 * 20 * 9 * 30
