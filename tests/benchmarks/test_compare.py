"""The comparison with other runtimes: arithmetic on made-up rows, one run of the bundled model."""

import functools
import json
import subprocess

import numpy as np
import onnx
import pytest
from benchmarks.__main__ import headlines
from benchmarks.peers import OURS, Refused, int8
from benchmarks.worker import Worker

from benchmarks import compare, install, models, peers, startup, table, worker
from intaglio import native

QUIET = {"others": 0.0, "steal": 0.0, "load": 0.0, "crowded": False}


def row(model, ours, threads=1, busy=QUIET, mmac=500, **others):
    """A row from minima; medians are twice as long, a string is a reason."""
    engines = {
        name: {"failed": t} if isinstance(t, str) else {"min": t, "median": 2 * t, "apart": 1e-6}
        for name, t in {OURS: ours, **others}.items()
    }
    return {"model": model, "threads": threads, "mmac": mmac, "engines": engines, "busy": busy}


ROWS = [
    row("a", 10.0, ncnn=20.0, openvino=5.0),
    row("b", 10.0, ncnn=20.0, openvino="died of SIGSEGV"),
    row("c", "differs", ncnn=20.0, openvino=10.0),
    row("a", 4.0, threads=2, ncnn=12.0, openvino=16.0),
]


def test_ratios_are_their_time_over_ours():
    assert table.ratio(ROWS[0], "ncnn") == 2
    assert table.ratio(ROWS[0], "openvino") == 0.5
    assert table.ratio(ROWS[1], "openvino") is None
    assert table.ratio(ROWS[2], "ncnn") is None


def test_the_fastest_peer_is_chosen_row_by_row_and_never_us():
    assert [table.fastest(r)[0] for r in ROWS] == ["openvino", "ncnn", "openvino", "ncnn"]
    assert [table.ratio_to_fastest(r) for r in ROWS] == [0.5, 2, None, 3]
    assert table.fastest(row("alone", 1.0)) is None


def test_means_are_geometric_over_rows_that_have_both():
    made = table.summary(ROWS, ["ncnn", "openvino"], 1)
    assert made["min"] == {"ncnn": pytest.approx(2), "openvino": 0.5, "fastest": pytest.approx(1)}
    assert made["median"] == pytest.approx(made["min"])
    assert made["slower"] == ["a"]
    assert table.summary(ROWS, ["ncnn"], 2)["min"]["fastest"] == pytest.approx(3)


def test_the_share_of_peak_counts_two_operations_per_multiply_add():
    assert table.share_of_peak(ROWS[0], 200.0) == pytest.approx(0.5)  # 1 GFLOP in 10 ms
    assert table.share_of_peak(ROWS[2], 200.0) is None
    assert table.share_of_peak(ROWS[0], None) is None


def test_markdown_shows_what_failed_and_when_the_machine_was_busy():
    busy = {"others": 0.7, "steal": 0.0, "load": 3.0, "crowded": True}
    text = table.markdown([*ROWS, row("d", 1.0, busy=busy)], ["ncnn", "openvino"], {1: 200.0}, [])
    assert "| b | 10.0 / 20.0 | 20.0 / 40.0 | - |" in text
    assert "- b, openvino: died of SIGSEGV" in text
    assert "| a | 2.00 | 0.50 | openvino | **0.50** | 50% | 1e-06 |" in text
    assert "| d \\* |" in text
    assert "up to 0.7 CPUs" in text
    assert "| geometric mean | 2.00 | 0.50 |" in text


def test_the_outlier_is_wrong_even_if_it_is_the_first():
    right, wrong = np.arange(6.0), np.arange(6.0)[::-1]
    apart = compare.differences(
        {"onnxruntime": [wrong], "ncnn": [right], OURS: [right + 1e-7], "mnn": [right[None]]}
    )
    assert apart["onnxruntime"] > compare.AGREE
    assert max(apart["ncnn"], apart["mnn"], apart[OURS]) < compare.AGREE
    assert compare.differences({OURS: [right], "ncnn": [right, right]})[OURS] == float("inf")


def test_small_floats_are_judged_by_their_angle_to_f32():
    right = [np.array([[3.0, 4.0]]), np.array([1.0])]
    near = compare.cosines({"a": right, "b": [right[0] * 2, -right[1]], "c": right[:1]}, right)
    assert near == {"a": pytest.approx(1), "b": pytest.approx(-1), "c": 0.0}
    assert compare.cosine(np.array([4.0, -3.0]), right[0]) == 0
    assert compare.cosine(np.zeros(2), np.zeros(2)) == 1
    assert compare.cosine(np.ones(3), right[0]) == 0
    made = row("a", 10.0, openvino=20.0)
    made["engines"][OURS]["cosine"] = 0.99995
    assert "| a | 0.999950 | - |" in table.markdown([made], ["openvino"], {}, [])


@pytest.mark.skipif(~native.machine() & 11 != 0, reason="a CPU without AVX512-BF16")
def test_bf16_beside_the_peers_that_have_it(tmp_path):
    file = tmp_path / "found.json"
    chosen = [p for p in peers.installed() if p == "openvino"]
    arguments = ["digits", "--threads", "1", "--seconds", "0.05", "--json", str(file)]
    arguments += ["--precision", "bf16", "--peers", ",".join(chosen)]
    assert compare.main(arguments) == 0
    (made,) = json.loads(file.read_text())["rows"]
    for engine in (OURS, *chosen):
        assert 0.999 < made["engines"][engine]["cosine"] < 1
        assert made["engines"][engine]["min"] > 0


@pytest.mark.slow
def test_int8_beside_a_peer_and_ourselves_in_f32(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(worker, "CACHE", tmp_path)
    file = tmp_path / "found.json"
    chosen = [p for p in peers.installed("int8") if p == "onnxruntime"]
    arguments = ["digits", "--threads", "1", "--seconds", "0.05", "--json", str(file)]
    arguments += ["--precision", "int8", "--peers", ",".join(chosen)]
    assert compare.main(arguments) == 0
    (made,) = json.loads(file.read_text())["rows"]
    for engine in (OURS, *chosen):
        assert 0.98 < made["engines"][engine]["cosine"] < 1
        assert made["engines"][engine]["min"] > 0
    assert made["engines"][peers.FLOAT]["cosine"] == pytest.approx(1, abs=1e-6)
    assert (table.fastest(made) or ("none",))[0] in [*chosen, "none"]  # never ourselves in f32
    assert f"| {peers.FLOAT} |" in capsys.readouterr().out


def test_the_fastest_variant_that_is_right_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(int8, "SECONDS", 0.05)
    right = [np.array([1.0, 2.0])]

    class Fake:
        def __init__(self, file, feeds, threads):
            self.turns, self.answer = {"wrong": (1, [-right[0]]), "slow": (2000, right)}.get(
                file.name, (300, right)
            )

        def run(self):
            sum(range(self.turns))

        def outputs(self):
            return self.answer

    def make(name):
        (tmp_path / name).touch()
        return tmp_path / name

    def fail():
        raise ValueError("no such op")

    case = models.case("digits")
    variants = {n: functools.partial(make, n) for n in ("wrong", "slow", "quick")}
    assert int8.keep_fastest(case, Fake, right, {**variants, "broken": fail}).name == "quick"
    assert [p.name for p in tmp_path.iterdir()] == ["quick"]
    with pytest.raises(Refused, match="broken: ValueError: no such op"):
        int8.keep_fastest(case, Fake, right, {"broken": fail})


def test_a_peer_without_bf16_is_refused():
    if "onnxruntime" not in peers.installed():
        pytest.skip("no peer without bf16 is installed")
    with pytest.raises(SystemExit, match="onnxruntime computes in f32, int8, not in bf16"):
        compare.main(["digits", "--precision", "bf16", "--peers", "onnxruntime"])


def test_a_crashed_process_is_reported_and_the_rest_goes_on():
    with Worker(OURS, 1) as process:
        process.process.kill()
        with pytest.raises(Refused, match="load died of SIGKILL"):
            process.ask("load", "model.itg", {})


def test_a_conversion_that_failed_is_not_tried_again(tmp_path, monkeypatch):
    tries = []

    def refuse(*_):
        tries.append(1)
        raise Refused("no such layer")

    monkeypatch.setattr(worker, "CACHE", tmp_path)
    monkeypatch.setattr(worker, "_convert", refuse)
    for _ in range(2):
        with pytest.raises(Refused, match="no such layer"):
            worker.convert("openvino", models.case("digits"), 1)
    assert len(tries) == 1


def test_the_model_that_ships_beside_whatever_is_installed(tmp_path, capsys):
    file = tmp_path / "found.json"
    chosen = [p for p in peers.installed() if p in ("onnxruntime", "openvino")]
    arguments = ["digits", "--threads", "1", "--seconds", "0.05", "--json", str(file)]
    assert compare.main([*arguments, "--peers", ",".join(chosen)]) == 0
    found = json.loads(file.read_text())
    (made,) = found["rows"]
    assert made["engines"][OURS]["min"] > 0
    assert made["mmac"] > 0
    for peer in chosen:
        assert made["engines"][peer]["apart"] < compare.AGREE
        assert table.ratio(made, peer) > 0
    assert "| digits" in capsys.readouterr().out


def test_unknown_peers_and_models_are_refused():
    with pytest.raises(SystemExit, match="no model 'nothing'"):
        models.case("nothing")
    with pytest.raises(SystemExit, match="unknown peer 'abacus'"):
        compare.main(["digits", "--peers", "abacus"])


def test_a_model_that_cannot_be_made_is_said_and_the_others_go_on(tmp_path, capsys, monkeypatch):
    def no_torch(*_, **__):
        return subprocess.CompletedProcess([], 2, "", "usage\nneeds torch")

    monkeypatch.setattr(models, "ZOO", tmp_path)
    monkeypatch.setattr(models.subprocess, "run", no_torch)
    assert [c.name for c in models.cases(["gru", "digits", "lstm"])] == ["digits"]
    said = capsys.readouterr().err
    assert "left out: gru: could not be exported: needs torch" in said
    assert "left out: lstm" in said
    assert [c.name for c in models.cases(["gru"])] == ["digits"]  # which ships
    assert "no model is available; measuring digits" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no model 'nothing'"):
        models.cases(["digits", "nothing"])


def test_a_model_that_we_cannot_read_is_a_row_without_times(tmp_path):
    bad = tmp_path / "bad.onnx"
    node = onnx.helper.make_node("NoSuchOp", ["x"], ["y"])
    x, y = (onnx.helper.make_tensor_value_info(n, 1, [1]) for n in "xy")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [y])), bad)
    found = compare.run([models.case(str(bad)), models.case("digits")], [1], [], 0.05)
    assert "NoSuchOp" in found["rows"][0]["engines"][OURS]["failed"]
    assert found["rows"][1]["engines"][OURS]["min"] > 0
    assert compare.failures(found) == 1
    assert startup.measured(found)["bad"][OURS].keys() == {"failed"}


def test_the_error_of_pip_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "REFUSED", tmp_path / "refused.json")
    monkeypatch.setattr(peers, "has", lambda _: False)
    assert peers.why_missing("openvino") == "openvino (`make bench` installs it)"
    monkeypatch.setattr(install, "REFUSED", peers.REFUSED)
    monkeypatch.setattr(install, "wanted", lambda: ["torch==1", "openvino>=2025.0", "MNN>=3.0"])
    tried = []

    def pip(names):
        tried.append(names)
        return "ERROR: no wheel" if any("openvino" in n for n in names) else None

    monkeypatch.setattr(install, "install", pip)
    install.main()
    assert tried[1:] == [["torch==1"], ["torch==1", "openvino>=2025.0"], ["torch==1", "MNN>=3.0"]]
    assert peers.why_missing("openvino") == "openvino (ERROR: no wheel)"
    assert peers.why_missing("mnn") == "MNN (`make bench` installs it)"


def test_the_last_lines_summarise():
    found = {"precision": "f32", "rows": ROWS}
    found["summary"] = {str(t): table.summary(ROWS, ["ncnn", "openvino"], t) for t in (1, 2)}
    first, second = headlines(found)
    assert first == (
        "f32, 1 thread: the fastest peer takes 1.00 times our time (by medians 1.00), geometric "
        "mean over 2 of 3 models; slower than the fastest: a"
    )
    assert second.startswith("f32, 2 threads: the fastest peer takes 3.00 times our time")
