"""Package.with_weights: the plan stays, the constants are those of another training."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.package.networks import network

import intaglio
from intaglio import BadInput
from intaglio.package import Package
from intaglio.recipe import KEY
from intaglio.tune import Tuning

onnx = pytest.importorskip("onnx")
X = np.random.default_rng(3).normal(size=(1, 8, 24, 24)).astype(np.float32)


def retrained(model: Any, seed: int = 5, only: tuple[str, ...] = ()) -> Any:
    """The same network with other weights."""
    rng, made = np.random.default_rng(seed), onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.name == "scales" or (only and tensor.name not in only):
            continue
        a = onnx.numpy_helper.to_array(tensor)
        noise = rng.normal(size=a.shape).astype(a.dtype) * a.std()
        tensor.CopyFrom(onnx.numpy_helper.from_array(a + noise, tensor.name))
    return made


def outputs(package: Any, x: np.ndarray = X) -> np.ndarray:
    with intaglio.open(package) as session:
        (y,) = session.run({next(iter(session.inputs)): x}).values()
        return y


def test_it_equals_a_compilation_of_the_new_model():
    model, new = network(), retrained(network())
    made = intaglio.compile(model).with_weights(new)
    assert made.bytes == intaglio.compile(new).bytes
    assert not np.array_equal(outputs(made), outputs(intaglio.compile(model)))


def test_a_weight_file_is_swapped_under_an_unchanged_package(tmp_path):
    new = retrained(network())
    path, weights = tmp_path / "m.itg", tmp_path / "m.weights"
    intaglio.compile(network()).save(path, weights="m.weights", swappable=True)
    package = path.read_bytes()
    Package.load(path).with_weights(new).save_weights(tmp_path / "new")
    before = outputs(path)
    (tmp_path / "new").rename(weights)
    assert path.read_bytes() == package
    np.testing.assert_array_equal(outputs(path), outputs(intaglio.compile(new)))
    assert not np.array_equal(outputs(path), before)
    Package.load(path).with_weights(network()).save_weights(weights)
    np.testing.assert_array_equal(outputs(path), before)


def test_a_pinned_package_refuses_new_weights(tmp_path):
    path = tmp_path / "m.itg"
    intaglio.compile(network()).save(path, weights="m.weights")
    updated = Package.load(path).with_weights(retrained(network()))
    with pytest.raises(BadInput, match="was not loaded from one with swappable weights"):
        updated.save_weights(tmp_path / "m.weights")
    updated.save(tmp_path / "n.itg", weights="n.weights")
    np.testing.assert_array_equal(outputs(tmp_path / "n.itg"), outputs(updated))


def test_constants_that_were_equal_may_differ_afterwards(tmp_path):
    """Two biases of zeros have blobs of their own."""
    h = onnx.helper

    def model(first: float, second: float) -> Any:
        rng = np.random.default_rng(0)
        arrays = {
            "w": rng.normal(size=(8, 8, 3, 3)),
            "a": np.full(8, first),
            "b": np.full(8, second),
        }
        nodes = [
            h.make_node("Conv", ["x", "w", "a"], ["y"], pads=[1] * 4),
            h.make_node("Sigmoid", ["y"], ["s"]),
            h.make_node("Conv", ["s", "w", "b"], ["z"], pads=[1] * 4),
        ]
        stored = [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
        ports = [
            h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 8, 24, 24]) for n in ("x", "z")
        ]
        graph = h.make_graph(nodes, "g", ports[:1], ports[1:], stored)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)

    path = tmp_path / "m.itg"
    intaglio.compile(model(0.5, 0.5)).save(path, weights="m.weights", swappable=True)
    Package.load(path).with_weights(model(0.25, -1)).save_weights(tmp_path / "m.weights")
    np.testing.assert_array_equal(outputs(path), outputs(intaglio.compile(model(0.25, -1))))


def test_options_are_those_of_the_package():
    model, new = network(), retrained(network())
    options: dict[str, Any] = {
        "isa": "scalar",
        "level": 2,
        "precision": "f16",
        "disable": ["scale_into_conv"],
        "shapes": {"x": (1, 8, 16, 16)},
        "outputs": ["f"],
        "mean": 1.0,
    }
    package = intaglio.compile(model, **options)
    again = Package(package.bytes).with_weights(new)
    assert again.bytes == intaglio.compile(new, **options).bytes
    assert again.isa == "scalar"


def test_values_of_inputs_and_lists_of_sizes(tmp_path):
    model, new = network(), retrained(network())
    options: dict[str, Any] = {"shapes": {"x": [(1, 8, 16, 16), (1, 8, 24, 24)]}}
    package = intaglio.compile(model, **options)
    package.save(tmp_path / "m.itg", weights="m.weights", swappable=True)
    updated = Package.load(tmp_path / "m.itg").with_weights(new)
    assert updated.bytes == intaglio.compile(new, **options).bytes
    updated.save_weights(tmp_path / "m.weights")
    for x in (X, X[:, :, :16, :16]):
        got = outputs(tmp_path / "m.itg", np.ascontiguousarray(x))
        np.testing.assert_array_equal(got, outputs(updated, np.ascontiguousarray(x)))
    value = {"x": X}
    fixed = intaglio.compile(model, values=value)
    assert fixed.with_weights(new).bytes == intaglio.compile(new, values=value).bytes
    large = np.zeros((1, 8, 240, 240), np.float32)
    package = intaglio.compile(model, shapes={"x": large.shape}, values={"x": large})
    assert package.meta[KEY]["missing"] == ["values"]
    with pytest.raises(BadInput, match="was compiled with values=, which it does not keep"):
        package.with_weights(new)


def test_arrays_by_name():
    model, new = network(), retrained(network(), only=("w1", "wm"))
    arrays = {
        t.name: onnx.numpy_helper.to_array(t)
        for t in new.graph.initializer
        if t.name in ("w1", "wm")
    }
    package = intaglio.compile(model)
    assert package.with_weights(arrays, model=model).bytes == intaglio.compile(new).bytes
    doubles = {n: a.astype(np.float64) for n, a in arrays.items()}
    assert package.with_weights(doubles, model=model).bytes == intaglio.compile(new).bytes
    with pytest.raises(BadInput, match="and no model that they belong to; give model="):
        package.with_weights(arrays)
    with pytest.raises(BadInput, match="has no constant 'w2'; it has w1, w3"):
        package.with_weights({"w2": arrays["w1"]}, model=model)
    with pytest.raises(BadInput, match=r"constant 'w1' is f32\[32x24x1x1\], got an array"):
        package.with_weights({"w1": arrays["wm"]}, model=model)
    with pytest.raises(BadInput, match="model= belongs to a table of arrays"):
        package.with_weights(new, model=model)


def test_choices_that_were_measured_are_made_again(tmp_path):
    def slowest_estimate(packages: Any, threads: int, evicted: int, seconds: float) -> Any:
        return {name: 1000.0 / (i + 1) for i, name in enumerate(packages)}  # the last is fastest

    tuning = Tuning(cache=tmp_path, timer=slowest_estimate)
    model, new = network(), retrained(network())
    tuned = intaglio.compile(model, tune=tuning)
    assert [s.op for s in tuned.plan.steps] != [s.op for s in intaglio.compile(model).plan.steps]
    updated = tuned.with_weights(new)
    assert [s.op for s in updated.plan.steps] == [s.op for s in tuned.plan.steps]
    np.testing.assert_allclose(outputs(updated), outputs(intaglio.compile(new)), atol=1e-5)


def test_another_plan_is_refused_and_named():
    model = network()
    package = intaglio.compile(model)
    zero = {"w3": np.zeros((16, 8, 3, 3), np.float32)}
    with pytest.raises(BadInput, match=r"new weights need another plan: .* compile the new model"):
        package.with_weights(zero, model=model)
    other = intaglio.load(model, outputs=["f"])
    with pytest.raises(BadInput, match="new weights need another plan"):
        package.with_weights(other)


def test_quantized_models_keep_their_scales_in_the_weights(tmp_path):
    """Multipliers are constants; zero points are part of the plan."""
    graph = intaglio.load(network())
    samples = [{"x": X * k} for k in (1.0, 0.5)]
    package = intaglio.compile(intaglio.quantize(graph, data=samples, accuracy=None))
    package.save(tmp_path / "m.itg", weights="m.weights", swappable=True)
    other = intaglio.quantize(intaglio.load(retrained(network())), data=samples, accuracy=None)
    with pytest.raises(BadInput, match=r"at '\w+' step cpu.q\w+ has '.*_zero="):
        Package.load(tmp_path / "m.itg").with_weights(other)


def test_packages_without_a_recipe(tmp_path):
    stripped = intaglio.compile(network(), strip=True)
    with pytest.raises(BadInput, match="does not say how it was compiled"):
        stripped.with_weights(network())
    assert KEY not in stripped.meta


def test_the_recipe_is_plain_and_small():
    package = intaglio.compile(network(), mean=0.5, shapes={"x": (1, 8, 16, 16)}, batch=2)
    text = json.dumps(package.meta[KEY])
    assert json.loads(text) == {"batch": 2, "load": {"mean": 0.5, "shapes": {"x": [1, 8, 16, 16]}}}
