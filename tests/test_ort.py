"""intaglio.ort beside onnxruntime: the same programs give the same results."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import onnx
import pytest
from tests.frontends.onnx_text import model
from tests.ort_snippets import SNIPPETS, rows, write_models

import intaglio
import intaglio.ort as ort
from intaglio.ort.capi import onnxruntime_pybind11_state as state


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ort")
    write_models(made)
    return made


def same(a: Any, b: Any, where: str = "result") -> None:
    """AssertionError unless both are equal; floats up to rounding."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), where
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=where)
    elif isinstance(a, list | tuple):
        assert isinstance(b, list | tuple), where
        assert len(a) == len(b), (where, a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, dict):
        assert set(a) == set(b), where
        for k in a:
            same(a[k], b[k], f"{where}[{k!r}]")
    else:
        assert a == b, (where, a, b)


@pytest.mark.parametrize("name", SNIPPETS)
def test_programs_give_the_same_results(name, folder):
    expected = SNIPPETS[name](importlib.import_module("onnxruntime"), folder)
    same(SNIPPETS[name](ort, folder), expected)


def test_exceptions_are_those_of_both(folder):
    session = ort.InferenceSession(folder / "linear.onnx")
    with pytest.raises(state.InvalidArgument, match=r"dtype float64.*give x.astype\('float32'\)"):
        session.run(None, {"x": rows(1).astype(np.float64)})
    with pytest.raises(intaglio.BadInput, match="required input 'x' is missing"):
        session.run(None, {})
    with pytest.raises(ort.NoSuchFile, match="does not exist"):
        ort.InferenceSession("none.onnx")
    theirs = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    raised = {
        n for n, c in vars(theirs).items() if isinstance(c, type) and issubclass(c, Exception)
    }
    assert raised <= set(state.__all__)
    assert all(issubclass(getattr(state, n), intaglio.IntaglioError) for n in raised)


def test_options_have_the_names_of_onnxruntime():
    theirs = importlib.import_module("onnxruntime")
    for kind in ("SessionOptions", "RunOptions"):
        a, b = getattr(theirs, kind)(), getattr(ort, kind)()
        fields = [n for n in dir(a) if not n.startswith("_") and not callable(getattr(a, n))]
        for name in fields:
            assert str(getattr(a, name)).split(".")[-1] == (
                b_value.name if hasattr(b_value := getattr(b, name), "name") else str(b_value)
            )
        with pytest.raises(AttributeError, match="has no attribute"):
            b.no_such_option = 1
        with pytest.raises(ort.InvalidArgument, match="give a value of type int"):
            b.log_severity_level = "high"


def test_what_cannot_be_done_says_so(folder):
    with pytest.raises(ort.NotImplemented, match="library of operators for onnxruntime"):
        ort.SessionOptions().register_custom_ops_library("ops.so")
    with pytest.raises(ort.NotImplemented, match="own format"):
        ort.InferenceSession(b"\0\0\0\0ORTM1234")
    with pytest.raises(AttributeError, match=r"docs/ort\.md"):
        ort.LoraAdapter  # noqa: B018
    session = ort.InferenceSession(folder / "linear.onnx")
    with pytest.raises(AttributeError, match=r"docs/ort\.md"):
        session.get_tuning_results  # noqa: B018
    with pytest.warns(UserWarning, match="runs on the CPU"):
        ort.InferenceSession(folder / "linear.onnx", providers=["TensorrtExecutionProvider"])
    options = ort.SessionOptions()
    options.optimized_model_filepath = "model.itg"
    with pytest.raises(ort.InvalidArgument, match="written as ONNX"):
        ort.InferenceSession(folder / "linear.onnx", options)
    with pytest.raises(ort.InvalidArgument, match="did you mean 'precision'"):
        ort.InferenceSession(folder / "linear.onnx", presicion="bf16")


def test_strings_are_refused_in_words():
    with pytest.raises(ort.NotImplemented, match="has strings"):
        ort.InferenceSession(model("(string[n] x) => (string[n] y) { y = Identity(x) }"))
    labels = model("(float[n] x) => (string[n] t, float[n] y) { t = Cast<to=8>(x) y = Neg(x) }")
    session = ort.InferenceSession(labels)
    assert [o.type for o in session.get_outputs()] == ["tensor(string)", "tensor(float)"]
    with pytest.warns(UserWarning, match="holds strings"):
        assert session.run(["y"], {"x": np.ones(2, np.float32)})[0].tolist() == [-1, -1]
    with pytest.raises(ort.NotImplemented, match=r"run\(\['y'\], ...\)"):
        session.run(None, {"x": np.ones(2, np.float32)})


def test_operators_are_checked_before_the_first_run():
    for text, kind in {
        "(float[n] x) => (float[n] y) { y = Nonsense(x) }": ort.InvalidGraph,
        "(float[n] x) => (float[n] y) { y = Bernoulli(x) }": ort.NotImplemented,
    }.items():
        with pytest.raises(kind):
            ort.InferenceSession(model(text))
    body = "(float[n] x) => (float[n] y) { y = my.Twice(x) }"
    twice = '<domain: "my", opset_import: ["": 18]> Twice (a) => (b) { b = Add(a, a) }'
    session = ort.InferenceSession(model(body, functions=twice, more=', "my": 1'))
    assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]


def test_custom_operators_run():
    class Twice:
        name = "tests.ort_twice"
        onnx = "Twice"  # of ONNX's own domain, which does not have it

        def shape(self, x):
            return x.shape

        def compute(self, x):
            return 2 * x

    made = model("(float[n] x) => (float[n] y) { y = Twice(x) }")
    with pytest.raises(ort.InvalidGraph, match="Twice is no operator of ONNX"):
        ort.InferenceSession(made)
    intaglio.custom.register(Twice)
    try:
        session = ort.InferenceSession(made)
        for n in (2, 3):
            assert session.run(None, {"x": np.ones(n, np.float32)})[0].tolist() == [2] * n
    finally:
        intaglio.custom.unregister("tests.ort_twice")


def test_packages_and_graphs_run_too(folder, tmp_path):
    x = rows(2)
    expected = ort.InferenceSession(folder / "linear.onnx").run(None, {"x": x})
    intaglio.compile(folder / "linear.onnx", dims={"batch": "1..8"}).save(tmp_path / "linear.itg")
    graph = intaglio.load(folder / "linear.onnx", dims={"batch": 2})
    for source in (tmp_path / "linear.itg", graph, onnx.load(folder / "linear.onnx")):
        session = ort.InferenceSession(source)
        same(session.run(None, {"x": x}), expected)
        assert [o.name for o in session.get_outputs()] == ["y", "p"]
    packaged = ort.InferenceSession(tmp_path / "linear.itg")
    assert packaged.get_inputs()[0].shape == ["batch", 4]
    assert packaged.get_modelmeta().custom_metadata_map["author"] == "a user"


def test_keywords_of_sessions_are_taken(folder, tmp_path):
    x = rows(2)
    expected = ort.InferenceSession(folder / "linear.onnx").run(None, {"x": x})
    for _ in range(2):
        session = ort.InferenceSession(
            folder / "linear.onnx", cache=tmp_path, keep=2, outputs=["p"]
        )
        same(session.run(None, {"x": x}), expected[1:])
        assert [o.name for o in session.get_outputs()] == ["p"]
    assert len(list(tmp_path.glob("*.itg"))) == 1


def test_outputs_whose_size_data_decides_can_be_bound():
    session = ort.InferenceSession(model("(float[n] x) => (int64[1,k] i) { i = NonZero(x) }"))
    x = np.array([0, 3, 0, 4], np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    place = np.zeros((1, 2), np.int64)
    binding.bind_output("i", "cpu", 0, np.int64, (1, 2), place.ctypes.data)
    session.run_with_iobinding(binding)
    assert place.tolist() == [[1, 3]]
    x[0] = 1
    with pytest.raises(RuntimeError, match=r"int64\[1, 3\], bound is an array int64\[1, 2\]"):
        session.run_with_iobinding(binding)


def test_denotations_bind_dimensions():
    made = model("(float[n,2] x) => (float[n,2] y) { y = Neg(x) }")
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
    assert ort.InferenceSession(made, options).get_inputs()[0].shape == [3, 2]


def test_callbacks_run_one_after_the_other(folder):
    session = ort.InferenceSession(folder / "linear.onnx")
    done, found = threading.Event(), []

    def callback(results, number, error):
        found.append((number, results[0], error))
        if len(found) == 20:
            done.set()

    for i in range(20):
        session.run_async(["y"], {"x": rows(1 + i % 3)}, callback, i)
    assert done.wait(60)
    assert [n for n, _, _ in found] == list(range(20))
    assert all(a.shape == (1 + n % 3, 3) and not error for n, a, error in found)


def test_importing_does_not_import_the_compiler():
    code = "import sys, intaglio.ort; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"onnx", "onnxruntime", "intaglio.native", "intaglio.compiler"}


def test_state_of_profiles(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ort.SessionOptions()
    options.enable_profiling = True
    session = ort.InferenceSession(folder / "linear.onnx", options)
    for n in (1, 2):
        session.run(None, {"x": rows(n)})
    name = session.end_profiling()
    assert (tmp_path / name).exists()
    assert name.startswith("onnxruntime_profile_")
    assert session.end_profiling() == ""
