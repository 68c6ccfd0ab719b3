"""Fitting of chip constants: networks have the published size, and the fit recovers constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.npu_zoo.net import Net

from benchmarks import npu_fit, npu_nets, npu_zoo
from intaglio.npu.predict.element_types import as_bytes
from intaglio.targets import chip

QUICK = ("mobilenet_v2", "yolov5n", "yolov7_tiny", "yolov8n", "yolo11n", "ppyoloe_s")


@pytest.mark.parametrize("name", npu_nets.MACS)
def test_a_net_has_the_products_that_are_published(name: str):
    assert npu_nets.macs(npu_nets.MAKERS[name]()) / 1e6 == pytest.approx(
        npu_nets.MACS[name], rel=0.07
    )


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in npu_zoo.MACS]
)
def test_a_rebuilt_model_has_the_products_that_are_published(name: str, monkeypatch):
    onnx = pytest.importorskip("onnx")
    zeros = lambda self, *shape: self.constant(np.zeros(shape, np.float32))  # noqa: E731
    monkeypatch.setattr(Net, "weights", zeros)
    model = npu_zoo.model(name)
    onnx.checker.check_model(model, full_check=True)
    assert npu_zoo.macs(model) == pytest.approx(npu_zoo.MACS[name], rel=0.02)


def test_all_networks_of_the_table_are_rebuilt():
    lines = npu_fit.ROWS.read_text().splitlines()[1:]
    assert {line.split(",")[3] for line in lines} <= set(npu_zoo.NETS)
    assert len(npu_fit.counted(npu_fit.read())) >= 250


def test_sizes_of_a_network_are_left_out_together():
    families = {n: npu_zoo.family(n) for n in npu_zoo.NETS}
    assert families["yolov8n"] == families["yolov8s_seg_det"] == "yolov8"
    assert families["yolov10n"] != families["yolo11n"]
    assert families["clip_text_20"] == families["clip_image"]
    assert families["bert"] == "bert"


def test_rows_that_contradict_others_are_not_counted():
    rows = [npu_fit.Row("bm1684", n, "i8", 1, 1, 1.0) for n in ("retinaface_640", "resnet50")]
    rows.append(npu_fit.Row("bm1684", "yolov8s_det", "i8", 1, 1, 1.0, mixed=True))
    assert npu_fit.counted(rows) == rows[1:2]


TABLE = """family,chip,cores,net,dtype,batch,ms_per_sample,source
rknpu,rk3588,1,mobilenet_v2,int8,1,2.219,zoo
rknpu,rk3588,1,unknown,fp16,1,10.438,zoo
sophgo,bm1684,1,resnet50,int8,4,1.24,sophon-demo ResNet
sophgo,bm1684,1,resnet50,fp16,4,1.24,sophon-demo ResNet
sophgo,bm1688,2,yolov8s_det,int8,1,10.1,sophon-demo YOLOv8_det; mixed
"""


def test_rows_of_nets_and_types_that_we_know_are_read(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(TABLE)
    assert npu_fit.read(path) == [
        npu_fit.Row("rk3588", "mobilenet_v2", "i8", 1, 1, 2.219),
        npu_fit.Row("bm1684", "resnet50", "i8", 4, 1, 1.24),
        npu_fit.Row("bm1688", "yolov8s_det", "i8", 1, 2, 10.1, mixed=True),
    ]
    assert [r.chip for r in npu_fit.read(path, "rknpu")] == ["rk3588"]


def test_wider_elements_scale_memories_and_rates():
    c = chip.load("bm1684x")
    wide = as_bytes(c, "f32")
    assert (wide.sram, wide.ddr, wide.align) == (c.sram // 4, c.ddr / 4, c.align // 4)
    assert wide.units["conv"].rate["i8"] == c.units["conv"].rate["f32"]
    assert as_bytes(c, "i8") is c


def test_fitting_recovers_the_constants(tmp_path: Path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.setitem(npu_fit.PRIOR_WEIGHT, "rknpu", 0.001)  # two rows weigh less than the prior
    rows = [npu_fit.Row("rk3588", n, "i8", 1, 1, 1.0) for n in ("extractor", "retinaface_320")]
    fit = npu_fit.Fit("rk3588", rows, tmp_path)
    hidden = {"layer": 30000.0}
    fit.rows = [replace(r, milliseconds=fit.predict(r, hidden)) for r in rows]
    fit.networks = {new: fit.networks[old] for new, old in zip(fit.rows, rows, strict=True)}
    first = {"layer": 5000.0}
    found = fit.fit(fit.rows, first)
    before, after = (abs(fit.off(fit.rows, v)).mean() for v in (first, found))
    assert after < 0.2 * before
    assert found["layer"] == pytest.approx(30000, rel=0.2)
    assert len(list(tmp_path.iterdir())) == 2  # compiled programs are cached
    left = fit.left_out(found)
    assert set(left) == set(fit.rows)
