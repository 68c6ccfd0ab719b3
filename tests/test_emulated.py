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

import intaglio

ROOT = Path(__file__).parents[1]
FLOATS = ("gemm", "winograd", "depthwise", "normalize", "reduce", "recurrent", "attention")
BYTES = ("int8", "quantized", "qgemm", "qcells", "quantize", "first_layers", "weight_zeros")
KERNELS = (*FLOATS, *BYTES)


def test_a_package_for_arm_is_refused_here():
    """Any machine compiles for any other; the file says which it is for."""
    package = intaglio.compile(networks.network(), isa="neon")
    assert package.isa == "neon"
    with pytest.raises(intaglio.IntaglioError, match="neon"):
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
