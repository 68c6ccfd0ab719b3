"""`intaglio.compile` and `intaglio.optimize`: options, reports and error messages."""

from __future__ import annotations

import re

import numpy as np
import pytest

import intaglio
from intaglio import heap, ops, targets
from intaglio.compiler import trace, trace_optimize
from intaglio.errors import BadInput, Unsupported
from intaglio.ir import Graph, Type, Value, constant
from intaglio.ops.registry import REGISTRY, op, same
from intaglio.targets.cpu import packing


def network() -> Graph:
    """conv, batch norm, relu, pool, flatten, linear"""
    rng = np.random.default_rng(1)

    def weights(*shape):
        return constant(rng.uniform(0.1, 0.5, shape).astype(np.float32))

    x = Value(Type("f32", (1, 3, 8, 8)), "image")
    y = ops.conv(
        x,
        weights(8, 3, 3, 3),
        None,
        stride=(1, 1),
        pad=(1, 1, 1, 1),
        dilation=(1, 1),
        origin="conv1",
    )
    y = ops.relu(ops.batch_norm(y, *(weights(8) for _ in range(4)), epsilon=1e-5), origin="relu1")
    y = ops.max_pool(y, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0), dilation=(1, 1))
    y = ops.gemm(ops.reshape(y, shape=(1, 128)), weights(10, 128), weights(10), trans_b=True)
    return Graph([x], [y], ["scores"], "network", {"licence": "CC0"})


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("isa", ["scalar", "avx2", None])
def test_levels_and_instruction_sets_agree(level, isa, image):
    want = intaglio.interpret(network(), {"image": image})["scores"]
    package = intaglio.compile(network(), level=level, isa=isa)
    with intaglio.open(package) as session:
        np.testing.assert_allclose(session.run({"image": image})["scores"], want, rtol=1e-4)


def test_a_small_network_becomes_few_steps():
    """Everything fuses: nothing is left but the image's own layout, a pool and two products."""
    made = trace(network())
    assert [s.op for s in made.plan.steps] == ["transpose", "cpu.conv", "cpu.pool", "cpu.gemm"]
    assert made.plan.steps[1].origin == "conv1"
    assert made.package.meta["name"] == "network"
    assert made.package.meta["metadata"] == {"licence": "CC0"}


def test_the_trace_says_what_fired_and_what_refused():
    x = Value(Type("f32", (1, 2, 4, 4)), "x")
    shifted, w = ops.add(x, np.ones((2, 1, 1), np.float32)), np.ones((2, 2, 3, 3), np.float32)
    y = ops.conv(
        shifted, w, None, stride=(1, 1), pad=(1, 1, 1, 1), dilation=(1, 1), origin="Conv_7"
    )
    records = {r.name: r for r in trace(Graph([x], [y], ["y"])).records}
    (refused,) = [e for e in records["fuse"].events if e.rule == "shift_before_conv"]
    assert refused.origin == "Conv_7"
    assert "the padding would be shifted too" in refused.refusal
    assert all(r.seconds >= 0 and r.nodes > 0 for r in records.values())
    assert records["legalize"].fired


def test_graphs_are_dumped_and_progress_is_told(tmp_path):
    said = []
    intaglio.compile(network(), dump_dir=tmp_path / "dump", progress=said.append)
    files = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert files[:2] == ["00-start.txt", "01-canonicalize.txt"]
    assert "batch_norm" in (tmp_path / "dump" / files[0]).read_text()
    assert "cpu.conv" in (tmp_path / "dump" / files[-1]).read_text()
    assert said[0] == "reading the model"
    assert "layout" in said


def test_optimize_leaves_its_argument_alone():
    graph = network()
    before = str(graph)
    assert "batch_norm" in before
    assert "batch_norm" not in str(intaglio.optimize(graph))
    assert str(intaglio.optimize(graph, level=0)) == before == str(graph)


def test_rules_can_be_disabled_by_name():
    made = trace_optimize(network(), disable=["batch_norm_as_scale_and_shift"])
    graph, records = made.graph, made.records
    assert "batch_norm" in str(graph)
    assert all(sum(r.times.values()) <= r.seconds for r in records)
    assert records[0].times["fold_constants"] > 0
    with pytest.raises(BadInput, match="'batch_norm_as_scale'; did you mean batch_norm_as_scale_"):
        intaglio.optimize(network(), disable=["batch_norm_as_scale"])
    with pytest.raises(BadInput, match=r"'xyz'; docs/rules\.md lists them all"):
        intaglio.compile(network(), disable=["xyz"])


def test_bytes_are_reproducible():
    assert intaglio.compile(network()).bytes == intaglio.compile(network()).bytes


def large_network(twice: bool = False, unused: bool = False) -> Graph:
    """Weights of 1 MB and more; `twice`, a layer has those of another; `unused`, some are left."""
    rng = np.random.default_rng(2)
    x = Value(Type("f32", (1, 512, 8, 8)), "x")
    w = [rng.standard_normal((512, 512, k, k)).astype(np.float32) for k in (1, 1, 3)]
    same = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}
    y = ops.relu(ops.conv(x, constant(w[0]), pad=(0,) * 4, **same))
    y = ops.relu(ops.conv(y, constant(w[0 if twice else 1].copy()), pad=(0,) * 4, **same))
    y = ops.conv(y, constant(w[2]), pad=(1,) * 4, **same)
    if unused:  # folded, then packed anew
        packed = packing.pack(constant(w[2].reshape(512, -1)), tile=16)
        y = ops.mul(y, ops.reshape(ops.reduce_mean(packed, axes=(0, 1, 2)), shape=(1, 1, 1, 1)))
    return Graph([x], [y], ["y"])


@pytest.mark.parametrize("case", [{}, {"twice": True}, {"unused": True}])
def test_weights_are_packed_in_their_places(case, monkeypatch):
    made = trace(large_network(**case))
    arrays = [t.data for t in made.plan.tensors() if t.data is not None and t.size > 1 << 19]
    image = np.frombuffer(made.package.image, np.uint8)
    assert len(arrays) == 3
    assert all(np.shares_memory(a, image) for a in arrays) == (not case.get("unused"))
    stored = [t for t in made.package.plan.tensors() if t.data is not None and t.size > 1 << 19]
    for a, t in zip(arrays, stored, strict=True):
        np.testing.assert_array_equal(a, t.data)
    assert len({t.offset for t in stored}) == (2 if case.get("twice") else 3)
    with intaglio.open(made.package) as here, intaglio.open(made.package.bytes) as copied:
        x = {"x": np.random.default_rng(3).standard_normal((1, 512, 8, 8)).astype(np.float32)}
        np.testing.assert_array_equal(here.run(x)["y"], copied.run(x)["y"])
    monkeypatch.setattr(heap, "_reserved", lambda size: np.empty(0, np.uint8))
    again = intaglio.compile(large_network(**case))
    assert again.bytes == made.package.bytes  # what a system lets us reserve changes nothing


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "abacus"}, "no target is called 'abacus'"),
        ({"isa": "mmx"}, "no instruction set is called 'mmx'"),
        ({"level": 4}, "level is 4"),
        ({"shapes": {"image": (1, 3, 9, 9)}}, "shapes= is for model files"),
    ],
)
def test_mistakes_are_named(options, words):
    with pytest.raises(BadInput, match=words):
        intaglio.compile(network(), **options)


def test_an_op_without_a_kernel_is_refused_in_words():
    made = op(same, name="test.unheard_of")(lambda x: x)
    try:
        x = Value(Type("f32", (3,)), "x")
        graph = Graph([x], [made(ops.relu(x), origin="Odd_3")], ["y"])
        with pytest.raises(Unsupported, match=r"test.unheard_of 'Odd_3' reads f32\[3\]"):
            intaglio.compile(graph)
    finally:
        del REGISTRY["test.unheard_of"]


def test_outputs_that_are_inputs_constants_or_twice_there():
    x = Value(Type("f32", (2, 3)), "x")
    y = ops.relu(x)
    flat = ops.reshape(x, shape=(6,))
    graph = Graph([x], [x, y, y, flat, constant(np.float32(7))], ["a", "b", "c", "d", "e"])
    a = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
    with intaglio.open(intaglio.compile(graph)) as session:
        got = session.run({"x": a})
    want = intaglio.interpret(graph, {"x": a})
    assert list(got) == ["a", "b", "c", "d", "e"]
    for name in want:
        np.testing.assert_array_equal(got[name], want[name])


@pytest.mark.parametrize("level", [0, 3])
def test_long_chains_of_views_and_steps(level):
    """Deeper than Python's recursion goes."""
    x = Value(Type("f32", (4, 6)), "x")
    y = x
    for i in range(1500):
        y = ops.reshape(y, shape=(24,) if i % 2 else (2, 12))
    for _ in range(1500):
        y = ops.relu(y)
    graph = Graph([x], [y], ["y"])
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    with intaglio.open(intaglio.compile(graph, level=level)) as session:
        np.testing.assert_array_equal(session.run({"x": a})["y"], a.ravel())


def test_one_options_object_is_behind_compile_and_its_keywords():
    options = intaglio.CompileOptions(level=1, isa="avx2", strip=True)
    package = intaglio.compile(network(), "cpu", options)
    assert package.bytes == intaglio.compile(network(), isa="avx2", level=1, strip=True).bytes
    assert (package.meta["level"], package.isa) == (1, "avx2")
    assert trace(network(), options=options, level=2).package.meta["level"] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 4}, "level is 4; it is one of 0 (none), 1 (exact)"),
        ({"level": "3"}, "level is '3'; it is one of"),
        ({"cores": 0}, "cores is 0; give a whole number of at least 1"),
        ({"disable": "swish"}, 'it is a list of names; give disable=["swish"]'),
        ({"precision": "f8"}, "it is the type of float layers; known are f32, bf16, f16"),
        ({"isa": "sse2"}, "no instruction set is called 'sse2'; known are scalar"),
        ({"cores": 2}, "cores=2 is for chips with an NPU, the target is cpu; leave it out"),
        ({"by_layer": True}, "by_layer=True is for chips with an NPU, the target is cpu"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        intaglio.compile(network(), **options)


def test_unknown_keywords_get_the_nearest_name():
    with pytest.raises(TypeError, match=r"compile\(\) .*'levl'; did you mean 'level'\?"):
        intaglio.compile(network(), levl=2)
    with pytest.raises(TypeError, match=r"compile\(\) .*'shape'; did you mean 'shapes'\?"):
        intaglio.compile(network(), shape=(1,))
    with pytest.raises(TypeError, match=r"load\(\) .*'dim'; did you mean 'dims'\?"):
        intaglio.load("model.onnx", dim={"batch": 1})
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'qqq'$"):
        intaglio.compile(network(), qqq=1)


def test_a_target_object_keeps_its_instruction_set_and_precision():
    small = targets.find("cpu", "avx2", "f16")
    package = intaglio.compile(network(), small)
    assert (package.isa, package.meta["precision"]) == ("avx2", "f16")
    same = intaglio.compile(network(), small, isa="avx2", precision="fp16")
    assert same.bytes == package.bytes
    with pytest.raises(BadInput, match=r"isa is 'scalar', but the Target object 'cpu' is for avx2"):
        intaglio.compile(network(), small, isa="scalar")
    with pytest.raises(BadInput, match=r"precision is 'f32', but .* computes in f16; leave precis"):
        intaglio.compile(network(), small, precision="f32")


def test_all_features_of_a_cpu_have_one_name():
    package = intaglio.compile(network(), isa="avx512-vnni-bf16-vbmi")
    assert package.isa == "avx512-vnni-bf16-vbmi"
