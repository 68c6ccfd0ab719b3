"""Packages for a list of shapes: plans over one set of constants, and padding to the next one."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.onnx_text import model
from tests.test_ranges import CONVOLUTIONS, ENCODER, R, agree, feeds_of

import intaglio
from intaglio import BadInput
from intaglio.size_lists import variants


def test_a_package_runs_every_listed_shape():
    package = intaglio.compile(ENCODER, dims={"batch": 1, "seq": [16, 4, 64]})
    assert len(package.plans) == 3
    fixed = intaglio.compile(ENCODER, dims={"batch": 1, "seq": 64})
    assert len(package.image) <= 1.5 * len(fixed.image)  # constants are stored once
    with intaglio.open(package) as session:
        for seq in (4, 64, 16, 4):
            feeds = feeds_of(ENCODER, {"batch": 1, "seq": seq})
            graph = intaglio.load(ENCODER, dims={"batch": 1, "seq": seq})
            agree(session.run(feeds), list(intaglio.interpret(graph, feeds).values()), seq)


def test_lists_of_several_dimensions_are_combined():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": [1, 2], "h": [8, 16], "w": 8})
    assert sorted(p["x"].shape for p in (_inputs(package, i) for i in range(4))) == [
        (1, 3, 8, 8), (1, 3, 16, 8), (2, 3, 8, 8), (2, 3, 16, 8)
    ]  # fmt: skip


def _inputs(package: intaglio.Package, plan: int) -> dict:
    with intaglio.open(package, plan=plan) as session:
        return session.inputs


def test_shapes_of_several_inputs_belong_together():
    shapes = {"ids": [(1, 4), (2, 8)], "mask": [(1, 4), (2, 8)]}
    package = intaglio.compile(ENCODER, shapes=shapes)
    assert len(package.plans) == 2
    with intaglio.open(package) as session:
        for b, s in ((2, 8), (1, 4)):
            feeds = feeds_of(ENCODER, {"batch": b, "seq": s})
            assert session.run(feeds)["y"].shape == (b, s, 32)


def test_ranges_and_lists_go_together():
    package = intaglio.compile(ENCODER, dims={"batch": "1..4", "seq": [4, 8]})
    with intaglio.open(package) as session:
        for b, s in ((1, 4), (3, 8), (4, 4)):
            feeds = feeds_of(ENCODER, {"batch": b, "seq": s})
            graph = intaglio.load(ENCODER, dims={"batch": b, "seq": s})
            agree(session.run(feeds), list(intaglio.interpret(graph, feeds).values()), (b, s))


def test_padding_where_the_model_masks_it():
    package = intaglio.compile(ENCODER, dims={"batch": 1, "seq": [8, 32]}, outputs=["y"])
    assert package.meta["padding"] == {"y": {"1": ["ids", 1]}}
    with intaglio.open(package) as session:
        for seq in (3, 8, 20, 32):
            feeds = feeds_of(ENCODER, {"batch": 1, "seq": seq})
            feeds["mask"][:] = 1
            graph = intaglio.load(ENCODER, dims={"batch": 1, "seq": seq}, outputs=["y"])
            agree(session.run(feeds), list(intaglio.interpret(graph, feeds).values()), seq)
        out = {"y": np.empty((1, 20, 32), np.float32)}
        feeds = feeds_of(ENCODER, {"batch": 1, "seq": 20})
        assert session.run(feeds, out=out)["y"] is out["y"]


def test_images_of_a_batch_are_padded():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": [1, 4], "h": 8, "w": 8})
    with intaglio.open(package) as session:
        x = R.standard_normal((3, 3, 8, 8)).astype(np.float32)
        graph = intaglio.load(CONVOLUTIONS, shapes={"x": x.shape})
        agree(session.run({"x": x}), list(intaglio.interpret(graph, {"x": x}).values()), "batch")


def test_no_padding_where_it_would_change_results():
    package = intaglio.compile(CONVOLUTIONS, dims={"n": 1, "h": [8, 16], "w": 8})
    assert "padding" not in package.meta
    with intaglio.open(package) as session:
        session.run({"x": np.zeros((1, 3, 16, 8), np.float32)})
        with pytest.raises(
            BadInput, match=r"compiled for 'x' \(1, 3, 8, 8\) or 'x' \(1, 3, 16, 8\)"
        ):
            session.run({"x": np.zeros((1, 3, 12, 8), np.float32)})
        with pytest.raises(BadInput, match=r"x.2=99"):
            session.run({"x": np.zeros((1, 3, 99, 8), np.float32)})


def test_a_plan_of_its_own_is_chosen_by_number():
    package = intaglio.compile(ENCODER, dims={"batch": 1, "seq": [4, 8]})
    with intaglio.open(package, plan=1) as session:
        assert session.inputs["ids"].shape == (1, 8)
    with pytest.raises(BadInput, match="plan 2 does not exist; the package has 2"):
        intaglio.open(package, plan=2)


def test_states_go_on_in_another_plan():
    source = model("(float[n,3] x) => (float[n,3] y) { y = Relu(x) }")
    package = intaglio.compile(source, dims={"n": [1, 2]})
    with intaglio.open(package) as session:
        assert session.state == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dims": {"seq": []}}, "dimension 'seq' is an empty list"),
        ({"shapes": {"a": [(1,), (2,)], "b": [(1,)]}}, "lists of different lengths"),
        ({"dims": {"a": list(range(9)), "b": list(range(9))}}, "81 combinations"),
    ],
)
def test_wrong_lists_are_refused(given, words):
    with pytest.raises(BadInput, match=words):
        variants(given)


def test_equal_sizes_are_listed_once():
    assert variants({"dims": {"a": [1, 2, 1]}}) == [
        {"dims": {"a": 1}, "shapes": {}},
        {"dims": {"a": 2}, "shapes": {}},
    ]
    assert variants({"shapes": {"x": (1, 3)}}) == [{"shapes": {"x": (1, 3)}}]
