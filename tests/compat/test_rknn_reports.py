"""accuracy_analysis, eval_perf and eval_memory: files, columns and sums."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from tests import shared_models

from intaglio.compat.rknn.api import RKNN


def test_accuracy_analysis_writes_what_the_manual_names(folder: Path, int8: RKNN, capsys):
    assert int8.accuracy_analysis(inputs=["images/0.png"]) == 0
    printed = capsys.readouterr().out
    text = Path("snapshot/error_analysis.txt").read_text()
    assert text.strip() in printed
    assert "layer_name" in text
    assert "simulator_error" in text
    assert "entire" in text
    assert "single" in text
    assert "cos" in text
    assert "euc" in text
    rows = [line for line in text.splitlines() if line.startswith("[")]
    assert [r.split("  ")[0] for r in rows][:2] == ["[ConvRelu] r0", "[ConvRelu] r1"]
    names = dict(
        line.split("\t") for line in Path("snapshot/map_name_to_file.txt").read_text().splitlines()
    )
    assert {"x", "r0", "r1", "y"} <= set(names)
    assert names["r0"] == "r0.txt"  # scripts of the manual open tensors by name
    golden, other = (np.loadtxt(f"snapshot/{p}/r0.txt") for p in ("golden", "simulator"))
    assert golden.size == 8 * 16 * 16
    cosine = golden @ other / np.linalg.norm(golden) / np.linalg.norm(other)
    distance = np.linalg.norm(golden - other)
    shown = rows[0].split("  ", 1)[1].replace("|", " ").split()
    np.testing.assert_allclose([float(shown[0]), float(shown[1])], [cosine, distance], rtol=1e-3)


def test_accuracy_analysis_refuses(folder: Path, int8: RKNN, capsys):
    assert int8.accuracy_analysis(inputs=["nope.png"]) == -1
    assert int8.accuracy_analysis(inputs=["images/0.png"] * 2) == -1
    assert int8.accuracy_analysis(inputs=["images/0.png"], target="rk3566") == -1
    rknn = RKNN()
    assert rknn.accuracy_analysis(inputs=["images/0.png"]) == -1
    said = capsys.readouterr().err
    for words in (
        "there is no file 'nope.png'",
        "2 files for 1 inputs",
        "target is 'rk3566', but the model was built for rk3588",
        "there is no built model; call build first",
    ):
        assert words in said


def test_accuracy_analysis_with_a_target(folder: Path, int8: RKNN, capsys):
    assert int8.accuracy_analysis(inputs="images/0.png", output_dir="o", target="rk3588") == 0
    assert "runtime_error is that of the chip's simulator" in capsys.readouterr().err
    text = Path("o/error_analysis.txt").read_text()
    assert "runtime_error" in text
    assert "single_sim" in text
    row = next(r for r in text.splitlines() if r.startswith("[ConvRelu] r0"))
    figures = row.replace("|", " ").split()[2:]
    assert len(figures) == 8
    assert figures[4:6] == figures[:2]
    assert Path("o/runtime/r0.txt").read_bytes() == Path("o/simulator/r0.txt").read_bytes()
    assert int8.accuracy_analysis(inputs="images/0.png", output_dir="o") == 0
    assert not Path("o/runtime").exists()  # of the run before


def test_accuracy_of_float16(folder: Path, capsys):
    rknn = RKNN()
    rknn.config(mean_values=[[128] * 3], std_values=[[128] * 3], target_platform="rk3588")
    rknn.load_onnx("mobilenet.onnx")
    assert rknn.build(do_quantization=False) == 0
    assert rknn.accuracy_analysis(inputs=["images/0.png"]) == 0
    lines = Path("snapshot/error_analysis.txt").read_text().splitlines()
    rows = [line.split()[1:] for line in lines if line.startswith("[")]
    assert [r[0] for r in rows][:2] == ["r0", "r1"]
    assert all(0.9999 < float(r[1]) <= 1 for r in rows)
    assert any(float(r[3]) > 0 for r in rows)  # float16 is not float32


def test_eval_perf(int8: RKNN, capsys):
    found = int8.eval_perf()
    printed = capsys.readouterr().out
    assert str(found) in printed
    assert "Total Operator Elapsed Per Frame Time(us): " in printed
    assert "Network Layer Information Table" not in printed
    assert found["total_time"] == round(found["milliseconds"] * 1e3)
    assert found["fps"] > 0
    assert int8.init_runtime(perf_debug=True) == 0
    text = str(int8.eval_perf(is_print=False))
    for column in (
        "OpType",
        "DDRCycles",
        "NPUCycles",
        "MacUsage(%)",
        "WorkLoad(0/1/2)",
        "FullName",
    ):
        assert column in text
    assert "Operator Time Consuming Ranking Table" in text
    assert "TimeRatio(%)" in text
    assert capsys.readouterr().out == ""
    int8.init_runtime()


def test_a_file_without_names_is_smaller_and_still_reported(folder: Path):
    sizes = []
    for mini in (False, True):
        rknn = RKNN()
        rknn.config(target_platform="rk3588", mini_rknn=mini)
        rknn.load_onnx("mobilenet.onnx")
        rknn.build(do_quantization=False)
        assert rknn.eval_perf(is_print=False)["total_time"] > 0
        rknn.export_rknn("m.rknn")
        sizes.append(Path("m.rknn").stat().st_size)
    assert sizes[1] < sizes[0]


def test_eval_memory(int8: RKNN, capsys):
    found = int8.eval_memory()
    assert set(found) == {"weight_memory", "internal_memory", "other_memory", "total_memory"}
    assert found["total_memory"] == sum(v for k, v in found.items() if k != "total_memory")
    assert found["total_memory"] == int8.package.memory().total
    assert all(v >= 0 for v in found.values())
    printed = capsys.readouterr().out
    for words in ("Memory Profile Info Dump", "Weight Memory: ", "Internal Tensor Memory: "):
        assert words in printed
    assert int8.eval_memory(is_print=False) == found
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_reports_of_mobilenet_take_less_than_five_seconds(tmp_path: Path, monkeypatch):
    model = shared_models.SHARED / "models" / "onnx" / "mobilenet_v2_fp32.onnx"
    if not model.exists():
        pytest.skip(f"no {model}")
    monkeypatch.chdir(tmp_path)
    photos = sorted((shared_models.SHARED / "data" / "imagenet_val1000_256").glob("*.JPEG"))[:4]
    Path("dataset.txt").write_text("".join(f"{p}\n" for p in photos))
    rknn = RKNN()
    assert rknn.config(target_platform="rk3588", std_values=[[255] * 3]) == 0
    assert rknn.load_onnx(str(model)) == 0
    assert rknn.build(do_quantization=True, dataset="dataset.txt") == 0
    assert rknn.init_runtime() == 0
    for report in (
        lambda: rknn.accuracy_analysis(inputs=[str(photos[0])]),
        rknn.eval_perf,
        rknn.eval_memory,
    ):
        start = time.process_time()  # other programs of a busy machine do not count
        assert report() not in (-1, None)
        assert time.process_time() - start < 5
