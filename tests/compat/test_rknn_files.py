"""export_rknn, load_rknn, encryption, optimize_onnx, onnx_edit and codegen: files and refusals."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import intaglio
from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknn.utils import onnx_edit

ROOT = Path(__file__).parents[2]


def test_a_file_runs_as_the_model_that_was_built(folder: Path, int8: RKNN, picture: np.ndarray):
    assert int8.export_rknn("m.rknn") == 0
    other = RKNN()
    assert other.load_rknn("m.rknn") == 0
    assert other.init_runtime() == 0
    np.testing.assert_array_equal(other.inference([picture])[0], int8.inference([picture])[0])
    assert other.eval_perf(is_print=False)["total_time"] > 0
    assert intaglio.Package.load("m.rknn").meta["target"] == "rk3588"


def test_custom_string_and_separate_weights(folder: Path, picture: np.ndarray):
    rknn = RKNN()
    rknn.config(target_platform="rk3566", custom_string="version 7", remove_weight=True)
    rknn.load_onnx("mobilenet.onnx")
    rknn.build(do_quantization=False)
    assert rknn.export_rknn("m.rknn") == 0
    assert Path("m.weight").exists()
    assert "version 7" in intaglio.Package.load("m.rknn").meta["metadata"]["rknn"]
    rknn.init_runtime()
    wanted = rknn.inference([picture])[0]
    assert rknn.load_rknn("m.rknn") == 0
    assert rknn.init_runtime() == 0
    np.testing.assert_array_equal(rknn.inference([picture])[0], wanted)
    assert rknn.list_support_target_platform("m.rknn")["support_target_platform"] == [
        "RK3566",
        "RK3568",
    ]
    Path("m.weight").unlink()
    assert rknn.load_rknn("m.rknn") == -1


def test_files_that_are_refused(folder: Path, int8: RKNN, capsys):
    Path("vendor.rknn").write_bytes(b"RKNN" + bytes(200))
    Path("text.rknn").write_text("hello")
    int8.export_rknn("m.rknn")
    Path("cut.rknn").write_bytes(Path("m.rknn").read_bytes()[:500])
    damaged = bytearray(Path("m.rknn").read_bytes())
    damaged[200] ^= 255
    Path("damaged.rknn").write_bytes(damaged)
    rknn = RKNN()
    for name, words in (
        ("vendor.rknn", "was written by Rockchip's compiler"),
        ("text.rknn", "is no .rknn file of this tool"),
        ("cut.rknn", "cut.rknn"),
        ("damaged.rknn", "damaged.rknn"),
        ("nope.rknn", "there is no file 'nope.rknn'"),
        (3, "path is 3"),
    ):
        assert rknn.load_rknn(name) == -1
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
        assert "Traceback" not in said
    assert int8.export_rknn("no/folder/m.rknn") == -1
    assert "there is no folder 'no/folder'" in capsys.readouterr().err
    assert int8.export_rknn("m.rknn", cpp_gen_cfg=True) == 0
    assert int8.export_rknn("m.rknn", path="x") == -1


@pytest.mark.parametrize(
    "change",
    [
        ("x", "z"),
        ("[1, 3, 16, 16]", "[1, 3]"),
        ("[128.0, 128.0, 128.0]", "[1.0, 2.0]"),
        ("f32", "f99"),
    ],
)
def test_metadata_of_another_model_is_refused(folder: Path, int8: RKNN, capsys, change):
    graph = int8._built.graphs[0].copy()
    old, new = change
    text = graph.metadata["rknn"]
    old = f'"{old}"' if old == "x" else old
    assert old in text
    graph.metadata["rknn"] = text.replace(old, f'"{new}"' if new == "z" else new)
    intaglio.compile(graph, target="rk3588").save("other.rknn")
    assert RKNN().load_rknn("other.rknn") == -1
    assert "metadata 'rknn' of the package is damaged" in capsys.readouterr().err


def test_encryption(folder: Path, int8: RKNN, picture: np.ndarray, monkeypatch, capsys):
    pytest.importorskip("cryptography")
    int8.export_rknn("m.rknn")
    rknn = RKNN()
    monkeypatch.setenv("INTAGLIO_KEY", "ab" * 32)
    assert rknn.export_encrypted_rknn_model("m.rknn", "e.rknn", 4) == -1
    for level in (1, 2, 3):
        assert rknn.export_encrypted_rknn_model("m.rknn", "e.rknn", level) == 0
        assert rknn.load_rknn("e.rknn") == 0
        assert rknn.init_runtime() == 0
        np.testing.assert_array_equal(rknn.inference([picture])[0], int8.inference([picture])[0])
    assert rknn.export_encrypted_rknn_model("m.rknn") == 0
    assert Path("m.crypt.rknn").exists()
    monkeypatch.delenv("INTAGLIO_KEY")
    assert rknn.load_rknn("e.rknn") == -1
    assert "key" in capsys.readouterr().err


def test_encryption_without_a_key_makes_one(folder: Path, int8: RKNN, capsys):
    pytest.importorskip("cryptography")
    int8.export_rknn("m.rknn")
    rknn = RKNN()
    assert rknn.export_encrypted_rknn_model("m.rknn", None, 3) == 0
    words = "".join(capsys.readouterr())
    assert "a new one is in 'm.crypt.rknn.key'" in words
    assert "INTAGLIO_KEY_FILE" in words
    made = Path("m.crypt.rknn.key")
    assert made.stat().st_mode & 0o777 == 0o600
    before = made.read_text()
    assert rknn.load_rknn("m.crypt.rknn") == 0
    assert rknn.export_encrypted_rknn_model("m.rknn", None, 1) == 0  # again, with the same key
    assert made.read_text() == before
    assert rknn.load_rknn("m.crypt.rknn") == 0
    made.unlink()
    assert rknn.load_rknn("m.crypt.rknn") == -1
    assert "key" in capsys.readouterr().err


def test_optimize_onnx(folder: Path):
    rknn = RKNN()
    assert rknn.optimize_onnx("mobilenet.onnx", optimized_path="o.onnx") == 0
    x = np.ones((1, 3, 16, 16), np.float32)
    a, b = (
        intaglio.interpret(intaglio.load(p), {"x": x})["y"] for p in ("mobilenet.onnx", "o.onnx")
    )
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert rknn.optimize_onnx("nope.onnx") == -1
    assert rknn.clear_op_cache() is None


def test_onnx_edit_changes_axes_and_the_dataset(folder: Path, capsys):
    given = {"a": "a,b,c,d->1,ad,b,c"}
    wanted = {"y": "a,b,c,d->a,c,d,b"}
    assert onnx_edit("pair.onnx", "e.onnx", given, wanted, "pairs.txt") == 0
    model = onnx.load("e.onnx")
    dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == [1, 8, 4, 8]
    lines = Path("dataset_for_e.txt").read_text().splitlines()
    assert len(lines) == 3
    assert lines[0] == "dataset_for_e/0_0.npy dataset_for_e/0_1.npy"
    a, b = (np.load(f"arrays/{n}0.npy") for n in "ab")
    new = [np.load(p) for p in lines[0].split()]
    before = intaglio.interpret(intaglio.load("pair.onnx"), {"a": a, "b": b})["y"]
    after = intaglio.interpret(intaglio.load("e.onnx"), {"a": new[0], "b": new[1]})["y"]
    np.testing.assert_allclose(after, before.transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)
    capsys.readouterr()
    for wrong in ({"a": "a,b,c->a,b,c"}, {"zz": "a->a"}, {"a": "a,b,c,d"}, 3):
        assert onnx_edit("pair.onnx", "e.onnx", wrong) == -1
        said = capsys.readouterr().err
        assert said.startswith("E onnx_edit: ")
        assert said.count("\n") == 1
    assert onnx_edit("nope.onnx", "e.onnx") == -1
    assert onnx_edit("pair.onnx", "e.onnx", dataset="nope.txt") == -1


def test_codegen_writes_a_project_that_builds(folder: Path, int8: RKNN, capsys):
    fresh = RKNN()
    assert fresh.codegen("app") == -1
    assert "call export_rknn first" in capsys.readouterr().err
    assert int8.export_rknn("m.rknn") == 0
    assert int8.codegen("app", inputs=["images/0.png"]) == 0
    found = {str(p.relative_to("app")) for p in Path("app").rglob("*") if p.is_file()}
    assert {"src/main.c", "CMakeLists.txt", "README.md", "run.sh", "build_linux.sh"} < found
    assert int8.codegen("app") == -1
    assert "is not empty; give overwrite=True" in capsys.readouterr().err
    assert int8.codegen("app", inputs=["images/0.png"], overwrite=True) == 0
    library = ROOT / "build"
    if shutil.which("gcc") is None or not list(library.glob("libintaglio.so*")):
        pytest.skip("there is no gcc, or no C library in build/")
    flags = [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-std=c11",
        f"-I{ROOT / 'csrc/include'}",
        f"-L{library}",
    ]
    link = ["-lintaglio", "-lm", f"-Wl,-rpath,{library.resolve()}", "-o", "app/rknn_app"]
    subprocess.run(["gcc", *flags, "app/src/main.c", *link], check=True, timeout=60)
    command = ["app/rknn_app", "app/model/m.rknn", "app/data"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "cosine 1.000000" in done.stdout
