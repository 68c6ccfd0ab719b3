"""`intaglio optimize` on the command line, and its two reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from tests.frontends.onnx_text import model
from tests.test_cli import DIGITS, intaglio

import intaglio as api
from intaglio import ops
from intaglio.analysis.agreement import differences, nudged, usable_inputs
from intaglio.analysis.rules import explain, table
from intaglio.cli import main
from intaglio.errors import BadInput
from intaglio.ir import Node, Value, constant
from intaglio.passes import Event, Record
from intaglio.passes.fuse import batch_norm_as_scale_and_shift as rule


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model on which some rules fire, one refuses, and one output is an index."""
    source = model("""(float[1,3,6,6] x) => (float[1,4,6,6] y, int64[1,1,6,6] best)
        <float one = {1}, float[4] s = {1, 2, 3, 4}, float[4] z = {0, 1, 0, 1}> {
            up = Add(x, one)
            c = Conv<pads = [1, 1, 1, 1]>(up, w)
            n = BatchNormalization(c, s, z, z, s)
            g = Sigmoid(n)
            y = Mul(n, g)
            best = ArgMax<axis = 1>(y)
        }""")
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    source.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "small.onnx"
    onnx.save(source, path)
    return path


def run(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_writes_a_smaller_model_that_computes_the_same(small: Path, tmp_path: Path):
    out = tmp_path / "out.onnx"
    done = intaglio("optimize", small, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "nodes       6 -> 4" in done.stdout
    assert "outputs agree" in done.stdout
    assert f"{out}: " in done.stdout
    onnx.checker.check_model(str(out), full_check=True)
    feeds = {"x": np.random.default_rng(1).random((1, 3, 6, 6), np.float32)}
    for got, want in zip(run(out, feeds), run(small, feeds), strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_explains_what_each_rule_did(small: Path, tmp_path: Path):
    done = intaglio("optimize", small, "--explain", "--dump-dir", tmp_path / "dump")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    (fired,) = [line.split() for line in lines if line.startswith("scale_into_conv")]
    assert fired[1:4] == ["2", "1", "0"]
    at = next(i for i, line in enumerate(lines) if line.startswith("shift_before_conv"))
    assert lines[at + 1].startswith("    1 x pad is (1, 1, 1, 1): the padding would be shifted too")
    assert "(Conv_1)" in lines[at + 1]
    assert "more rules matched nothing" in done.stdout
    dumps = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert dumps[0] == "00-start.txt"
    assert "batch_norm" in (tmp_path / "dump" / dumps[0]).read_text()
    assert "batch_norm" not in (tmp_path / "dump" / dumps[-1]).read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dump", "small.onnx"]


def test_levels_and_rules_can_be_chosen(small: Path):
    def nodes(*args: object) -> int:
        done = intaglio("optimize", small, "--json", *args)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["nodes"][1]

    assert [nodes("--level", k) for k in range(4)] == [6, 6, 4, 4]
    assert nodes("--disable", "swish") == 5
    assert nodes("--opset", "17") == 5
    assert nodes("--level", "0", "--contrib") == 6


def test_json_has_it_all(small: Path):
    facts = json.loads(intaglio("optimize", small, "--json", "--engine", "native").stdout)
    assert facts["macs"] == [36 * 4 * 27] * 2
    assert facts["parameters"] == [108 + 1 + 4 + 4, 108 + 1 + 4]
    assert {o["output"] for o in facts["check"]["outputs"]} == {"y", "best"}
    assert all(o["error"] <= o["limit"] for o in facts["check"]["outputs"])
    rules = {r["rule"]: r for r in facts["rules"]}
    assert rules["swish"]["fired"] == 1
    assert rules["swish"]["seconds"] > 0
    assert rules["shift_before_conv"]["reasons"][0]["nodes"] == ["Conv_1"]


def test_says_what_pruning_saves(tmp_path: Path):
    source = model("""(float[1,1,6,6] x) => (float[1,2,6,6] y) {
        h = Conv<pads = [1, 1, 1, 1]>(x, w)
        r = Relu(h)
        y = Conv(r, v)
    }""")
    w, v = np.ones((5, 1, 3, 3), np.float32), np.ones((2, 5, 1, 1), np.float32)
    w[[1, 3]] = 0
    for name, data in (("w", w), ("v", v)):
        source.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    path = tmp_path / "sparse.onnx"
    onnx.save(source, path)
    done = intaglio("optimize", path, "--explain", "-o", tmp_path / "dense.onnx")
    assert done.returncode == 0, done.stderr
    words = "pruned      2 of 7 channels, weights -22 (-40.0 %), MACs -792 (-40.0 %)"
    assert words in done.stdout.splitlines()
    assert any(line.startswith("prune_channels ") for line in done.stdout.splitlines())
    done = intaglio("compile", path, "-o", tmp_path / "dense.itg")
    assert words.replace("pruned      ", "pruned: ") in done.stdout.splitlines()
    facts = json.loads(intaglio("optimize", path, "--json").stdout)
    assert facts["pruned"] == {
        "channels": [7, 5],
        "parameters": [55, 33],
        "parameter_bytes": [220, 132],
        "macs": [1980, 1188],
    }
    kept = json.loads(intaglio("optimize", path, "--json", "--disable", "prune_channels").stdout)
    assert kept["pruned"] is None
    assert kept["macs"] == [1980, 1980]


def test_digits(tmp_path: Path):
    out = tmp_path / "digits.onnx"
    np.save(tmp_path / "image.npy", np.random.default_rng(0).random((1, 1, 8, 8), np.float32))
    done = intaglio(
        "optimize",
        DIGITS,
        "--dim",
        "batch=1",
        "-o",
        out,
        "--data",
        f"image={tmp_path / 'image.npy'}",
    )
    assert done.returncode == 0, done.stderr
    assert api.load(out).output_names == ["probabilities"]


def test_a_wrong_rule_is_caught_and_named(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    right = rule.build

    def wrong(x: Value, node: Node) -> Value:
        return ops.add(right(x, node), constant(np.float32(0.1)))

    monkeypatch.setattr(rule, "build", wrong)
    with pytest.raises(SystemExit) as stopped:
        main(["optimize", str(small), "-o", str(tmp_path / "out.onnx")])
    assert stopped.value.code == 2
    words = capsys.readouterr().err
    assert "output 'y' differs by" in words
    assert "at fault with --disable batch_norm_as_scale_and_shift" in words
    assert not (tmp_path / "out.onnx").exists()
    main(["optimize", str(small), "-o", str(tmp_path / "out.onnx"), "--no-check"])
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["missing.onnx"], "missing.onnx"),
        ([DIGITS, "--dim", "batch=1", "--disable", "swich"], "'swich'; did you mean swish"),
        ([DIGITS, "--dim", "batch=1", "--level", "4"], "--level"),
        ([DIGITS, "--dim", "batch=1", "--opset", "3"], "opset is 3"),
        ([DIGITS, "--dim", "batch=1", "-o", "no/such/folder/x.onnx"], "no/such/folder"),
        ([DIGITS, "--dim", "batch=1", "--data", "image=nope.npy"], "nope.npy"),
    ],
    ids=lambda a: " ".join(Path(str(x)).name for x in a) if isinstance(a, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(args: list[object], words: str, tmp_path: Path):
    done = intaglio("optimize", *args, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir()), "something was left behind"


def test_help_teaches_by_example():
    done = intaglio("optimize", "--help")
    assert done.returncode == 0
    assert "intaglio optimize model.onnx -o" in done.stdout


# ---- the reports ---------------------------------------------------------------------------------
def test_refusals_are_counted_once_per_node_and_grouped():
    events = [
        Event("meet", "add", "Add_1", "f32[2x3] is larger than 4"),
        Event("meet", "add", "Add_1", "f32[2x3] is larger than 4"),  # tried again
        Event("meet", "add", "Add_2", "f32[4] is larger than 1e-05"),
        Event("meet", "add", "Add_3", "other words"),
        Event("meet", "add", "Add_4", None),
    ]
    record = Record("fuse", events=events, level=2, times={"meet": 0.5, "quiet": 0.25})
    meet, quiet = explain([record, Record("again", level=1, times={"meet": 0.5})])
    assert (meet.rule, meet.level, meet.fired, meet.refused, meet.seconds) == ("meet", 1, 1, 3, 1)
    assert [(r.count, r.nodes) for r in meet.reasons] == [(2, ["Add_1", "Add_2"]), (1, ["Add_3"])]
    assert (quiet.fired, quiet.refused) == (0, 0)
    assert table([quiet]) == "1 more rules matched nothing, in 250.0 ms"


def test_differences():
    a = {"y": np.float32([0, 1, 2]), "n": np.int64([1])}
    close = {"y": np.float32([0, 1, 2.0001]), "n": np.int64([1])}
    y, n = differences(a, close, 1e-4)
    assert y.ok
    assert y.error == pytest.approx(5e-5, rel=1e-2)
    assert (n.error, n.ok) == (0, True)
    assert not differences(a, close, 0.0)[0].ok
    assert not differences(a, {**a, "n": np.int64([2])}, 1e-4)[1].ok
    assert not differences(a, {**a, "y": np.float32([0, np.nan, 2])}, 1e-4)[0].ok
    assert not differences(a, {"n": a["n"]}, 1e-4)[0].ok
    nan = {"y": np.float32([np.nan, np.inf, 1])}
    assert differences(nan, nan, 0.0)[0].ok
    half = {"y": np.float16([1, 2])}
    assert differences(half, {"y": np.float16([1, 2.002])}, 1e-4)[0].ok


def test_inputs_that_must_be_indices_are_zero():
    text = "(float[3,2] x, int64[4] i) => (float[4,2] y) { y = Gather(x, i) }"
    feeds, outputs = usable_inputs(api.load(model(text)))
    assert not feeds["i"].any()
    assert outputs["y"].shape == (4, 2)
    assert np.abs(nudged(feeds)["x"] - feeds["x"]).max() < 1e-6
    text = "(float[3] x, int64 i) => (float y) <int64 k = {5}> { n = Add(i, k) y = Gather(x, n) }"
    with pytest.raises(BadInput, match=r"index 5 is outside of .*data="):
        usable_inputs(api.load(model(text)))
