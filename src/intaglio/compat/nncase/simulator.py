"""Running kmodels: nncase's Simulator, and the Interpreter of its runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.compat.nncase import kmodel
from intaglio.compat.nncase.refusals import LOG, refusing
from intaglio.compat.nncase.runtime_tensor import INPUT, OUTPUT, MemoryRange, RuntimeTensor
from intaglio.errors import BadInput
from intaglio.ir import Array, Type
from intaglio.symint import bound


class ModelTensors:
    """The tensors of a model, and its runs."""

    def __init__(self) -> None:
        self._model: kmodel.Model | None = None
        self._given: list[RuntimeTensor | None] = []
        self._found: list[RuntimeTensor | None] = []
        self._kept: list[RuntimeTensor | None] = []  # set_output_tensor

    def _take(self, model: kmodel.Model) -> None:
        self._model = model
        self._given = [None] * len(model.inputs)
        self._found = [None] * len(model.outputs)
        self._kept = [None] * len(model.outputs)

    @property
    def inputs_size(self) -> int:
        """The number of inputs."""
        return len(self._loaded.inputs)

    @property
    def outputs_size(self) -> int:
        """The number of outputs."""
        return len(self._loaded.outputs)

    @refusing
    def get_input_tensor(self, index: int) -> RuntimeTensor:
        """The tensor of an input: zeros until it is set."""
        t = self._type("input", index)
        if (given := self._given[index]) is None:
            given = self._given[index] = _zeros(t)
        return given

    @refusing
    def set_input_tensor(self, index: int, tensor: Any) -> None:
        """Set an input."""
        t, name = self._type("input", index), list(self._loaded.inputs)[index]
        if isinstance(tensor, np.ndarray):
            tensor = RuntimeTensor.from_numpy(tensor)
        if not isinstance(tensor, RuntimeTensor):
            raise BadInput(
                f"the tensor is {type(tensor).__name__}; give nncase.RuntimeTensor.from_numpy(...)"
            )
        _check(f"input {index} '{name}'", t, tensor.to_numpy())
        self._given[index] = tensor

    @refusing
    def run(self) -> None:
        """Run the model with the inputs that are set."""
        names = list(self._loaded.inputs)
        missing = [n for n, t in zip(names, self._given, strict=True) if t is None]
        if missing:
            raise BadInput(
                f"input {names.index(missing[0])} '{missing[0]}' is not set; call "
                "set_input_tensor first"
            )
        feeds = {n: t.to_numpy() for n, t in zip(names, self._given, strict=True) if t is not None}
        fitted = {n: _shaped(feeds[n], t) for n, t in self._loaded.inputs.items()}
        found = self._loaded.run(fitted)
        for i, name in enumerate(self._loaded.outputs):
            made = RuntimeTensor(_plain(found[name]))
            if (kept := self._kept[i]) is not None:
                made.copy_to(kept)
                made = kept
            self._found[i] = made

    @refusing
    def get_output_tensor(self, index: int) -> RuntimeTensor:
        """The tensor of an output: zeros until the model ran."""
        t = self._type("output", index)
        if (found := self._found[index]) is None:
            found = self._found[index] = self._kept[index] or _zeros(t)
        return found

    @refusing
    def set_output_tensor(self, index: int, tensor: Any) -> None:
        """Let an output be written into a tensor."""
        self._type("output", index)
        if not isinstance(tensor, RuntimeTensor):
            raise BadInput(f"the tensor is {type(tensor).__name__}; give a RuntimeTensor")
        self._kept[index] = self._found[index] = tensor

    @property
    def _loaded(self) -> kmodel.Model:
        if self._model is None:
            raise BadInput("no model is loaded; call load_model first")
        return self._model

    def _type(self, side: str, index: int) -> Type:
        types = self._loaded.inputs if side == "input" else self._loaded.outputs
        return list(types.values())[_place(side, index, types)]


class Simulator(ModelTensors):
    """Runs a kmodel on this machine."""

    @refusing
    def load_model(self, model: Any) -> None:
        """Load the bytes of a kmodel.

        Deviation: reads packages of this tool and kmodels of the K210 (versions 3 and 5). Kmodels
        that the vendor wrote for other chips are refused: they hold commands of a closed NPU.
        """
        self._take(kmodel.load(model))

    @refusing
    def get_input_desc(self, index: int) -> MemoryRange:
        """Type, start and size of an input."""
        return _range(list(self._loaded.inputs.values()), _place("input", index, self._given), 0)

    @refusing
    def get_output_desc(self, index: int) -> MemoryRange:
        """Type, start and size of an output."""
        return _range(list(self._loaded.outputs.values()), _place("output", index, self._found), 1)

    @refusing
    def get_input_shape(self, index: int) -> list[int]:
        """The shape of an input; of a model with buckets the largest."""
        return list(_largest(self._type("input", index)))

    @refusing
    def get_output_shape(self, index: int) -> list[int]:
        """The shape of an output; of a model with buckets the largest."""
        return list(_largest(self._type("output", index)))

    def set_profiling(self, enabled: Any = 1) -> None:
        """Accepted.

        Deviation: nothing is printed; `intaglio bench` and `intaglio perf` measure and predict.
        """
        if enabled:
            LOG.warning("set_profiling: use `intaglio perf` for the time of every layer")


class Interpreter(Simulator):
    """The Interpreter of `nncaseruntime`: a Simulator that takes the path of a kmodel too."""

    @refusing
    def load_model(self, model: Any) -> None:
        """Load a kmodel: its path, or its bytes."""
        if isinstance(model, str | os.PathLike):
            path = Path(model)
            if not path.is_file():
                raise BadInput(f"there is no file '{path}' (in {Path.cwd()}); check the path")
            model = path.read_bytes()
        self._take(kmodel.load(model))


def simulated_inputs(simulator: Simulator) -> dict[str, Type]:
    """The inputs of the loaded model, by name."""
    return dict(simulator._loaded.inputs)


def _place(side: str, index: Any, known: Any) -> int:
    if isinstance(index, bool) or not isinstance(index, int | np.integer):
        raise BadInput(f"{side} {index!r}: give the number of an {side}, from 0")
    if not 0 <= index < len(known):
        raise BadInput(f"{side} {index}: the model has {len(known)} {side}s, from 0")
    return int(index)


def _largest(t: Type) -> tuple[int, ...]:
    return tuple(map(bound, t.shape))


def _zeros(t: Type) -> RuntimeTensor:
    return RuntimeTensor(np.zeros(_largest(t), dtypes.numpy_of(t.dtype)))


def _range(types: list[Type], index: int, location: int) -> MemoryRange:
    def size(t: Type) -> int:
        return int(np.prod(_largest(t))) * np.dtype(dtypes.numpy_of(t.dtype)).itemsize

    kind = np.dtype(dtypes.numpy_of(types[index].dtype))
    start = sum(size(t) for t in types[:index])
    return MemoryRange((INPUT, OUTPUT)[location], kind, start, size(types[index]))


def _check(what: str, t: Type, array: Array) -> None:
    """BadInput if an array cannot be an input of this type."""
    kind = np.dtype(dtypes.numpy_of(t.dtype))
    if array.dtype != kind:
        raise BadInput(
            f"{what} is {array.dtype}, the model takes {kind}; convert it with .astype(np.{kind})"
        )
    if t.fixed and array.shape != t.shape and array.size != t.size:
        raise BadInput(
            f"{what} has shape {list(array.shape)}, the model takes {list(t.shape)}; resize it"
        )
    if t.fixed and [d for d in array.shape if d != 1] != [d for d in t.shape if d != 1]:
        LOG.warning(
            f"{what} has shape {list(array.shape)}, the model takes {list(t.shape)}; the elements "
            "are taken in their order; transpose them if the layout differs"
        )


def _shaped(array: Array, t: Type) -> Array:
    """As many elements in another shape are accepted, as nncase does."""
    return array.reshape(t.shape) if t.fixed else array


def _plain(array: Array) -> Array:
    if array.dtype.kind not in "iubf":
        return np.ascontiguousarray(array, np.float32)
    return np.ascontiguousarray(array)
