"""Names of vendors' packages: on demand, nothing at top level; exit codes of the runner."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.compat import aliases
from intaglio.compat.__main__ import main
from intaglio.errors import BadInput


@pytest.fixture(autouse=True)
def _without_names() -> None:
    """Other tests of this process may have installed the names."""
    aliases.uninstall()


def test_nothing_is_installed_under_the_vendors_names():
    assert importlib.util.find_spec("rknn") is None
    assert importlib.util.find_spec("rknnlite") is None
    for name in ("nncase", "_nncase", "nncaseruntime", "_nncaseruntime", "nncase_runtime"):
        assert importlib.util.find_spec(name) is None


@pytest.mark.usefixtures("names")
def test_aliases_are_the_modules_themselves():
    import rknn.api.custom_op
    import rknnlite.api
    from rknn.api import RKNN
    from rknn.utils import onnx_edit

    import intaglio.compat.rknn.api as ours

    assert RKNN is ours.RKNN
    assert rknn.api is ours
    assert ours.__spec__.name == "intaglio.compat.rknn.api"
    assert rknnlite.api.RKNNLite.NPU_CORE_0_1_2 == 7
    assert callable(rknn.api.custom_op.get_node_attr)
    assert callable(onnx_edit)


@pytest.mark.usefixtures("names")
def test_aliases_of_nncase():
    import _nncase
    import _nncaseruntime
    import nncase
    import nncase_runtime
    import nncaseruntime
    import onnx

    import intaglio.compat.nncase as ours

    assert nncase.Simulator is ours.Simulator is _nncase.Simulator
    assert _nncase.__version__ == nncase.__version__
    assert _nncase.Target.exists("k230")
    _nncase.initialize("Nncase.Compiler.dll")
    assert (_nncase.QuantType.Int16, _nncase.DumpFlags.CodeGen) == (2, 1024)
    assert nncaseruntime.Interpreter is _nncaseruntime.Interpreter is nncaseruntime.interpreter
    assert callable(nncase_runtime.kpu)
    assert onnx.mapping.TENSOR_TYPE_TO_NP_TYPE[1] == "float32"
    assert onnx.mapping.NP_TYPE_TO_TENSOR_TYPE[onnx.mapping.TENSOR_TYPE_TO_NP_TYPE[7]] == 7


@pytest.mark.usefixtures("names")
def test_onnxsim_where_it_is_not_installed(tmp_path: Path):
    from tests.compat import models, nncase_models

    from intaglio.compat.missing import onnxsim

    models.classifier(tmp_path / "m.onnx", ("h", "w"))
    made, valid = onnxsim.simplify(str(tmp_path / "m.onnx"), input_shapes={"x": [1, 3, 8, 8]})
    assert valid
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 8, 8]
    nncase_models.yolov8(tmp_path / "y.onnx")
    before = models.onnx.load(str(tmp_path / "y.onnx"))
    after, _ = onnxsim.simplify(before)
    assert 0 < len(after.graph.node) <= len(before.graph.node)
    node = models.helper.make_node("FooBar", ["x"], ["y"])
    models.save(tmp_path / "f.onnx", [node], {"x": [1]}, {"y": [1]})
    unknown = models.onnx.load(str(tmp_path / "f.onnx"))
    assert onnxsim.simplify(unknown) == (unknown, True)


@pytest.mark.usefixtures("names")
def test_unknown_modules_are_import_errors():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rknn.nothing")


def test_a_module_that_is_imported_already_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rknn", sys)
    with pytest.raises(BadInput, match="'rknn' is imported already"):
        aliases.install()


@pytest.mark.usefixtures("names")
def test_the_runner_says_what_is_missing(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    assert main(["--help"]) == 0
    assert main(["nope.py"]) == 2
    assert main(["-m"]) == 2
    assert main(["-m", "rknn.nothing"]) == 2
    said = capsys.readouterr().err
    assert "no script 'nope.py'" in said
    assert "no module 'intaglio.compat.rknn.nothing'" in said


def test_a_script_in_a_process_of_its_own(tmp_path: Path):
    (tmp_path / "beside.py").write_text("WORDS = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom beside import WORDS\nfrom rknn.api import RKNN\n"
        "print(WORDS, sys.argv[1:], __name__)\nsys.exit(RKNN().load_rknn('nope.rknn') + 4)\n"
    )
    command = [sys.executable, "-m", "intaglio.compat", str(script), "a", "-b"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3, done.stderr
    assert "beside ['a', '-b'] __main__" in done.stdout
    assert done.stderr.startswith("E load_rknn: there is no file 'nope.rknn'")
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("names")
def test_pip_and_metadata_know_the_packages():
    import importlib.metadata

    import nncase

    assert importlib.metadata.version("nncase") == nncase.__version__
    code = (
        "import importlib.metadata as m\n"
        "print(*map(m.version, ('rknn-toolkit2', 'rknn-toolkit-lite2', 'nncase-kpu')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["2.3.2", "2.3.2", "2.11.0"]
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "show", "nncase"], capture_output=True, text=True
    )
    assert "Location: " in shown.stdout
    folder = Path(shown.stdout.split("Location: ")[1].split("\n")[0])
    assert folder.is_dir()
    aliases.uninstall()
    assert not folder.exists()
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("nncase")


BOARD_SCRIPT = """\
import platform
from rknnlite.api import RKNNLite
with open("/proc/device-tree/compatible") as f:
    print(platform.machine(), "rk3576" in f.read())
"""


def test_scripts_for_boards_see_a_board(tmp_path: Path):
    (tmp_path / "lite.py").write_text(BOARD_SCRIPT)
    base = [sys.executable, "-m", "intaglio.compat"]
    lite = str(tmp_path / "lite.py")
    for given in (["--board", "rk3576"], ["--board=RK3576"]):
        done = subprocess.run([*base, *given, lite], capture_output=True, text=True)
        assert done.stdout.split() == ["aarch64", "True"], done.stderr
    for given, words in (
        (["--board", "rk9999", lite], "--board is 'rk9999'; known are rk3566"),
        (["--board", "rk3588"], "--board needs a chip and a script"),
    ):
        done = subprocess.run([*base, *given], capture_output=True, text=True)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr
