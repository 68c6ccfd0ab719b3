"""Custom operators in Python inside of native sessions."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from tests.custom.models import SoftClip, clipped, model, node

import intaglio
from intaglio import custom
from intaglio.interpret import interpret

X = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)


def want(x: np.ndarray, limit: float = 1.0) -> np.ndarray:
    return -SoftClip().compute(np.maximum(x, 0), limit=limit)


def test_a_package_runs_and_survives_a_file(tmp_path):
    custom.register(SoftClip)
    intaglio.compile(clipped(limit=0.5)).save(tmp_path / "a.itg")
    with intaglio.open(tmp_path / "a.itg", threads=2, profile=True) as session:
        for x in (X, X + 1, X[::-1].copy()):
            np.testing.assert_allclose(session.run({"x": x})["y"], want(x, 0.5), rtol=1e-6)
        steps = {s.op: s for s in session.profile()}
    step = steps["python.sample.soft_clip"]
    assert (step.origin, step.isa, step.threads, step.calls) == ("b", "python", 1, 3)


def test_one_line_if_the_class_is_not_registered(tmp_path):
    custom.register(SoftClip)
    package = intaglio.compile(clipped())
    package.save(tmp_path / "a.itg")
    session = intaglio.open(package)
    custom.unregister("sample.soft_clip")
    words = "custom op 'sample.soft_clip', a Python class that is not registered; import the module"
    with pytest.raises(intaglio.Unsupported, match=words) as error:
        intaglio.open(tmp_path / "a.itg")
    assert "\n" not in str(error.value)
    np.testing.assert_allclose(session.run({"x": X})["y"], want(X), rtol=1e-6)  # it keeps its own
    steps = intaglio.Package.load(tmp_path / "a.itg").plan.steps  # reports need no class
    assert [s.op for s in steps] == ["relu", "python.sample.soft_clip", "neg"]
    assert steps[1].attrs == {"attributes": (("limit", 1.0),), "constants": ()}


def test_a_class_that_is_defined_again_serves_packages_opened_later():
    custom.register(SoftClip)
    package = intaglio.compile(clipped())
    before = intaglio.open(package)

    def halved(self, x, *, limit=1.0):
        return x / 2

    usual, SoftClip.compute = SoftClip.compute, halved
    try:
        halved.__module__, halved.__qualname__ = usual.__module__, usual.__qualname__
        custom.register(SoftClip)
        np.testing.assert_array_equal(
            intaglio.open(package).run({"x": X})["y"], -np.maximum(X, 0) / 2
        )
    finally:
        SoftClip.compute = usual
    np.testing.assert_allclose(before.run({"x": X})["y"], want(X), rtol=1e-6)


def test_sessions_on_threads_at_the_same_time():
    """The callback takes the interpreter's lock; every session has arrays of its own."""
    custom.register(SoftClip)
    package, errors = intaglio.compile(clipped((64, 64))), []

    def work(seed: int) -> None:
        try:
            rng, session = np.random.default_rng(seed), intaglio.open(package, threads=2)
            for _ in range(50):
                x = rng.standard_normal((64, 64)).astype(np.float32)
                np.testing.assert_allclose(session.run({"x": x})["y"], want(x), rtol=1e-6)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_memory_that_goes_to_another_session_is_not_taken_for_the_old_one():
    """Sessions come and go at the same addresses, with other shapes and attributes."""
    custom.register(SoftClip)
    packages = {
        (n, limit): intaglio.compile(clipped((n, 8), limit=limit))
        for n in (2, 3)
        for limit in (0.5, 2.0)
    }
    gc.freeze()  # what other tests left behind is not searched again each time
    for i in range(60):
        (n, limit), package = list(packages.items())[i * 7 % 4]
        x = np.random.default_rng(i).standard_normal((n, 8)).astype(np.float32)
        with intaglio.open(package, threads=1) as session:
            np.testing.assert_allclose(session.run({"x": x})["y"], want(x, limit), rtol=1e-6)
        del session
        gc.collect()
    gc.unfreeze()


def test_inputs_are_read_only():
    """Constants lie in a file that is mapped to be read: writing would be a crash."""

    @custom.register
    class Writes:
        name = "sample.writes"

        def shape(self, x):
            return x.shape

        def compute(self, x):
            x[0] = 1
            return x

    graph = intaglio.load(model([node("sample::writes", ["x"], ["y"])], {"x": (3,)}, ["y"]))
    with pytest.raises(intaglio.RunError, match=r"'y': .*ValueError: .*read-only"):
        intaglio.open(intaglio.compile(graph)).run({"x": np.zeros(3, np.float32)})


def test_an_interrupt_is_an_interrupt():
    @custom.register
    class Interrupted:
        name = "sample.interrupted"

        def shape(self, x):
            return x.shape

        def compute(self, x):
            raise KeyboardInterrupt

    graph = intaglio.load(model([node("sample::interrupted", ["x"], ["y"])], {"x": (3,)}, ["y"]))
    session = intaglio.open(intaglio.compile(graph))
    with pytest.raises(KeyboardInterrupt):
        session.run({"x": np.zeros(3, np.float32)})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "u16", "i64", "bool"])
def test_element_types(dtype):
    from intaglio import dtypes, ops
    from intaglio.ir import Graph, Type, Value
    from intaglio.ops.registry import REGISTRY

    @custom.register
    class Reverse:
        name = "sample.reverse"

        def shape(self, x):
            return x

        def compute(self, x):
            return x[::-1]

    x = Value(Type(dtype, (5,)), "x")
    y = REGISTRY["sample.reverse"](ops.reshape(x, shape=(5,)))
    a = np.array([0, 1, 1, 0, 3]).astype(dtypes.numpy_of(dtype))
    got = intaglio.open(intaglio.compile(Graph([x], [y], ["y"]))).run({"x": a})["y"]
    np.testing.assert_array_equal(got, a[::-1])


# ---- extents that vary ---------------------------------------------------------------------------
class Above:
    """The elements above a threshold: their number is known at run time only."""

    name = "sample.above"
    dynamic = True

    def shape(self, x, *, threshold=0.0):
        return custom.Type(x.dtype, x.shape, dynamic=(0,))

    def compute(self, x, *, threshold=0.0):
        return x[x > threshold]


def test_an_extent_that_data_decides():
    custom.register(Above)
    nodes = [node("sample::above", ["x"], ["a"], threshold=1.0), node("Neg", ["a"], ["y"])]
    graph = intaglio.load(model(nodes, {"x": (6,)}, ["y"]))
    session = intaglio.open(intaglio.compile(graph))
    for x in ([0, 2, 1, 3, 4, 0], [0] * 6, [2] * 6, [5, 0, 0, 0, 0, 7]):
        a = np.array(x, np.float32)
        for got in (session.run({"x": a}), interpret(graph, {"x": a})):
            np.testing.assert_array_equal(got["y"], -a[a > 1])


def test_a_result_above_its_bound_is_refused():
    class Grows(Above):
        def compute(self, x, *, threshold=0.0):
            return np.append(x, x)

    custom.register(Grows)
    graph = intaglio.load(model([node("sample::above", ["x"], ["y"])], {"x": (6,)}, ["y"]))
    with pytest.raises(intaglio.RunError, match=r"made float32\[12\]; its shape function says f32"):
        intaglio.open(intaglio.compile(graph)).run({"x": np.zeros(6, np.float32)})


def test_it_reads_an_extent_that_data_decides():
    custom.register(SoftClip)
    nodes = [
        node("NonZero", ["x"], ["i"]),
        node("Cast", ["i"], ["f"], to=1),
        node("sample.ops::SoftClip", ["f"], ["y"], limit=2.0),
    ]
    graph = intaglio.load(model(nodes, {"x": (6,)}, ["y"]))
    session = intaglio.open(intaglio.compile(graph))
    for x in ([1, 0, 0, 1, 1, 0], [0] * 6, [1] * 6):
        a = np.array(x, np.float32)
        places = np.array([np.flatnonzero(a)], np.float32)
        got = session.run({"x": a})["y"]
        np.testing.assert_allclose(got, np.tanh(places / 2) * 2, rtol=1e-6)


class Pool:
    name = "sample.pool"

    def shape(self, x, *, by=2):
        return (x.shape[0], (x.shape[1] + by - 1) // by)

    def compute(self, x, *, by=2):
        return np.stack([x[:, i : i + by].max(1) for i in range(0, x.shape[1], by)], 1)


def test_a_package_for_a_range_of_sizes():
    custom.register(Pool)
    nodes = [node("Relu", ["x"], ["a"]), node("sample::pool", ["a"], ["b"], by=3)]
    nodes.append(node("Neg", ["b"], ["y"]))
    package = intaglio.compile(model(nodes, {"x": (2, "n")}, ["y"]), dims={"n": "3..40"})
    session = intaglio.open(package)
    for n in (40, 3, 17, 18, 40):
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_array_equal(
            session.run({"x": x})["y"], -Pool().compute(np.maximum(x, 0), by=3)
        )


def test_a_shape_function_that_needs_a_number_refuses_a_range():
    class Odd(Pool):
        def shape(self, x, *, by=2):
            return (x.shape[0], len(range(0, x.shape[1], by)))

    custom.register(Odd)
    made = model([node("sample::pool", ["x"], ["y"])], {"x": (2, "n")}, ["y"])
    words = r"sample.pool: the extent n must be known here; fix it \(n=40\), or compile for a list"
    with pytest.raises(intaglio.Unsupported, match=words):
        intaglio.compile(made, dims={"n": "3..40"})
    session = intaglio.open(intaglio.compile(made, dims={"n": [4, 40]}))
    assert session.run({"x": np.zeros((2, 40), np.float32)})["y"].shape == (2, 20)


def test_a_shape_function_that_changes_its_mind_is_refused():
    """The package was compiled with another one."""
    custom.register(Pool)
    package = intaglio.compile(model([node("sample::pool", ["x"], ["y"])], {"x": (2, 4)}, ["y"]))
    usual = Pool.shape
    try:
        for shape, words in (
            (lambda self, x, *, by=2: x.shape, "type of output 0 differs from what its inputs giv"),
            (lambda self, x, *, by=2: 1 / 0, "its shape function raised ZeroDivisionError"),
        ):
            Pool.shape = shape
            custom.register(Pool)
            with pytest.raises(
                intaglio.BadFile, match=rf"step 0 \(python.sample.pool\): .*{words}"
            ):
                intaglio.open(package)
    finally:
        Pool.shape = usual


def test_control_flow_runs_it_in_every_iteration():
    from onnx import TensorProto, helper

    custom.register(SoftClip)
    body = helper.make_graph(
        [node("sample.ops::SoftClip", ["v"], ["w"], limit=3.0), node("Identity", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (4,)),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, (4,)),
        ],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="loop")]
    made = model(nodes, {"x": (4,)}, ["y"], {"n": np.array(3)})
    made.opset_import.append(helper.make_opsetid("sample.ops", 1))
    x = np.array([-9, 0, 1, 9], np.float32)
    want = x
    for _ in range(3):
        want = SoftClip().compute(want, limit=3.0)
    got = intaglio.open(intaglio.compile(intaglio.load(made), level=0)).run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_results_may_be_written_in_place():
    @custom.register
    class Both:
        name = "sample.both"

        def shape(self, x, *, by=2.0):
            return [x.shape, x.shape]

        def compute(self, x, *, by=2.0, out=None):
            made = [np.empty_like(x), np.empty_like(x)] if out is None else out
            np.multiply(x, np.float32(by), out=made[0])
            np.add(x, np.float32(by), out=made[1])
            return made

    nodes = [node("sample::both", ["x"], ["a", "b"], by=3.0), node("Add", ["a", "b"], ["y"])]
    graph = intaglio.load(model(nodes, {"x": (2, 8)}, ["y"]))
    assert "out" not in [k for n in graph.nodes() for k in n.attrs]
    for got in (interpret(graph, {"x": X}), intaglio.open(intaglio.compile(graph)).run({"x": X})):
        np.testing.assert_array_equal(got["y"], X * 3 + (X + 3))
