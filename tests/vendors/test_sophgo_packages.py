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
from tests.npu.chips import mixed_networks
from tests.vendors.test_sophgo import PYTHON, pytestmark  # noqa: F401  # skips without tpu_mlir

import intaglio
from intaglio import dtypes

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("package_runner.py")
PICTURES = 2  # each takes the chip models of BM1684X and BM1688 a second for every file
NETWORKS = {
    "middle": mixed_networks.cpu_in_the_middle,
    "readers": mixed_networks.two_readers,
    "detector": mixed_networks.detector,
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


def feeds_of(package: intaglio.Package) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    found = {}
    for name, t in package.inputs.items():
        low, high = dtypes.limits(t.dtype)
        numbers = rng.integers(low, high + 1, (PICTURES, *t.shape))
        found[name] = numbers.astype(dtypes.numpy_of(t.dtype))
    return found


@pytest.mark.parametrize("chip", ["cv181x", "cv180x", "bm1684x", "bm1688"])
def test_the_vendors_library_gives_the_bytes_of_our_simulator(chip, plugin, tmp_path):
    folder, expected = tmp_path / "packages", {}
    folder.mkdir()
    for name, make in NETWORKS.items():
        graph = make()
        package = intaglio.compile(graph, chip, npu_code="chip")
        assert package.vendor_files(), name
        package.save(folder / f"{name}.itg")
        feeds = feeds_of(package)
        np.savez(folder / f"{name}.in.npz", **feeds)
        # the arithmetic of BM1688 is that of our own code, which is simulated faster
        ours = intaglio.compile(graph, chip) if chip == "bm1688" else package
        with intaglio.open(ours) as session:
            runs = [session.run({k: x[i] for k, x in feeds.items()}) for i in range(PICTURES)]
        expected[name] = {k: np.stack([r[k] for r in runs]) for k in runs[0]}
    command = [sys.executable, str(RUNNER), str(plugin), str(folder)]
    env = environment(chip, tmp_path / "libraries")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    for name, outputs in expected.items():
        with np.load(folder / f"{name}.out.npz") as found:
            for key, want in outputs.items():
                assert found[key].tobytes() == want.tobytes(), f"{name}, {key}"


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
