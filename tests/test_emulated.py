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

ROOT = Path(__file__).parents[1]
FLOATS = ("gemm", "winograd", "depthwise", "normalize", "reduce", "recurrent", "attention")
BYTES = (  # as the tests of kernels call them
    *("int8", "int8_tiles", "quantized", "qgemm", "qwinograd", "qcells"),
    *("quantize", "first_layers", "weight_zeros"),
)
MODELS = ("kws_ref_model", "pretrainedResnet_quant", "vww_96_int8", "ad01_int8")


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
@pytest.mark.parametrize("family", FLOATS + BYTES)
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
    path = SHARED / "models" / "tflite" / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"{path} is missing; INTAGLIO_SHARED is the folder that has it")
    graph = intaglio.load(path)
    (x,) = graph.inputs
    low, high = (-128, 128) if x.type.dtype == "i8" else (0, 256)
    shape = tuple(x.type.shape)
    data = np.random.default_rng(1).integers(low, high, shape).astype(dtypes.numpy_of(x.type.dtype))
    with intaglio.open(intaglio.compile(graph).bytes) as session:
        want = session.run({x.name: data})
    package = intaglio.compile(graph, isa=emulated.MACHINES[machine].isa).bytes
    got = emulated.run(machine, package, [data], len(want))
    for g, (output, w) in zip(got, want.items(), strict=True):
        np.testing.assert_array_equal(np.frombuffer(g, w.dtype).reshape(w.shape), w, output)
