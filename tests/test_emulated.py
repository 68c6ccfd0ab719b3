"""Packages for other machines' instruction sets, run by an emulator and compared with numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests import emulated
from tests.package import networks
from tests.shared_models import SHARED

import intaglio
from intaglio import dtypes
from intaglio.ir import Value

ROOT = Path(__file__).parents[1]
KERNELS = sorted(  # the tests that call kernels through tests.check
    path.stem.removeprefix("test_")
    for path in (ROOT / "tests/kernels").glob("test_*.py")
    if "tests.check import" in path.read_text()
)
MODELS = (
    *("tflite/kws_ref_model.tflite", "tflite/pretrainedResnet_quant.tflite"),
    *("tflite/vww_96_int8.tflite", "tflite/ad01_int8.tflite"),
    *("tflite/mobilenet_v1_0.25_224_quant.tflite", "tflite/mobilenet_v2_1.0_224_quant.tflite"),
    *("tflite/mcunet-320kb-1mb_imagenet.tflite", "tflite/deeplabv3_mnv2_dm05_pascal_quant.tflite"),
    *("tflite/efficientnet_lite0.tflite", "onnx/shufflenet-v2-12-int8.onnx"),
    *("onnx/mobilenetv2-12-qdq.onnx", "tflite/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29.tflite"),
)


@pytest.mark.parametrize("isa", ["neon", "armv7", "rvv"])
def test_a_package_for_another_machine_is_refused_here(isa: str):
    """Any machine compiles for any other; the file says which it is for."""
    package = intaglio.compile(networks.network(), isa=isa)
    assert package.isa == isa
    with pytest.raises(intaglio.IntaglioError, match=isa):
        intaglio.open(package.bytes)


@pytest.mark.slow
@pytest.mark.parametrize("machine", emulated.MACHINES)
def test_a_network_on_an_emulated_machine(machine: str):
    if why := emulated.why_not(machine):
        pytest.skip(why)
    graph = intaglio.load(networks.network())
    x = np.random.default_rng(0).normal(size=(1, 8, 24, 24)).astype(np.float32)
    want = intaglio.interpret(graph, {"x": x})
    package = intaglio.compile(graph, isa=emulated.MACHINES[machine].isa).bytes
    got = emulated.run(machine, package, [x], len(want))
    for g, (name, w) in zip(got, want.items(), strict=True):
        found = np.frombuffer(g, w.dtype).reshape(w.shape)
        np.testing.assert_allclose(found, w, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("machine", emulated.MACHINES)
@pytest.mark.parametrize("family", KERNELS)
def test_kernels_on_an_emulated_machine(machine: str, family: str):
    if why := emulated.why_not(machine):
        pytest.skip(why)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, f"tests/kernels/test_{family}.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "INTAGLIO_EMULATE": machine},
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("machine", emulated.MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_bytes_has_the_same_bits_on_an_emulated_machine(machine: str, name: str):
    if why := emulated.why_not(machine):
        pytest.skip(why)
    path = SHARED / "models" / name
    if not path.exists():
        pytest.skip(f"{path} is missing; INTAGLIO_SHARED is the folder that has it")
    graph = intaglio.load(path, dims={"batch_size": 1} if "qdq" in name else {})
    feeds = {x.name: numbers(x) for x in graph.inputs}
    with intaglio.open(intaglio.compile(graph).bytes) as session:
        want = session.run(feeds)
    package = intaglio.compile(graph, isa=emulated.MACHINES[machine].isa).bytes
    got = emulated.run(machine, package, list(feeds.values()), len(want))
    for g, (output, w) in zip(got, want.items(), strict=True):
        found = np.frombuffer(g, w.dtype).reshape(w.shape)
        if w.dtype == np.float32:  # of a softmax or a product in floats
            np.testing.assert_allclose(found, w, rtol=2e-5, atol=2e-6, err_msg=output)
        else:
            np.testing.assert_array_equal(found, w, output)


def numbers(x: Value) -> np.ndarray:
    random, kind = np.random.default_rng(1), dtypes.numpy_of(x.type.dtype)
    if kind.kind == "f":
        return random.normal(size=x.type.shape).astype(kind)
    low, high = (-128, 128) if x.type.dtype == "i8" else (0, 256)
    return random.integers(low, high, x.type.shape).astype(kind)
