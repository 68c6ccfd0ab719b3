"""TFLite detection ops against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the tflite package is missing")

from flatbuffers import flexbuffers
from tests.frontends.test_tflite_ops import RNG, I, floats
from tests.frontends.tflite_build import Op, T, model, op
from tests.frontends.tflite_oracle import agrees, litert, ours


# ---- detections ----------------------------------------------------------------------------------
def detector(regular: bool, anchors: int = 40, classes: int = 3, found: int = 10) -> bytes:
    centre = RNG.random((anchors, 2))
    where = np.concatenate([centre, 0.2 + 0.2 * RNG.random((anchors, 2))], 1).astype(np.float32)
    options = flexbuffers.Dumps(
        {
            "max_detections": found,
            "max_classes_per_detection": 1,
            "detections_per_class": 5,
            "nms_score_threshold": 0.3,
            "nms_iou_threshold": 0.5,
            "num_classes": classes,
            "y_scale": 10.0,
            "x_scale": 10.0,
            "h_scale": 5.0,
            "w_scale": 5.0,
            "use_regular_nms": regular,
        }
    )
    tensors = [
        T((1, anchors, 4)),
        T((1, anchors, classes + 1)),
        T(data=where),
        T((1, found, 4)),
        T((1, found)),
        T((1, found)),
        T((1,)),
    ]
    step = Op("TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6], custom=bytes(options))
    return model(tensors, [step], [0, 1], [3, 4, 5, 6])


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("most", [1.0, 0.4, 0.1])
def test_detections(regular, most):
    """Many, few and no boxes. Padding is zeros here and uninitialised in LiteRT."""
    coded, scores = floats(1, 40, 4), (RNG.random((1, 40, 4)) * most).astype(np.float32)
    data = detector(regular)
    got, want = (run(data, [coded, scores])[0] for run in (ours, litert))
    count = int(want[3][0])
    assert got[3].tolist() == [count]
    assert (count > 0) == (most > 0.3)
    for a, b in zip(got[:3], want[:3], strict=True):
        np.testing.assert_allclose(a[:, :count], b[:, :count], rtol=1e-5, atol=1e-6)
        assert not a[:, count:].any()


@pytest.mark.parametrize("version", [4, 5])
def test_non_max_suppression(version):
    corner = RNG.random((20, 2))
    boxes = np.concatenate([corner, corner + 0.3], 1).astype(np.float32)
    scores = RNG.random(20).astype(np.float32)
    few = [T(data=v) for v in (I(8), np.float32(0.4), np.float32(0.2))]
    soft = [T(data=np.float32(0.0))] if version == 5 else []
    ends = [T((8,), I), *([T((8,))] if version == 5 else []), T((), I)]
    tensors = [T((20, 4)), T((20,)), *few, *soft, *ends]
    n = 5 + len(soft)
    name = f"NON_MAX_SUPPRESSION_V{version}"
    data = model(
        tensors,
        [
            op(
                name,
                list(range(n)),
                list(range(n, len(tensors))),
                f"NonMaxSuppressionV{version}Options",
            )
        ],
        [0, 1],
        list(range(n, len(tensors))),
    )
    agrees(data, [boxes, scores])
