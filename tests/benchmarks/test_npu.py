"""Fitting of chip constants: networks have the published size, and the fit recovers constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import npu_fit, npu_nets
from intaglio.npu.predict.element_types import as_bytes
from intaglio.targets import chip


@pytest.mark.parametrize("name", npu_nets.MACS)
def test_a_net_has_the_products_that_are_published(name: str):
    assert npu_nets.macs(npu_nets.MAKERS[name]()) / 1e6 == pytest.approx(
        npu_nets.MACS[name], rel=0.07
    )


def test_every_net_can_be_named_in_rows():
    parts = {n for made in npu_fit.MIXED.values() for n, _ in made}
    assert set(npu_fit.NETS.values()) | parts == set(npu_nets.names())


def test_a_mixed_model_is_split_by_type():
    """The first stage and the heads of YOLOX's int8 model are in floats."""
    whole, *parts = (
        npu_nets.macs(npu_nets.MAKERS[n]())
        for n in ("yolox_s", "yolox_s.first", "yolox_s.middle", "yolox_s.heads")
    )
    assert sum(parts) == whole
    row = npu_fit.Row("bm1684x", "yolox_s", "i8", 1, 1, 4.55)
    assert [t for _, t in npu_fit.parts(row)] == ["f16", "i8", "f16"]
    assert [t for _, t in npu_fit.parts(replace(row, chip="bm1684"))] == ["f32", "i8", "f32"]
    assert npu_fit.parts(replace(row, dtype="f32")) == [("yolox_s", "f32")]


def test_moved_elements_are_counted():
    part = npu_fit.part(npu_fit.Row("rk3588", "retinaface_320", "i8", 1, 1, 1.0), None)
    assert [o.moved for o in part.others] == [32 * (40**2 + 20**2 + 10**2)]
    assert part.pixels == 320 * 320


def test_rows_that_contradict_others_are_not_counted():
    rows = [npu_fit.Row("bm1684", n, "i8", 1, 1, 1.0) for n in ("retinaface_640", "resnet50")]
    assert npu_fit.counted(rows) == rows[1:]


TABLE = """family,chip,cores,model,input,dtype,batch,ms_per_sample,fps
rknpu,rk3588,1,mobilenetv2-12,"[1, 3, 224, 224]",int8,1,2.219,450.7
rknpu,rk3588,1,clip_text,"[1, 20]",fp16,1,10.438,95.8
sophgo,bm1684,1,resnet50_int8_4b,,int8,4,1.24,
sophgo,bm1684,1,resnet50_fp16_4b,,fp16,4,1.24,
sophgo,bm1688,2,yolov5s_v6.1_3output_fp32_1b_2core,,fp32,1,66.89,
"""


def test_rows_of_nets_and_types_that_we_know_are_read(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text(TABLE)
    assert npu_fit.read(path) == [
        npu_fit.Row("rk3588", "mobilenet_v2", "i8", 1, 1, 2.219),
        npu_fit.Row("bm1684", "resnet50", "i8", 4, 1, 1.24),
        npu_fit.Row("bm1688", "yolov5s_3output", "f32", 1, 2, 66.89),
    ]
    assert [r.chip for r in npu_fit.read(path, "rknpu")] == ["rk3588"]


def test_wider_elements_scale_memories_and_rates():
    c = chip.load("bm1684x")
    wide = as_bytes(c, "f32")
    assert (wide.sram, wide.ddr, wide.align) == (c.sram // 4, c.ddr / 4, c.align // 4)
    assert wide.units["conv"].rate["i8"] == c.units["conv"].rate["f32"]
    assert as_bytes(c, "i8") is c


def test_fitting_recovers_the_constants(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(npu_fit.PRIOR_WEIGHT, "rknpu", 0.001)  # two rows weigh less than the prior
    rows = [npu_fit.Row("rk3588", n, "i8", 1, 1, 1.0) for n in ("lprnet", "retinaface_320")]
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
