"""RKNN's C API and nncase's interpreter: programs as the manuals have them, compiled and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from tests.compat.test_rknn_custom_op import CstSoftmax
from tests.shared_models import SHARED

import intaglio
from intaglio import native
from intaglio.compat.rknn import build as rknn_build
from intaglio.compat.rknn.api import RKNN

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "c"
BUILD = Path(native.library()._name).parent
FLAGS = ["-Wall", "-Wextra", "-Werror", f"-I{ROOT}/csrc/compat", f"-I{ROOT}/csrc/include"]
LINK = [f"-L{BUILD}", "-lrknnrt", "-lintaglio", "-lm", "-ldl", f"-Wl,-rpath,{BUILD}"]
PROGRAMS = ("general", "zero_copy", "matmul", "custom_op", "errors")
SHAPES = [[[1, 3, 16, 16]], [[1, 3, 12, 12]], [[1, 3, 8, 8]]]
MEAN, STD = 128, 64
pytestmark = pytest.mark.skipif(
    not shutil.which("gcc") or not (BUILD / "librknnrt.so").exists(),
    reason="needs gcc and a build of the checkout",
)


def run(*command: Any, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done


def convert(model: Path, quantized: bool = True, **config: Any) -> None:
    """model.onnx to model.rknn for plain C kernels, which valgrind can run."""
    rknn = RKNN()
    rknn.config([[MEAN] * 3], [[STD] * 3], target_platform="rk3588", **config)
    rknn.reg_custom_op(CstSoftmax())
    assert rknn.load_onnx(str(model)) == 0
    assert rknn.build(quantized, str(model.parent / "dataset.txt")) == 0
    assert rknn.export_rknn(str(model.with_suffix(".rknn"))) == 0
    rknn.release()


@pytest.fixture(scope="module")
def place(models_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and compiled programs."""
    folder = tmp_path_factory.mktemp("c") / "programs"
    shutil.copytree(models_folder, folder)
    plain = rknn_build.compile_keywords
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rknn_build, "compile_keywords", lambda *given: {**plain(*given), "isa": "scalar"}
        )
        convert(folder / "yolo.onnx", custom_string="hello")
        convert(folder / "dynamic.onnx", dynamic_input=SHAPES)
        convert(folder / "custom.onnx", quantized=False)
    for name in PROGRAMS:
        run("gcc", *FLAGS, SOURCES / f"{name}.c", *LINK, "-o", folder / name)
    pixels = cv2.cvtColor(cv2.imread(str(folder / "images/0.png")), cv2.COLOR_BGR2RGB)
    (folder / "in.bin").write_bytes(pixels.tobytes())
    (folder / "vendor.rknn").write_bytes(b"RKNN" + bytes(200))
    (folder / "garbage").write_bytes(bytes(200))
    return folder


def inference(model: Path, *pictures: np.ndarray) -> list[list[np.ndarray]]:
    """The outputs of Python for each picture."""
    rknn = RKNN()
    assert rknn.load_rknn(str(model)) == 0
    assert rknn.init_runtime("rk3588") == 0
    found = [rknn.inference([one]) for one in pictures]
    rknn.release()
    return found


def quantized(array: np.ndarray, zero: int, scale: float) -> np.ndarray:
    stored = np.rint(np.float64(array) / np.float64(np.float32(scale))) + zero
    return np.clip(stored, -128, 127).astype(np.int8)


def attributes(text: str, query: int) -> list[dict[str, str]]:
    """What `general` prints of a query."""
    lines = [x for x in text.splitlines() if x.startswith(f"query {query}: ")]
    found = []
    for line in lines:
        head, dims = line.partition(": ")[2].split("dims=[")
        dims, rest = dims.split("]")
        words = [w for w in (head + rest.strip(", ")).split(", ") if "=" in w]
        found.append(dict(w.split("=") for w in words) | {"dims": dims})
    return found


def test_the_general_api(place: Path, picture: np.ndarray):
    """Every query; floats are Python's, byte for byte; integers are those of zp and scale."""
    out = place / "general.bin"
    text = run(place / "general", place / "yolo.rknn", place / "in.bin", out).stdout
    (wanted,) = inference(place / "yolo.rknn", picture)
    assert "custom string: hello" in text
    assert intaglio.__version__ in text
    assert "run duration known, perf detail known" in text
    (of_input,) = attributes(text, 1)
    assert of_input["dims"] == "1, 16, 16, 3"
    assert of_input["fmt"] == "NHWC"
    assert of_input["type"] == "INT8"
    assert of_input["qnt_type"] == "AFFINE"
    assert float(of_input["scale"]) == pytest.approx(255 / STD / 255, rel=0.01)
    assert of_input["w_stride"] == "16"
    assert of_input["size_with_stride"] == "768"
    outputs = attributes(text, 2)
    assert [a["dims"] for a in outputs] == ["1, 18, 8, 8", "1, 18, 4, 4"]
    native_dims = [a["dims"] for a in attributes(text, 9)]
    assert native_dims == ["1, 2, 8, 8, 16", "1, 2, 4, 4, 16"]
    assert [a["dims"] for a in attributes(text, 11)] == ["1, 8, 8, 18", "1, 4, 4, 18"]
    integers = [
        quantized(w, int(a["zp"]), float(a["scale"])) for w, a in zip(wanted, outputs, strict=True)
    ]
    for stored, w, a in zip(integers, wanted, outputs, strict=True):
        real = (stored.astype(np.float32) - int(a["zp"])) * float(a["scale"])
        assert np.abs(real - w).max() <= float(a["scale"]) * 0.51  # the range holds the sample
    assert out.read_bytes() == b"".join(a.tobytes() for a in (*wanted, *integers))


def test_zero_copy_and_contexts(place: Path, picture: np.ndarray):
    out = place / "zero.bin"
    done = run(place / "zero_copy", place / "yolo.rknn", place / "in.bin", out)
    (floats,) = inference(place / "yolo.rknn", picture)
    text = run(place / "general", place / "yolo.rknn", place / "in.bin", place / "x").stdout
    known = [(int(a["zp"]), float(a["scale"])) for a in attributes(text, 2)]
    stored = [quantized(w, *q) for w, q in zip(floats, known, strict=True)]
    nhwc = [w.transpose(0, 2, 3, 1) for w in floats]
    blocks = []
    for s in stored:
        full = np.zeros((1, 32, *s.shape[2:]), np.int8)
        full[:, :18] = s
        blocks.append(full.reshape(1, 2, 16, *s.shape[2:]).transpose(0, 1, 3, 4, 2))
    wanted = [*floats, *nhwc, *blocks, *(s.transpose(0, 2, 3, 1) for s in stored)]
    wanted += floats * 3  # weights and internal memory outside, internal only, a copy
    assert out.read_bytes() == b"".join(np.ascontiguousarray(w).tobytes() for w in wanted)
    said = ["frame 1 of 1", "frame 1 of the picture", "frame 1 of the picture", "frame 2 black"]
    assert done.stdout.splitlines() == said


def test_dynamic_shapes(place: Path, picture: np.ndarray):
    out = place / "shapes.bin"
    command = [place / "zero_copy", place / "dynamic.rknn", place / "in.bin", out, "shapes"]
    assert "x: 3 shapes, NHWC, 4 dims" in run(*command).stdout
    pixels = picture.ravel()
    sides = (8, 12, 16)  # the smallest plan is the first
    pictures = [pixels[: s * s * 3].reshape(1, s, s, 3) for s in sides]
    wanted = [one[0] for one in inference(place / "dynamic.rknn", *pictures)]
    assert out.read_bytes() == b"".join(w.tobytes() for w in wanted)


def test_matrix_products(place: Path):
    assert "products right" in run(place / "matmul").stdout
    for chip in ("rk3566", "rk3562", "rk3576"):
        run(place / "matmul", INTAGLIO_RKNN_PLATFORM=chip)


def test_a_custom_operator(place: Path, picture: np.ndarray):
    """In the program, and in a library as the manual's plug-ins are."""
    out, library = place / "custom.bin", place / "librkcst_softmax.so"
    run("gcc", *FLAGS, "-shared", "-fPIC", SOURCES / "custom_op.c", "-o", library, *LINK)
    rknn = RKNN()
    rknn.config([[MEAN] * 3], [[STD] * 3], target_platform="rk3588")
    rknn.reg_custom_op(CstSoftmax())
    assert rknn.load_onnx(str(place / "custom.onnx")) == 0
    assert rknn.build(do_quantization=False) == 0
    assert rknn.init_runtime() == 0
    wanted = rknn.inference([picture])[0]
    rknn.release()
    for plugin in ((), (library,)):
        command = [place / "custom_op", place / "custom.rknn", place / "in.bin", out, *plugin]
        done = run(*command)
        assert "op name = prob, axis = -1" in done.stdout
        assert "destroy" in done.stdout
        assert "'cstSoftmax' is not registered; call rknn_register_custom_ops" in done.stderr
        found = np.fromfile(out, np.float32)
        np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-3)
        assert found.sum() == pytest.approx(1, abs=1e-5)


def test_wrong_arguments(place: Path):
    """The documented code, one line with the remedy, no crash."""
    files = [place / "yolo.rknn", place / "vendor.rknn", place / "garbage"]
    said = run(place / "errors", *files).stderr.splitlines()
    assert len(said) > 80
    assert all(line.startswith("E RKNN: rknn_") for line in said)
    text = "\n".join(said)
    assert "written by Rockchip's compiler" in text
    assert "convert the original model" in text
    assert "cannot open './nothing.rknn': No such file or directory; check the path" in text
    assert "RKNN_QUERY_MEM_SIZE tells them" in text


def test_an_encrypted_model(place: Path, picture: np.ndarray, monkeypatch):
    key = place / "model.key"
    key.write_bytes(bytes(range(32)))
    monkeypatch.setenv("INTAGLIO_KEY_FILE", str(key))
    rknn, sealed = RKNN(), place / "sealed.rknn"
    assert rknn.export_encrypted_rknn_model(str(place / "yolo.rknn"), str(sealed), 3) == 0
    for out, model in ((place / "a", place / "yolo.rknn"), (place / "b", sealed)):
        run(place / "general", model, place / "in.bin", out)
    assert (place / "a").read_bytes() == (place / "b").read_bytes()
    monkeypatch.delenv("INTAGLIO_KEY_FILE")
    done = run(place / "general", sealed, place / "in.bin", place / "b", code=1)
    assert "ret=-6" in done.stdout
    assert "key" in done.stderr


def test_structs_and_headers(tmp_path: Path):
    """Struct sizes are the board's; the headers are valid C and C++."""
    run("gcc", *FLAGS, "-pedantic", "-fsyntax-only", SOURCES / "layout.c")
    if shutil.which("g++"):
        run("g++", "-xc++", *FLAGS, "-fsyntax-only", SOURCES / "layout.c")


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_the_interpreter_of_nncase(place: Path):
    run("g++", "-std=c++17", *FLAGS, SOURCES / "interpreter.cc", *LINK, "-o", place / "interpreter")
    package = intaglio.compile(str(place / "yolo.onnx"), isa="scalar")
    package.save(place / "yolo.kmodel")
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    (place / "x.bin").write_bytes(x.tobytes())
    out = place / "y.bin"
    done = run(place / "interpreter", place / "yolo.kmodel", place / "x.bin", out)
    with intaglio.open(package) as session:
        wanted = list(session.run({"images": x}).values())
    assert out.read_bytes() == b"".join(w.tobytes() for w in (*wanted, wanted[0]))
    assert "the kmodel was written by nncase" in done.stderr


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
@pytest.mark.parametrize("program", ["general", "zero_copy", "custom_op"])
def test_valgrind_has_nothing_to_report(place: Path, program: str):
    model = place / ("custom.rknn" if program == "custom_op" else "yolo.rknn")
    check = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]
    run(*check, place / program, model, place / "in.bin", place / "v.bin")


@pytest.mark.slow
def test_sanitizers_have_nothing_to_report(place: Path):
    flags = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    library = place / "librknnrt_asan.so"
    sources = sorted((ROOT / "csrc/compat").glob("*.c"))
    own = ["-Wno-unused-parameter", "-ffp-contract=off", f"-I{BUILD}/include"]
    link = [f"-L{BUILD}", "-lintaglio", "-lm", "-ldl", f"-Wl,-rpath,{BUILD}"]
    run("gcc", *FLAGS, *own, *flags, "-shared", "-fPIC", *sources, *link, "-o", library)
    data = [place / "in.bin", place / "s.bin"]
    for name, given in {
        "general": [place / "yolo.rknn", *data],
        "zero_copy": [place / "yolo.rknn", *data],
        "matmul": [],
        "custom_op": [place / "custom.rknn", *data],
        "errors": [place / "yolo.rknn", place / "vendor.rknn", place / "garbage"],
    }.items():
        program = place / f"{name}_asan"
        run("gcc", *FLAGS, *flags, SOURCES / f"{name}.c", library, *link, "-o", program)
        run(program, *given)


@pytest.mark.slow
@pytest.mark.skipif(
    not (MOBILENET := SHARED / "models/onnx/mobilenet_v2_fp32.onnx").exists(),
    reason=f"there is no {MOBILENET}; set INTAGLIO_SHARED",
)
def test_a_real_network_on_npu_cores(place: Path):
    """MobileNetV2 has NPU programs: all cores, memory of the caller, copies and two APIs."""
    rng, folder = np.random.default_rng(0), place / "real"
    folder.mkdir()
    for i in range(3):
        pixels = cv2.resize(rng.integers(0, 256, (14, 14, 3)).astype(np.uint8), (224, 224))
        cv2.imwrite(str(folder / f"{i}.png"), pixels)
    (folder / "dataset.txt").write_text("".join(f"{i}.png\n" for i in range(3)))
    shutil.copy(MOBILENET, folder / "m.onnx")
    convert(folder / "m.onnx")
    model, data = folder / "m.rknn", folder / "in.bin"
    picture = cv2.cvtColor(cv2.imread(str(folder / "0.png")), cv2.COLOR_BGR2RGB)[None]
    data.write_bytes(picture.tobytes())
    (wanted,) = inference(model, picture)
    for program in ("general", "zero_copy"):
        run(place / program, model, data, folder / program)
        assert (folder / program).read_bytes().startswith(wanted[0].tobytes())
