"""Twenty networks: equal in every byte after training, wherever they run.

The twin, the interpreter, sessions of every instruction set of this CPU, the simulators of NPUs,
and the C project that `deploy` writes.
"""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.export.deploy_nets import build
from tests.export.test_deploy import run

import intaglio
from intaglio import catalogue, cpu_isa, native, targets
from intaglio.ir import Graph
from intaglio.npu.chips.packaged import meaning

torch = pytest.importorskip("torch", reason="needs torch: pip install .[train]")

from intaglio.compress.qat import quantized_twin  # noqa: E402
from intaglio.compress.twin import verify  # noqa: E402
from intaglio.compress.twin.on_chip import last_integers  # noqa: E402
from intaglio.compress.twin.write_back import to_graph  # noqa: E402

pytestmark = pytest.mark.slow
torch.set_num_threads(1)
SHARED = Path(os.environ.get("INTAGLIO_SHARED", "../shared")) / "models"
BUILT = (
    "resnet18", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
    "efficientnet_lite0", "ghostnet", "squeezenet1_1", "shufflenet_v1_g3", "shufflenet_v2_x0_5",
    "googlenet", "mnasnet0_75", "peleenet", "densenet121",
)  # fmt: skip
FILES = (
    "tflite/pretrainedResnet.tflite", "tflite/kws_ref_model_float32.tflite",
    "tflite/ad01_fp32.tflite", "tflite/vww_96_float.tflite", "onnx/yunet_n_320_320.onnx",
    "onnx/FastestDet.onnx",
)  # fmt: skip
SIZE = 64  # of pictures


def load(name: str) -> Graph:
    if "/" not in name:
        return catalogue.build(name, "random", SIZE)
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not there; INTAGLIO_SHARED names the folder of models")
    return intaglio.load(path)


def feeds(graph: Graph, count: int, seed: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [
        {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
        for _ in range(count)
    ]


def trained(source: Graph, **options: object) -> Graph:
    """The graph after a step of training; the twin equals the interpreter."""
    twin = quantized_twin(source, feeds(source, 4, 0), fast=True, **options)
    twin.train()
    optimizer = torch.optim.AdamW(twin.parameter_groups(1e-3))
    made = twin(*[torch.from_numpy(a) for a in feeds(source, 1, 1)[0].values()])
    made = made if isinstance(made, tuple) else (made,)
    sum(t.square().mean() for t in made).backward()
    optimizer.step()
    twin.constrain()
    graph = to_graph(twin)
    assert verify(twin, graph, feeds(source, 1, 2)) > 0
    return graph


def integers_of(graph: Graph) -> Graph:
    """The graph up to the last quantised tensors: what has to be equal in every byte."""
    cut = Graph(graph.inputs, last_integers(graph))
    cut.output_names = [f"t{i}" for i in range(len(cut.outputs))]
    assert cut.outputs
    return cut


def isas() -> list[int]:
    """The instruction sets of this CPU: none, the first, the first two, and so on."""
    found = [0]
    for bits in cpu_isa.BITS.values():
        if bits & native.machine():
            found.append(found[-1] | bits)
    return found


@pytest.mark.parametrize("name", [*BUILT, *FILES])
def test_parity(name: str):
    source = load(name)
    cut = integers_of(trained(source, weights=4))
    (one,) = feeds(source, 1, 2)
    want = intaglio.interpret(cut, one)
    for isa in isas():
        with intaglio.open(intaglio.compile(cut, isa=isa)) as session:
            for key, array in session.run(one).items():
                assert array.tobytes() == want[key].tobytes(), (isa, key)


@pytest.mark.parametrize("chip", ["rk3588", "k230", "bm1684x", "cv181x"])
@pytest.mark.parametrize("name", [*BUILT, *FILES])
def test_parity_on_chips(name: str, chip: str):
    source = load(name)
    whole = integers_of(trained(source, target=chip))
    (one,) = feeds(source, 1, 2)
    want = intaglio.interpret(in_arithmetic_of(chip, whole), one)
    with intaglio.open(intaglio.compile(whole.copy(), target=chip)) as session:  # the simulator
        for key, array in session.run(one).items():
            assert array.tobytes() == want[key].tobytes(), key


def in_arithmetic_of(chip: str, graph: Graph) -> Graph:
    """CV18xx scales by multipliers and shifts."""
    return meaning(graph, targets.find(chip)) if chip.startswith("cv") else graph


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc: apt install gcc")
@pytest.mark.parametrize("name", [*BUILT, *FILES])
def test_parity_in_c(name: str, tmp_path: Path):
    source = load(name)
    cut = integers_of(trained(source, weights=4))
    intaglio.deploy(cut, "linux-riscv64", tmp_path, vectors=feeds(source, 2, 2))
    assert run(build(tmp_path, "-DITG_PLAIN")) == "vector 0: ok\nvector 1: ok\n0"


def test_the_example(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    example = Path(__file__).parents[2] / "examples" / "compress" / "digits.py"
    runpy.run_path(str(example), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    found = {line[:20].strip(): float(line[20:27]) for line in lines}
    assert found["4 bits, trained"] == found["compiled package"]
    assert found["4 bits, trained"] > 90 > found["pruned"]
