"""The module of CanMV's firmware for the K230: `kpu` runs models, `ai2d` prepares pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from intaglio.compat.nncase.ai2d import AI2D
from intaglio.compat.nncase.ai2d_pixels import Format, Method, Mode, PadMode
from intaglio.compat.nncase.refusals import NncaseError
from intaglio.compat.nncase.runtime_tensor import MemoryRange, RuntimeTensor
from intaglio.compat.nncase.simulator import Simulator

runtime_tensor = RuntimeTensor
ai2d = AI2D
ai2d_format, interp_method, interp_mode, pad_mode = Format, Method, Mode, PadMode


def from_numpy(array: Any) -> RuntimeTensor:
    """A tensor with the values of an array."""
    return RuntimeTensor.from_numpy(array)


class kpu:  # noqa: N801  # the firmware's name
    """Runs a kmodel, as the KPU of a board would."""

    def __init__(self) -> None:
        self._simulator = Simulator()

    def load_kmodel(self, model: Any) -> None:
        """Load a kmodel: its path, or its bytes."""
        if isinstance(model, str | os.PathLike):
            path = Path(model)
            if not path.is_file():
                raise NncaseError(f"load_kmodel: there is no file '{path}' (in {Path.cwd()})")
            model = path.read_bytes()
        self._simulator.load_model(model)

    def inputs_size(self) -> int:
        """The number of inputs."""
        return self._simulator.inputs_size

    def outputs_size(self) -> int:
        """The number of outputs."""
        return self._simulator.outputs_size

    def inputs_desc(self, index: int) -> MemoryRange:
        """Type, start and size of an input."""
        return self._simulator.get_input_desc(index)

    def outputs_desc(self, index: int) -> MemoryRange:
        """Type, start and size of an output."""
        return self._simulator.get_output_desc(index)

    def get_input_desc(self, index: int) -> MemoryRange:
        """`inputs_desc` by its other name."""
        return self.inputs_desc(index)

    def get_output_desc(self, index: int) -> MemoryRange:
        """`outputs_desc` by its other name."""
        return self.outputs_desc(index)

    def set_input_tensor(self, index: int, tensor: Any) -> None:
        """Set an input."""
        self._simulator.set_input_tensor(index, tensor)

    def get_input_tensor(self, index: int) -> RuntimeTensor:
        """The tensor of an input."""
        return self._simulator.get_input_tensor(index)

    def set_output_tensor(self, index: int, tensor: Any) -> None:
        """Let an output be written into a tensor."""
        self._simulator.set_output_tensor(index, tensor)

    def get_output_tensor(self, index: int) -> RuntimeTensor:
        """The tensor of an output."""
        return self._simulator.get_output_tensor(index)

    def run(self) -> None:
        """Run the model."""
        self._simulator.run()


def shrink_memory_pool() -> None:
    """Nothing to free: memory belongs to the tensors."""
