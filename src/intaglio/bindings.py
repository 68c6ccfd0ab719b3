"""Inputs and outputs that stay bound to a session: runs without arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intaglio import dlpack, dtypes
from intaglio.after_fork import Turn
from intaglio.arguments import described
from intaglio.array_addresses import address_of
from intaglio.errors import BadInput
from intaglio.ir import Array, Type
from intaglio.native_session import Sized


class Binding:
    """Arrays that a session reads and writes in place: `session.bind(inputs, outputs)` makes it.

    Write into `inputs`, call `run`, read `outputs`. The arrays stay the same ones.
    """

    def __init__(
        self, turn: Turn, sized: Sized, inputs: dict[str, Array], outputs: dict[str, Array]
    ):
        self.inputs, self.outputs = inputs, outputs
        self._turn, self._sized, self._native = turn, sized, sized.native
        sources, results = self._native.address_lists()
        for i, a in zip(self._native.input_numbers, inputs.values(), strict=True):
            sources[i] = address_of(a)
        for i, a in zip(self._native.output_numbers, outputs.values(), strict=True):
            results[i] = address_of(a)
        self._call = self._native.prepared(sources, results)

    def run(self) -> dict[str, Array]:
        """Run the model on what lies in `inputs`; returns `outputs`.

        If data decides how large an output is, the result has a view of the part that was written.
        """
        with self._turn.lock:
            self._native.run_at(self._sized, self._call)
            if not self._sized.varies:
                return self.outputs
            shapes = self._native.output_shapes()
        return {
            name: a.reshape(-1)[: int(np.prod(shape))].reshape(shape)
            for (name, a), shape in zip(self.outputs.items(), shapes, strict=True)
        }


def inputs_in_place(types: Mapping[str, Type], given: Mapping[str, Any]) -> dict[str, Array]:
    """The caller's arrays, which must be usable without a copy; new ones for names that lack."""
    if not isinstance(given, Mapping):
        raise BadInput(f"inputs is {described(given)}; it maps names of inputs to arrays")
    arrays = {n: in_place(f"inputs['{n}']", a) for n, a in given.items()}
    for name, t in types.items():
        if name not in arrays and t.fixed:
            arrays[name] = np.zeros(t.shape, dtypes.numpy_of(t.dtype))
    return arrays


def in_place(what: str, given: Any) -> Array:
    """An array over the memory of `given`; BadInput if it cannot be used as it is."""
    a = dlpack.as_array(what, given) if dlpack.offers(given) else given
    if not isinstance(a, np.ndarray) or not a.flags.c_contiguous or not a.flags.aligned:
        raise BadInput(
            f"{what} is {described(given)}, which cannot be used in place; give a C-contiguous "
            "array, such as np.ascontiguousarray(x)"
        )
    return np.asarray(a)
