"""Data for the original model becomes data for the edited model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.edit.models import classifier, close, image, run, tensors
from tests.frontends.onnx_text import model

import intaglio
from intaglio.edit.samples import convert_files
from intaglio.errors import BadInput
from intaglio.quant.samples.dataset import samples as samples_of


def test_inputs_are_rearranged_and_converted():
    before = classifier()
    made = intaglio.edit(before).rename("image", "x").change_input("x", "a,b,c,d->ad,c,b")
    x = made.convert({"image": image()})
    assert x["x"].shape == (8, 8, 3)
    close(run(made, x)["scores"], run(before, {"image": image()})["scores"])


def test_inner_tensors_are_computed():
    made = (
        intaglio.edit(classifier())
        .cut(inputs=["r1"], outputs=["c2"])
        .change_input("r1", "NHWC->NCHW")
    )
    (r1,) = tensors(classifier(), {"image": image()}, "r1")
    close(made.convert({"image": image()})["r1"], r1.transpose(0, 3, 1, 2))


def test_values_that_the_new_type_cannot_hold_are_refused():
    made = intaglio.edit(classifier()).change_input("image", "uint8")
    whole = np.full((1, 3, 8, 8), 200, np.float32)
    assert made.convert({"image": whole})["image"].dtype == np.uint8
    with pytest.raises(BadInput, match="cannot be stored as uint8 without loss"):
        made.convert({"image": whole + 0.5})
    with pytest.raises(BadInput, match="has no array for input 'image'"):
        made.convert({})
    lost = intaglio.edit(classifier()).insert_before("add", "Relu").cut(inputs=["c2_Relu", "r1"])
    with pytest.raises(BadInput, match="'c2_Relu' is no tensor of the original model"):
        lost.convert({"image": whole})


def test_files_are_written_beside_the_model(tmp_path: Path):
    before = model("(float[1,4] x, float[1,2] w) => (float[1,6] y) { y = Concat<axis = 1>(x, w) }")
    made = intaglio.edit(before).change_input("x", "a,bc[b=2]->c,b,a")
    rng = np.random.default_rng(0)
    samples = [
        {"x": rng.normal(size=(1, 4)).astype("f"), "w": rng.normal(size=(1, 2)).astype("f")}
        for _ in range(3)
    ]
    (tmp_path / "in").mkdir()
    for i, s in enumerate(samples):
        np.savez(tmp_path / "in" / f"{i}.npz", **s)
    listed, count = convert_files(made, tmp_path / "in", tmp_path / "edited.onnx")
    assert (listed.name, count) == ("edited-data.txt", 3)
    for line, s in zip(listed.read_text().splitlines(), samples, strict=True):
        x, w = (np.load(tmp_path / f) for f in line.split())
        close(run(made, {"x": x, "w": w})["y"], run(before, s)["y"])
    found = samples_of(listed, [(v.name, v.type) for v in made.graph().inputs])
    assert len(found) == 3, "`intaglio quantize --data` reads the list"
