"""reg_custom_op and get_node_attr: a Softmax of the user's, as the manual has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from intaglio import custom
from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknn.api.custom_op import get_node_attr


class CstSoftmax:
    op_type = "cstSoftmax"

    def shape_infer(self, node, in_shapes, in_dtypes):
        return in_shapes.copy(), in_dtypes.copy()

    def compute(self, node, inputs):
        axis = get_node_attr(node, "axis")
        e = np.exp(inputs[0] - np.max(inputs[0], axis=axis, keepdims=True))
        return [e / np.sum(e, axis=axis, keepdims=True)]


@pytest.mark.parametrize("quantized", [False, True])
def test_the_operator_runs(folder: Path, picture: np.ndarray, quantized: bool):
    rknn = RKNN()
    rknn.config(target_platform="rk3588", std_values=[[255] * 3])
    assert rknn.reg_custom_op(CstSoftmax()) == 0
    assert rknn.load_onnx("custom.onnx") == 0
    assert rknn.build(quantized, "dataset.txt") == 0
    assert rknn.init_runtime() == 0
    found = rknn.inference([picture])[0]
    assert found.sum() == pytest.approx(1, abs=1e-3)
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    rknn.init_runtime()
    logits = rknn.inference([picture])[0]
    wanted = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(found, wanted, atol=0.02)
    assert "rknn.cstSoftmax" in custom.registered()
    rknn.release()
    assert "rknn.cstSoftmax" not in custom.registered()


def test_without_registration_the_operator_is_named(folder: Path, capsys):
    rknn = RKNN()
    rknn.config(target_platform="rk3588")
    assert rknn.load_onnx("custom.onnx") == -1
    assert "cstSoftmax" in capsys.readouterr().err


def test_objects_that_lack_something(capsys):
    class NoShape:
        op_type = "cstA"

        def compute(self, node, inputs):
            return inputs

    class OtherNames(CstSoftmax):
        def compute(self, x, y):
            return y

    class Standard(CstSoftmax):
        op_type = "Softmax"

    rknn = RKNN()
    for given, words in (
        (CstSoftmax, "give an object: CstSoftmax()"),
        (NoShape(), "'cstA' has no method shape_infer"),
        (OtherNames(), "compute takes (x, y); write compute(self, node, inputs)"),
        (Standard(), "an operator of ONNX; choose another name"),
        (object(), "op_type of object is None"),
    ):
        assert rknn.reg_custom_op(given) == -1
        assert words in capsys.readouterr().err


def test_attributes_of_every_kind():
    node = helper.make_node("A", [], [], i=3, f=0.5, s="word", ints=[1, 2], floats=[0.5])
    found = {n: get_node_attr(node, n) for n in ("i", "f", "s", "ints", "floats", "none")}
    assert found == {"i": 3, "f": 0.5, "s": "word", "ints": [1, 2], "floats": [0.5], "none": None}


def test_an_operator_in_a_domain_of_its_own(folder: Path, picture: np.ndarray):
    model = onnx.load("custom.onnx")
    model.graph.node[-1].domain = "acme"
    model.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(model, "domain.onnx")
    rknn = RKNN()
    rknn.config(target_platform="rk3588")
    rknn.reg_custom_op(CstSoftmax())
    assert rknn.load_onnx("domain.onnx") == 0
    assert rknn.build(False) == 0
    rknn.release()
