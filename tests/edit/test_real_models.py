"""Edits of the models in ../shared, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tests.shared_models import SHARED

import intaglio
from intaglio import dtypes

MODELS = SHARED / "models" / "onnx"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.is_dir(), reason=f"{MODELS} is not there; see INTAGLIO_SHARED"),
]


def run(model: bytes | Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    source = model if isinstance(model, bytes) else str(model)
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


# Edits that change no result, by model.
SCRIPTS = {
    "FastestDet": "change input input.1: uint8 NHWC\nchange output 758: a,b,c,d->a,cd,b",
    "dtln_model_1": "change input input_3: a,b,c,d->abd,1,c\nrename activation_2: mask",
    "mnist_cntk_26k": "change input Input3: uint8\nchange output Plus214_Output_0: a,b->b,a",
    "mobilenet_v2_fp32": "rename input: image\nchange input image: float16 NHWC",
    "mobilenetv2-12-qdq": "set dim batch_size: 2\nchange input input: a,b,c,d->ab,cd",
    "shufflenet-v2-12-int8": "change input input: NHWC",
    "super_resolution": "change input input: a,1,c,d->a,c,d\nchange output output: a,1,c,d->ac,d",
    "ultraface_RFB-320": "change input input: NHWC\nchange output boxes: a,b,c->c,ab",
    "vitTracker": "change input search: NHWC\nchange input template: a,b,c,d->a,cd,b",
    "yolox_nano_416": "change output output: a,b,c->a,c,b\nchange input images: uint8 NHWC",
    "yunet_n_320_320": "change input input: uint8 NHWC\nchange output kps_8: a,bc,d[b=40]->a,d,b,c",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_edits_that_change_no_result(name: str):
    path = MODELS / f"{name}.onnx"
    made = intaglio.edit(path)
    made.apply(SCRIPTS[name])
    check = made.check(engine="native")
    assert check.ran
    assert all(o.ok and not o.intended and o.difference is not None for o in check.outputs)
    rng = np.random.default_rng(0)
    views = made.state.origin.views
    feeds, before = {}, {}
    for v in made.graph(**_bound(made)).inputs:
        whole = rng.integers(0, 100, v.shape)
        feeds[v.name] = whole.astype(dtypes.numpy_of(v.dtype))
        before[views[v.name].tensor] = views[v.name].backward(feeds[v.name])
    found, want = run(made.to_onnx().SerializeToString(), feeds), run(path, before)
    compared = 0
    for output, got in found.items():
        if views[output].tensor in want:
            expected = views[output].forward(want[views[output].tensor])
            np.testing.assert_allclose(got, expected, 1e-3, 1e-3 * np.abs(expected).max())
            compared += 1
    assert compared or name == "yolox_nano_416"  # whose output is now an inner tensor


def _bound(made) -> dict[str, dict[str, int]]:
    dims = {d.dim_param for i in made.state.inputs for d in i.type.tensor_type.shape.dim}
    return {"dims": dict.fromkeys(dims - {""}, 1)}


def test_the_head_of_a_detector_is_cut_off_and_runs_alone():
    path = MODELS / "yolox_nano_416.onnx"
    images = np.random.default_rng(0).random((1, 3, 416, 416), np.float32) * 255
    (want,) = run(path, {"images": images}).values()
    features = ["1066", "1108", "1150"]
    body = intaglio.edit(path).cut(outputs=features)
    head = intaglio.edit(path).cut(inputs=features)
    assert len(body.state.nodes) + len(head.state.nodes) == len(intaglio.edit(path).state.nodes)
    inner = run(body.to_onnx().SerializeToString(), {"images": images})
    (found,) = run(head.to_onnx().SerializeToString(), inner).values()
    np.testing.assert_array_equal(found, want)
    assert head.check().ok
    for name, array in head.convert({"images": images}).items():
        np.testing.assert_allclose(array, inner[name], 1e-3, 1e-3)
