"""C plug-ins in Python: loading, importing, interpreting, compiling, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.custom.models import PLUGIN, SoftClip, clipped, model, node

import intaglio
from intaglio import custom
from intaglio.interpret import interpret

ROOT = Path(__file__).parents[2]
X = np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)
pytestmark = pytest.mark.skipif(not PLUGIN.exists(), reason="the C tests are not built")


def want(x: np.ndarray, limit: float = 1.0) -> np.ndarray:
    return -SoftClip().compute(np.maximum(x, 0), limit=limit)


def build(folder: Path, *flags: str, source: Path = ROOT / "csrc/test/sample_plugin.c") -> Path:
    """A plug-in, built as a user builds one."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    made = folder / "libplugin.so"
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", *flags]
    places = ["-shared", "-fPIC", f"-I{custom.include()}", str(source), "-lm", "-o", str(made)]
    subprocess.run([*command, *places], check=True)
    return made


# ---- running -------------------------------------------------------------------------------------
def test_a_plugin_needs_no_class(tmp_path):
    names = ["sample.above", "sample.affine", "sample.soft_clip"]
    assert custom.load(PLUGIN) == names
    assert custom.registered() == dict.fromkeys(names, "plug-in sample 1.2")
    graph = intaglio.load(clipped(limit=0.5))
    np.testing.assert_allclose(interpret(graph, {"x": X})["y"], want(X, 0.5), rtol=1e-6)
    intaglio.compile(graph).save(tmp_path / "a.itg")
    with intaglio.open(tmp_path / "a.itg", profile=True) as session:
        np.testing.assert_allclose(session.run({"x": X})["y"], want(X, 0.5), rtol=1e-6)
        assert "sample.soft_clip" in [s.op for s in session.profile()]


def test_results_attributes_and_scratch_memory():
    custom.load(PLUGIN)
    made = node("sample::affine", ["x", "z"], ["a", "b"], by=[1.0, 2.0, 3.0], plus=1, mode="max")
    graph = intaglio.load(model([made], {"x": (300, 200), "z": (300, 200)}, ["a", "b"]))
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal((300, 200)).astype(np.float32) for _ in range(2))
    a = (x + z) * np.tile([1, 2, 3], 67)[:200].astype(np.float32) + 1
    for threads in (1, 2, 3):
        got = intaglio.open(intaglio.compile(graph), threads=threads).run({"x": x, "z": z})
        np.testing.assert_allclose(got["a"], a, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(got["b"], got["a"].max(1))
    one = intaglio.load(
        model([node("sample::affine", ["x"], ["a", "b"])], {"x": (2, 8)}, ["a", "b"])
    )
    np.testing.assert_array_equal(interpret(one, {"x": X})["a"], X)  # defaults


def test_an_extent_that_data_decides():
    custom.load(PLUGIN)
    nodes = [node("sample::above", ["x"], ["a"], threshold=1.0), node("Neg", ["a"], ["y"])]
    graph = intaglio.load(model(nodes, {"x": (6,)}, ["y"]))
    assert graph.outputs[0].type.dynamic == (0,)
    session = intaglio.open(intaglio.compile(graph))
    for x in ([0, 2, 1, 3, 4, 0], [0] * 6, [2] * 6):
        a = np.array(x, np.float32)
        np.testing.assert_array_equal(session.run({"x": a})["y"], -a[a > 1])
        np.testing.assert_array_equal(interpret(graph, {"x": a})["y"], -a[a > 1])
    with pytest.raises(intaglio.RunError, match=r"sample.above 'a': an element is not a number"):
        session.run({"x": np.full(6, np.nan, np.float32)})


def test_a_package_for_a_range_of_sizes():
    custom.load(PLUGIN)
    package = intaglio.compile(clipped((2, "n"), limit=2.0), dims={"n": "1..50"})
    session = intaglio.open(package)
    for n in (50, 1, 7):
        x = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], want(x, 2.0), rtol=1e-6, atol=1e-7)


def test_a_class_and_a_plugin_together():
    """The class is the meaning, the plug-in the kernel; other element types run in Python."""

    class Clip(SoftClip):
        def compute(self, x, *, limit=1.0):
            return np.minimum(x, x.dtype.type(limit))  # not what the plug-in does with f32

    custom.register(Clip)
    custom.load(PLUGIN)
    assert custom.registered()["sample.soft_clip"] == "plug-in sample 1.2, Python"
    graph = intaglio.load(clipped(limit=0.5))
    np.testing.assert_allclose(interpret(graph, {"x": X})["y"], -np.clip(X, 0, 0.5))
    package = intaglio.compile(graph)
    np.testing.assert_allclose(intaglio.open(package).run({"x": X})["y"], want(X, 0.5), rtol=1e-6)
    wide = model([node("sample.ops::SoftClip", ["x"], ["y"])], {"x": ("i64", (3,))}, ["y"])
    package = intaglio.compile(wide)
    assert [s.op for s in package.plan.steps] == ["python.sample.soft_clip"]
    assert intaglio.open(package).run({"x": np.array([-2, 0, 2])})["y"].tolist() == [-2, 0, 1]


def test_a_class_without_compute_gives_a_plugin_its_shapes():
    class Shapes:
        name = "sample.soft_clip"

        def shape(self, x, *, limit=2.0):
            return x.shape

    custom.load(PLUGIN)
    custom.register(Shapes)
    graph = intaglio.load(clipped())
    np.testing.assert_allclose(interpret(graph, {"x": X})["y"], want(X, 2.0), rtol=1e-6)
    np.testing.assert_allclose(
        intaglio.open(intaglio.compile(graph)).run({"x": X})["y"], want(X, 2.0), rtol=1e-6
    )


def test_another_element_type_is_refused_in_words():
    custom.load(PLUGIN)
    wide = model([node("sample.ops::SoftClip", ["x"], ["y"])], {"x": ("i64", (3,))}, ["y"])
    words = r"sample.soft_clip 'y' reads i64\[3\].*the CPU runtime has no sample.soft_clip for i64"
    with pytest.raises(intaglio.Unsupported, match=words):
        intaglio.compile(wide)


def test_what_the_plugin_refuses_is_an_error_of_the_import():
    custom.load(PLUGIN)
    with pytest.raises(intaglio.BadInput, match=r"node 'b' .*: its limit must be above 0"):
        intaglio.load(clipped(limit=-1.0))
    with pytest.raises(intaglio.BadInput, match="attribute 'threshold' is missing"):
        intaglio.load(model([node("sample::above", ["x"], ["y"])], {"x": (3,)}, ["y"]))
    made = node("sample::affine", ["x"], ["a", "b"], mode="min")
    with pytest.raises(intaglio.BadInput, match="mode is 'min'; the kernel knows sum, max"):
        intaglio.load(model([made], {"x": (2, 2)}, ["a"]))


# ---- missing, other versions -------------------------------------------------------------------
def test_one_line_if_the_plugin_is_missing(tmp_path):
    custom.load(PLUGIN)
    package = intaglio.compile(clipped())
    package.save(tmp_path / "a.itg")
    custom.unregister("sample")
    with pytest.raises(intaglio.Unsupported) as error:
        intaglio.open(tmp_path / "a.itg")
    assert str(error.value) == (
        f"{tmp_path / 'a.itg'}: package needs op 'sample.soft_clip' of plug-in 'sample' 1.2, which "
        "is not loaded; load its library: intaglio.custom.load(path), INTAGLIO_PLUGINS=path, or "
        "itg_load_plugin"
    )
    plan = intaglio.Package.load(tmp_path / "a.itg").plan  # reports need no plug-in
    assert plan.steps[1].attrs == {"limit": 1.0}


def test_one_line_if_the_plugin_has_another_abi(tmp_path):
    made = build(tmp_path, "-DSAMPLE_ABI=7")
    with pytest.raises(intaglio.Unsupported) as error:
        custom.load(made)
    assert str(error.value) == (
        "libplugin.so: plug-in has ABI 7, this runtime has 1; build it again with the headers of "
        f"intaglio {intaglio.__version__}"
    )
    assert not custom.registered()


def test_one_line_if_the_plugin_has_other_attributes_now(tmp_path):
    custom.load(PLUGIN)
    package = intaglio.compile(clipped())
    custom.unregister("sample")
    text = (ROOT / "csrc/test/sample_plugin.c").read_text()
    text = text.replace('"limit:f1"', '"most:f1"').replace('"limit=1"', '"most=1"')
    text = text.replace('"1.2"', '"2.0"')
    (tmp_path / "changed.c").write_text(text)
    flag = f"-I{ROOT / 'csrc/test'}"
    custom.load(build(tmp_path, flag, source=tmp_path / "changed.c"))
    words = "op 'sample.soft_clip' of plug-in 'sample' 2.0 has other attributes than in 1.2"
    with pytest.raises(intaglio.Unsupported, match=words):
        intaglio.open(package)


def test_libraries_that_are_no_plugins(tmp_path):
    with pytest.raises(
        intaglio.BadInput, match=r"cannot load plug-in 'no.so': there is no such fil"
    ):
        custom.load("no.so")
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(intaglio.Unsupported, match=r"cannot load a plug-in: .*text.so"):
        custom.load(tmp_path / "text.so")
    (tmp_path / "empty.c").write_text("int nothing;\n")
    made = build(tmp_path, source=tmp_path / "empty.c")
    with pytest.raises(intaglio.Unsupported, match="it exports no plug-in; end its source with"):
        custom.load(made)


def test_loading_twice_changes_nothing():
    custom.load(PLUGIN)
    assert custom.load(PLUGIN) == ["sample.above", "sample.affine", "sample.soft_clip"]
    assert len(custom.registered()) == 3
    intaglio.open(intaglio.compile(clipped())).run({"x": X})


def test_names_that_a_class_has_already(tmp_path):
    class Other(SoftClip):
        name = "sample.other"

    custom.register(Other)
    with pytest.raises(
        intaglio.BadInput, match=r"'sample.ops::SoftClip' is custom operator 'sampl"
    ):
        custom.load(PLUGIN)
    assert custom.registered() == {"sample.other": "Python"}


def test_the_structs_of_c_and_python_agree(tmp_path):
    """The ABI: whoever changes a struct must raise ITG_PLUGIN_ABI."""
    import ctypes

    from intaglio import native
    from intaglio.custom.plugin import CPlugin

    structs = {
        "itg_tensor": native.CTensor,
        "itg_call": native.CCall,
        "itg_op": native.COp,
        "itg_kernel": native.CKernel,
        "itg_plugin": CPlugin,
    }
    renamed = {"itg_call": {"inputs": "in", "outputs": "out"}}
    lines = []
    for name, struct in structs.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(struct)}, "{name}");')
        for field, *_ in struct._fields_:
            in_c = renamed.get(name, {}).get(field, field)
            at = getattr(struct, field).offset
            lines.append(f'_Static_assert(offsetof({name}, {in_c}) == {at}, "{name}.{in_c}");')
    source = tmp_path / "abi.c"
    source.write_text('#include "intaglio_plugin.h"\n' + "\n".join(lines) + "\n")
    build(tmp_path, source=source)
    version_1 = {"itg_tensor": 88, "itg_call": 48, "itg_op": 72, "itg_kernel": 48, "itg_plugin": 32}
    if ctypes.sizeof(ctypes.c_void_p) == 8:
        assert {n: ctypes.sizeof(s) for n, s in structs.items()} == version_1
    assert custom.plugin.abi() == 1
