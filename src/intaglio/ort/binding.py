"""IOBinding: arrays of the caller that a session reads and writes in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.arguments import described
from intaglio.errors import did_you_mean
from intaglio.ir import Array
from intaglio.ort.element_types import numpy_type
from intaglio.ort.errors import BadValue
from intaglio.ort.values import OrtValue, at_address, require_cpu

if TYPE_CHECKING:
    from intaglio.ort.session import InferenceSession


class IOBinding:
    """Inputs and outputs of a session's next runs: `session.run_with_iobinding(binding)`."""

    def __init__(self, session: InferenceSession):
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._wanted: dict[str, Array | None] = {}  # outputs; None: the run makes the array
        self._results: dict[str, Array] = {}

    # ---- inputs --------------------------------------------------------------------------------
    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Let runs read this array."""
        self._bind_input(name, np.asarray(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Let runs read the array at this address, which the caller keeps alive."""
        require_cpu(device_type, device_id)
        self._bind_input(name, at_address(name, buffer_ptr, numpy_type(element_type), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Let runs read this tensor."""
        self._bind_input(name, _array(name, ortvalue))

    def _bind_input(self, name: str, array: Array) -> None:
        known = self._session._input_names
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise BadValue(f"no input is called '{name}'; the model has {', '.join(known)}{hint}")
        self._inputs[name] = array

    # ---- outputs -------------------------------------------------------------------------------
    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in a new array, or written into the buffer at this address."""
        require_cpu(device_type, device_id)
        if buffer_ptr is None:
            self._bind_output(name, None)
        elif element_type is None or shape is None:
            raise BadValue(f"the buffer of '{name}' needs an element type and a shape; give both")
        else:
            array = at_address(name, buffer_ptr, numpy_type(element_type), shape)
            self._bind_output(name, array)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Let runs write an output into this tensor."""
        self._bind_output(name, _array(name, ortvalue))

    def _bind_output(self, name: str, array: Array | None) -> None:
        self._session._check_outputs([name])
        self._wanted[name] = array

    # ---- running -------------------------------------------------------------------------------
    def run(self) -> None:
        """Run the session with what is bound."""
        if not self._wanted:
            raise BadValue("no output is bound; ask for one with bind_output(name)")
        own = {n: a for n, a in self._wanted.items() if a is not None}
        made = self._session._run_into(self._inputs, own)
        self._results = {n: made[n] for n in self._wanted}

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return [OrtValue(a) for a in self._results.values()]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """`get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs of the last run."""
        return [a.copy() for a in self._results.values()]

    def synchronize_inputs(self) -> None:
        """Nothing to do: the CPU reads inputs in place."""

    def synchronize_outputs(self) -> None:
        """Nothing to do: outputs are written when the run ends."""

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        """Forget all outputs."""
        self._wanted, self._results = {}, {}


def _array(name: str, value: Any) -> Array:
    if not isinstance(value, OrtValue):
        raise BadValue(f"'{name}' is bound to {described(value)}; give an OrtValue")
    return value.numpy()
