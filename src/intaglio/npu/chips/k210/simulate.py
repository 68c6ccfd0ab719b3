"""Simulates kmodels: the KPU exactly, and the part for the chip's CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from intaglio import dtypes
from intaglio.errors import BadFile, BadInput, Unsupported
from intaglio.ir import Array
from intaglio.npu.chips.k210.kpu import Kpu, Ports
from intaglio.npu.chips.k210.model import Function, Kmodel, Port
from intaglio.npu.chips.k210.stackvm import StackVm


class Machine:
    """A chip that has loaded a kmodel."""

    def __init__(self, model: Kmodel):
        self.model, self.function = model, model.main
        self.units: list[Kpu | StackVm] = []
        for module in model.modules:
            if module.kind == "k210":
                self.units.append(Kpu(module))
            elif module.kind == "stackvm":
                self.units.append(StackVm(module, self._call))
            else:
                raise Unsupported(
                    f"kmodel: module kind '{module.kind}' is not simulated; only k210 and stackvm"
                )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of one inference."""
        ports: Ports = {}
        for name, port in zip(input_names(self.model), self.function.inputs, strict=True):
            ports["input", port.range.start] = _checked(inputs, name, port)
        for port in self.function.outputs:
            if port.range.place == "output":
                ports["output", port.range.start] = np.zeros(port.range.size, np.uint8)
        unit = self.units[self.model.entry[0]]
        if isinstance(unit, StackVm):
            unit.start()
        elif self.model.version == 3:
            unit.give_first(self.function, ports)
        unit.run(self.function, ports)
        found = zip(output_names(self.model), self.function.outputs, strict=True)
        return {name: unit.read(port, ports).reshape(port.shape) for name, port in found}

    def _call(self, module: int, function: int, sources: list[Array], targets: list[Array]) -> None:
        """Execute a function of another module, as stackvm code asks for it."""
        if module >= len(self.units) or function >= len(self.model.modules[module].functions):
            raise BadFile(
                f"kmodel: code calls function {function} of module {module}; none is there"
            )
        called, unit = self.model.modules[module].functions[function], self.units[module]
        if not isinstance(unit, Kpu):
            raise Unsupported(
                "kmodel: code calls a stackvm function; only k210 functions are called"
            )
        unit.run(called, _ports(called, sources, targets))


def _ports(function: Function, sources: list[Array], targets: list[Array]) -> Ports:
    ports: Ports = {}
    sides = (("input", function.inputs, sources), ("output", function.outputs, targets))
    for place, wanted, given in sides:
        if len(wanted) != len(given):
            raise BadFile(f"kmodel: a call has {len(given)} {place}s; {len(wanted)} are needed")
        for port, view in zip(wanted, given, strict=True):
            if view.nbytes < port.range.size:
                raise BadFile(
                    f"kmodel: a call gives {view.nbytes} bytes to an {place}; "
                    f"{port.range.size} are needed"
                )
            ports[place, port.range.start] = view
    return ports


def _checked(inputs: Mapping[str, Array], name: str, port: Port) -> Array:
    if name not in inputs:
        raise BadInput(f"input '{name}' is missing")
    want, given = dtypes.numpy_of(port.range.dtype), np.asarray(inputs[name])
    if given.dtype != want or given.shape != port.shape:
        raise BadInput(
            f"input '{name}' is {given.dtype}{list(given.shape)}; "
            f"{np.dtype(want)}{list(port.shape)} is needed"
        )
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def input_names(model: Kmodel) -> list[str]:
    """The names of the inputs; input0, input1, ... where the file has none."""
    return _names(model, "inputs", len(model.main.inputs))


def output_names(model: Kmodel) -> list[str]:
    """The names of the outputs; output0, output1, ... where the file has none."""
    return _names(model, "outputs", len(model.main.outputs))


def _names(model: Kmodel, ports: str, count: int) -> list[str]:
    known = model.about.get(ports, [])
    if len(known) == count:
        return [str(port["name"]) for port in known]
    return [f"{ports[:-1]}{i}" for i in range(count)]
