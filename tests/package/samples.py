"""Small hand-made plans, one per feature of the format, with their expected outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.npu.instruction_builder import everything

from intaglio.ir import Quant, Type
from intaglio.package import Package
from intaglio.plan import Plan, Step, Tensor


@dataclass
class Sample:
    """A package with inputs and expected outputs."""

    plans: list[Plan]
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]

    def package(self, **options: Any) -> Package:
        return Package.build(self.plans, **options)


SAMPLES: dict[str, Callable[[], Sample]] = {}


def sample(make: Callable[[], Sample]) -> Callable[[], Sample]:
    SAMPLES[make.__name__] = make
    return make


def t(dtype: str, *shape: int, dynamic: tuple[int, ...] = ()) -> Type:
    return Type(dtype, shape, dynamic=dynamic)


def const(data: Any, dtype: str = "f32") -> Tensor:
    a = np.asarray(data, {"f32": np.float32, "i64": np.int64, "bool": np.bool_}[dtype])
    return Tensor.const(a, Type(dtype, a.shape))


def ramp(*shape: int) -> np.ndarray:
    return np.linspace(-4, 4, int(np.prod(shape)), dtype=np.float32).reshape(shape)


@sample
def chain() -> Sample:
    """In-place steps, a constant, origins, and an output written directly to the caller's array."""
    x, y = Tensor(t("f32", 3, 5), "input", name="x"), Tensor(t("f32", 3, 5), "output", name="y")
    a, b = Tensor(t("f32", 3, 5), offset=64), Tensor(t("f32", 3, 5), offset=64)
    w = const([1, 2, 3, 4, 5])
    steps = [
        Step("relu", [x], [a], origin="Relu_0"),
        Step("add", [a, w], [b], origin="Add_1"),
        Step("mul", [b, x], [y], macs=15),
    ]
    data = ramp(3, 5)
    want = (np.maximum(data, 0) + w.data) * data
    return Sample([Plan([x], [y], steps, 192, "main")], {"x": data}, {"y": want})


@sample
def outputs_everywhere() -> Sample:
    """Outputs that are an input, a constant, an internal tensor, a view, and one value twice."""
    x = Tensor(t("f32", 4), "input", name="x")
    y = Tensor(t("f32", 4), "output", slot=0, name="y")
    flat = Tensor(t("f32", 2, 2), "output", slot=0, name="flat")  # a view of y
    inner = Tensor(t("f32", 4), offset=0, name="inner")
    same = Tensor(t("f32", 4), "input", name="same")
    fixed = Tensor.const(ramp(3), t("f32", 3), "fixed")
    steps = [Step("neg", [x], [inner]), Step("abs", [inner], [y])]
    data = ramp(4)
    want = {
        "y": abs(data),
        "flat": abs(data).reshape(2, 2),
        "inner": -data,
        "same": data,
        "fixed": ramp(3),
    }
    plan = Plan([x], [y, flat, inner, same, fixed], steps, 64)
    return Sample([plan], {"x": data}, want)


@sample
def view() -> Sample:
    """A view step on the same memory, one on other memory, and a view without a step."""
    x = Tensor(t("i32", 2, 3), "input", name="x")
    y = Tensor(t("u32", 2, 3), "output", name="y")
    a, b = Tensor(t("i32", 2, 3)), Tensor(t("u32", 2, 3))
    c = Tensor(t("u32", 3, 2))
    d = Tensor(t("u32", 3, 2), offset=64)
    y2 = Tensor(t("u32", 3, 2), "output")
    steps = [
        Step("neg", [x], [a]),
        Step("bitcast", [a], [b], {"dtype": "u32"}),  # the same bytes: nothing to do
        Step("bitwise_not", [c], [d]),
        Step("bitcast", [d], [y2], {"dtype": "u32"}),  # other bytes: a copy
    ]
    data = np.arange(6, dtype=np.int32).reshape(2, 3)
    return Sample([Plan([x], [y], steps, 128)], {"x": data}, {"y": ~(-data).view(np.uint32)})


@sample
def dynamic() -> Sample:
    """nonzero decides an extent; gather follows it; the output is cut to its true shape."""
    x = Tensor(t("f32", 2, 6), "input", name="x")
    where = Tensor(t("i64", 1, 6, dynamic=(1,)), offset=0)
    row = Tensor(t("i64", 6, dynamic=(0,)), offset=64)
    y = Tensor(t("f32", 2, 6, dynamic=(1,)), "output", name="y")
    k = Tensor(t("bool", 6), "input", slot=1, name="k")
    steps = [
        Step("nonzero", [k], [where]),
        Step("gather", [where, const(0, "i64")], [row], {"axis": 0}),
        Step("gather", [x, row], [y], {"axis": 1}),
    ]
    data, mask = ramp(2, 6), np.array([1, 0, 0, 1, 1, 0], bool)
    want = data[:, [0, 3, 4]]
    return Sample([Plan([x, k], [y], steps, 128)], {"x": data, "k": mask}, {"y": want})


def _if(truth: bool) -> Sample:
    x, y = Tensor(t("f32", 5), "input", name="x"), Tensor(t("f32", 5), "output", name="y")
    cond = Tensor(t("bool"), "input", slot=1, name="cond")
    neg = Plan([x], [y], [Step("neg", [x], [y])], name="then")  # captured and made in place
    copied, made = Tensor(t("f32", 5), offset=0), Tensor(t("f32", 5), offset=64)
    exp = Plan([copied], [made], [Step("abs", [copied], [made])], name="else")
    steps = [Step("if", [cond, x], [y], {"then_graph": neg, "else_graph": exp}, "If_0")]
    data = ramp(5)
    want = -data if truth else abs(data)
    plan = Plan([x, cond], [y], steps, 128)
    return Sample([plan], {"x": data, "cond": np.array(truth)}, {"y": want})


@sample
def if_true() -> Sample:
    return _if(True)


@sample
def if_false() -> Sample:
    return _if(False)


@sample
def loop() -> Sample:
    """acc += x while acc[0] < 10, at most 8 times; collects acc; `iter` is added to a counter."""
    x, limit = Tensor(t("f32", 3), "input", name="x"), const(10.0)
    trip, start = const(8, "i64"), const([0, 0, 0])
    acc = Tensor(t("f32", 3), "output", slot=0, name="acc")
    accs = Tensor(t("f32", 8, 3, dynamic=(0,)), "output", slot=1, name="accs")
    count = Tensor(t("i64"), "output", slot=2, name="count")
    i, go = Tensor(t("i64"), offset=0), Tensor(t("bool"), offset=8)
    first, last = Tensor(t("f32", 1), offset=16), Tensor(t("f32", 3), offset=64)
    less, counted = Tensor(t("bool", 1), offset=9), Tensor(t("i64"), offset=128)
    body = Plan(
        [i, None, acc, count, x, limit],
        [go, last, counted, last],
        [
            Step("add", [acc, x], [last]),
            Step("gather", [last, const([0], "i64")], [first], {"axis": 0}),
            Step("less", [first, limit], [less]),
            Step("gather", [less, const(0, "i64")], [go], {"axis": 0}),
            Step("add", [count, i], [counted]),
        ],
        name="body",
    )
    attrs = {"body": body, "carried": 2, "bound": 8}
    step = Step(
        "loop", [trip, None, start, const(0, "i64"), x, limit], [acc, count, accs], attrs, "Loop"
    )
    data = np.array([3, 1, -1], np.float32)
    want = np.cumsum([data] * 4, axis=0, dtype=np.float32)
    plan = Plan([x], [acc, accs, count], [step], 192)
    return Sample([plan], {"x": data}, {"acc": want[-1], "accs": want, "count": np.int64(6)})


@sample
def scan() -> Sample:
    """A running sum over axis 0, read backwards and written forwards."""
    x = Tensor(t("f32", 4, 3), "input", name="x")
    total = Tensor(t("f32", 3), "output", slot=0, name="total")
    sums = Tensor(t("f32", 4, 3), "output", slot=1, name="sums")
    row, state, new = (Tensor(t("f32", 3), offset=64 * k) for k in range(3))
    body = Plan([state, row], [new, new], [Step("add", [state, row], [new])], name="body")
    attrs = {"body": body, "states": 1, "scans": 1, "reverse_in": 1, "reverse_out": 0}
    steps = [Step("scan", [const([0, 0, 0]), x], [total, sums], attrs)]
    data = ramp(4, 3)
    want = np.cumsum(data[::-1], axis=0, dtype=np.float32)
    plan = Plan([x], [total, sums], steps, 192)
    return Sample([plan], {"x": data}, {"total": want[-1], "sums": want})


@sample
def nested() -> Sample:
    """An if inside of a loop: negate when the iteration is even."""
    x = Tensor(t("f32", 2), "input", name="x")
    y = Tensor(t("f32", 2), "output", name="y")
    i, even, half = (
        Tensor(t("i64"), offset=0),
        Tensor(t("bool"), offset=64),
        Tensor(t("i64"), offset=128),
    )
    go, new = Tensor(t("bool"), offset=65), Tensor(t("f32", 2), offset=192)
    yes = Plan([y], [new], [Step("neg", [y], [new])])
    no = Plan([y], [new], [Step("exp", [y], [new])])
    body = Plan(
        [i, go, y],
        [go, new],
        [
            Step("mod", [i, const(2, "i64")], [half]),
            Step("equal", [half, const(0, "i64")], [even]),
            Step("if", [even, y], [new], {"then_graph": yes, "else_graph": no}),
        ],
    )
    steps = [
        Step(
            "loop",
            [const(3, "i64"), const(True, "bool"), x],
            [y],
            {"body": body, "carried": 1, "bound": 3},
        )
    ]
    data = np.array([0.5, -0.5], np.float32)
    return Sample([Plan([x], [y], steps, 256)], {"x": data}, {"y": -np.exp(-data)})


@sample
def two_shapes() -> Sample:
    """Two main plans over one set of constants; the second has an arena and slots of its own."""
    weights = ramp(5)
    plans = []
    for n in (2, 7):
        x, y = Tensor(t("f32", n, 5), "input", name="x"), Tensor(t("f32", n, 5), "output", name="y")
        w, a = Tensor.const(weights, t("f32", 5)), Tensor(t("f32", n, 5))
        steps = [Step("mul", [x, w], [a]), Step("tanh", [a], [y])]
        plans.append(Plan([x], [y], steps, 64 * n, f"{n}x5"))
    return Sample(plans, {"x": ramp(2, 5)}, {"y": np.tanh(ramp(2, 5) * weights)})


@sample
def quantised() -> Sample:
    """Types that carry scales, per tensor and per axis."""
    one, per_axis = Quant((0.5,), (3,)), Quant((0.5, 0.25), (0, 1), 0)
    x = Tensor(Type("i8", (2, 3), one), "input", name="x")
    y = Tensor(Type("i8", (2, 3), per_axis), "output", name="y")
    data = np.arange(-3, 3, dtype=np.int8).reshape(2, 3)
    return Sample([Plan([x], [y], [Step("abs", [x], [y])])], {"x": data}, {"y": abs(data)})


@sample
def empty() -> Sample:
    """Tensors without elements."""
    x, y = Tensor(t("f32", 0, 3), "input", name="x"), Tensor(t("f32", 0, 3), "output", name="y")
    data = np.zeros((0, 3), np.float32)
    return Sample([Plan([x], [y], [Step("exp", [x], [y])])], {"x": data}, {"y": data})


@sample
def npu_program() -> Sample:
    """A program for an NPU in a section of its own."""
    made = everything()
    want = made.check()
    inputs = {f"x{i}": a for i, a in enumerate(made.inputs)}
    return Sample([made.plan()], inputs, {f"y{i}": a for i, a in enumerate(want)})
