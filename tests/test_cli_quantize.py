"""`intaglio quantize` end to end: from images to a package and a report."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from tests.test_cli import DIGITS, intaglio

import intaglio as api
from intaglio.analysis import quantized
from intaglio.cli import main
from intaglio.quant.placement.scheme import Scheme


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 0 to 255, and what they show."""
    with np.load(DIGITS.parent / "digits_test.npz") as data:
        return (data["images"][:, 0] * 15.9375).round().astype(np.uint8), data["labels"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, digits: tuple[np.ndarray, ...]) -> Path:
    path = tmp_path_factory.mktemp("images")
    for i, pixels in enumerate(digits[0][:30]):
        Image.fromarray(pixels).resize((32, 32)).save(path / f"{i:02}.png")
    return path


def quantize(*args: object, cwd: Path | None = None) -> str:
    done = intaglio("quantize", DIGITS, "--dim", "batch=1", "--no-check", *args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def right(path: Path, digits: tuple[np.ndarray, ...]) -> float:
    """The share of the test pictures that a package tells right."""
    pixels, labels = digits
    with api.open(path, threads=1) as session:
        told = [session.run({"image": np.float32(p / 255)[None, None]}) for p in pixels]
    return float(
        np.mean([t["probabilities"].argmax() == y for t, y in zip(told, labels, strict=True)])
    )


def test_pictures_in_a_package_out(folder: Path, digits: tuple[np.ndarray, ...], tmp_path: Path):
    out, whole = tmp_path / "digits.itg", tmp_path / "float.itg"
    said = quantize("--data", folder, "--std", "255", "-o", out)
    assert "int8" in said
    assert "warning" not in said
    assert f"{out}: " in said
    assert "from 30 samples" in said
    api.compile(DIGITS, dims={"batch": 1}).save(whole)
    assert right(out, digits) >= right(whole, digits) - 0.01
    assert out.stat().st_size < 0.6 * whole.stat().st_size


def test_a_package_can_take_bytes(folder: Path, digits: tuple[np.ndarray, ...], tmp_path: Path):
    plain, out = tmp_path / "floats.itg", tmp_path / "bytes.itg"
    quantize("--data", folder, "--std", "255", "-o", plain)
    quantize("--data", folder, "--std", "255", "--input-type", "uint8", "-o", out)
    with api.open(plain) as floats, api.open(out) as session:
        for p in digits[0][:20]:
            want = floats.run({"image": (p * np.float32(1 / 255))[None, None]})
            got = session.run({"image": p[None, None]})
            np.testing.assert_array_equal(got["probabilities"], want["probabilities"])


def test_the_report_shows_the_layers_that_err_most(folder: Path, tmp_path: Path):
    base = ("--check", "--data", folder, "--std", "255", "-o", tmp_path / "d.itg")
    said = quantize(*base)
    assert "the 10 of " in said
    (line,) = [line.split() for line in said.splitlines() if line.startswith("probabilities")]
    assert line[1] == "output"
    assert 0.99 < float(line[2]) <= 1
    assert "times as fast" in said
    every = quantize(*base, "--layers")
    assert "every layer" in every
    assert len(every.splitlines()) > len(said.splitlines())


def test_onnx_runs_elsewhere(digits: tuple[np.ndarray, ...], tmp_path: Path):
    np.save(tmp_path / "x.npy", digits[0][:20])
    quantize("--data", "x.npy", "--std", "255", "-o", "q.onnx", cwd=tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "q.onnx", providers=["CPUExecutionProvider"])
    images = np.float32(digits[0] / 255)[:, None]
    told = [session.run(None, {"image": image[None]})[0].argmax() for image in images]
    assert np.mean(told == digits[1]) > 0.95


def test_scheme_out_and_in_again(folder: Path, tmp_path: Path):
    common = ("--data", folder, "--std", "255")
    quantize(*common, "-o", "a.itg", "--export-scheme", "s.yaml", cwd=tmp_path)
    scheme = Scheme.load(tmp_path / "s.yaml")
    assert scheme.layers["logits"] == "int8"
    quantize(*common, "-o", "b.itg", "--scheme", "s.yaml", "--strict", cwd=tmp_path)
    assert (tmp_path / "b.itg").read_bytes() == (tmp_path / "a.itg").read_bytes()
    (tmp_path / "s.yaml").write_text("overrides: [{pattern: 'log*', precision: f32}]")
    said = quantize(*common, "-o", "c.itg", "--scheme", "s.yaml", cwd=tmp_path)
    assert "in floats   'logits': f32 was asked for" in said


def test_the_report_as_data(folder: Path, tmp_path: Path):
    done = intaglio(
        "quantize",
        DIGITS,
        "--dim",
        "batch=1",
        "--data",
        folder,
        "--std",
        "255",
        "--limit",
        "5",
        "--method",
        "minmax",
        "--accuracy",
        "cosine=0.9",
        "--json",
        "--report",
        "r.json",
        "-o",
        "d.itg",
        cwd=tmp_path,
    )
    facts = json.loads(done.stdout)
    assert facts == json.loads((tmp_path / "r.json").read_text())
    assert (facts["samples"], facts["method"], facts["goal"]) == (5, "minmax", 0.9)
    (output,) = facts["accuracy"]["outputs"]
    assert 0.99 < output["cosine"] < 1
    assert facts["accuracy"]["samples"] == 5
    layers = {m["name"]: m for m in facts["accuracy"]["layers"]}
    assert 0 < layers["logits"]["single_error"] < layers["logits"]["error"] < 0.1
    assert ("milliseconds" in facts) != ("speed_unknown" in facts)  # a busy machine cannot tell
    assert all(ms > 0 for ms in facts.get("milliseconds", []))
    before, after = facts["parameter_bytes"]
    assert 0.2 < after / before < 0.35


def test_the_report_as_a_page(folder: Path, tmp_path: Path):
    said = quantize(
        "--check",
        "--data",
        folder,
        "--std",
        "255",
        "--accuracy",
        "cosine=0.99999",
        "--report",
        "r.html",
        "-o",
        "d.itg",
        cwd=tmp_path,
    )
    assert "r.html: written" in said
    shown = (tmp_path / "r.html").read_text()
    tree = html.parser.HTMLParser()
    tree.feed(shown)  # refuses nothing, but must end
    for words in (
        "probabilities",
        "logits",
        "Trade-off",
        "Outputs",
        "Layers",
        "measured speed",
        "predicted speed",
        "cosine alone",
        "<polyline",
        "<rect",
    ):
        assert words in shown, words
    assert "http" not in shown.replace("http://www.w3.org", ""), "it stands by itself"


@pytest.mark.parametrize(
    "how",
    [("--activations", "uint8"), ("--weights", "int4"), ("--per", "tensor", "--symmetric")],
    ids=str,
)
def test_types_by_option(how, folder: Path, digits: tuple[np.ndarray, ...], tmp_path: Path):
    quantize("--data", folder, "--std", "255", *how, "-o", "d.itg", cwd=tmp_path)
    assert right(tmp_path / "d.itg", digits) > 0.9


def test_bytes_as_a_camera_gives_them(folder: Path, digits: tuple[np.ndarray, ...], tmp_path: Path):
    bytes_in = ("--data", folder, "--std", "255", "--input-type", "uint8", "--layout", "NCHW")
    quantize(*bytes_in, "-o", "a.itg", cwd=tmp_path)
    quantize(*bytes_in, "--input-layout", "NHWC", "-o", "b.itg", cwd=tmp_path)
    with api.open(tmp_path / "a.itg") as first, api.open(tmp_path / "b.itg") as last:
        assert last.inputs["image"].shape == (1, 8, 8, 1)
        for p in digits[0][:10]:
            want, got = first.run({"image": p[None, None]}), last.run({"image": p[None, ..., None]})
            np.testing.assert_array_equal(got["probabilities"], want["probabilities"])


def test_no_samples_are_needed_for_weights_alone(folder: Path, tmp_path: Path):
    said = quantize("--mode", "weights", "--weights", "int4", "-o", "d.itg", cwd=tmp_path)
    assert "1 int4" in said
    assert "samples" not in said
    said = quantize("--mode", "dynamic", "--check", "-o", "d.itg", cwd=tmp_path)
    assert "times as fast" in said
    said = quantize(
        "--mode",
        "dynamic",
        "--check",
        "--data",
        folder,
        "--std",
        "255",
        "-o",
        "d.itg",
        cwd=tmp_path,
    )
    assert "compared with the float model on 8 samples" in said


def test_the_default_output_stands_beside_the_model(folder: Path, tmp_path: Path):
    model = tmp_path / "net.onnx"
    model.write_bytes(DIGITS.read_bytes())
    main(
        [
            "quantize",
            str(model),
            "--dim",
            "batch=1",
            "--data",
            str(folder),
            "--std",
            "255",
            "-q",
            "--no-check",
        ]
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx", "net_int8.itg"]


def test_mean_and_std_by_input(folder: Path, tmp_path: Path):
    one = tmp_path / "one.itg"
    quantize("--data", folder, "--mean", "image=0", "--std", "image=255", "-o", one)
    quantize("--data", folder, "--mean", "0", "--std", "255", "-o", tmp_path / "two.itg")
    assert one.read_bytes() == (tmp_path / "two.itg").read_bytes()


def test_warnings_are_lines_of_their_own(folder: Path, tmp_path: Path):
    (tmp_path / "s.yaml").write_text("layers: {logitz: f32}")
    said = quantize("--data", folder, "--scheme", "s.yaml", "-o", "d.itg", "-q", cwd=tmp_path)
    second, first = said.splitlines()
    assert first.startswith("intaglio: warning: pixels are not normalised (0 to 255)")
    assert "no layer is called 'logitz'; did you mean 'logits'" in second


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "--data is missing: quantising needs samples"),
        (["--data", "nowhere"], "nowhere: no such file or folder"),
        (["--data", "."], "no pictures"),
        (["--data", "IMAGES", "--mean", "1,2,3"], "mean has 3 numbers, input 'image' has 1"),
        (["--data", "IMAGES", "--mean", "red"], "--mean takes numbers such as 1,2,3, not 'red'"),
        (["--data", "IMAGES", "--mean", "1", "--mean", "2"], "--mean is given 2 times"),
        (["--data", "IMAGES", "--mean", "depth=1"], "mean is given for 'depth'; inputs are image"),
        (["--data", "IMAGES", "--std", "0"], "std is 0; it must be finite and above 0"),
        (["--data", "IMAGES", "--std", "-1"], "std is -1; it must be finite and above 0"),
        (["--data", "IMAGES", "--seed", "-1"], "seed is -1; give a whole number from 0 on"),
        (["--data", "IMAGES", "--pad", "300"], "pad_value is 300; a pixel is from 0 to 255"),
        (["--data", ""], "--data is empty"),
        (["--data", "IMAGES", "--method", "percentile:20"], "a percentage between 50 and 100"),
        (["--data", "IMAGES", "--method", "kl:9"], "method is 'kl:9'; known are auto, minmax"),
        (["--data", "IMAGES", "--method", "guess"], "method is 'guess'; known are auto, minmax"),
        (["--data", "IMAGES", "--weights", "int3"], "weights is 'int3'"),
        (["--data", "IMAGES", "--weights", "int16"], "cpu computes int8 layers with no weights of"),
        (["--data", "IMAGES", "--activations", "int4"], "cpu takes no activations of int4"),
        (["--data", "IMAGES", "--floats", "f64"], "cpu cannot compute layers in f64"),
        (
            ["--data", "IMAGES", "--report", "r.pdf"],
            "--report r.pdf: the ending says what to write",
        ),
        (["--data", "IMAGES", "--input-layout", "nhwc"], "input_layout is for input_type 'uint8'"),
        (["--mode", "dynamic", "--per", "tensor"], "--per has no meaning in --mode dynamic"),
        (["--data", "IMAGES", "--accuracy", "psnr=3"], "psnr=3"),
        (
            ["--data", "IMAGES", "--accuracy", "cosine=2"],
            "--accuracy cosine=2: give a cosine between 0 and 1, such as cosine=0.995, or none",
        ),
        (["--data", "IMAGES", "--accuracy", "99"], "--accuracy 99: give a cosine between 0 and 1"),
        (["--data", "IMAGES", "--accuracy", "nan"], "--accuracy nan: give a cosine between 0"),
        (["--mode", "dynamic", "--accuracy", "0.99"], "--accuracy has no meaning in --mode dynam"),
        (["--mode", "dynamic", "-o", "d.onnx"], "-o d.onnx: ONNX cannot express dynamic int8"),
        (["--mode", "dynamic", "--method", "kl"], "--method has no meaning in --mode dynamic"),
        (["--mode", "dynamic", "--group", "32"], "--group has no meaning in --mode dynamic"),
        (["--data", "IMAGES", "--group", "32"], "add up products of one scale; use --mode weights"),
        (["--mode", "weights", "--export-scheme", "s.yaml"], "--export-scheme has no meaning"),
        (["--data", "IMAGES", "--resize", "squash"], "--resize"),
        (["--data", "IMAGES", "--limit", "0"], "limit is 0"),
        (["--data", "IMAGES", "--target", "abacus"], "abacus"),
        (["--data", "IMAGES", "-o", "d.tflite"], "it is .itg or .onnx"),
        (["--data", "IMAGES", "-o", "no/such/folder/d.itg"], "no/such/folder"),
        (
            ["--data", "IMAGES", "--report", "no/r.html"],
            "cannot write no/r.html: there is no folder",
        ),
        (["--data", "IMAGES", "--export-scheme", "no/s.yaml"], "cannot write no/s.yaml"),
        (["--data", "IMAGES", "--resume", "no/r.json"], "cannot write no/r.json"),
        (["--data", "IMAGES", "--resume", "/dev"], "cannot write /dev: it is a folder"),
        (["--data", "IMAGES", "-o", str(DIGITS)], "digits.onnx is the model itself"),
        (["--data", "IMAGES", "--strict"], "--strict is for --scheme"),
        (["--data", "IMAGES", "--scheme", "none.yaml"], "none.yaml: no such file"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(
    args: list[str],
    words: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    args = [str(folder) if a == "IMAGES" else a for a in args]
    with pytest.raises(SystemExit) as stopped:
        main(["quantize", str(DIGITS), "--dim", "batch=1", *args])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.iterdir()), "something was left behind"


def test_unwritable_places_are_told_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(api, "load", lambda *args, **more: pytest.fail("it began to work"))
    with pytest.raises(SystemExit):
        main(["quantize", str(DIGITS), "--data", str(folder), "-o", "no/such/folder/d.itg"])
    assert "cannot write no/such/folder/d.itg" in capsys.readouterr().err


def test_another_percentile_gives_other_ranges(folder: Path, tmp_path: Path):
    made = []
    for method in ("percentile", "percentile:90"):
        quantize(
            "--data",
            folder,
            "--std",
            "255",
            "--accuracy",
            "none",
            "--limit",
            "4",
            "--method",
            method,
            "-o",
            tmp_path / "a.itg",
        )
        made.append((tmp_path / "a.itg").read_bytes())
    assert made[0] != made[1]


def test_accuracy_is_met_by_layers_in_floats(folder: Path, tmp_path: Path):
    def facts(*args: object) -> dict[str, Any]:
        said = quantize("--check", "--json", "--data", folder, "--std", "255", *args, cwd=tmp_path)
        return json.loads(said)

    plain = facts("--accuracy", "none", "-o", "a.itg")
    assert "f32" not in plain["layers"]
    (output,) = plain["accuracy"]["outputs"]
    goal = 1 - (1 - output["cosine"]) / 2
    met = facts("--accuracy", f"cosine={goal}", "-o", "b.itg")
    assert met["layers"]["f32"] >= 1
    assert len(met["curve"]) >= 2
    assert met["curve"][-1]["cosine"] > met["curve"][0]["cosine"]
    assert len(met["curve"][-1]["layers"]) >= 1
    assert "trade-off" in quantized.text(met)
    assert "trade-off" not in quantized.text(plain)
    (words,) = [s for s in quantized.text(met).splitlines() if s.startswith("accuracy")]
    time = next(p["time"] for p in met["curve"] if p["kept"])
    assert f"in floats to keep the outputs within cosine {goal:g} of float; " in words
    assert words.endswith(
        f"`--accuracy none`: all int8, about {time:.1f} times as fast (predicted)"
    )
    assert "--accuracy none" not in quantized.text(plain)
    assert met["accuracy"]["outputs"][0]["cosine"] > output["cosine"]


def test_fast_takes_few_samples_and_compares_only_if_asked(
    digits: tuple[np.ndarray, ...], tmp_path: Path
):
    np.save(tmp_path / "x.npy", digits[0][:40])
    base = ("quantize", DIGITS, "--dim", "batch=1", "--data", "x.npy", "--std", "255", "--fast")
    said = intaglio(*base, "-o", "a.itg", cwd=tmp_path)
    assert "from 32 samples" in said.stdout
    assert "compared with the float model" not in said.stdout
    said = intaglio(*base, "-o", "b.itg", "--check", "--limit", "9", cwd=tmp_path)
    assert "from 9 samples" in said.stdout
    assert "compared with the float model" in said.stdout
