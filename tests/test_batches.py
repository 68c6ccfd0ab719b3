"""A batch for models of one image: the same results as for each image alone, or who mixes them."""

from __future__ import annotations

import numpy as np
import pytest
from tests import shared_models
from tests.frontends.onnx_text import model
from tests.test_ranges import R, with_weights

import intaglio
from intaglio import BadInput, Unsupported

SHUFFLE = with_weights(
    """(float[1,3,8,8] x) => (float[1,8,8,8] y, float[8] z) {
        c = Conv<pads = [1, 1, 1, 1]>(x, k)
        s1 = Constant<value_ints = [4, 2, 64]>()  v = Reshape(c, s1)
        t = Transpose<perm = [1, 0, 2]>(v)
        s2 = Constant<value_ints = [2, 1, 4, 8, 8]>()  w = Reshape(t, s2)
        zero = Constant<value_int = 0>()  one = Constant<value_int = 1>()
        a = Gather<axis = 0>(w, zero)  b = Gather<axis = 0>(w, one)
        y = Concat<axis = 1>(a, b)
        m = GlobalAveragePool(y)  s3 = Constant<value_ints = [8]>()  z = Reshape(m, s3)
    }""",
    k=(8, 3, 3, 3),
)
TOKENS = with_weights(
    """(float[1,6,8] x) => (float[1,6,8] y) {
        q = MatMul(x, w)  kt = Transpose<perm = [0, 2, 1]>(x)  d = MatMul(q, kt)
        s = Softmax(d)  o = MatMul(s, x)  t = Transpose<perm = [1, 0, 2]>(o)
        r = Relu(t)  y = Transpose<perm = [1, 0, 2]>(r)
    }""",
    w=(8, 8),
)


def compare(source: object, batch: int | str, count: int, **load: object) -> None:
    """`count` images at once give what each gives alone."""
    single = intaglio.load(source, **load)
    types = {v.name: v.type for v in single.inputs}
    images = [
        {n: R.standard_normal(t.shape).astype(np.float32) for n, t in types.items()}
        for _ in range(count)
    ]
    whole = {n: np.concatenate([i[n] for i in images]) for n in types}
    with (
        intaglio.open(intaglio.compile(source, batch=batch, **load)) as several,
        intaglio.open(intaglio.compile(single)) as one,
    ):
        got = several.run(whole)
        for i, image in enumerate(images):
            for name, want in one.run(image).items():
                part = got[name][i]
                np.testing.assert_allclose(part.reshape(want.shape), want, 1e-3, 1e-4)
        assert all(a.shape[0] == count for a in got.values())


@pytest.mark.parametrize("source", [SHUFFLE, TOKENS], ids=["shuffle", "tokens"])
@pytest.mark.parametrize(("batch", "count"), [(3, 3), ("1..4", 2), ("1..4", 4), (1, 1)])
def test_images_are_computed_as_if_alone(source, batch, count):
    compare(source, batch, count)


def test_an_open_batch_is_bound():
    source = model("(float[n,3] x, float[n,3] w) => (float[n,3] y) { y = Add(x, w) }")
    for batch, count in ((4, 4), ("1..4", 3)):
        with intaglio.open(intaglio.compile(source, batch=batch)) as session:
            x = np.ones((count, 3), np.float32)
            assert session.run({"x": x, "w": x})["y"].shape == (count, 3)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("y = ReduceMean(x, a) a = Constant<value_ints = [0]>()", "ReduceMean_0.*batch axis"),
        ("y = Softmax<axis = 0>(x)", "Softmax_0.*it works along the batch axis"),
        ("y = Concat<axis = 0>(x, x)", "Concat_0.*it works along the batch axis"),
        ("t = Transpose<perm = [1, 0]>(x) y = MatMul(x, t)", "MatMul_1.*it multiplies images"),
        ("y = NonZero(x)", "NonZero_0.*each image decides the size"),
        ("y = Add(c, c) c = Constant<value_floats = [1.0]>()", "output 'y' is a constant"),
    ],
)  # fmt: skip
def test_the_layer_that_mixes_images_is_named(body, words):
    source = model(f"(float[1,4] x) => (float[a,b] y) {{ {body} }}")
    with pytest.raises(Unsupported, match=words):
        intaglio.compile(source, batch=2)


def test_models_that_have_no_batch_are_refused():
    source = model("(float[3,4] x) => (float[3,4] y) { y = Relu(x) }")
    with pytest.raises(BadInput, match=r"'x' is f32.3x4.; batch=2 is for models of one image"):
        intaglio.compile(source, batch=2)
    for wrong in (0, -1, 1.5, "4"):
        with pytest.raises(BadInput, match="batch"):
            intaglio.compile(SHUFFLE, batch=wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FastestDet", "vitTracker", "yunet_n_320_320"])
def test_real_models(name):
    path = shared_models.SHARED / "models" / "onnx" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    compare(path, "1..3", 2)


def test_a_list_of_batches_gives_a_plan_for_each():
    proto = model("(float[1,3] x) => (float[1,3] y) { y = Sigmoid(x) }")
    package = intaglio.compile(proto, batch=[4, 1, 4])
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    with intaglio.open(package) as session, session.clone(plan=1) as largest:
        assert largest.inputs["x"].shape == (4, 3)
        whole = largest.run({"x": x})["y"]
        assert np.array_equal(session.run({"x": x[:1]})["y"], whole[:1])
        assert np.array_equal(session.run({"x": x[:3]})["y"], whole[:3])  # padded
    for wrong in ([], [0, 1], list(range(1, 70))):
        with pytest.raises(BadInput):
            intaglio.compile(proto, batch=wrong)
