"""Our simulator on bmodels of Sophgo's own compiler: every byte that its runtime gives."""

from __future__ import annotations

import json
import subprocess
import time

import numpy as np
import pytest
from tests.npu.chips.k210 import mobilenets
from tests.shared_models import SHARED
from tests.vendors.test_cvi import RUNNER as CVI_RUNNER
from tests.vendors.test_sophgo import FIRMWARE, PYTHON, _installed, vendor

from benchmarks import sophgo_cycles
from intaglio import targets
from intaglio.npu.chips.bm1684x import bmodel, simulate
from intaglio.npu.chips.bm1684x.compile import compile_bmodel
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.simulate import Machine

IMPORTER = (
    "import importlib.util as u, sys; sys.exit(u.find_spec('onnxruntime_extensions') is None)"
)
CHIPS = ("bm1684x", "bm1688", "sg2260")


def _imports() -> bool:
    return _installed() and not subprocess.run([PYTHON, "-c", IMPORTER], check=False).returncode


pytestmark = pytest.mark.skipif(not _installed(), reason="tpu_mlir is missing: make test-vendors")


def network(path):
    """Convolutions, a depthwise one, a sigmoid, a residual, pools, a linear layer, softmax."""
    from onnx import TensorProto, helper, numpy_helper, save

    rng, constants, nodes = np.random.default_rng(0), [], []

    def add(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, list(inputs), [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def given(*shape):
        values = (rng.standard_normal(shape) * 0.2).astype(np.float32)
        constants.append(numpy_helper.from_array(values, f"c{len(constants)}"))
        return constants[-1].name

    same = {"pads": [1, 1, 1, 1]}
    x = add("Relu", add("Conv", "x", given(72, 3, 3, 3), given(72), strides=[2, 2], **same))
    y = add("Conv", x, given(72, 1, 3, 3), given(72), group=72, **same)
    y = add("Conv", add("Sigmoid", y), given(72, 72, 1, 1), given(72))
    y = add("MaxPool", add("Add", x, y), kernel_shape=[3, 3], strides=[2, 2], **same)
    y = add("Flatten", add("GlobalAveragePool", y))
    y = add("Softmax", add("Gemm", y, given(72, 10), given(10)), axis=1)
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, 3, 40, 40]), (y, [1, 10]))
    ]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    save(model, str(path))
    return path


def simulated(path, runs=1):
    """Our outputs for the inputs beside a file, and the seconds of the CPU for the best run."""
    machine = simulate.Machine(bmodel.read(path.read_bytes()))
    with np.load(path.with_suffix(".in.npz")) as given:
        feeds = {t.name: given[str(i)][0] for i, t in enumerate(machine.stage.inputs)}
    seconds = []
    for _ in range(runs):
        start = time.process_time()  # other processes disturb it less
        outputs = machine.run(feeds)
        seconds.append(time.process_time() - start)
    return list(outputs.values()), min(seconds)


def compare(folder, chip, runs=1):
    """Run all files of a folder in both, in ours so often; returns the times of each."""
    ran, times = vendor(folder, chip), {}
    for path in folder.glob("*.bmodel"):
        assert isinstance(ran[path.stem], float), (path.stem, ran[path.stem])
        ours, seconds = simulated(path, runs)
        with np.load(path.with_suffix(".out.npz")) as theirs:
            for i, a in enumerate(ours):
                assert a.tobytes() == theirs[str(i)][0].astype(a.dtype).tobytes(), path.stem
        times[path.stem] = ran[path.stem], seconds
    return times


@pytest.mark.skipif(not _imports(), reason="tpu_mlir cannot import ONNX without its extensions")
@pytest.mark.parametrize("chip", CHIPS)
def test_files_of_tpu_mlir(chip, tmp_path):
    model, folder = network(tmp_path / "small.onnx"), tmp_path / "files"
    folder.mkdir()
    picture = np.random.default_rng(1).standard_normal((1, 1, 3, 40, 40)).astype(np.float32)
    for kind in ("INT8", "F16", "F32"):
        work = tmp_path / kind
        work.mkdir()
        data, _ = sophgo_cycles.theirs(model, chip, work, kind)
        (folder / f"{kind}.bmodel").write_bytes(data)
        np.savez(folder / f"{kind}.in.npz", **{"0": picture})
    assert len(compare(folder, chip)) == 3


@pytest.mark.skipif(not _imports(), reason="tpu_mlir cannot import ONNX without its extensions")
@pytest.mark.parametrize("chip", ["cv181x", "cv180x"])
def test_bf16_files_of_tpu_mlir_for_cv18xx(chip, tmp_path):
    model, folder, work = network(tmp_path / "small.onnx"), tmp_path / "files", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    data, _ = sophgo_cycles.theirs(model, chip, work, "BF16")
    (folder / "small.cvimodel").write_bytes(data)
    pictures = np.random.default_rng(1).standard_normal((3, 1, 3, 40, 40)).astype(np.float32)
    np.savez(folder / "small.in.npz", **{"0": pictures})
    subprocess.run([PYTHON, CVI_RUNNER, chip, folder], capture_output=True, check=True)
    machine = Machine(cvimodel.read(data))
    (port,) = machine.inputs
    with np.load(folder / "small.out.npz") as theirs:
        for i, x in enumerate(pictures):
            (ours,) = machine.run({port.name: x.reshape(port.shape)}).values()
            assert ours.tobytes() == theirs["0"][i].tobytes()


@pytest.mark.skipif(not _imports(), reason="tpu_mlir cannot import ONNX without its extensions")
@pytest.mark.parametrize("chip", ["cv181x", "cv180x"])
@pytest.mark.parametrize("name", ["FastestDet", "mobilenet_v2_fp32"])
def test_int8_files_of_tpu_mlir_for_cv18xx_run_50_times_as_fast(name, chip, tmp_path):
    model, folder, work = SHARED / "models" / "onnx", tmp_path / "files", tmp_path / "work"
    if not model.exists():
        pytest.skip(f"{model} is not there: set INTAGLIO_SHARED")
    folder.mkdir()
    work.mkdir()
    data, _ = sophgo_cycles.theirs(model / f"{name}.onnx", chip, work, "INT8")
    (folder / "net.cvimodel").write_bytes(data)
    machine = Machine(cvimodel.read(data))
    (port,) = machine.inputs
    x = np.random.default_rng(1).standard_normal(port.shape).astype(np.float32)
    np.savez(folder / "net.in.npz", **{"0": x[None]})
    subprocess.run([PYTHON, CVI_RUNNER, chip, folder], capture_output=True, check=True)
    times = []
    for _ in range(8):  # the first expands the weights
        start = time.process_time()
        outputs = machine.run({port.name: x})
        times.append(time.process_time() - start)
    with np.load(folder / "net.out.npz") as theirs:
        for i, ours in enumerate(outputs.values()):
            assert ours.tobytes() == theirs[str(i)][0].astype(ours.dtype).tobytes()
    seconds = json.loads((folder / "report.json").read_text())["net"]
    assert seconds >= 50 * min(times), (seconds, times)


@pytest.mark.parametrize("chip", CHIPS)
def test_our_simulator_is_50_times_as_fast(chip, tmp_path):
    made = compile_bmodel(
        mobilenets.mobilenet_v2(), targets.find(chip).chip, firmware=FIRMWARE.get(chip)
    )
    made.save(tmp_path / "mv2.bmodel")
    (port,) = made.lowered.inputs
    picture = np.random.default_rng(1).integers(-128, 128, (1, *port.shape)).astype(np.int8)
    np.savez(tmp_path / "mv2.in.npz", **{"0": picture})
    ((theirs, ours),) = compare(tmp_path, chip, runs=6).values()  # the first prepares commands
    assert theirs >= 50 * ours, (theirs, ours)
