"""Where custom operators are found: files, modules, INTAGLIO_PLUGINS, entry points, --plugin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.custom.models import PLUGIN, clipped

import intaglio
from intaglio import custom
from intaglio.custom import discover

ROOT = Path(__file__).parents[2]
SOURCE = """import numpy as np
from intaglio import custom

@custom.register
class SoftClip:
    name = "sample.soft_clip"
    onnx = "sample.ops::SoftClip"

    def shape(self, x, *, limit=1.0):
        return x.shape

    def compute(self, x, *, limit=1.0):
        return np.minimum(x, np.float32(limit))
"""
X = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "clip_ops.py").write_text(SOURCE)
    onnx.save(clipped(limit=0.5), tmp_path / "a.onnx")
    return tmp_path


@pytest.fixture
def forget():
    """INTAGLIO_PLUGINS and entry points are looked at anew."""
    discover._seen.clear()
    discover.from_entry_points.cache_clear()
    yield
    discover._seen.clear()
    discover.from_entry_points.cache_clear()
    sys.modules.pop("clip_ops", None)


def test_a_python_file(files):
    assert custom.load(files / "clip_ops.py") == ["sample.soft_clip"]
    intaglio.load(files / "a.onnx")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("no_such_file.py", "from 'no_such_file.py': there is no such file"),
        ("no_such_module", "from 'no_such_module': No module named 'no_such_module'; give the pat"),
    ],
)
def test_what_cannot_be_loaded(source, words):
    with pytest.raises(intaglio.BadInput, match=words):
        custom.load(source)


def test_the_environment_names_files_and_modules(files, forget, monkeypatch):
    monkeypatch.syspath_prepend(str(files))
    for value in (str(files / "clip_ops.py"), "clip_ops", f"{PLUGIN}{os.pathsep}"):
        if str(PLUGIN) in value and not PLUGIN.exists():
            continue
        monkeypatch.setenv("INTAGLIO_PLUGINS", value)
        discover._seen.clear()
        graph = intaglio.load(files / "a.onnx")
        package = intaglio.compile(graph)
        custom.unregister("sample" if str(PLUGIN) in value else "sample.soft_clip")
        discover._seen.clear()
        sys.modules.pop("clip_ops", None)
        intaglio.open(package).run({"x": X})  # found again
        custom.unregister("sample" if str(PLUGIN) in value else "sample.soft_clip")


def test_a_wrong_environment_is_named(files, forget, monkeypatch):
    monkeypatch.setenv("INTAGLIO_PLUGINS", "/nowhere/x.so")
    with pytest.raises(
        intaglio.BadInput, match=r"^INTAGLIO_PLUGINS: cannot load plug-in '/nowhere"
    ):
        intaglio.load(files / "a.onnx")


def install(folder: Path, name: str, value: str) -> None:
    """An installed package with an entry point."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[intaglio.plugins]\n{name} = {value}\n")


def test_entry_points_of_installed_packages(files, forget, monkeypatch):
    """They are loaded when a model or a package needs an operator that is not known."""
    install(files, "clip", "clip_ops")
    monkeypatch.syspath_prepend(str(files))
    package = intaglio.compile(files / "a.onnx")
    assert custom.registered() == {"sample.soft_clip": "Python"}
    custom.unregister("sample.soft_clip")
    sys.modules.pop("clip_ops")
    discover.from_entry_points.cache_clear()
    np.testing.assert_array_equal(
        intaglio.open(package).run({"x": X})["y"], -np.clip(X, 0, np.float32(0.5))
    )


@pytest.mark.skipif(not PLUGIN.exists(), reason="the C tests are not built")
def test_an_entry_point_gives_the_path_of_a_plugin(files, forget, monkeypatch):
    (files / "where.py").write_text(f"def path():\n    return {str(PLUGIN)!r}\n")
    install(files, "sample", "where:path")
    monkeypatch.syspath_prepend(str(files))
    intaglio.load(files / "a.onnx")
    assert custom.registered()["sample.soft_clip"] == "plug-in sample 1.2"


def test_a_broken_entry_point_is_named(files, forget, monkeypatch):
    (files / "broken.py").write_text("1 / 0\n")
    install(files, "broken", "broken")
    monkeypatch.syspath_prepend(str(files))
    words = r"entry point 'broken' of intaglio.plugins \(broken\) cannot be loaded: ZeroDivision"
    with pytest.raises(intaglio.BadInput, match=words):
        intaglio.load(files / "a.onnx")


# ---- the command line ----------------------------------------------------------------------------
def run(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "intaglio", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_the_command_line_takes_plugins(files):
    model, package = files / "a.onnx", files / "a.itg"
    missing = run("compile", model, "-o", package)
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1
    assert 'register a class with onnx = "sample.ops::SoftClip"' in missing.stderr
    given = ("--plugin", files / "clip_ops.py")
    done = run(*given, "compile", model, "-o", package)
    assert done.returncode == 0, done.stderr
    np.save(files / "x.npy", X)
    assert run("run", package, f"x={files / 'x.npy'}").returncode == 2
    out = files / "out.npz"
    done = run(*given, "run", package, f"x={files / 'x.npy'}", "-o", out)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(out)["y"], -np.clip(X, 0, np.float32(0.5)))
    shown = run("inspect", package)  # needs no class
    assert shown.returncode == 0, shown.stderr
    assert "python.sample.soft_clip" in shown.stdout
    env = run("run", package, f"x={files / 'x.npy'}", INTAGLIO_PLUGINS=str(files / "clip_ops.py"))
    assert env.returncode == 0, env.stderr
