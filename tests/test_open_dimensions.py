"""`optimize` with open dimensions: the written model agrees with the original at several sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests import shared_models
from tests.frontends.onnx_text import model
from tests.test_cli import DIGITS, intaglio

from intaglio.errors import BadInput, Unsupported
from intaglio.export.onnx import count_nodes
from intaglio.frontends.onnx.open_extents import (
    expand_target,
    reshape_target,
    resize_scales,
    slice_stops,
)
from intaglio.open_dimensions import OpenModel, Settings, find_open, optimize_open

R = np.random.default_rng(3)


def with_weights(text: str, opset: int = 18, **weights: Sequence[int]) -> onnx.ModelProto:
    """A model with random f32 weights of these shapes."""
    made = model(text, opset)
    for name, shape in weights.items():
        array = R.standard_normal(shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return made


def optimized(source: onnx.ModelProto, level: int = 3) -> OpenModel:
    found = find_open(source, {})
    assert found is not None
    return optimize_open(found, Settings(level))


def runs(source: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(source.SerializeToString(), options)
    return list(session.run(None, dict(feeds)))


def shapes(infos: Sequence[onnx.ValueInfoProto]) -> list[list[int | str]]:
    dims = [i.type.tensor_type.shape.dim for i in infos]
    return [[d.dim_param or d.dim_value for d in ds] for ds in dims]


def agrees(source: onnx.ModelProto, sizes: Sequence[Sequence[Sequence[int]]]) -> OpenModel:
    """Optimise; the dimensions are still open; outputs agree with the original at `sizes`."""
    made = optimized(source)
    written = made.to_onnx()
    onnx.checker.check_model(written, full_check=True)
    assert shapes(written.graph.input) == shapes(source.graph.input)
    for size in sizes:
        feeds = {
            i.name: R.random(s).astype(np.float32)
            if i.type.tensor_type.elem_type == 1
            else R.integers(0, 3, s)
            for i, s in zip(source.graph.input, size, strict=True)
        }
        for got, want in zip(runs(written, feeds), runs(source, feeds), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    return made


PICTURES = [[(1, 3, 33, 40)], [(4, 3, 50, 27)], [(2, 3, 600, 31)]]


def test_a_batch():
    source = with_weights(
        """(float[batch,3,6,6] x) => (float[batch,5] y) <float[4] s = {1,2,3,4}> {
            c = Conv<pads = [1, 1, 1, 1]>(x, w)  n = BatchNormalization(c, s, s, s, s)
            r = Relu(n)  f = Flatten(r)  y = MatMul(f, m)
        }""",
        w=(4, 3, 3, 3),
        m=(144, 5),
    )
    made = agrees(source, [[(1, 3, 6, 6)], [(9, 3, 6, 6)]])
    assert shapes(made.proto.graph.output) == [["batch", 5]]
    assert [n.op_type for n in made.proto.graph.node] == ["Conv", "Relu", "Reshape", "MatMul"]


def test_resize_to_the_size_of_another_tensor():
    source = with_weights(
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
    )
    made = agrees(source, PICTURES)
    assert shapes(made.proto.graph.output) == [["n", 4, "p", "q"], ["n", 4, "r", "s"]]


def test_a_channel_shuffle_is_written_with_computed_shapes():
    source = with_weights(
        """(float[n,3,h,w] x) => (float[n,8,h,w] y) {
            c = Conv<pads = [1, 1, 1, 1]>(x, k)  s = Shape(c)
            i0 = Constant<value_ints = [0]>()  i2 = Constant<value_ints = [2, 3]>()
            b = Gather(s, i0)  hw = Gather(s, i2)
            g = Constant<value_ints = [2, 4]>()  whole = Constant<value_ints = [8]>()
            s1 = Concat<axis = 0>(b, g, hw)  s2 = Concat<axis = 0>(b, whole, hw)
            v = Reshape(c, s1)  t = Transpose<perm = [0, 2, 1, 3, 4]>(v)
            f = Reshape(t, s2)  y = Relu(f)
        }""",
        k=(8, 3, 3, 3),
    )
    made = agrees(source, PICTURES)
    assert count_nodes(made.proto) < count_nodes(source)


def test_a_grid_that_is_computed_from_the_shape():
    source = model("""(float[n,3,h,w] x) => (float[n,p,3] y) {
        s = Shape<start = 3>(x)  zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()
        axis = Constant<value_ints = [0]>()  n = Squeeze(s, axis)
        r = Range(zero, n, one)  f = Cast<to = 1>(r)
        g = Add(x, f)  flat = Constant<value_ints = [0, 3, -1]>()
        v = Reshape(g, flat)  y = Transpose<perm = [0, 2, 1]>(v)
    }""")
    made = agrees(source, PICTURES)
    assert "Range" in [n.op_type for n in made.proto.graph.node]


def test_padding_that_depends_on_the_size_is_left():
    source = with_weights(
        """(float[n,3,h,w] x) => (float[n,4,p,q] y, float[n,4,r,s] z) {
            c = Conv<auto_pad = "SAME_UPPER", strides = [2, 2], kernel_shape = [3, 3]>(x, k)
            y = Relu(c)
            z = MaxPool<kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1>(y)
        }""",
        k=(4, 3, 3, 3),
    )
    made = agrees(source, [*PICTURES, [(1, 3, 32, 41)], [(1, 3, 35, 36)]])
    assert [n.op_type for n in made.proto.graph.node] == ["Conv", "Relu", "MaxPool"]


def test_limits_of_an_extent():
    """x[:, :100] has 100 rows only if x has so many; the last row is at an open index."""
    source = with_weights(
        """(float[b,t,8] x) => (float[b,p,8] y, float[b,8] last, float[b,k,8] most) {
            zero = Constant<value_ints = [0]>()  end = Constant<value_ints = [100]>()
            axis = Constant<value_ints = [1]>()
            cut = Slice(x, zero, end, axis)  sh = Shape<start = 1, end = 2>(cut)
            pos = Slice(table, zero, sh, axis)  y = Add(cut, pos)
            at = Constant<value_int = -1>()  last = Gather<axis = 1>(x, at)
            five = Constant<value_ints = [5]>()  all = Shape<start = 1, end = 2>(x)
            k = Min(all, five)  most, i = TopK<axis = 1>(x, k)
        }""",
        table=(1, 100, 8),
    )
    made = agrees(source, [[(1, 3, 8)], [(2, 99, 8)], [(3, 101, 8)], [(1, 700, 8)]])
    assert shapes(made.proto.graph.output)[1] == ["b", 8]


def test_attention_is_recognised():
    heads = """
        s{v} = Shape<start = 0, end = 2>(x)  d{v} = Constant<value_ints = [2, 4]>()
        t{v} = Concat<axis = 0>(s{v}, d{v})  l{v} = MatMul(x, w{v})
        r{v} = Reshape(l{v}, t{v})  h{v} = Transpose<perm = [0, 2, 1, 3]>(r{v})"""
    source = with_weights(
        "(float[b,t,8] x) => (float[b,t,8] y) <float half = {0.5}> {"
        + "".join(heads.replace("{v}", v) for v in "qkv")
        + """
            kt = Transpose<perm = [0, 1, 3, 2]>(hk)  a = MatMul(hq, kt)  sc = Mul(a, half)
            p = Softmax<axis = -1>(sc)  o = MatMul(p, hv)  ot = Transpose<perm = [0, 2, 1, 3]>(o)
            e = Constant<value_ints = [8]>()  ft = Concat<axis = 0>(sq, e)
            y = Reshape(ot, ft)
        }""",
        wq=(8, 8),
        wk=(8, 8),
        wv=(8, 8),
    )
    made = agrees(source, [[(1, 5, 8)], [(3, 17, 8)]])
    assert count_nodes(made.proto) < count_nodes(source)
    assert shapes(made.proto.graph.output) == [["b", "t", 8]]


def test_nameless_dimensions_stay_nameless():
    source = model(
        "(float[a,3,b,c] x) => (float[d,e,f] y) { s = Relu(x) k = Relu(s) "
        "t = Constant<value_ints = [0, 3, -1]>() y = Reshape(k, t) }"
    )
    for axis in (0, 2, 3):
        source.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = "?"
    for d in source.graph.output[0].type.tensor_type.shape.dim:
        d.Clear()
    made = optimized(source)
    x, y = (
        i.type.tensor_type.shape.dim
        for i in (made.proto.graph.input[0], made.proto.graph.output[0])
    )
    assert [d.HasField("dim_value") for d in x] == [False, True, False, False]
    assert [d.HasField("dim_value") for d in y] == [False, True, False]
    assert [n.op_type for n in made.proto.graph.node] == ["Relu", "Reshape"]


def test_two_inputs_with_nameless_batches():
    source = model("(float[a,4] x, float[b,4] y) => (float[c,4] z) { s = Add(x, y) z = Relu(s) }")
    for i in source.graph.input:
        i.type.tensor_type.shape.dim[0].Clear()
    source.graph.output[0].type.tensor_type.shape.dim[0].Clear()
    made = optimized(source)
    feeds = {"x": R.random((5, 4), np.float32), "y": R.random((5, 4), np.float32)}
    (got,), (want,) = runs(made.to_onnx(), feeds), runs(source, feeds)
    np.testing.assert_array_equal(got, want)


def test_two_names_of_one_batch():
    """torch.onnx names the batch of every input differently."""
    source = model("(float[s1,4] x, float[s2,4] y) => (float[s1,4] z) { s = Add(x, y) z = Abs(s) }")
    made = agrees(source, [[(1, 4), (1, 4)], [(6, 4), (6, 4)]])
    assert shapes(made.proto.graph.input) == [["s1", 4], ["s2", 4]]
    assert shapes(made.proto.graph.output) == [["s1", 4]]


def test_sizes_are_multiples_if_they_must_be():
    source = with_weights(
        """(float[n,3,h,w] x) => (float[n,4,h,w] y) {
            a = Conv<strides = [4, 4], kernel_shape = [4, 4]>(x, k)
            four = Constant<value_floats = [1.0, 1.0, 4.0, 4.0]>()
            u = Resize<mode = "nearest">(a, , four)  one = Conv(x, l)  y = Add(u, one)
        }""",
        k=(4, 3, 4, 4),
        l=(4, 3, 1, 1),
    )
    made = agrees(source, [[(1, 3, 32, 40)], [(4, 3, 52, 28)]])
    assert made.sizes.multiple == 4


# ---- refusals ------------------------------------------------------------------------------------
def test_a_branch_on_an_open_dimension_is_refused():
    source = model("""(float[n,3] x) => (float[n,3] y) {
        s = Shape<start = 0, end = 1>(x)  two = Constant<value_ints = [2]>()
        c = Greater(s, two)  y = If(c) <
            then_branch = a () => (float[n,3] p) { p = Relu(x) },
            else_branch = b () => (float[n,3] q) { q = Neg(x) }>
    }""")
    with pytest.raises(Unsupported, match=r"\(If\) depends on open dimensions.*dims="):
        optimized(source)


def test_a_model_for_one_size_only_is_refused():
    source = model(
        "(float[n,4] x) => (float[4] y) { s = Constant<value_ints = [4]>() y = Reshape(x, s) }"
    )
    with pytest.raises(BadInput, match="no size was found at which the model"):
        optimized(source)


# ---- shapes of two sizes as one ------------------------------------------------------------------
def test_targets_for_all_sizes():
    x, y = (11, 3, 520, 40), (2, 3, 20, 30)
    assert reshape_target(x, y, (11, 3, 520 * 40), (2, 3, 600)) == [(0,), 3, -1]
    assert reshape_target(x, y, (0, -1), (0, -1)) == [(0,), -1]
    assert reshape_target(x, y, (3, 11, 40, 520), (3, 2, 30, 20)) == [3, (0,), (3,), (2,)]
    assert reshape_target(x, y, (33, 520 * 40), (6, 600)) is None
    assert expand_target((11, 1), (2, 1), (11, 5), (2, 5)) == [1, 5]
    assert expand_target((1, 1), (1, 1), (11, 5), (2, 5)) is None
    assert slice_stops(x, y, (0, 2), (11, 7), (2, 7), 99) == [99, 7]
    assert slice_stops(x, y, (2,), (519,), (19,), 99) is None
    assert resize_scales(x, y, (11, 3, 1040, 80), (2, 3, 40, 60)) == [1, 1, 2, 2]
    assert resize_scales(x, y, (11, 3, 1040, 80), (2, 3, 41, 60)) is None


# ---- the command line ----------------------------------------------------------------------------
def test_the_command_line_keeps_open_dimensions(tmp_path: Path):
    out = tmp_path / "out.onnx"
    done = intaglio("optimize", DIGITS, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "open        batch; these dimensions stay open" in done.stdout
    assert "checked     at batch=1 and batch=4: outputs agree" in done.stdout
    written = onnx.load(out)
    onnx.checker.check_model(written, full_check=True)
    assert shapes(written.graph.input) == [["batch", 1, 8, 8]]
    assert shapes(written.graph.output) == [["batch", 10]]
    feeds = {"image": R.random((7, 1, 8, 8)).astype(np.float32)}
    (got,), (want,) = runs(written, feeds), runs(onnx.load(DIGITS), feeds)
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_a_bound_dimension_is_fixed_and_the_other_stays_open(tmp_path: Path):
    source = model("(float[n,t] x) => (float[n,t] y) { a = Relu(x) b = Relu(a) y = Softmax(b) }")
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(source, path)
    np.save(tmp_path / "x.npy", R.random((6, 5)).astype(np.float32))
    facts = json.loads(
        intaglio(
            "optimize", path, "--dim", "t=5", "-o", out, "--json", "--data", tmp_path / "x.npy"
        ).stdout
    )
    assert facts["open"]["dims"] == ["n"]
    assert facts["open"]["left"] == {}
    assert facts["check"]["words"].startswith("at n=6: outputs agree")
    assert shapes(onnx.load(out).graph.input) == [["n", 5]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenetv2-12-qdq", "super_resolution"])
def test_shared_models_at_several_sizes(name: str):
    path = shared_models.SHARED / "models" / "onnx" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"there is no {path}; set INTAGLIO_SHARED")
    source = onnx.load(path)
    made = optimized(source).to_onnx()
    assert shapes(made.graph.input) == shapes(source.graph.input)[:1]  # then initialisers
    assert shapes(made.graph.output) == shapes(source.graph.output)
    for batch in (1, 3, 8):
        shape = [batch, *shapes(source.graph.input)[0][1:]]
        feeds = {source.graph.input[0].name: R.random(shape).astype(np.float32)}
        (got,), (want,) = runs(made, feeds), runs(source, feeds)
        assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
