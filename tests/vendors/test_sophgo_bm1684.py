"""bmodel files for BM1684 in Sophgo's own runtime and chip model, equal to our interpreter.

`make test-vendors` installs tpu_mlir into an environment of its own, which needs Python 3.10.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests import shared_models
from tests.npu.chips.bm1684 import networks
from tests.vendors.test_sophgo import _installed, difference, vendor

import intaglio
from intaglio import dtypes, targets
from intaglio.npu.chips.bm1684.compile import compile_bmodel
from intaglio.npu.chips.bm1684.simulate import Machine

CHIP = "bm1684"
pytestmark = pytest.mark.skipif(
    not _installed(), reason="tpu_mlir is not installed: run `make test-vendors`"
)


def compare(graphs: dict, folder: Path, pictures: int = 1) -> None:
    """Compare the vendor's simulator, ours and the interpreter for all networks."""
    expected = {}
    for name, graph in graphs.items():
        made = compile_bmodel(graph, targets.find(CHIP).chip)
        made.save(folder / f"{name}.bmodel")
        rng, feeds = np.random.default_rng(1), {}
        for p in made.lowered.inputs:
            low, high = dtypes.limits(p.dtype)
            kind = dtypes.numpy_of(p.dtype)
            feeds[p.name] = rng.integers(low, high + 1, (pictures, *p.shape)).astype(kind)
        expected[name] = outputs(made, feeds, folder / f"{name}.in.npz")
    ran = vendor(folder, CHIP)
    wrong = [w for n, e in expected.items() if (w := difference(folder, n, e, ran[n]))]
    assert not wrong, f"{len(wrong)} of {len(expected)} differ: {wrong[:5]}"


def outputs(made, feeds: dict[str, np.ndarray], path: Path) -> list[np.ndarray]:
    """Write the inputs; returns what interpreter and simulator compute, which is the same."""
    np.savez(path, **{str(i): x for i, x in enumerate(feeds.values())})
    machine, runs = Machine(made.model), []
    for i in range(len(next(iter(feeds.values())))):
        one = {k: x[i] for k, x in feeds.items()}
        found, simulated = intaglio.interpret(made.graph, one), machine.run(one)
        assert all(np.array_equal(found[k], simulated[k]) for k in found)
        runs.append(list(found.values()))
    return [np.stack(each) for each in zip(*runs, strict=True)]


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_random_layers_are_equal(first, tmp_path):
    compare({f"layer{s}": networks.layer(s) for s in range(first, first + 60)}, tmp_path)


def test_random_networks_are_equal(tmp_path):
    nets = {f"net{s}": networks.network(s) for s in range(50)}
    nets |= {f"table{s}": networks.tables(s) for s in range(20)}
    nets |= {f"gate{s}": networks.gates(s) for s in range(20)}
    compare(nets, tmp_path)


@pytest.mark.parametrize(
    "name", ["mobilenet_v1", "mobilenet_v2", "resnet18", "resnet50", "yolov8n"]
)
def test_whole_networks_are_equal(name, tmp_path, monkeypatch):
    compare({name: networks.whole(name, monkeypatch)}, tmp_path, pictures=3)


def test_trained_mobilenet_is_equal_on_pictures(tmp_path):
    path = shared_models.SHARED / "models" / "onnx" / "mobilenet_v2_fp32.onnx"
    if not path.exists():
        pytest.skip(f"{path} is not there: set INTAGLIO_SHARED")
    graph = intaglio.load(path)
    photos = [shared_models.torch_photo(i, 224) for i in range(10)]
    samples = [{graph.inputs[0].name: x} for x in photos]
    made = compile_bmodel(
        intaglio.quantize(graph, samples, target=CHIP, accuracy=None), targets.find(CHIP).chip
    )
    made.save(tmp_path / "net.bmodel")
    (port,) = made.lowered.inputs
    low, high = dtypes.limits(port.dtype)
    numbers = [np.clip(np.rint(x / np.float32(port.scale)) + port.zero, low, high) for x in photos]
    feeds = {port.name: np.stack(numbers).astype(dtypes.numpy_of(port.dtype))}
    expected = outputs(made, feeds, tmp_path / "net.in.npz")
    assert not difference(tmp_path, "net", expected, vendor(tmp_path, CHIP)["net"])
