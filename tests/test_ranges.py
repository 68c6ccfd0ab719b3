"""Packages with ranges of extents: one plan gives what a package for each size gives."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.frontends.onnx_text import model

import intaglio
from intaglio import BadInput, Unsupported
from intaglio.native_session import NativeSession
from intaglio.runtime import CView, Model, library
from intaglio.session_settings import SessionSettings

R = np.random.default_rng(5)
Sizes = Mapping[str, int]


def with_weights(text: str, opset: int = 18, **weights: Sequence[int]) -> onnx.ModelProto:
    """A model with random f32 weights of these shapes."""
    made = model(text, opset)
    for name, shape in weights.items():
        array = (R.standard_normal(shape) / 4).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def feeds_of(source: onnx.ModelProto, sizes: Sizes) -> dict[str, np.ndarray]:
    feeds = {}
    for i in source.graph.input:
        shape = [sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]
        floats = i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        feeds[i.name] = (
            R.standard_normal(shape).astype(np.float32) if floats else R.integers(0, 2, shape)
        )
    return feeds


def agree(got: Mapping[str, np.ndarray], want: Sequence[np.ndarray], what: Any) -> None:
    for (name, a), b in zip(got.items(), want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (what, name)
        np.testing.assert_allclose(a, b, 2e-4, 2e-5, err_msg=f"{what} {name}")


def check(source: onnx.ModelProto, sizes: Sequence[Sizes], **ranges: str) -> intaglio.Package:
    """Compile for ranges; run at all sizes; compare with a fixed package and onnxruntime."""
    package = intaglio.compile(source, dims=ranges)
    graph = intaglio.load(source, dims=ranges)
    oracle = onnxruntime.InferenceSession(source.SerializeToString())
    with intaglio.open(package, threads=2) as session:
        for size in sizes:
            feeds = feeds_of(source, size)
            want = oracle.run(None, feeds)
            agree(session.run(feeds), want, f"{size} package")
            agree(intaglio.interpret(graph, feeds), want, f"{size} interpreted")
            with intaglio.open(intaglio.compile(source, dims=size)) as fixed:
                agree(fixed.run(feeds), want, f"{size} fixed")
    return package


PICTURES = [{"n": 1, "h": 33, "w": 40}, {"n": 4, "h": 50, "w": 27}, {"n": 2, "h": 64, "w": 3}]
PICTURE = {"n": "1..4", "h": "3..64", "w": "3..64"}
CONVOLUTIONS = with_weights(
    """(float[n,3,h,w] x) => (float[n,5] y, float[n,8,p,q] c) <float[8] s = {1,2,3,4,5,6,7,8}> {
        a = Conv<pads = [1, 1, 1, 1]>(x, k)  b = BatchNormalization(a, s, s, s, s)
        r = Relu(b)  d = Conv<group = 8, pads = [1, 1, 1, 1], strides = [2, 2]>(r, g)
        c = Conv(d, l)  m = GlobalAveragePool(c)  f = Flatten(m)  y = MatMul(f, v)
    }""",
    k=(8, 3, 3, 3),
    g=(8, 1, 3, 3),
    l=(8, 8, 1, 1),
    v=(8, 5),
)
ENCODER = with_weights(
    """(int64[batch,seq] ids, int64[batch,seq] mask) => (float[batch,seq,32] y, float[batch,32] z) {
        e = Gather(table, ids)  sh = Shape(ids)  i1 = Constant<value_int = 1>()
        len = Gather(sh, i1)  zero = Constant<value_int = 0>()
        at = Range(zero, len, i1)  p = Gather(places, at)  x = Add(e, p)
        q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
        first = Constant<value_ints = [0]>()  two = Constant<value_ints = [4, 8]>()
        bs = Slice(sh, first, last)  last = Constant<value_ints = [2]>()
        s4 = Concat<axis = 0>(bs, two)
        q4 = Reshape(q, s4)  k4 = Reshape(k, s4)  v4 = Reshape(v, s4)
        qt = Transpose<perm = [0, 2, 1, 3]>(q4)  kt = Transpose<perm = [0, 2, 3, 1]>(k4)
        vt = Transpose<perm = [0, 2, 1, 3]>(v4)
        d = MatMul(qt, kt)  f = Constant<value_float = 0.35>()  ds = Mul(d, f)
        ax = Constant<value_ints = [1, 2]>()  mu = Unsqueeze(mask, ax)  mf = Cast<to = 1>(mu)
        one = Constant<value_float = 1.0>()  mi = Sub(one, mf)
        big = Constant<value_float = -100.0>()  mb = Mul(mi, big)  a = Add(ds, mb)
        w = Softmax<axis = -1>(a)  o = MatMul(w, vt)  ot = Transpose<perm = [0, 2, 1, 3]>(o)
        whole = Constant<value_ints = [0, 0, 32]>()  y = Reshape(ot, whole)
        z = ReduceMean<keepdims = 0>(y, i1v)  i1v = Constant<value_ints = [1]>()
    }""",
    table=(2, 32),
    places=(64, 32),
    wq=(32, 32),
    wk=(32, 32),
    wv=(32, 32),
)
MODELS: dict[str, tuple[onnx.ModelProto, Sequence[Sizes], dict[str, str]]] = {
    "convolutions": (CONVOLUTIONS, PICTURES, PICTURE),
    "encoder": (
        ENCODER,
        [{"batch": b, "seq": s} for b, s in ((1, 1), (1, 7), (3, 16), (4, 64), (2, 33))],
        {"batch": "1..4", "seq": "1..64"},
    ),
    "resize to the size of another tensor": (
        with_weights(
            """(float[n,3,h,w] x) => (float[n,4,p,q] y, float[n,4,r,s] z) {
                a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k)
                b = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, l)
                sh = Shape(a)  u = Resize<mode = "nearest", nearest_mode = "floor",
                    coordinate_transformation_mode = "asymmetric">(b, , , sh)
                y = Add(a, u)
                two = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()
                z = Resize<mode = "linear">(u, , two)
            }""",
            k=(4, 3, 3, 3),
            l=(4, 4, 3, 3),
        ),
        PICTURES,
        PICTURE,
    ),
    "a pyramid": (
        with_weights(
            """(float[n,3,h,w] x) => (float[n,8,p,q] y) {
                a = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, k)
                b = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(a, l)
                two = Constant<value_floats = [1.0, 1.0, 2.0, 2.0]>()
                u = Resize<mode = "nearest", nearest_mode = "floor",
                    coordinate_transformation_mode = "asymmetric">(b, , two)
                y = Concat<axis = 1>(a, u)
            }""",
            k=(4, 3, 3, 3),
            l=(4, 4, 3, 3),
        ),
        [{"n": 1, "h": 32, "w": 64}, {"n": 2, "h": 96, "w": 32}],
        {"n": "1..2", "h": "32..96:32", "w": "32..96:32"},
    ),
    "a grid": (
        model("""(float[n,3,h,w] x) => (float[n,p,3] y, float[w] z) {
            s = Shape<start = 3>(x)  zero = Constant<value_int = 0>()
            one = Constant<value_int = 1>()  e = Squeeze(s)  r = Range(zero, e, one)
            z = Cast<to = 1>(r)  a = Add(x, z)
            t = Transpose<perm = [0, 2, 3, 1]>(a)  sh = Shape(x)  i0 = Constant<value_ints = [0]>()
            b = Gather(sh, i0)  m = Constant<value_ints = [-1, 3]>()
            f = Concat<axis = 0>(b, m)  y = Reshape(t, f)
        }"""),
        PICTURES,
        PICTURE,
    ),
    "an output that is an input": (
        model("(float[n,3] x) => (float[n,3] x2, float[n,3] y) { x2 = Identity(x) y = Relu(x) }"),
        [{"n": 1}, {"n": 9}],
        {"n": "1..9"},
    ),
    "slices from both ends": (
        model("""(float[n,5] x) => (float[a,5] y, float[b,5] z, float[c,5] v) {
            i0 = Constant<value_ints = [0]>()  i1 = Constant<value_ints = [1]>()
            m = Constant<value_ints = [-2]>()  big = Constant<value_ints = [99999]>()
            y = Slice(x, i1, big, i0)  z = Slice(x, i0, m, i0)  w = Slice(x, m, big, i0)
            v = Relu(w)
        }"""),
        [{"n": 4}, {"n": 9}],
        {"n": "4..9"},
    ),
    "a recurrent layer": (
        with_weights(
            """(float[seq,batch,6] x) => (float[seq,d,batch,4] y) {
                y = GRU<hidden_size = 4>(x, w, r)
            }""",
            w=(1, 12, 6),
            r=(1, 12, 4),
        ),
        [{"seq": 1, "batch": 1}, {"seq": 7, "batch": 3}],
        {"seq": "1..9", "batch": "1..3"},
    ),
    "a causal mask": (
        model("""(float[n,t,t] x) => (float[n,t,t] y) {
            s = Shape<start = 2>(x)  e = Squeeze(s)  zero = Constant<value_int = 0>()
            one = Constant<value_int = 1>()  r = Range(zero, e, one)
            ax = Constant<value_ints = [1]>()  c = Unsqueeze(r, ax)  m = LessOrEqual(r, c)
            low = Constant<value_float = -100.0>()  k = Where(m, x, low)  y = Softmax(k)
        }"""),
        [{"n": 1, "t": 1}, {"n": 2, "t": 9}],
        {"n": "1..2", "t": "1..16"},
    ),
    "if on data": (
        model("""(float[n,4] x) => (float[n,4] y) {
            s = ReduceSum<keepdims = 0>(x)  zero = Constant<value_float = 0.0>()
            c = Greater(s, zero)
            y = If(c) <then_branch = a () => (float[n,4] p) { p = Relu(x) },
                       else_branch = b () => (float[n,4] q) { q = Neg(x) }>
        }"""),
        [{"n": 1}, {"n": 5}, {"n": 2}],
        {"n": "1..5"},
    ),
    "an extent that data decide": (
        model("""(float[n,4] x) => (int64[2,k] y) { y = NonZero(z) z = Relu(x) }"""),
        [{"n": 1}, {"n": 5}],
        {"n": "1..5"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_size_gives_what_a_fixed_package_gives(name):
    source, sizes, ranges = MODELS[name]
    check(source, sizes, **ranges)


def test_memory_is_planned_for_the_largest_size():
    sizes = {"batch": 4, "seq": 64}
    package = intaglio.compile(ENCODER, dims={k: f"1..{v}" for k, v in sizes.items()})
    fixed = intaglio.compile(ENCODER, dims=sizes)
    with intaglio.open(package) as session, intaglio.open(fixed) as other:
        assert session.memory()["arena"] <= 1.05 * other.memory()["arena"]
        assert str(session.inputs["ids"]) == "i64[batch, seq]"
    assert len(package.image) <= 1.02 * len(fixed.image) + 8192


def test_shapes_by_input_name():
    package = intaglio.compile(CONVOLUTIONS, shapes={"x": ("1..2", 3, "8..16:8", 16)})
    with intaglio.open(package) as session:
        assert str(session.inputs["x"]) == "f32[batch, 3, x.2, 16]"
        for shape in ((1, 3, 8, 16), (2, 3, 16, 16)):
            x = R.standard_normal(shape).astype(np.float32)
            want = intaglio.interpret(intaglio.load(CONVOLUTIONS, shapes={"x": shape}), {"x": x})
            agree(session.run({"x": x}), list(want.values()), shape)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((5, 3, 8, 8), r"n=5; the model was compiled for n=1\.\.4"),
        ((0, 3, 8, 8), r"n=0; the model was compiled for n=1\.\.4"),
        ((1, 3, 12, 8), r"h=12; the model was compiled for h=8\.\.64:8"),
        ((1, 4, 8, 8), r"shape \(1, 4, 8, 8\), the model takes float32 \(n, 3, h, w\)"),
        ((3, 8, 8), r"shape \(3, 8, 8\), the model takes float32 \(n, 3, h, w\)"),
    ],
)
def test_sizes_outside_of_the_ranges_are_refused(shape, words):
    package = intaglio.compile(CONVOLUTIONS, dims={"n": "1..4", "h": "8..64:8", "w": "8..64"})
    with intaglio.open(package) as session:
        with pytest.raises(BadInput, match=words):
            session.run({"x": np.zeros(shape, np.float32)})
        assert session.run({"x": np.zeros((1, 3, 8, 8), np.float32)})["y"].shape == (1, 5)


def test_inputs_that_contradict_each_other_are_refused():
    package = intaglio.compile(ENCODER, dims={"batch": "1..4", "seq": "1..64"})
    with (
        intaglio.open(package) as session,
        pytest.raises(BadInput, match="input 'mask' has seq=6, input 'ids' has seq=5"),
    ):
        session.run({"ids": np.zeros((1, 5), np.int64), "mask": np.zeros((1, 6), np.int64)})


@pytest.mark.parametrize("given", ["1-512", "..5", "5", "a..b", "1..2..3", "9..3", "1..512:600"])
def test_a_wrong_range_is_refused(given):
    with pytest.raises(BadInput, match=r"seq"):
        intaglio.compile(ENCODER, dims={"batch": 1, "seq": given})


def test_a_model_that_needs_one_size_says_so():
    source = model("(float[n,4] x) => (float[2,2,4] y) { y = Reshape(x, s) s = Constant<value_ints = [2, 2, 4]>() }")  # fmt: skip # noqa: E501
    with pytest.raises(BadInput, match=r"cannot reshape n\*4 elements to \(2, 2, 4\)"):
        intaglio.compile(source, dims={"n": "1..8"})
    cropped = model(
        "(float[n,4] x) => (float[m,4] y) { y = CenterCropPad<axes = [0]>(x, s) s = Constant<value_ints = [4]>() }"  # noqa: E501
    )
    with pytest.raises(Unsupported, match=r"depends on the size; fix it \(n=8\)"):
        intaglio.compile(cropped, dims={"n": "1..8"})


def test_outputs_go_to_given_arrays():
    package = intaglio.compile(CONVOLUTIONS, dims=PICTURE)
    with intaglio.open(package) as session:
        for n in (3, 1):
            x = R.standard_normal((n, 3, 8, 8)).astype(np.float32)
            out = {"y": np.empty((n, 5), np.float32)}
            got = session.run({"x": x}, out=out)
            assert got["y"] is out["y"]
            agree(session.run({"x": x}), list(got.values()), n)
        with pytest.raises(BadInput, match=r"out\['y'\]"):
            session.run({"x": x}, out={"y": np.empty((4, 5), np.float32)})


def test_threads_share_a_session_at_several_shapes():
    package = intaglio.compile(ENCODER, dims={"batch": "1..4", "seq": "1..64"})
    with intaglio.open(package, threads=1) as session:
        feeds = [feeds_of(ENCODER, {"batch": b, "seq": s}) for b, s in ((1, 5), (3, 17), (2, 64))]
        want = [session.run(f) for f in feeds]
        wrong: list[int] = []

        def work(k: int) -> None:
            for i in range(40):
                j = (k + i) % len(feeds)
                if not np.array_equal(session.run(feeds[j])["y"], want[j]["y"]):
                    wrong.append(k)

        workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        assert not wrong


def test_many_shapes_in_a_row_take_no_more_memory():
    package = intaglio.compile(ENCODER, dims={"batch": "1..4", "seq": "1..64"})
    with intaglio.open(package, threads=1) as session:
        for _ in range(1000):
            b, s = int(R.integers(1, 5)), int(R.integers(1, 65))
            feeds = feeds_of(ENCODER, {"batch": b, "seq": s})
            assert session.run(feeds)["y"].shape == (b, s, 32)
        assert len(session._known) <= 256


# ---- the C interface ---------------------------------------------------------------------------
def rows(*shapes: Sequence[int]) -> Any:
    made = ((ctypes.c_int64 * 8) * len(shapes))()
    for row, shape in zip(made, shapes, strict=True):
        row[: len(shape)] = list(shape)
    return made


def test_c_sets_shapes_and_says_what_is_wrong():
    package = intaglio.compile(ENCODER, dims={"batch": "1..4", "seq": "1..64"})
    session, lib = NativeSession(Model(package, True), SessionSettings(plan=0)), library()
    view = CView()
    session.check(lib.itg_set_shapes(session.handle, rows((2, 9), (2, 9))))
    session.check(lib.itg_get_output(session.handle, 0, ctypes.byref(view)))
    assert (view.rank, list(view.shape[:3]), view.bytes) == (3, [2, 9, 32], 2 * 9 * 32 * 4)
    session.check(lib.itg_get_input(session.handle, 1, ctypes.byref(view)))
    assert list(view.shape[:2]) == [2, 9]
    shape = (ctypes.c_int64 * 2)(3, 11)
    session.check(lib.itg_set_shape(session.handle, 0, shape, 2))  # the mask follows
    session.check(lib.itg_get_input(session.handle, 1, ctypes.byref(view)))
    assert list(view.shape[:2]) == [3, 11]
    for wrong in (((5, 9), (5, 9)), ((2, 9), (2, 8)), ((2, 65), (2, 65)), ((0, 1), (0, 1))):
        with pytest.raises(BadInput, match="cannot have the shape"):
            session.check(lib.itg_set_shapes(session.handle, rows(*wrong)))
    with pytest.raises(BadInput, match="NULL"):
        session.check(lib.itg_set_shapes(session.handle, None))
    with pytest.raises(BadInput, match="has not 3 axes"):
        session.check(lib.itg_set_shape(session.handle, 0, (ctypes.c_int64 * 3)(1, 1, 1), 3))
    session.check(lib.itg_get_input(session.handle, 0, ctypes.byref(view)))
    assert list(view.shape[:2]) == [3, 11]  # a refused shape changes nothing


def test_a_size_that_the_model_cannot_compute_is_refused_until_another_is_set():
    source = with_weights("(float[n,2,h] x) => (float[n,2,k] y) { y = Conv(x, w) }", w=(2, 2, 5))
    package = intaglio.compile(source, dims={"n": 1, "h": "1..20"})
    with intaglio.open(package) as session:
        with pytest.raises(BadInput, match="does not fit"):
            session.run({"x": np.zeros((1, 2, 4), np.float32)})
        with pytest.raises(BadInput, match="does not fit"):
            session.run({"x": np.zeros((1, 2, 4), np.float32)})
        assert session.run({"x": np.zeros((1, 2, 5), np.float32)})["y"].shape == (1, 2, 1)


def test_a_shape_that_doubles_without_end_is_refused():
    doubled = "".join(f" n{k + 1} = Mul(n{k}, n{k})" for k in range(40))
    source = model(
        "(float[n,4] x) => (float[m] y) { n0 = Shape<end = 1>(x) "
        + doubled
        + " v = Constant<value_float = 1.0>() y = Expand(v, n40) }"
    )
    with pytest.raises(intaglio.IntaglioError):
        intaglio.compile(source, dims={"n": "2..8"})


def test_calibration_and_export_ask_for_one_size():
    graph = intaglio.load(CONVOLUTIONS, dims={"n": 1, "h": "8..64:8", "w": 16})
    words = r'needs fixed shapes; the model has h=8\.\.64:8; give one size: dims={"h": 64}'
    with pytest.raises(BadInput, match=words):
        intaglio.quantize(graph, [{"x": np.zeros((1, 3, 8, 16), np.float32)}])
    with pytest.raises(BadInput, match=words):
        intaglio.to_onnx(graph)


def test_shapes_of_outputs_are_known_before_a_run():
    with intaglio.open(intaglio.compile(CONVOLUTIONS, dims=PICTURE)) as session:
        assert session.output_shapes({"x": (2, 3, 9, 20)}) == {"y": (2, 5), "c": (2, 8, 5, 10)}
        with pytest.raises(BadInput, match="n=9"):
            session.output_shapes({"x": (9, 3, 9, 20)})


@pytest.mark.parametrize(("sizes", "shape"), [(None, (64, 48)), ({"h": 16, "w": 24}, (16, 24))])
def test_pictures_at_the_largest_or_a_given_size(sizes, shape):
    pytest.importorskip("PIL")
    from intaglio import vision

    source = with_weights(
        """(float[n,3,h,w] x) => (float[n,5] y) {
            m = GlobalAveragePool(x)  f = Flatten(m)  z = MatMul(f, v)  y = Softmax(z)
        }""",
        v=(3, 5),
    )
    package = intaglio.compile(source, dims={"n": "1..4", "h": "8..64:8", "w": "8..48:8"}, std=255)
    with intaglio.open(package) as session:
        predictor = vision.Predictor(session, sizes=sizes)
        assert predictor.taker.size == shape
        found = predictor(R.integers(0, 256, (40, 30, 3), np.uint8))
        assert len(found.classes) == 5


def test_a_range_of_pictures_in_tflite(tmp_path):
    from tests.frontends.tflite_build import G, T, models, op

    tensors = [T((1, 32, 32, 3), name="x"), T((1, 16, 16, 3), name="y")]
    pool = op("MAX_POOL_2D", [0], [1], "Pool2DOptions", Padding=0, StrideW=2, StrideH=2,
              FilterWidth=3, FilterHeight=3)  # fmt: skip
    path = tmp_path / "pool.tflite"
    path.write_bytes(models([G(tensors, [pool], [0], [1])]))
    package = intaglio.compile(path, shapes={"x": ("1..2", "8..32", "8..32", 3)})
    with intaglio.open(package) as session:
        for shape in ((1, 8, 31, 3), (2, 32, 9, 3)):
            x = R.standard_normal(shape).astype(np.float32)
            want = intaglio.interpret(intaglio.load(path, shapes={"x": shape}), {"x": x})
            agree(session.run({"x": x}), list(want.values()), shape)


ATTENTION = model(
    """(float[1,seq,32] x) => (float[1,seq,32] y) {
        s4 = Constant<value_ints = [0, 0, 4, 8]>()  q4 = Reshape(x, s4)
        qt = Transpose<perm = [0, 2, 1, 3]>(q4)  kt = Transpose<perm = [0, 2, 3, 1]>(q4)
        d = MatMul(qt, kt)  w = Softmax<axis = -1>(d)  o = MatMul(w, qt)
        ot = Transpose<perm = [0, 2, 1, 3]>(o)  whole = Constant<value_ints = [0, 0, 32]>()
        y = Reshape(ot, whole)
    }"""
)


@pytest.mark.parametrize("most", [256, 600])
def test_no_length_needs_more_scratch_memory_than_the_longest(most: int):
    """Attention takes more rows at a time if there are fewer keys."""
    package = intaglio.compile(ATTENTION, dims={"seq": f"1..{most}"})
    assert any(s.op == "cpu.attention" for s in package.plan.steps)
    with intaglio.open(package, 1) as session:
        for n in range(1, most + 1):
            assert session.output_shapes({"x": (1, n, 32)}) == {"y": (1, n, 32)}
        for n in (241, 255):
            x = np.random.default_rng(n).normal(size=(1, n, 32)).astype(np.float32)
            want = intaglio.interpret(intaglio.load(ATTENTION, dims={"seq": n}), {"x": x})["y"]
            np.testing.assert_allclose(session.run({"x": x})["y"], want, atol=1e-4)
