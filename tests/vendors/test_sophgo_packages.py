"""Packages with files of Sophgo's chips, run by our plug-in on the vendor's libraries.

The plug-in loads libcviruntime.so or libbmrt.so of tpu_mlir, whose chip is a simulator; on a board
it is the chip.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import shared_models
from tests.npu.chips import mixed_networks
from tests.vendors.test_sophgo import PYTHON, pytestmark  # noqa: F401  # skips without tpu_mlir

import intaglio
from intaglio import dtypes
from intaglio.ir import Graph

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("package_runner.py")
PICTURES = 2  # each takes the chip models of BM1684X and BM1688 a second for every file
DIMS = {"mobilenetv2-12-qdq": {"dims": {"batch_size": 1}}}
NETWORKS = {
    "middle": mixed_networks.cpu_in_the_middle,
    "readers": mixed_networks.two_readers,
    "detector": mixed_networks.detector,
    "attention": mixed_networks.attention,
    "mobilenet": mixed_networks.mobilenet_v2_softmax,
    **{f"random{seed}": lambda seed=seed: mixed_networks.random_mixed(seed) for seed in range(6)},
}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("plugin") / "libsophgo.so"
    includes = [f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'build' / 'include'}"]
    source = ROOT / "csrc" / "plugins" / "sophgo.c"
    command = ["cc", "-std=c11", "-O2", "-shared", "-fPIC", *includes, source, "-o", path]
    subprocess.run([*map(str, command), "-ldl", "-lpthread"], check=True)
    return path


def environment(chip: str, folder: Path) -> dict[str, str]:
    """With the vendor's libraries, as on a machine with this chip."""
    where = "import importlib.util as u; print(u.find_spec('tpu_mlir').origin)"
    found = subprocess.run([str(PYTHON), "-c", where], capture_output=True, text=True, check=True)
    root = Path(found.stdout.strip()).parent
    names = {"libbmlib.so": "libbmlib_bm1684x.so.0", "libbmlib.so.0": "libbmlib_bm1684x.so.0"}
    if chip.startswith("bm"):
        names["libcmodel.so"] = f"libcmodel_{chip}.so"
    folder.mkdir()
    for name, of in names.items():
        (folder / name).symlink_to(root / "lib" / of)
    env = dict(os.environ, SET_CHIP_NAME=chip, TPUC_ROOT=str(root))
    return env | {"LD_LIBRARY_PATH": f"{folder}:{root / 'lib'}"}


def random_feeds(package: intaglio.Package) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found = {}
    for name, t in package.inputs.items():
        low, high = dtypes.limits(t.dtype)
        numbers = rng.integers(low, high + 1, (PICTURES, *t.shape))
        found[name] = numbers.astype(dtypes.numpy_of(t.dtype))
    return found


def compare(graphs: dict[str, Graph], feeds, chip: str, plugin: Path, folder: Path) -> None:
    """Run packages on the vendor's library and on our simulators: all bytes have to be equal."""
    packages, expected = folder / "packages", {}
    packages.mkdir()
    for name, graph in graphs.items():
        package = intaglio.compile(graph, chip, npu_code="chip")
        assert package.vendor_files(), name
        package.save(packages / f"{name}.itg")
        given = feeds(name, package)
        np.savez(packages / f"{name}.in.npz", **given)
        # the arithmetic of BM1688 is that of our own code, which is simulated faster
        ours = intaglio.compile(graph, chip) if chip == "bm1688" else package
        with intaglio.open(ours) as session:
            count = len(next(iter(given.values())))
            runs = [session.run({k: x[i] for k, x in given.items()}) for i in range(count)]
        expected[name] = {k: np.stack([r[k] for r in runs]) for k in runs[0]}
    command = [sys.executable, str(RUNNER), str(plugin), str(packages)]
    env = environment(chip, folder / "libraries")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name, outputs in expected.items():
        with np.load(packages / f"{name}.out.npz") as found:
            for key, want in outputs.items():
                assert found[key].tobytes() == want.tobytes(), f"{name}, {key}"


@pytest.mark.parametrize("chip", ["cv181x", "cv180x", "bm1684x", "bm1688"])
def test_the_vendors_library_gives_the_bytes_of_our_simulator(chip, plugin, tmp_path):
    graphs = {name: make() for name, make in NETWORKS.items()}
    compare(graphs, lambda name, package: random_feeds(package), chip, plugin, tmp_path)


@pytest.mark.parametrize("chip", ["cv181x", "bm1684x"])
def test_trained_detectors_and_a_classifier_on_pictures(chip, plugin, tmp_path):
    """UltraFace and YuNet with their boxes on the CPU; a MobileNetV2 in ten NPU parts."""
    folder = shared_models.SHARED / "models" / "onnx"
    names = ["ultraface_RFB-320", "yunet_n_320_320"]
    names += ["mobilenetv2-12-qdq"] if chip == "bm1684x" else []  # its u8 results are not CV181x's
    if missing := [name for name in names if not (folder / f"{name}.onnx").exists()]:
        pytest.skip(f"{folder / missing[0]}.onnx is not there: set INTAGLIO_SHARED")
    graphs, given = {}, {}
    for name in names:
        graph = intaglio.load(folder / f"{name}.onnx", **DIMS.get(name, {}))
        key, shape = graph.inputs[0].name, graph.inputs[0].shape
        pictures = [shared_models.photo(i, shape[3], shape[2]) for i in range(3)]
        floats = [np.float32(x.transpose(2, 0, 1)[None]) for x in pictures]
        if not name.startswith("yunet"):  # which reads numbers from 0 to 255
            floats = [(x - 127) / np.float32(128) for x in floats]
        if not name.endswith("qdq"):
            graph = intaglio.quantize(graph, [{key: x} for x in floats], target=chip)
        graphs[name], given[name] = graph, {key: np.stack(floats[:PICTURES])}
    compare(graphs, lambda name, package: given[name], chip, plugin, tmp_path)


@pytest.mark.parametrize("chip", ["cv181x", "bm1684x"])
def test_a_c_program_runs_it_on_the_vendors_library(chip, plugin, tmp_path):
    program = ROOT / "build" / "example_run"
    if not program.exists():
        pytest.skip("the C examples are not built")
    package = intaglio.compile(mixed_networks.detector(), chip, npu_code="chip")
    package.save(tmp_path / "m.itg")
    with intaglio.open(package) as session:
        zeros = {k: np.zeros(t.shape, dtypes.numpy_of(t.dtype)) for k, t in session.inputs.items()}
        boxes = session.run(zeros)["y2"]
    command, env = [program, tmp_path / "m.itg", plugin], environment(chip, tmp_path / "libraries")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"output y2: f32, \d+ bytes, largest is (\S+) at (\d+)", done.stdout)
    assert found is not None, done.stdout
    assert int(found[2]) == boxes.argmax()
    assert found[1] == f"{boxes.max():g}"


def test_a_file_for_another_chip_is_refused_in_a_line(plugin, tmp_path):
    package = intaglio.compile(mixed_networks.detector(), "bm1688", npu_code="chip")
    package.save(tmp_path / "m.itg")
    program = ROOT / "build" / "example_run"
    if not program.exists():
        pytest.skip("the C examples are not built")
    command = [program, tmp_path / "m.itg", plugin]
    env = environment("bm1684x", tmp_path / "libraries")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "libbmrt.so does not load the file" in last
    assert "the file is for bm1688: is this the chip" in last
