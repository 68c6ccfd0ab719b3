"""ONNX recurrent layers and detection ops, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_oracle import agree
from tests.frontends.onnx_text import model

from intaglio.errors import Unsupported
from intaglio.frontends.onnx import load_onnx

R = np.random.default_rng(7)
T, B, WIDTH, H = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def layer(op: str, directions: int, lens: Any = None, start: bool = True) -> list[Any]:
    g, d = GATES[op] * H, directions
    state = f(d, B, H) if start else None
    more = [f(d, B, H), f(d, 3 * H)] if op == "LSTM" and start else []
    return [f(T, B, WIDTH), f(d, g, WIDTH), f(d, g, H), f(d, 2 * g), lens, state, *more]


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_layers(op: str, direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    how = {"domain": "", "version": 14, "hidden_size": H, "direction": direction}
    outputs = 3 if op == "LSTM" else 2
    types = (1,) * outputs
    for lens in (None, np.array([5, 3, 1], np.int32)):
        agree(op, layer(op, d, lens), outputs, types=types, **how)
        agree(op, layer(op, d, lens), outputs, types=types, clip=0.3, **how)
    agree(op, layer(op, d, start=False), outputs, types=types, **how)
    if op == "GRU":
        agree(op, layer(op, d), outputs, types=types, linear_before_reset=1, **how)
    if op == "LSTM":
        agree(op, layer(op, d), outputs, types=types, input_forget=1, **how)
        names = ["HardSigmoid", "Softsign", "LeakyRelu"] * d
        more = {"activation_alpha": [0.3, 0.05] * d, "activation_beta": [0.4] * d}
        agree(op, layer(op, d), outputs, types=types, activations=names, **more, **how)


def test_unknown_activation() -> None:
    text = (
        "(float[2,1,3] x, float[1,4,3] w, float[1,4,4] r) => (float[a,b,c,d] y) "
        '{ y = RNN<hidden_size=4, activations=["Gelu"]>(x, w, r) }'
    )
    with pytest.raises(Unsupported, match="activation 'Gelu' is none of Relu"):
        load_onnx(model(text))


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_roi_align(mode: str, ratio: int) -> None:
    rois = np.sort(R.uniform(0, 40, (6, 2, 2)), 1).reshape(6, 4).astype(np.float32)
    operands = [f(2, 3, 16, 20), rois, R.integers(0, 2, 6)]
    how = {"domain": "", "mode": mode, "sampling_ratio": ratio, "spatial_scale": 0.5}
    size = {"output_height": 3, "output_width": 4}
    agree("RoiAlign", operands, version=10, **how, **size)
    agree("RoiAlign", operands, version=16, **how, **size)
    batch = operands[2][:, None].astype(np.float32)
    pool = [operands[0], np.concatenate([batch, rois], 1)]
    agree("MaxRoiPool", pool, domain="", version=9, pooled_shape=[3, 4], spatial_scale=0.5)


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center: int) -> None:
    boxes = R.uniform(0, 10, (2, 80, 4)).astype(np.float32)
    scores = R.uniform(0, 1, (2, 3, 80)).astype(np.float32).round(1)  # many ties
    limits = [np.array([9]), np.array([0.3], np.float32), np.array([0.4], np.float32)]
    how = {"domain": "", "version": 11, "center_point_box": center, "types": (7,)}
    agree("NonMaxSuppression", [boxes, scores, *limits], constant=(2, 3, 4), **how)
    agree("NonMaxSuppression", [boxes, scores, np.array([4])], constant=(2,), **how)
