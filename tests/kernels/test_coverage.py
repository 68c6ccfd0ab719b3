"""The op catalogue and the kernel table agree: every op can run, and every kernel is tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import intaglio.npu.simulate.run  # noqa: F401  # an op that graphs know once it is imported
from intaglio import native
from intaglio.npu.layers import FLOAT_KINDS
from intaglio.npu.ops.relayout import RELAYOUTS
from intaglio.ops import REGISTRY
from intaglio.targets import find


def lowered_by_rule() -> set[str]:
    """The ops that the CPU's own rules lower to other ops."""
    return {op for rule in find("cpu").lower for op in rule.pattern.ops}


def test_every_op_runs_on_the_cpu() -> None:
    """An op has a kernel, or is lowered to other ops in general or by a rule of the CPU."""
    known = {*native.ops(), *lowered_by_rule()}
    known.add("npu.program")  # compiled for its chip, and then an op of the runtime
    chips = "k210.", "cv18xx.", "bm1684.", "sophgo."  # commands and files of chips
    chips += ("npu.float_", "rockchip.", "micro.")  # encoders of chips, and C projects for boards
    known |= {name for name in REGISTRY if name.startswith(chips)}
    known |= {*RELAYOUTS, *(f"npu.{kind}" for kind in FLOAT_KINDS)}  # only encoders of chips
    known.add("onnx.node")  # `optimize` keeps it for the file that it writes
    missing = [name for name, op in REGISTRY.items() if name not in known and op.lower is None]
    assert not missing, f"no kernel, lowering or rule for: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("name", native.ops())
def test_every_kernel_takes_the_attributes_of_its_op(name: str) -> None:
    assert name in REGISTRY, f"the runtime runs '{name}', which Python does not know"
    attrs = REGISTRY[name].attr_names
    unknown = [
        f.name
        for f in native.ops()[name].fields
        if f.name not in attrs and f.name.removeprefix("n_") not in attrs
    ]
    assert not unknown, f"{name} has no attribute {', '.join(unknown)}"


CONTROL = {name for name, op in native.ops().items() if op.flags & native.CONTROL}


@pytest.mark.parametrize("name", sorted({*native.ops()} - CONTROL))
def test_every_op_of_the_runtime_has_a_kernel_for_every_machine(name: str) -> None:
    """If a type has a vector kernel, it has one in plain C too."""
    kernels = [k for k in native.kernels() if k.op.name == name]
    assert kernels, f"{name} has no kernel"
    for k in kernels:
        plain = [p for p in kernels if p.isa == "scalar" and p.types in (k.types, "any")]
        assert plain, f"{name} {k.types} {k.isa}: no scalar kernel serves {k.types}"


def test_every_op_of_the_runtime_is_named_by_a_kernel_test() -> None:
    here = Path(__file__)
    places = [*here.parent.glob("test_*.py"), *(here.parents[1] / "npu").glob("*.py")]
    text = "".join(p.read_text() for p in places if p != here)
    named = set(re.findall(r'"((?:[cn]pu\.)?\w+)"', text))
    untested = set(native.ops()) - named - CONTROL - {"sophgo.run"}  # of a plug-in: tests/npu/chips
    assert not untested, f"no kernel test names: {', '.join(sorted(untested))}"
